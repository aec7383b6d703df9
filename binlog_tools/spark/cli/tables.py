"""The tables: each as a command, and those that need no choice as one."""

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import click
from pyspark.sql import DataFrame, SparkSession

from binlog_tools.console.output import Output, aside
from binlog_tools.console.wording import told
from binlog_tools.spark.cli.options import common, from_, parsed_time, written
from binlog_tools.spark.cli.running import bar, line, started
from binlog_tools.spark.definitions.addresses import within
from binlog_tools.spark.events import event_rows, holds_events, log_rows, read_events
from binlog_tools.spark.histories.failing import FAILURES
from binlog_tools.spark.histories.increments import Progress
from binlog_tools.spark.reading.finding import named, refuse_nothing
from binlog_tools.spark.reading.options import parse_options
from binlog_tools.spark.session import explained
from binlog_tools.spark.source import FORMAT
from binlog_tools.spark.storing.locations import unfinished
from binlog_tools.spark.tables.growing import Updated, update
from binlog_tools.spark.tables.layouts import BESIDE
from binlog_tools.spark.tables.pipelines import PIPELINES, opened, write
from binlog_tools.spark.tables.targets import read_targets
from binlog_tools.spark.tasks import Rows


def load(
    spark: SparkSession, inputs: tuple[str, ...], source: str, body: bool, damage: str, servers: str
) -> DataFrame:  # fmt: skip
    """The events that the command was given."""
    if _are_events(inputs, source):
        return read_events(spark, *inputs)
    reader = spark.read.format(FORMAT).options(
        copies="keep", records="history", tags=True, body=body, damage=damage, servers=servers
    )
    return reader.load(list(inputs))


def rows(
    inputs: tuple[str, ...], source: str, damage: str, servers: str, above: Mapping[str, int]
) -> Rows:
    """
    The same, with bodies, for tasks to read.

    :param above: see `event_rows` and `log_rows`.
    """
    if _are_events(inputs, source):
        return event_rows(inputs, above)
    given = {"path": inputs[0], "copies": "keep", "records": "history", "tags": "true",
             "body": "true", "damage": damage, "servers": servers}  # fmt: skip
    return log_rows(parse_options(given)._replace(paths=inputs), above)


def _are_events(inputs: tuple[str, ...], source: str) -> bool:
    return source == "events" or (source == "auto" and any(map(holds_events, inputs)))


def look(inputs: tuple[str, ...], source: str) -> None:
    """
    Look whether the paths are there, and are logs or events, before Spark takes its time to start.

    :raise SourceError: one is not there, or there is no log at all.
    """
    found = [each for path in inputs for each in named(path)]
    if not _are_events(inputs, source):
        refuse_nothing(found)


def make(
    name: str, output: str, inputs: tuple[str, ...], source: str, mode: str, damage: str,
    servers: str, master: str | None, **choices: Any,
) -> None:  # fmt: skip
    """Make a table of all events, and tell how many rows it has."""
    with explained():
        stored = opened(name, output, mode)
        look(inputs, source)
        spark = started(name, master)
        pipeline = PIPELINES[name]
        events = load(spark, inputs, source, pipeline.needs_body, damage, servers)
        with line(name) as say:
            rows = write(name, pipeline.make(events, **choices), stored, mode)
            say(f"{told(rows, 'row')} written to {output}")


FUTURE: Final = (
    "--at is in the future, behind the end of the log: what will happen until then is not in it; "
    "delays and TTRs that end before are taken to have ended (is_inferred)"
)
"""What `snapshot` says of such a time."""


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
@written
@click.option("--failures", type=click.IntRange(1), default=FAILURES, show_default=True,
              help="So many make a job poison.")  # fmt: skip
@click.option("--jobs", is_flag=True, help="One row a job, not one a kind of jobs.")
def poison(inputs: tuple[str, ...], output: str, jobs: bool, **options: Any) -> None:
    """Jobs that fail again and again, by the fingerprint of their bodies."""
    make("poison_jobs" if jobs else "poison", output, inputs, **options)


@click.command()
@common
@written
@click.option("--at", "moment", help="A time, as 2026-01-31T12:00:00Z or -2h.")
@click.option("--lsn", type=click.IntRange(0), help="The last record that counts.")
def snapshot(
    inputs: tuple[str, ...], output: str, moment: str | None, lsn: int | None, **options: Any
) -> None:
    """The jobs that were alive at a time, or after a record."""
    with explained():
        at_ns = None if moment is None else parsed_time(moment)
    if at_ns is not None and at_ns > time.time_ns():
        aside(FUTURE)
    make("snapshot", output, inputs, **options, at_ns=at_ns, lsn=lsn)


@click.command()
@common
@from_
@click.option("--targets", metavar="FILE", help="Targets of tubes, TOML, for the table sla.")
def tables(
    inputs: tuple[str, ...], output: str, source: str, damage: str, servers: str,
    master: str | None, targets: str | None,
) -> None:  # fmt: skip
    """
    All of these that need no choice, each in OUTPUT/NAME, or what is new into them.

    OUTPUT/_unfinished is there until all of them are.
    """
    with explained():
        wanted = read_targets(targets) if targets else ()
        look(inputs, source)
        begun = time.monotonic()

        def newer(known: Progress) -> Rows:
            return rows(inputs, source, damage, servers, known)

        with bar("tables"):
            spark = started("tables", master)
        updated = update(spark, output, newer, wanted)
        with unfinished(output):
            has_new = False
            while (each := _next(updated)) is not None:
                has_new = True
                if each.name not in BESIDE:
                    _tell(each, output, begun)
    if not has_new:
        Output().line(f"{output}: nothing new")


def _next(updated: Iterator[Updated]) -> Updated | None:
    with bar("tables"):
        return next(updated, None)


def _tell(done: Updated, output: str, begun: float) -> None:
    """
    Of most tables the rows are made in one pass: so the time is that since the command was begun.
    """
    place, seconds = within(output, done.name), time.monotonic() - begun
    rows = told(done.rows, "row")
    Output().line(f"{done.name}: {rows} written to {place}, {seconds:.1f} s after start")
