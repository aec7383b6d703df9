"""
Options that several commands share.
"""

import time
from collections.abc import Callable
from functools import reduce
from typing import Any, Final

import click

from binlog_tools.logs.quantities import parse_time
from binlog_tools.spark.definitions.errors import TableError
from binlog_tools.spark.segments.decoding import DAMAGE_CHOICES
from binlog_tools.spark.tables.pipelines import FORMATS, MODES

INPUTS: Final = ("auto", "events", "logs")

Command = Callable[..., Any]


def all_of(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """
    Several options as one decorator.
    """
    return lambda command: reduce(lambda made, add: add(made), reversed(options), command)


common = all_of(
    click.argument("inputs", metavar="INPUT...", nargs=-1, required=True),
    click.option("-o", "--output", required=True, help="The directory to write."),
    click.option("--damage", type=click.Choice(DAMAGE_CHOICES), default="fail",
                 show_default=True, help="What to do about damage in logs."),
    click.option("--servers", default="", metavar="UUID:NAME,...", help="Names for servers."),
    click.option("--master", help="Of Spark, as local[4]; else what spark-submit says."),
)  # fmt: skip

written = all_of(
    click.option("--from", "source", type=click.Choice(INPUTS), default="auto",
                 show_default=True, help="What INPUT is; `auto` looks for Parquet files."),
    click.option("--format", "form", type=click.Choice(FORMATS), default="parquet",
                 show_default=True, help="Of the output."),
    click.option("--mode", type=click.Choice(MODES), default="error", show_default=True,
                 help="If there is an output already."),
)  # fmt: skip


def parsed_time(moment: str) -> int:
    """
    :return: nanoseconds since the epoch.
    :raise TableError: it is not a time.
    """
    try:
        return parse_time(moment, time.time_ns())
    except ValueError as problem:
        raise TableError("TABLE_OPTION", str(problem)) from None
