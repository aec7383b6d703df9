"""One partition of rows into one server: what a task of a write does."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa

from beanstalk_twisted.client.addresses import Address
from binlog_tools.client import Connection, Lost, announced, connect, parse_stats, tube_request
from binlog_tools.spark.definitions.errors import SinkError
from binlog_tools.spark.writing.job_rows import JobRows, Puts
from binlog_tools.spark.writing.options import WINDOW_BYTES, SinkOptions
from binlog_tools.spark.writing.progress import Progress

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
    """Puts rows through one connection, window by window; the replies of a window come in its
    order.

    A server that drains or has no room refuses rows, not windows: only those are sent again.

    :ivar put: how many it has put.
    :ivar before: how many were there, by their unique keys.
    :ivar buried: of those, how many the server has buried at once.
    :ivar refused: how often a row was refused.
    """

    def __init__(self, line: Connection, retry_s: float, clock: Clock, note: Note) -> None:
        """:param retry_s: how long a server may refuse without taking a single row.
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
        """Put all rows.  While the server works on a window, the next one is made.

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
        """What the replies so far say.

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


class Tally(NamedTuple):
    """What a task has done, or all of them: ``put`` and ``before`` are together all rows.

    :ivar before: were put by an earlier attempt, or were there by their unique keys.
    :ivar buried: of those put, how many the server has buried at once, for want of memory.
    :ivar refused: how often a row was refused before it was taken.
    """

    rows: int = 0
    put: int = 0
    before: int = 0
    buried: int = 0
    refused: int = 0

    def __add__(self, other: Any) -> "Tally":
        return Tally(*map(sum, zip(self, other, strict=True)))


def put_partition(
    batches: Iterable[pa.RecordBatch], rows: JobRows, options: SinkOptions, partition: int,
    folder: str = "", clock: Clock = time, attempt: int = 0,
) -> Tally:  # fmt: skip
    """Put all rows of a partition.

    :param folder: of the files of progress, empty: none is written.
    :param attempt: how often Spark has tried this task before.
    :raise SinkError: not all are in the queue.
    """
    server = options.servers[partition % len(options.servers)]
    progress = Progress(folder, partition, str(server)) if folder else None
    history = _history(attempt, progress)
    try:
        with _connected(server, options.timeout_s, history) as connection:
            puts = _Puts(rows, batches, _most_bytes(connection, history))
            _refuse_unless_known(connection, rows.tags, history)
            runs = progress.fresh(puts) if progress else puts
            note = progress.note if progress else lambda rows, others: None
            sender = Sender(connection, options.retry_s, clock, note)
            sender.send(windows(runs, options.window_jobs))
        if progress:
            progress.finish()
    finally:
        if progress:
            progress.close()
    before = sender.before + (progress.before if progress else 0)
    return Tally(puts.rows, sender.put, before, sender.buried, sender.refused)


class _Puts:
    def __init__(self, rows: JobRows, batches: Iterable[pa.RecordBatch], most_bytes: int) -> None:
        self.rows = 0
        self._meaning = rows
        self._batches = batches
        self._most_bytes = most_bytes

    def __iter__(self) -> Iterator[Puts]:
        for batch in self._batches:
            puts = self._meaning.puts(batch, self.rows, self._most_bytes)
            self.rows += batch.num_rows
            yield puts


def _history(attempt: int, progress: Progress | None) -> str:
    """What was put, in words, if this attempt comes to nothing."""
    if progress is not None:
        put = f"{progress.before} rows of it are in the queue" if progress.before else "none before"
        return f"nothing was put of this partition by this attempt, {put}"
    if attempt:
        return (f"nothing was put by this attempt, number {attempt + 1} of this task; those before "
                f"it may have put rows")  # fmt: skip
    return "nothing was put of this partition by this attempt, the first one of this run"


def _connected(server: Address, timeout_s: float, history: str) -> Connection:
    try:
        return connect(server, timeout_s)
    except Lost as problem:
        raise SinkError(
            "SINK_NO_SERVER",
            f"{server}: {_why(problem, server)}; {history}. Is the server there, and can the "
            f"executors reach it?",
        ) from None


def _why(problem: Lost, server: Address) -> str:
    """Say what it is, with the file if it is about one of TLS."""
    is_file = server.tls is not None and problem.filename in server.tls
    return f"{problem.filename}: {problem.strerror}" if is_file else f"{problem.strerror}"


def _most_bytes(connection: Connection, history: str) -> int:
    try:
        connection.send(b"stats\r\n")
        reply = connection.reply()
    except Lost as problem:
        why = f"{problem.strerror}"
    else:
        most = parse_stats(reply.data).get(b"max-job-size", b"")
        if most.isdigit():
            return int(most)
        why = f"it answers {str(reply)!r} to stats"
    raise SinkError(
        "SINK_NO_SERVER", f"{connection.address}: {why}; {history}. Is this a beanstalkd?"
    )


def _refuse_unless_known(connection: Connection, tags: Mapping[str, bytes], history: str) -> None:
    """A server that does not know a tag would take the body for commands.

    :param tags: columns of tags, and their words.
    """
    if not tags:
        return
    try:
        words = announced(connection)
    except Lost as problem:
        raise SinkError(
            "SINK_NO_SERVER", f"{connection.address}: {problem.strerror}; {history}"
        ) from None
    for column, word in tags.items():
        if f"put {word.decode()}" not in words:
            raise SinkError(
                "SINK_NO_TAG",
                f"{connection.address}: the server does not announce 'put {word.decode()}', which "
                f"the column `{column}` needs; {history}. Upgrade the server, or drop the column",
            )
