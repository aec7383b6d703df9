"""``beanstalk top``: what its screen shows, is told by keys, and remembers."""

import os
import select
import shutil
import signal
import sys
import termios
import time
import tty
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

import click

from beanstalk_twisted.client.addresses import Address
from beanstalk_twisted.client.stats import ServerStats, TubeStats
from beanstalk_twisted.printable import escape
from beanstalk_twisted.programs import INTERRUPTS
from binlog_tools.console.groups import FiniteRange
from binlog_tools.console.output import Output
from binlog_tools.console.signals import SIGNALLED
from binlog_tools.console.wording import BARS, told
from binlog_tools.queue.asking import all_tubes
from binlog_tools.queue.cli import options
from binlog_tools.queue.cli.draining import replication_words

if TYPE_CHECKING:
    pass


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
    raise SystemExit(SIGNALLED + number)


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


def shown(found: Iterable[Row], view: View) -> list[Row]:
    """Those that the filter lets through in their order, equal ones by name."""
    by_name = sorted((row for row in found if view.filter in row.tube), key=lambda row: row.tube)
    if view.sort == "tube":
        return by_name
    field = {"puts": "puts_s", "deletes": "deletes_s"}.get(view.sort, view.sort)
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


ENTER: Final = "\x1b[?1049h\x1b[?25l"
"""The terminal's other screen, without a cursor."""

LEAVE: Final = "\x1b[?25h\x1b[?1049l"

HOME: Final = "\x1b[H"
TO_END_OF_LINE: Final = "\x1b[K"
TO_END: Final = "\x1b[J"

TITLES: Final = (
    "ready", "reserved", "delayed", "buried", "waiting", "put/s", "deleted/s", "pause",
)  # fmt: skip
NAME_WIDTH: Final = 24
"""Characters of a tube's name at most, where there is room."""
LEAST_NAME: Final = 8
"""And at least, where there is none."""
GAP: Final = 3
"""Blanks before a number at most."""

PROMPT_LINE: Final = 1
"""Where the keys are told, and a filter is typed."""

CHART_COLUMNS: Final = 100
"""Columns of a terminal that has room for a chart of each tube."""


@click.command("top")
@options.server
@click.option(
    "-i", "--interval", type=FiniteRange(0.1, 3600), default=2.0, show_default=True,
    metavar="S", help="Seconds between two looks.",
)  # fmt: skip
@click.option("-n", "--count", type=click.IntRange(1), help="End after so many looks.")
@click.option(
    "--sort", type=click.Choice(SORTS), default="ready", show_default=True,
    help="By this; names go up, numbers down.",
)  # fmt: skip
@click.option("--filter", "part", default="", help="Only tubes whose names have this in them.")
@options.as_json
def top_command(
    address: Address, interval: float, count: int | None, sort: str, part: str, is_json: bool
) -> None:  # fmt: skip
    """Watch the tubes: how many jobs they have, how many come and go in a second.

    On a terminal until q or Ctrl-C, ? shows the keys; with --count, the last look stays there.  In
    a pipe each look is a line for each tube, with tabs between; rates that are not known yet are
    '-'.
    """
    output = Output(is_json)
    view = View(sort, part)
    try:
        if output.is_terminal and not is_json:
            _watch_live(address, interval, count, view)
        else:
            _watch(
                address, interval, count, lambda now, found: _print(output, now, found, view),
                lambda seconds: not time.sleep(seconds),  # type: ignore[func-returns-value]
            )  # fmt: skip
    except KeyboardInterrupt:
        INTERRUPTS.have_come = False  # It is how one ends it.


def _watch_live(address: Address, interval: float, count: int | None, view: View) -> None:
    """On the terminal's other screen; when the looks are over, the last one is left on its own."""
    screen = Screen(address, view, Output().can_show(BARS))
    sys.stdout.write(ENTER)
    try:
        with keyboard() as keys:
            _watch(address, interval, count, screen.show, lambda s: screen.wait(keys, s))
    finally:
        sys.stdout.write(LEAVE)
        sys.stdout.flush()
    click.echo("\n".join(screen.lines))


