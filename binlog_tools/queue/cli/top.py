"""``beanstalk top``."""

import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

import click

from beanstalk_twisted.client.addresses import Address
from beanstalk_twisted.client.stats import ServerStats
from beanstalk_twisted.printable import escape
from beanstalk_twisted.programs import INTERRUPTS
from binlog_tools.console.groups import FiniteRange
from binlog_tools.console.output import Output
from binlog_tools.console.wording import BARS, told
from binlog_tools.queue.cli import options
from binlog_tools.queue.watching import (
    HELP,
    SORTS,
    History,
    Keys,
    Row,
    Snapshot,
    View,
    colour_of,
    coloured,
    filtered,
    keyboard,
    ordered,
    pressed,
    rows,
    take_snapshot,
    total,
)

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
def top(
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
                _sleep,
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
            typed = keys.wait(left_s) if keys is not None else _slept(left_s)
            if typed:
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
        shown = ordered(filtered(self._found, self._view.filter), self._view.sort)
        titles = [*TITLES, *(["last looks"] if self._has_charts(size.columns) else [])]
        cells = [(escape(row.tube), self._cells(row, size.columns)) for row in shown]
        names = [("tube", titles), *cells]
        all_of_it = ("all", self._cells(total(shown), size.columns, is_total=True))
        title, *table, last = layout([*names, all_of_it], size.columns)
        body = list(zip(table, map(colour_of, shown), strict=True))
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


def replication_words(server: ServerStats) -> str:
    """Of a replicated queue: its role, its standbys, and what the stream or they lack."""
    if "replication-role" not in server:
        return ""
    standbys = str(server["replication-standbys"]).split()
    words = f"  {server['replication-role']}, {told(len(standbys), 'standby', 'standbys')}"
    if waiting := str(server.get("replication-standbys-not-in-sync", "")).split():
        words += f", not in sync: {', '.join(waiting)}"
    if behind := int(str(server["replication-messages-behind"])):
        words += f", up to {told(behind, 'message')} behind"
    if records := int(str(server["replication-lag-records"])):
        since_s = server["replication-lag-seconds"]
        words += f", {told(records, 'record')} not replicated since {since_s} s"
    if gone := str(server.get("replication-copies-behind", "")).split():
        words += f", the stream lacks {', '.join(gone)}"
    return words


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return True


def _slept(seconds: float) -> str:
    time.sleep(seconds)
    return ""


def _watch(
    address: Address, interval: float, count: int | None,
    show: Callable[[Snapshot, Sequence[Row]], None], wait: Callable[[float], bool],
) -> None:  # fmt: skip
    before: Snapshot | None = None
    done = 0
    with options.connected(address) as queue:
        while True:
            now = take_snapshot(queue, time.monotonic())
            show(now, rows(now, before))
            sys.stdout.flush()
            before, done = now, done + 1
            if done == count or not wait(interval):
                return


def _print(output: Output, now: Snapshot, found: Sequence[Row], view: View) -> None:
    for row in ordered(filtered(found, view.filter), view.sort):
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
