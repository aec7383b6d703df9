"""Options that several commands share."""

import os
import time
from collections.abc import Callable
from functools import reduce, wraps
from typing import Any, Final

import click

from beanstalk_twisted.object_storage.store import is_url
from binlog_tools.logs.quantities import parse_time
from binlog_tools.spark.cli.planned import tell_plan
from binlog_tools.spark.cli.running import UI
from binlog_tools.spark.definitions.addresses import normal
from binlog_tools.spark.definitions.errors import TableError
from binlog_tools.spark.segments.decoding import DAMAGE_CHOICES
from binlog_tools.spark.session import explained
from binlog_tools.spark.tables.pipelines import MODES

INPUTS: Final = ("auto", "events", "logs")

Command = Callable[..., Any]


def all_of(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several options as one decorator."""
    return lambda command: reduce(lambda made, add: add(made), reversed(options), command)


def _noted(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    context.meta[UI] = value


def _refused(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        with explained():
            raise TableError("TABLE_FORMAT", "--format was taken away: all tables are Delta. Leave "
                             "it out, and make plain Parquet tables again in a new directory"
                             )  # fmt: skip


def _absolute(
    context: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    """A Connect server, and executors, may be in another working directory."""
    return tuple(each if is_url(each) else os.path.abspath(normal(each)) for each in value)


def or_plan(command: Command) -> Command:
    """The command, or with ``--dry-run`` what it would read and write."""

    @wraps(command)
    def run(inputs: tuple[str, ...], output: str, dry_run: bool, **options: Any) -> None:
        if not dry_run:
            command(inputs=inputs, output=output, **options)
            return
        with explained():
            tell_plan(inputs, output, options)

    return run


common = all_of(
    click.argument("inputs", metavar="INPUT...", nargs=-1, required=True, callback=_absolute),
    click.option("-o", "--output", required=True, help="The directory or URL to write."),
    click.option("--damage", type=click.Choice(DAMAGE_CHOICES), default="fail",
                 show_default=True, help="What to do about damage in logs."),
    click.option("--servers", default="", metavar="UUID:NAME,...", help="Names for servers."),
    click.option("--master", help="Of Spark: local[4], or sc://HOST; else what spark-submit or "
                 "SPARK_REMOTE says, or this machine."),
    click.option("--ui", is_flag=True, expose_value=False, callback=_noted,
                 help="With Spark's web pages, on this machine."),
    click.option("--dry-run", is_flag=True, help="Say what would be read and written; do nothing."),
    click.option("--format", hidden=True, expose_value=False, callback=_refused),
    or_plan,
)  # fmt: skip

from_ = click.option("--from", "source", type=click.Choice(INPUTS), default="auto",
                     show_default=True, help="What INPUT is; `auto` looks for tables."
                     )  # fmt: skip

written = all_of(
    from_,
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