class Screen:
    """:ivar lines: as they are left on the terminal, without colours."""

    def __init__(self, address: Address, view: View, has_bars: bool) -> None:
        self.lines: list[str] = []
        self._address = address
        self._view = view
        self._history = History()
        self._has_bars = has_bars
        self._has_colours = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def show(self, now: Snapshot, found: Sequence[Row]) -> None:
        self._now, self._found = now, found
        self._history.note([*found, total(found)])
        self._draw()

    def wait(self, keys: Keys | None, seconds: float) -> bool:
        """Do what keys say, for so long, and say whether to go on."""
        ends_s = time.monotonic() + seconds
        while not self._view.is_over and (left_s := ends_s - time.monotonic()) > 0:
            if keys is None:
                time.sleep(left_s)
            elif typed := keys.wait(left_s):
                self._view = pressed(self._view, typed)
                self._draw()
        return not self._view.is_over

    def _draw(self) -> None:
        lines = self._picture()
        self.lines = [line for line, _ in lines]
        self.lines[PROMPT_LINE : PROMPT_LINE + 1] = [""]
        drawn = (coloured(line, colour if self._has_colours else "") for line, colour in lines)
        sys.stdout.write(HOME + "\r\n".join(line + TO_END_OF_LINE for line in drawn) + TO_END)
        sys.stdout.flush()

    def _picture(self) -> list[tuple[str, str]]:
        """The lines of the screen, no wider and no more than it has room for, and their colours."""
        size = shutil.get_terminal_size()
        if self._view.shows_help:
            return [(line[: size.columns], "") for line in HELP[: size.lines]]
        rows_shown = shown(self._found, self._view)
        titles = [*TITLES, *(["last looks"] if self._has_charts(size.columns) else [])]
        cells = [(escape(row.tube), self._cells(row, size.columns)) for row in rows_shown]
        names = [("tube", titles), *cells]
        all_of_it = ("all", self._cells(total(rows_shown), size.columns, is_total=True))
        title, *table, last = layout([*names, all_of_it], size.columns)
        body = list(zip(table, map(colour_of, rows_shown), strict=True))
        room = max(0, size.lines - 5)
        if len(body) > room:
            body = [*body[:room], (f"and {len(body) - room} more", "")]
        lines = [(self._head(), "bold"), (self._prompt(), ""), (title, "bold"), *body, (last, "")]
        return [(line[: size.columns], colour) for line, colour in lines]

    def _has_charts(self, columns: int) -> bool:
        return self._has_bars and columns >= CHART_COLUMNS

    def _cells(self, row: Row, columns: int, is_total: bool = False) -> list[str]:
        cells = [*_cells(row)[:-1], ""] if is_total else _cells(row)
        if self._has_charts(columns):
            cells.append("" if is_total else self._history.chart(row.tube))
        return cells

    def _prompt(self) -> str:
        view = self._view
        if view.is_typing:
            return f"/{escape(view.filter)}_"
        only = f"only {escape(view.filter)}  " if view.filter else ""
        return f"{only}by {view.sort}  ? help  q end"

    def _head(self) -> str:
        server, address = self._now.server, self._address
        where = f"{address.host}:{address.port}" if address.port else address.host
        draining = "  DRAINING" if server.get("draining") else ""
        return escape(
            f"{where}  {server.version}  up {server.uptime} s  "
            f"{told(server.current_connections, 'connection')}  "
            f"{server.current_waiting} waiting{draining}{replication_words(server)}"
        )


def _watch(
    address: Address, interval: float, count: int | None,
    show: Callable[[Snapshot, Sequence[Row]], None], wait: Callable[[float], bool],
) -> None:  # fmt: skip
    before: Snapshot | None = None
    done = 0
    with options.connected(address) as queue:
        while True:
            now = Snapshot(time.monotonic(), queue.stats(), all_tubes(queue))
            show(now, rows(now, before))
            sys.stdout.flush()
            before, done = now, done + 1
            if done == count or not wait(interval):
                return


def _print(output: Output, now: Snapshot, found: Sequence[Row], view: View) -> None:
    for row in shown(found, view):
        if output.is_json:
            output.document({"uptime": now.server.uptime, **row._asdict()})
        else:
            output.row([row.tube, *_cells(row)])


def _cells(row: Row) -> list[str]:
    rates = ["-" if rate is None else f"{rate:.1f}" for rate in (row.puts_s, row.deletes_s)]
    counts = (row.ready, row.reserved, row.delayed, row.buried, row.waiting)
    return [*map(str, counts), *rates, str(row.pause_s)]


def layout(rows: Sequence[tuple[str, Sequence[str]]], columns: int) -> list[str]:
    """Lay out a table: names, which may be cut, and numbers, which stay.

    :param columns: of the terminal; with less than about 70 the last numbers do not fit.
    """
    widths = [max(map(len, column)) for column in zip(*(cells for _, cells in rows), strict=True)]
    name_width = min(NAME_WIDTH, max(len(name) for name, _ in rows))
    room = columns - name_width - sum(widths)
    gap = min(GAP, max(1, room // len(widths)))
    name_width = max(LEAST_NAME, min(name_width, columns - sum(widths) - gap * len(widths)))
    lines = []
    for name, cells in rows:
        short = name if len(name) <= name_width else name[: name_width - 1] + "…"
        right = (cell.rjust(width + gap) for cell, width in zip(cells, widths, strict=True))
        lines.append(short.ljust(name_width) + "".join(right))
    return lines
