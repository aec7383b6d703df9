"""
``python -m binlog_tools.spark PIPELINE INPUT… -o OUT``: the pipelines as programs.

``spark-submit --py-files ZIP binlog_tools/spark/__main__.py …`` is the same on a cluster.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
from pyspark.sql import DataFrame, SparkSession

from binlog_tools.moments import parse_time
from binlog_tools.spark.events import read_events, write_events
from binlog_tools.spark.options import parse_options
from binlog_tools.spark.pipelines import FORMATS, MODES, PIPELINES, TABLES, write
from binlog_tools.spark.poison import FAILURES
from binlog_tools.spark.session import explained, session
from binlog_tools.spark.source import FORMAT
from binlog_tools.spark.tableerrors import TableError

INPUTS: Final = ("auto", "events", "logs")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def cli() -> None:
    """
    Make tables of the history of queues, with Spark.

    INPUT is an events table (Parquet, as `events` writes it), or logs: directories of servers,
    archives, segments, patterns. Convert logs once with `events`; the others then are faster.
    """


def _common(command: Callable[..., Any]) -> Callable[..., Any]:
    """
    What all commands take.
    """
    for add in reversed([
        click.argument("inputs", metavar="INPUT...", nargs=-1, required=True),
        click.option("-o", "--output", required=True, help="The directory to write."),
        click.option("--damage", type=click.Choice(["fail", "skip"]), default="fail",
                     show_default=True, help="What to do about damage in logs."),
        click.option("--servers", default="", metavar="UUID:NAME,...", help="Names for servers."),
        click.option("--master", help="Of Spark, as local[4]; else what spark-submit says."),
    ]):  # fmt: skip
        command = add(command)
    return command


def _written(command: Callable[..., Any]) -> Callable[..., Any]:
    """
    What all take that Spark writes.
    """
    for add in reversed([
        click.option("--from", "source", type=click.Choice(INPUTS), default="auto",
                     show_default=True, help="What INPUT is; `auto` looks for Parquet files."),
        click.option("--format", "form", type=click.Choice(FORMATS), default="parquet",
                     show_default=True, help="Of the output."),
        click.option("--mode", type=click.Choice(MODES), default="error", show_default=True,
                     help="If there is an output already."),
    ]):  # fmt: skip
        command = add(command)
    return command


def _session(name: str, master: str | None) -> SparkSession:
    spark = session(f"beanstalk {name}", {"spark.master": master} if master else {})
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _load(
    spark: SparkSession, inputs: tuple[str, ...], source: str, body: bool, damage: str, servers: str
) -> DataFrame:  # fmt: skip
    """
    The events, whatever they are in.
    """
    if source == "events" or (source == "auto" and any(map(_has_parquet, inputs))):
        return read_events(spark, *inputs)
    reader = spark.read.format(FORMAT).options(
        copies="keep", body=body, damage=damage, servers=servers
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
        given = {"path": inputs[0], "copies": "keep", "body": str(body).lower(), "damage": damage,
                 "servers": servers, "live": live}  # fmt: skip
        asked = parse_options(given)._replace(paths=inputs)
        segments, rows = write_events(_session("events", master), asked, Path(output).absolute())
    click.echo(f"{segments} segments, {rows} rows written to {output}")


def _make(
    names: tuple[str, ...], outputs: tuple[str, ...], inputs: tuple[str, ...], source: str,
    form: str, mode: str, damage: str, servers: str, master: str | None, **choices: Any,
) -> None:  # fmt: skip
    with explained():
        spark = _session(names[0] if len(names) == 1 else "tables", master)
        for name, output in zip(names, outputs, strict=True):
            pipeline = PIPELINES[name]
            table = _load(spark, inputs, source, pipeline.needs_body, damage, servers)
            write(name, pipeline.make(table, **choices), output, form, mode)
            click.echo(f"{name}: written to {output}")


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
    """
    _make(TABLES, tuple(f"{output}/{name}" for name in TABLES), inputs, **options)


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
    _make(("snapshot",), (output,), inputs, **options, at_ns=at_ns, lsn=lsn)


def _parsed(moment: str) -> int:
    try:
        return parse_time(moment, time.time_ns())
    except ValueError as problem:
        raise TableError("TABLE_OPTION", str(problem)) from None


if __name__ == "__main__":
    cli()
