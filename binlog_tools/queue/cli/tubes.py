"""
``beanstalk tubes``, ``stats`` and ``pause``.
"""

import shutil
from collections.abc import Sequence
from typing import Final

import click

from binlog_tools.console.output import Output, columns
from binlog_tools.queue.addresses import Address
from binlog_tools.queue.cli import options
from binlog_tools.queue.server import Stats

TITLES = columns(
    "~tube", "#ready", "#reserved", "#delayed", "#buried", "#urgent", "#put", "#deleted",
    "#watching", "#waiting", "#pause",
)  # fmt: skip
KEYS = (
    "name", "current-jobs-ready", "current-jobs-reserved", "current-jobs-delayed",
    "current-jobs-buried", "current-jobs-urgent", "total-jobs", "cmd-delete", "current-watching",
    "current-waiting", "pause-time-left",
)  # fmt: skip

NOT_IF_NARROW: Final = (
    "current-jobs-urgent", "current-watching", "cmd-delete", "total-jobs", "current-waiting",
)  # fmt: skip
"""What a terminal without room is not shown, the first first."""
BETWEEN: Final = 2
"""Blanks between two columns, and around all of them together."""


def show_stats(found: Stats, is_json: bool) -> None:
    """
    Print what the server says of something.
    """
    output = Output(is_json)
    if is_json:
        output.document(numbers(found))
    else:
        output.table(columns("key", "value"), found.items())


def numbers(stats: Stats) -> dict[str, object]:
    """
    Statistics for JSON: what looks like a number is one, but for names.
    """
    return {key: _number(key, value) for key, value in stats.items()}


def _number(key: str, value: str) -> object:
    if key in ("name", "tube", "id", "hostname", "version", "os", "platform"):
        return int(value) if key == "id" and value.isdigit() else value
    try:
        return float(value) if "." in value else int(value)
    except ValueError:
        return {"true": True, "false": False}.get(value, value)


@click.command("tubes")
@options.server
@options.as_json
def tubes(address: Address, is_json: bool) -> None:
    """
    Show all tubes, with how many jobs they have.
    """
    with options.connected(address) as queue:
        found = queue.all_tubes()
    output = Output(is_json)
    if is_json:
        for each in found:
            output.document(numbers(each))
        return
    rows = [[_number(key, each[key]) for key in KEYS] for each in found]
    shown = list(range(len(KEYS)))
    if output.is_terminal:
        shown = fitting(rows, shutil.get_terminal_size().columns)
    output.table(
        [TITLES[place] for place in shown], ([row[place] for place in shown] for row in rows)
    )


def fitting(rows: Sequence[Sequence[object]], columns: int) -> list[int]:
    """
    Say which columns of the table a terminal has room for, by their places.
    """
    cells = [[title.title for title in TITLES], *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) + BETWEEN for column in zip(*cells, strict=True)]
    shown = list(range(len(KEYS)))
    for key in NOT_IF_NARROW:
        if BETWEEN + sum(widths[place] for place in shown) > columns:
            shown.remove(KEYS.index(key))
    return shown


@click.command("stats")
@options.server
@click.option("-t", "--tube", type=options.TUBE, metavar="NAME", help="Of a tube.")
@click.option("-j", "--job", type=options.JOB, metavar="ID", help="Of a job.")
@options.as_json
def stats(address: Address, tube: bytes | None, job: int | None, is_json: bool) -> None:
    """
    Show what the server says of itself, of a tube, or of a job.

    The keys are explained in docs/protocol.md, and in beanstalkd's protocol.txt.
    """
    if tube is not None and job is not None:
        raise click.UsageError("--tube or --job, not both")
    with options.connected(address) as queue:
        if tube is not None:
            found = queue.stats_tube(tube)
        else:
            found = queue.stats() if job is None else queue.stats_job(job)
    show_stats(found, is_json)


@click.command("pause")
@click.argument("tube", type=options.TUBE)
@click.argument("seconds", type=options.SECONDS)
@options.server
@options.as_json
def pause(tube: bytes, seconds: int, address: Address, is_json: bool) -> None:
    """
    Let nobody reserve from TUBE for so many SECONDS; 0 ends a pause.
    """
    with options.connected(address) as queue:
        # 0 is a pause of 1 ns on a beanstalkd: over before anybody sees it.
        queue.pause(tube, seconds)
    if is_json:
        Output(True).document({"tube": tube.decode(), "seconds": seconds})
