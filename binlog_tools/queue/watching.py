"""What the screen of ``beanstalk top`` is told by keys, and what it remembers and colours."""

import os
import select
import signal
import sys
import termios
import tty
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from beanstalk_twisted.client.stats import ServerStats, TubeStats
from binlog_tools.console.wording import BARS
from binlog_tools.queue.asking import all_tubes

if TYPE_CHECKING:
    from beanstalk_twisted.client.sync import Client


class Snapshot(NamedTuple):
    """The statistics of a server at ``at_s``, by a clock that only runs forward."""

    at_s: float
    server: ServerStats
    tubes: Sequence[TubeStats]


class Row(NamedTuple):
    """A tube, or all of them.

    :ivar puts_s: jobs put in a second since the look before; None in the first.
    :ivar deletes_s: jobs deleted in a second.
    :ivar pause_s: seconds until a pause ends; 0 without one.
    """

    tube: str
    ready: int
    reserved: int
    delayed: int
    buried: int
    waiting: int
    puts_s: float | None
    deletes_s: float | None
    pause_s: int


def take_snapshot(queue: "Client", at_s: float) -> Snapshot:
    return Snapshot(at_s, queue.stats(), all_tubes(queue))


def rows(now: Snapshot, before: Snapshot | None) -> list[Row]:
    seconds = 0.0 if before is None else now.at_s - before.at_s
    old = {} if before is None else {tube.name: tube for tube in before.tubes}
    return [_row(tube, old.get(tube.name), seconds) for tube in now.tubes]


def _row(tube: TubeStats, old: TubeStats | None, seconds: float) -> Row:
    puts, deletes = (0, 0) if old is None else (old.total_jobs, old.cmd_delete)
    return Row(
        tube.name, tube.current_jobs_ready, tube.current_jobs_reserved, tube.current_jobs_delayed,
        tube.current_jobs_buried, tube.current_waiting, _rate(tube.total_jobs, puts, seconds),
        _rate(tube.cmd_delete, deletes, seconds), tube.pause_time_left,
    )  # fmt: skip


def total(of: Sequence[Row]) -> Row:
    puts = [row.puts_s for row in of if row.puts_s is not None]
    deletes = [row.deletes_s for row in of if row.deletes_s is not None]
    return Row(
        "all", sum(row.ready for row in of), sum(row.reserved for row in of),
        sum(row.delayed for row in of), sum(row.buried for row in of),
        sum(row.waiting for row in of), sum(puts) if puts else None,
        sum(deletes) if deletes else None, 0,
    )  # fmt: skip


def _rate(now: int, begun: int, seconds: float) -> float | None:
    """A counter that has gone back belongs to a tube, or a server, that was new in between."""
    if seconds <= 0:
        return None
    return (now - begun if now >= begun else now) / seconds


MAX_KEYS: Final = 1024
"""Bytes that are taken at once: what is pasted."""

ENDS: Final = (signal.SIGTERM, signal.SIGHUP)
"""What would end the process and leave the terminal without echo."""


class Keys:
    def __init__(self, fd: int, signals: int) -> None:
        """:param signals: a file descriptor with something to read when a signal has come."""
        self._fd = fd
        self._signals = signals

    def wait(self, seconds: float) -> str:
        """:return: what was pressed; nothing when the time is up, or a signal has come.
        :raise KeyboardInterrupt: nothing will ever be pressed again.
        """
        ready, _, _ = select.select([self._fd, self._signals], [], [], seconds)
        if self._signals in ready:
            os.read(self._signals, MAX_KEYS)
        if self._fd not in ready:
            return ""
        typed = os.read(self._fd, MAX_KEYS)
        if not typed:
            raise KeyboardInterrupt
        return typed.decode(errors="ignore")


@contextmanager
def keyboard() -> Iterator[Keys | None]:
    """Have keys come at once and unseen, for as long as the block lasts.  Ctrl-C is what it was.

    :return: None if stdin is no terminal.
    """
    if not sys.stdin.isatty():
        yield None
        return
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    handlers = {number: signal.signal(number, _end) for number in ENDS}
    try:
        tty.setcbreak(fd)
        with _signals() as signals:
            yield Keys(fd, signals)
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextmanager
def _signals() -> Iterator[int]:
    """Give what has something to read when a signal has come: one that comes just before `select`
    begins to wait does not interrupt it.
    """
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    before = signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
    try:
        yield reads
    finally:
        signal.set_wakeup_fd(before)
        os.close(reads)
        os.close(writes)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


