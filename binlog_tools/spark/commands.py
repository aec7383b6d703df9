"""
The pipelines as programs: what ``python -m binlog_tools.spark`` runs.
"""

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import reduce
from pathlib import Path
from typing import Any, Final

import click
from pyspark.sql import DataFrame, SparkSession

from beanstalk_twisted.binlog.format import MAX_SEGMENT_BYTES, MIN_SEGMENT_BYTES
from binlog_tools.console.output import Output, aside
from binlog_tools.logs.live_set import END, Point
from binlog_tools.logs.quantities import format_size, parse_size, parse_time
from binlog_tools.spark.definitions.errors import TableError
from binlog_tools.spark.definitions.wholeness import unfinished
from binlog_tools.spark.events import read_events, write_events
from binlog_tools.spark.reading.options import parse_options
from binlog_tools.spark.rebuilding import Rebuilt, Wish, rebuild
from binlog_tools.spark.segments.decoding import DAMAGE_CHOICES, Damage
from binlog_tools.spark.session import explained, session, wants_stacks
from binlog_tools.spark.source import FORMAT
from binlog_tools.spark.surviving.gathering import with_spark
from binlog_tools.spark.tables.pipelines import (
    FORMATS,
    MODES,
    PIPELINES,
    TABLES,
    refuse_existing,
    write,
)
from binlog_tools.spark.tables.poison import FAILURES

FUTURE: Final = (
    "--at is in the future, behind the end of the log: what will happen until then is not in it; "
    "delays and TTRs that end before are taken to have ended (is_inferred)"
)
"""What `snapshot` says of such a time."""

INPUTS: Final = ("auto", "events", "logs")

Command = Callable[..., Any]


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def cli() -> None:
    """
    Make tables of the history of queues, with Spark.

    INPUT is an events table (Parquet, as `events` writes it), or logs: directories of servers,
    archives, segments, patterns. Convert logs once with `events`; the others then are faster.

    `rebuild` makes no table, but a log.
    """


