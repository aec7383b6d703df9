"""
The tables that need no choice: each as a command, and all of them as one.
"""

from typing import Any, Final

import click

from binlog_tools.spark.cli.making import make
from binlog_tools.spark.cli.options import common, written
from binlog_tools.spark.definitions.wholeness import unfinished
from binlog_tools.spark.tables.pipelines import TABLES


def _single(name: str, text: str) -> click.Command:
    def run(inputs: tuple[str, ...], output: str, **options: Any) -> None:
        make((name,), (output,), inputs, **options)

    return click.command(name, help=text)(common(written(run)))


SINGLE: Final = (
    _single("lifetimes", "One row a job: waits, runs, attempts, outcome."),
    _single("attempts", "One row an attempt: start, end, how it ended, the wait before it."),
    _single("tube_minutes", "One row a server, tube and minute: flow, depth, waits, runs."),
    _single("workers", "One row a connection: jobs, time busy, how its runs ended."),
)


@click.command()
@common
@written
def tables(inputs: tuple[str, ...], output: str, **options: Any) -> None:
    """
    All of these that need no choice, each in OUTPUT/NAME: what the report shows.

    OUTPUT/_unfinished is there until all of them are.
    """
    outputs = tuple(f"{output}/{name}" for name in TABLES)
    make(TABLES, outputs, inputs, beside=unfinished(output), **options)