SORTS: Final = ("tube", "ready", "reserved", "delayed", "buried", "waiting", "puts", "deletes")

LOOKS: Final = 12
"""Looks that a chart shows: 24 s of the default interval, in as many columns."""

MAX_FILTER: Final = 200
"""Characters of a filter: the longest name of a tube."""

ENTER_KEYS: Final = ("\r", "\n")
ESCAPE: Final = "\x1b"
RUBOUTS: Final = ("\x7f", "\b")

HELP: Final = (
    "q        end",
    "s, S     sort by the next column, by the one before",
    "/        show only tubes whose names have this in them; Enter ends it, Esc shows all",
    "?        this help, and back",
    "",
    "red      there are buried jobs",
    "yellow   the tube is paused",
    "cyan     jobs are ready, and nobody waits for them",
    "chart    ready jobs in the last looks, the highest of them as a full bar",
)


class View(NamedTuple):
    """:ivar filter: part of the names of tubes; empty for all.
    :ivar is_typing: whether keys are of the filter.
    """

    sort: str = "ready"
    filter: str = ""
    is_typing: bool = False
    shows_help: bool = False
    is_over: bool = False


def pressed(view: View, keys: str) -> View:
    """:param keys: that were pressed one after the other; such as send more than one character are
    passed over.
    """
    if keys.startswith(ESCAPE) and len(keys) > 1:
        return view
    for key in keys:
        view = _typed(view, key) if view.is_typing else _chosen(view, key)
    return view


def _typed(view: View, key: str) -> View:
    if key in ENTER_KEYS:
        return view._replace(is_typing=False)
    if key == ESCAPE:
        return view._replace(is_typing=False, filter="")
    if key in RUBOUTS:
        return view._replace(filter=view.filter[:-1])
    if key.isprintable() and len(view.filter) < MAX_FILTER:
        return view._replace(filter=view.filter + key)
    return view


def _chosen(view: View, key: str) -> View:
    if key == "q":
        return view._replace(is_over=True)
    if key == "?":
        return view._replace(shows_help=not view.shows_help)
    if key == "/":
        return view._replace(is_typing=True, shows_help=False)
    if key == ESCAPE:
        return view._replace(filter="", shows_help=False)
    step = {"s": 1, "S": -1}.get(key, 0)
    return view._replace(sort=SORTS[(SORTS.index(view.sort) + step) % len(SORTS)])


def filtered(found: Iterable[Row], part: str) -> list[Row]:
    return [row for row in found if part in row.tube]


def ordered(found: Iterable[Row], sort: str) -> list[Row]:
    """Equal ones by name."""
    by_name = sorted(found, key=lambda row: row.tube)
    if sort == "tube":
        return by_name
    field = {"puts": "puts_s", "deletes": "deletes_s"}.get(sort, sort)
    return sorted(by_name, key=lambda row: getattr(row, field) or 0, reverse=True)


class History:
    """How many ready jobs each tube had in the last looks."""

    def __init__(self) -> None:
        self._ready: dict[str, deque[int]] = {}

    def note(self, found: Sequence[Row]) -> None:
        """Remember a look; tubes that are gone are forgotten."""
        before, self._ready = self._ready, {}
        for row in found:
            looks = before.get(row.tube, deque(maxlen=LOOKS))
            self._ready.setdefault(row.tube, looks).append(row.ready)

    def chart(self, tube: str) -> str:
        """The last looks at a tube, as wide as all are; empty looks are blanks."""
        return chart(self._ready.get(tube, ())).rjust(LOOKS)


def chart(numbers: Iterable[int]) -> str:
    """A bar for each number, the largest as a full one; a blank for zero."""
    found = list(numbers)
    most = max(found, default=0)
    return "".join(BARS[(n * len(BARS) - 1) // most] if n else " " for n in found)


COLOURS: Final = {"red": 31, "yellow": 33, "cyan": 36, "bold": 1}
"""Of a terminal: parameters of SGR (ECMA-48)."""


def colour_of(row: Row) -> str:
    if row.buried:
        return "red"
    if row.pause_s:
        return "yellow"
    return "cyan" if row.ready and not row.waiting and not row.reserved else ""


def coloured(line: str, colour: str) -> str:
    return f"\x1b[{COLOURS[colour]}m{line}\x1b[0m" if colour else line