def _all_of(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """
    Several options as one decorator.
    """
    return lambda command: reduce(lambda made, add: add(made), reversed(options), command)


_common = _all_of(
    click.argument("inputs", metavar="INPUT...", nargs=-1, required=True),
    click.option("-o", "--output", required=True, help="The directory to write."),
    click.option("--damage", type=click.Choice(DAMAGE_CHOICES), default="fail",
                 show_default=True, help="What to do about damage in logs."),
    click.option("--servers", default="", metavar="UUID:NAME,...", help="Names for servers."),
    click.option("--master", help="Of Spark, as local[4]; else what spark-submit says."),
)  # fmt: skip

_written = _all_of(
    click.option("--from", "source", type=click.Choice(INPUTS), default="auto",
                 show_default=True, help="What INPUT is; `auto` looks for Parquet files."),
    click.option("--format", "form", type=click.Choice(FORMATS), default="parquet",
                 show_default=True, help="Of the output."),
    click.option("--mode", type=click.Choice(MODES), default="error", show_default=True,
                 help="If there is an output already."),
)  # fmt: skip


def _session(name: str, master: str | None) -> SparkSession:
    """
    Spark, quiet: the stacks of what fails would stand before the line that tells it.
    """
    settings = {"spark.master": master} if master else {}
    spark = session(f"beanstalk {name}", settings)
    spark.sparkContext.setLogLevel("ERROR" if wants_stacks() else "FATAL")
    return spark


def _load(
    spark: SparkSession, inputs: tuple[str, ...], source: str, body: bool, damage: str, servers: str
) -> DataFrame:
    if source == "events" or (source == "auto" and any(map(_has_parquet, inputs))):
        return read_events(spark, *inputs)
    reader = spark.read.format(FORMAT).options(
        copies="keep", tags=True, body=body, damage=damage, servers=servers
    )
    return reader.load(list(inputs))


def _has_parquet(path: str) -> bool:
    return next(Path(path).rglob("*.parquet"), None) is not None


@cli.command()
@_common
@click.option("--body/--no-body", default=False, help="Whether bodies are in the table.")
@click.option("--live", type=click.Choice(["include", "skip"]), default="include",
              show_default=True, help="The segment that a server is writing.")  # fmt: skip
def events(
    inputs: tuple[str, ...], output: str, damage: str, servers: str, master: str | None, body: bool,
    live: str,
) -> None:  # fmt: skip
    """
    Logs as one events table, or what is new in them into the table.
    """
    with explained():
        given = {"path": inputs[0], "copies": "keep", "tags": "true", "body": str(body).lower(),
                 "damage": damage, "servers": servers, "live": live}  # fmt: skip
        asked = parse_options(given)._replace(paths=inputs)
        segments, rows = write_events(_session("events", master), asked, Path(output).absolute())
    Output().line(f"{segments} segments, {rows} rows written to {output}")


def _make(
    names: tuple[str, ...], outputs: tuple[str, ...], inputs: tuple[str, ...], source: str,
    form: str, mode: str, damage: str, servers: str, master: str | None,
    beside: AbstractContextManager[None] = nullcontext(),  # noqa: B008 - it has no state.
    **choices: Any,
) -> None:  # fmt: skip
    """
    :param beside: entered when all is read but nothing is written yet.
    """
    with explained():
        if mode == "error":
            refuse_existing(outputs)
        spark = _session(names[0] if len(names) == 1 else "tables", master)
        pipelines = [PIPELINES[name] for name in names]
        made = [
            each.make(_load(spark, inputs, source, each.needs_body, damage, servers), **choices)
            for each in pipelines
        ]
        with beside:
            for name, table, output in zip(names, made, outputs, strict=True):
                write(name, table, output, form, mode)
                Output().line(f"{name}: written to {output}")


def _plain(name: str, text: str) -> None:
    def run(inputs: tuple[str, ...], output: str, **options: Any) -> None:
        _make((name,), (output,), inputs, **options)

    cli.command(name, help=text)(_common(_written(run)))


_plain("lifetimes", "One row a job: waits, runs, attempts, outcome.")
_plain("attempts", "One row an attempt: start, end, how it ended, the wait before it.")
_plain("tube_minutes", "One row a server, tube and minute: flow, depth, waits, runs.")
_plain("workers", "One row a connection: jobs, time busy, how its runs ended.")


@cli.command()
@_common
@_written
def tables(inputs: tuple[str, ...], output: str, **options: Any) -> None:
    """
    All of these that need no choice, each in OUTPUT/NAME: what the report shows.

    OUTPUT/_unfinished is there until all of them are.
    """
    outputs = tuple(f"{output}/{name}" for name in TABLES)
    _make(TABLES, outputs, inputs, beside=unfinished(output), **options)


@cli.command()
@_common
@_written
@click.option("--failures", type=click.IntRange(1), default=FAILURES, show_default=True,
              help="So many make a job poison.")  # fmt: skip
@click.option("--jobs", is_flag=True, help="One row a job, not one a kind of jobs.")
def poison(inputs: tuple[str, ...], output: str, jobs: bool, **options: Any) -> None:
    """
    Jobs that fail again and again, by the fingerprint of their bodies.
    """
    _make(("poison_jobs" if jobs else "poison",), (output,), inputs, **options)


@cli.command()
@_common
@_written
@click.option("--at", "moment", help="A time, as 2026-01-31T12:00:00Z or -2h.")
@click.option("--lsn", type=click.IntRange(0), help="The last record that counts.")
def snapshot(
    inputs: tuple[str, ...], output: str, moment: str | None, lsn: int | None, **options: Any
) -> None:
    """
    The jobs that were alive at a time, or after a record.
    """
    with explained():
        at_ns = None if moment is None else _parsed(moment)
    if at_ns is not None and at_ns > time.time_ns():
        aside(FUTURE)
    _make(("snapshot",), (output,), inputs, **options, at_ns=at_ns, lsn=lsn)


def _size(ctx: click.Context, param: click.Parameter, value: str) -> int:
    try:
        size = parse_size(value)
    except ValueError as problem:
        raise click.BadParameter(str(problem)) from None
    if not MIN_SEGMENT_BYTES <= size <= MAX_SEGMENT_BYTES:
        raise click.BadParameter(f"{value} is not within 8k to 1G")
    return size


@cli.command("rebuild")
@click.argument("logs", metavar="LOG...", nargs=-1, required=True)
@click.option("-o", "--output", required=True, help="The directory to write; new, or empty.")
@click.option("--at", "moment", help="Rebuild it as it was then: 2026-01-31T12:00:00Z or -2h.")
@click.option("--lsn", type=click.IntRange(0), help="Likewise, behind this record.")
@click.option("--damage", type=click.Choice(["fail", "skip"]), default="fail", show_default=True,
              help="What to do about damage.")  # fmt: skip
@click.option("--accept-gap", is_flag=True, help="Go on although segments are missing.")
@click.option("--segment-size", "segment_bytes", default="64M", callback=_size, show_default=True,
              help="Size of a segment, 8k to 1G.")  # fmt: skip
@click.option("--single", is_flag=True,
              help="In this process: as without --master or spark-submit.")  # fmt: skip
@click.option("--master", help="Let Spark read the segments, as local[4].")
def rebuild_log(
    logs: tuple[str, ...], output: str, moment: str | None, lsn: int | None, damage: Damage,
    accept_gap: bool, segment_bytes: int, single: bool, master: str | None,
) -> None:  # fmt: skip
    """
    Write what is left of a server's log into a new one, on which a server starts.

    LOG is the directory of the server, its archive, or both; segments, patterns.  They are left as
    they are.
    """
    with explained():
        point = Point(
            END.lsn if lsn is None else lsn, END.time_ns if moment is None else _parsed(moment)
        )
        wish = Wish(logs, output, point, damage, accept_gap, segment_bytes)
        if single or not (master or "PYSPARK_GATEWAY_PORT" in os.environ):
            _tell(rebuild(wish), "in one process")
        else:
            _tell(rebuild(wish, with_spark(_session("rebuild", master))), "by Spark")


def _tell(made: Rebuilt, how: str) -> None:
    for gap in made.not_missed:
        aside(f"not needed: {gap}")
    for flaw in made.flaws:
        aside(f"left out: {flaw}")
    if made.lost:
        ids = ", ".join(map(str, made.lost[:10]))
        more = " and more" if len(made.lost) > 10 else ""
        aside(f"jobs without a body, left out: {len(made.lost)} ({ids}{more})")
    new = made.written
    Output().line(
        f"{new.path}: {new.jobs} jobs, {format_size(new.bytes)}, LSN {new.first_lsn} to "
        f"{new.last_lsn}; of {made.records} records in {made.segments} segments, read {how}; "
        f"{len(made.flaws)} places and {len(made.lost)} jobs were left out"
    )


def _parsed(moment: str) -> int:
    try:
        return parse_time(moment, time.time_ns())
    except ValueError as problem:
        raise TableError("TABLE_OPTION", str(problem)) from None
