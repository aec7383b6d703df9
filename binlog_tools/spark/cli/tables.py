"""
The tables that need no choice: each as a command, and all of them as one.
"""

import time
from typing import Any, Final

import click

from binlog_tools.console.output import Output
from binlog_tools.spark.cli.making import look, make, rows
from binlog_tools.spark.cli.options import common, kept, written
from binlog_tools.spark.cli.running import started
from binlog_tools.spark.histories.increments import Progress
from binlog_tools.spark.session import explained
from binlog_tools.spark.storing.locations import place_of, unfinished
from binlog_tools.spark.tables.growing import update
from binlog_tools.spark.tables.targets import read_targets
from binlog_tools.spark.tasks import Rows


def _single(name: str, text: str) -> click.Command:
    def run(inputs: tuple[str, ...], output: str, **options: Any) -> None:
        make(name, output, inputs, **options)

    return click.command(name, help=text)(common(written(run)))


SINGLE: Final = (
    _single("lifetimes", "One row a job: waits, runs, attempts, outcome."),
    _single("attempts", "One row an attempt: start, end, how it ended, the wait before it."),
    _single("tube_minutes", "One row a server, tube and minute: flow, depth, waits, runs."),
    _single("workers", "One row a connection: jobs, time busy, how its runs ended."),
)


@click.command()
@common
@kept
@click.option("--targets", metavar="FILE", help="Targets of tubes, TOML, for the table sla.")
def tables(
    inputs: tuple[str, ...], output: str, source: str, form: str, damage: str, servers: str,
    master: str | None, targets: str | None,
) -> None:  # fmt: skip
    """
    All of these that need no choice, each in OUTPUT/NAME, or what is new into them.

    OUTPUT/_unfinished is there until all of them are.
    """
    with explained():
        wanted = read_targets(targets) if targets else ()
        look(inputs)
        spark = started("tables", master)

        def newer(known: Progress) -> Rows:
            return rows(inputs, source, damage, servers, known)

        with unfinished(output):
            before = time.monotonic()
            done = 0
            for each in update(spark, output, newer, form, wanted):
                before = _tell(each.name, each.rows, output, before)
                done += 1
    if not done:
        Output().line(f"{output}: nothing new")


def _tell(name: str, rows: int, output: str, before: float) -> float:
    """
    :return: now.
    """
    now = time.monotonic()
    place = place_of(output, name)
    Output().line(f"{name}: {rows} rows written to {place} in {now - before:.1f} s")
    return now
