"""
Putting many jobs through one connection: windows of them, and which reply belongs to which row.

A window is sent at once and then answered row by row, in order.  A server that drains or has no
room refuses rows, not windows: those it took are done, and only the others are sent again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Protocol

from binlog_tools.client import Connection, Lost, tube_request
from binlog_tools.spark.definitions.errors import SinkError
from binlog_tools.spark.writing.job_rows import Puts
from binlog_tools.spark.writing.options import WINDOW_BYTES

FIRST_PAUSE_S: Final = 0.1
LAST_PAUSE_S: Final = 5.0
"""How long to wait for a server that refuses: it doubles in between."""

DEFAULT_TUBE: Final = b"default"
"""The one that a new connection uses (protocol.txt, "Tubes")."""

_USE: Final = -1
"""In the place of a row, where the reply is that to a `use`."""

REFUSALS: Final = (b"DRAINING\r\n", b"OUT_OF_MEMORY\r\n")
"""The row was not taken; it may be, later."""


class Clock(Protocol):
    """Where time comes from, in seconds; `time` is one."""

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float, /) -> None: ...


Note = Callable[[int, Sequence[int]], None]
"""Told what is in the queue: all rows below a number, and these."""


def windows(runs: Iterable[Puts], most_jobs: int) -> Iterator[Puts]:
    """Cut rows into windows, which are sent at once, each within `WINDOW_BYTES` or of one row."""
    for puts in runs:
        start = size = 0
        for at, request in enumerate(puts.requests):
            own = len(request)
            if at > start and (size + own > WINDOW_BYTES or at - start >= most_jobs):
                yield puts.part(start, at)
                start, size = at, 0
            size += own
        if start < len(puts.requests):
            yield puts.part(start)


class Sender:
    """
    Puts rows.

    :ivar put: how many it has put.
    :ivar before: how many were there, by their unique keys.
    :ivar buried: of those, how many the server has buried at once.
    :ivar refused: how often a row was refused.
    """

    def __init__(self, line: Connection, retry_s: float, clock: Clock, note: Note) -> None:
        """
        :param retry_s: how long a server may refuse without taking a single row.
        :param note: called after each answer.
        """
        self.put = self.before = self.buried = self.refused = 0
        self._line = line
        self._retry_s = retry_s
        self._clock = clock
        self._note = note
        self._tube = DEFAULT_TUBE
        self._window = Puts((), ())
        self._left: Sequence[int] = ()
        self._expected: list[int] = []

    def send(self, coming: Iterator[Puts]) -> None:
        """
        Put all rows.  While the server works on a window, the next one is made.

        :raise SinkError: not all are in the queue; it says which are.
        """
        window = next(coming, None)
        while window is not None:
            self._window, self._left = window, range(len(window.requests))
            self._say()
            try:
                window = next(coming, None)
            finally:
                # Also when the rows come to a bad end: what was sent is counted.
                self._finish()

    def _say(self) -> None:
        request: list[bytes] = []
        self._expected = []
        for at in self._left:
            tube = self._window.tubes[at]
            if tube != self._tube:
                request.append(tube_request(b"use", tube))
                self._expected.append(_USE)
                self._tube = tube
            request.append(self._window.requests[at])
            self._expected.append(at)
        try:
            self._line.send(b"".join(request))
        except Lost as problem:
            raise self._lost(problem, list(self._left)) from None

    def _finish(self) -> None:
        pause_s, since_s = FIRST_PAUSE_S, self._clock.monotonic()
        while True:
            before = len(self._left)
            why = self._hear()
            if not self._left:
                return
            if len(self._left) < before:
                pause_s, since_s = FIRST_PAUSE_S, self._clock.monotonic()
            elif self._clock.monotonic() - since_s >= self._retry_s:
                raise self._gave_up(why)
            self._clock.sleep(pause_s)
            pause_s = min(2 * pause_s, LAST_PAUSE_S)
            self._say()

    def _hear(self) -> bytes:
        """:return: how the server has refused rows, if it has."""
        refused: list[int] = []
        heard, why = 0, b""
        try:
            for at in self._expected:
                line = self._line.line()
                if not (self._take(line) if at != _USE else line.startswith(b"USING ")):
                    if at == _USE or line not in REFUSALS:
                        unknown = self._settle(heard, refused)
                        raise self._misunderstood(line, at, unknown)
                    refused.append(at)
                    why = line
                heard += 1
        except Lost as problem:
            raise self._lost(problem, self._settle(heard, refused)) from None
        self._settle(heard, refused)
        return why

    def _take(self, line: bytes) -> bool:
        if line.startswith(b"INSERTED "):
            # A third word is the state of the job that had the key.
            if line.count(b" ") > 1:
                self.before += 1
            else:
                self.put += 1
            return True
        if line.startswith(b"BURIED "):
            self.put += 1
            self.buried += 1
            return True
        return False

    def _settle(self, heard: int, refused: list[int]) -> list[int]:
        """
        What the replies so far say.

        :return: rows of the window without an answer.
        """
        self.refused += len(refused)
        unknown = [at for at in self._expected[heard:] if at != _USE]
        self._left = refused + unknown
        first, left = self._window.first, set(self._left)
        rows = first + min(left, default=len(self._window.requests))
        beyond = range(rows, first + len(self._window.requests))
        self._note(rows, [row for row in beyond if row - first not in left])
        return unknown

    # How it fails.

    def _numbers(self, places: Sequence[int]) -> str:
        return spans([self._window.first + at for at in places])

    def _lost(self, problem: Lost, unknown: list[int]) -> SinkError:
        behind = self._window.first + len(self._window.requests)
        refused = [at for at in self._left if at not in unknown]
        outside = f"; rows {self._numbers(refused)} were refused" if refused else ""
        return SinkError(
            "SINK_CONNECTION_LOST",
            f"{self._line.address}: {problem.strerror}; of this partition, rows "
            f"{self._numbers(unknown)} were sent and not answered: each of them is in the queue or "
            f"is not{outside}; the others before row {behind} are in the queue, and none from "
            f"there on",
        )

    def _gave_up(self, why: bytes) -> SinkError:
        return SinkError(
            "SINK_REFUSED",
            f"{self._line.address} has answered {why.decode().strip()} for {self._retry_s:g} s; of "
            f"this partition, rows {self._numbers(self._left)} and those from "
            f"{self._window.first + len(self._window.requests)} on are not in the queue, all "
            f"others are; write again when the server takes jobs, or raise retryTimeout",
        )

    def _misunderstood(self, line: bytes, at: int, unknown: list[int]) -> SinkError:
        what = "a `use`" if at == _USE else f"the `put` of row {self._window.first + at}"
        return SinkError(
            "SINK_REPLY",
            f"{self._line.address} has answered {line.strip().decode('ascii', 'replace')!r} to "
            f"{what} of this partition; rows {self._numbers(unknown)} may be in the queue or not, "
            f"those before them are, and none behind them",
        )


def spans(rows: Sequence[int]) -> str:
    """Ascending row numbers as people read them: ``3-7, 9``."""
    found: list[list[int]] = []
    for row in rows:
        if found and found[-1][1] == row - 1:
            found[-1][1] = row
        else:
            found.append([row, row])
    return ", ".join(f"{first}-{last}" if first < last else str(first) for first, last in found)
