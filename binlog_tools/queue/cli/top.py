"""
``beanstalk top``.
"""

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

import click

from beanstalk_twisted.printable import escape
from binlog_tools.console.output import Output
from binlog_tools.console.wording import told
from binlog_tools.queue.addresses import Address
from binlog_tools.queue.cli import options
from binlog_tools.queue.rates import Row, Snapshot, rows, take_snapshot, total

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

SORTS: Final = ("tube", "ready", "reserved", "delayed", "buried", "waiting", "puts", "deletes")


@click.command("top")
@options.server
@options.interval(least_s=0.1, default_s=2.0)
@click.option("-n", "--count", type=click.IntRange(1), help="End after so many looks.")
@click.option(
    "--sort",
    type=click.Choice(SORTS),
    default="ready",
    show_default=True,
    help="By this; names go up, numbers down.",
)
@options.as_json
def top(address: Address, interval: float, count: int | None, sort: str, is_json: bool) -> None:
    """
    Watch the tubes: how many jobs they have, how many come and go in a second.

    On a terminal until Ctrl-C; with --count, the last look stays there.  In a pipe each look is a
    line for each tube, with tabs between; rates that are not known yet are '-'.
    """
    output = Output(is_json)
    try:
        if output.is_terminal and not is_json:
            _watch_live(address, interval, count, sort)
        else:
            _watch(address, interval, count, lambda now, found: _print(output, now, found, sort))
    except KeyboardInterrupt:
        return


def _watch_live(address: Address, interval: float, count: int | None, sort: str) -> None:
    """
    On the terminal's other screen; when the looks are over, the last one is left on its own.
    """
    lines: list[str] = []

    def draw(now: Snapshot, found: Sequence[Row]) -> None:
        lines[:] = _picture(address, now, found, sort)
        sys.stdout.write(HOME + "\r\n".join(line + TO_END_OF_LINE for line in lines) + TO_END)

    sys.stdout.write(ENTER)
    try:
        _watch(address, interval, count, draw)
    finally:
        sys.stdout.write(LEAVE)
        sys.stdout.flush()
    click.echo("\n".join(lines))


def _watch(
    address: Address, interval: float, count: int | None,
    show: Callable[[Snapshot, Sequence[Row]], None],
) -> None:  # fmt: skip
    before: Snapshot | None = None
    done = 0
    with options.connected(address) as queue:
        while True:
            now = take_snapshot(queue, time.monotonic())
            show(now, rows(now, before))
            sys.stdout.flush()
            before, done = now, done + 1
            if done == count:
                return
            time.sleep(interval)


def ordered(found: Sequence[Row], sort: str) -> list[Row]:
    """
    Rows in the order asked for; equal ones by name.
    """
    by_name = sorted(found, key=lambda row: row.tube)
    if sort == "tube":
        return by_name
    field = {"puts": "puts_s", "deletes": "deletes_s"}.get(sort, sort)
    return sorted(by_name, key=lambda row: getattr(row, field) or 0, reverse=True)


def _print(output: Output, now: Snapshot, found: Sequence[Row], sort: str) -> None:
    for row in ordered(found, sort):
        if output.is_json:
            output.document({"uptime": now.server.number("uptime"), **row._asdict()})
        else:
            output.row([row.tube, *_cells(row)])


def _cells(row: Row) -> list[str]:
    rates = ["-" if rate is None else f"{rate:.1f}" for rate in (row.puts_s, row.deletes_s)]
    counts = (row.ready, row.reserved, row.delayed, row.buried, row.waiting)
    return [*map(str, counts), *rates, str(row.pause_s)]


def _picture(address: Address, now: Snapshot, found: Sequence[Row], sort: str) -> list[str]:
    """
    The lines of the screen, no wider and no more than it has room for.
    """
    size = shutil.get_terminal_size()
    server = now.server
    where = f"{address.host}:{address.port}" if address.port else address.host
    draining = "  DRAINING" if server["draining"] == "true" else ""
    head = (
        f"{where}  {server['version']}  up {server['uptime']} s  "
        f"{told(server.number('current-connections'), 'connection')}  "
        f"{server['current-waiting']} waiting{draining}"
    )
    rows_of = ((escape(row.tube), _cells(row)) for row in ordered(found, sort))
    lines_of = [("tube", TITLES), *rows_of]
    *table, last = layout([*lines_of, ("all", [*_cells(total(found))[:-1], ""])], size.columns)
    lines = [escape(head), "", *table]
    if len(lines) > size.lines - 2:
        hidden = len(lines) - (size.lines - 2)
        lines = [*lines[: size.lines - 2], f"and {hidden} more"]
    lines.append(last)
    return [line[: size.columns] for line in lines]


def layout(rows: Sequence[tuple[str, Sequence[str]]], columns: int) -> list[str]:
    """
    Lay out a table: names, which may be cut, and numbers, which stay.

    :param columns: of the terminal; with less than about 70 the last numbers do not fit.
    """
    widths = [max(map(len, column)) for column in zip(*(cells for _, cells in rows), strict=True)]
    name_width = min(NAME_WIDTH, max(len(name) for name, _ in rows))
    room = columns - name_width - sum(widths)
    gap = min(GAP, max(1, room // len(widths)))
    name_width = max(LEAST_NAME, min(name_width, columns - sum(widths) - gap * len(widths)))
    return [_line(name, name_width, cells, widths, gap) for name, cells in rows]


def _line(name: str, name_width: int, cells: Sequence[str], widths: Sequence[int], gap: int) -> str:
    short = name if len(name) <= name_width else name[: name_width - 1] + "…"
    right = (cell.rjust(width + gap) for cell, width in zip(cells, widths, strict=True))
    return short.ljust(name_width) + "".join(right)
