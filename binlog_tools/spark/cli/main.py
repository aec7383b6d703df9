"""The commands, and the group of them."""

import logging
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import click
from pyspark.sql import DataFrame, SparkSession

from binlog_tools.console.errors import aside
from binlog_tools.console.output import Output
from binlog_tools.console.wording import told
from binlog_tools.spark.cli.options import common, from_, parsed_time, written
from binlog_tools.spark.cli.running import bar, line, remote_of, started
from binlog_tools.spark.definitions.addresses import within
from binlog_tools.spark.definitions.errors import TableError
from binlog_tools.spark.events import (
    Task,
    Work,
    event_rows,
    holds_events,
    in_process,
    log_rows,
    read_events,
    write_events,
)
from binlog_tools.spark.histories.failing import FAILURES
from binlog_tools.spark.histories.increments import Progress
from binlog_tools.spark.live.querying import BATCH_BYTES, NAME, Behind, Wish, behind, names_of, run
from binlog_tools.spark.live.running import LiveTables
from binlog_tools.spark.reading.finding import named, refuse_nothing
from binlog_tools.spark.reading.options import parse_options
from binlog_tools.spark.segments.decoding import DAMAGE_CHOICES
from binlog_tools.spark.session import active, explained
from binlog_tools.spark.source import FORMAT
from binlog_tools.spark.storing.files import File
from binlog_tools.spark.storing.locations import Location, unfinished
from binlog_tools.spark.storing.opening import holds_table, open_stored
from binlog_tools.spark.storing.stored import RETENTION_HOURS
from binlog_tools.spark.stream_metrics import METRICS, MetricsServer, Queries, Sample
from binlog_tools.spark.tables.growing import Updated, update
from binlog_tools.spark.tables.layouts import BESIDE
from binlog_tools.spark.tables.pipelines import PIPELINES, opened, write
from binlog_tools.spark.tables.targets import read_targets
from binlog_tools.spark.tasks import Rows, in_tasks


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
    """The same, with bodies, for tasks to read.

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
    """Look whether the paths are there, and are logs or events, before Spark takes its time to
    start.

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
    """All of these that need no choice, each in OUTPUT/NAME, or what is new into them.

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
    """Of most tables the rows are made in one pass: so the time is that since the command was
    begun.
    """
    place, seconds = within(output, done.name), time.monotonic() - begun
    rows = told(done.rows, "row")
    Output().line(f"{done.name}: {rows} written to {place}, {seconds:.1f} s after start")


LIVE_METRICS: Final = {
    "beanstalk_live_open_jobs": ("gauge", "Jobs that are not gone, whose records are kept."),
    "beanstalk_live_open_bytes": ("gauge", "Bytes of memory that these records take."),
    "beanstalk_live_steps": ("gauge", "Number of the newest step."),
    "beanstalk_live_step_seconds": ("gauge", "How long it took."),
    "beanstalk_live_rows_total": ("counter", "Rows that came into a table, by `table`."),
}
"""Of `live`, beside those of any stream."""


@click.command()
@click.argument("logs", metavar="LOG...", nargs=-1, required=True)
@click.option("-o", "--output", required=True, help="A folder or URL; each table gets a folder.")
@click.option("--archive", help="The server's archive: where segments are that it has deleted.")
@click.option("--targets", metavar="FILE", help="Targets of tubes, TOML, for the table breaches.")
@click.option("--servers", default="", metavar="UUID:NAME,...", help="Names for servers.")
@click.option("--damage", type=click.Choice(DAMAGE_CHOICES), default="fail", show_default=True,
              help="What to do about damage in logs.")  # fmt: skip
@click.option("--max-bytes", default=BATCH_BYTES, show_default=True, help="What a batch reads.")
@click.option("--checkpoint", default="", help="Where Spark notes how far it is, if not in OUTPUT.")
@click.option("--once", is_flag=True, help="End with what there is.")
@click.option("--metrics", type=click.IntRange(0, 65535), metavar="PORT",
              help="Serve /metrics on this port of 127.0.0.1; 0: any.")  # fmt: skip
@click.option("--master", help="Of Spark, as local[2]; else what spark-submit says.")
def live(
    logs: tuple[str, ...], output: str, archive: str | None, targets: str | None, servers: str,
    damage: str, max_bytes: str, checkpoint: str, once: bool, metrics: int | None,
    master: str | None,
) -> None:  # fmt: skip
    """Keep lifetimes, attempts, tube_minutes and breaches up to date in OUTPUT, as Delta tables.

    LOG is the directory of a server, or a pattern.  It goes on where it was ended or killed.
    """
    with explained():
        options = {"servers": servers, "damage": damage, "maxBytesPerTrigger": max_bytes}
        options |= {"archive": archive} if archive else {}
        wanted = read_targets(targets) if targets else ()
        wish = Wish(logs, output.rstrip("/"), options, checkpoint, once)
        spark = active()
        if remote_of(master) or (spark is not None and not hasattr(spark, "_jsparkSession")):
            raise TableError("TABLE_OPTION", "live needs a classic session: with Spark Connect its "
                             "batches would be taken on the other machine; give --master local[2], "
                             "or use spark-submit")  # fmt: skip
        names = names_of(wish)
        with LiveTables(wish.output, wanted) as tables:
            begun = behind(wish, names, tables)
            aside(begin_text(begun))
            spark = started("live", master)
            began = time.monotonic()
            with _served(spark, tables, metrics, begun), _interruptible():
                run(spark, wish, tables)
            for name, rows in tables.told.items():
                seconds = time.monotonic() - began
                Output().line(f"{name}: {told(rows, 'row')}, {seconds:.1f} s")


SHOWN_SERVERS: Final = 5
"""So many are named when it begins: a line that can be read."""


def begin_text(begun: Mapping[str, Behind]) -> str:
    """What is about to be read."""
    named = [f"{each.server} from LSN {each.lsn} on, {each.lag.records:,} records behind"
            for each in list(begun.values())[:SHOWN_SERVERS]]  # fmt: skip
    if len(begun) > SHOWN_SERVERS:
        named.append(f"and {told(len(begun) - SHOWN_SERVERS, 'server')} more")
    return f"live: reads {'; '.join(named)}"


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let SIGTERM be as SIGINT, and py4j not log that Java may have been told to end too."""

    def interrupt(number: int, frame: object) -> None:
        logging.disable()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _served(
    spark: SparkSession, tables: LiveTables, port: int | None, begun: Mapping[str, Behind]
) -> Iterator[None]:
    if port is None:
        yield
        return
    queries = Queries()
    queries.begin(NAME, {store: each.lag for store, each in begun.items()}, tables.batch)
    spark.streams.addListener(queries)
    server = MetricsServer({**METRICS, **LIVE_METRICS}, lambda: _samples(queries, tables), port)
    Output().line(f"metrics: http://127.0.0.1:{server.port}/metrics")
    try:
        yield
    finally:
        server.close()


def _samples(queries: Queries, tables: LiveTables) -> Iterator[Sample]:
    yield from queries.samples()
    figures = tables.figures()
    for name in ("open_jobs", "open_bytes", "steps"):
        yield Sample(f"beanstalk_live_{name}", {}, figures[name])
    yield Sample("beanstalk_live_step_seconds", {}, figures["step_s"])
    for table, rows in figures["rows"].items():
        yield Sample("beanstalk_live_rows_total", {"table": table}, rows)


ALONE_TASKS: Final = 1
"""So many tasks of 256 MB are carried out in this process: sooner done than Spark starts."""


@click.command()
@common
@click.option("--body/--no-body", default=False, help="Whether bodies are in the table.")
@click.option("--live", type=click.Choice(["include", "skip"]), default="include",
              show_default=True, help="The segment that a server is writing.")  # fmt: skip
@click.option(
    "--rewrite",
    is_flag=True,
    help="Read these logs from the beginning, in the place of the rows they have.",
)
def events(
    inputs: tuple[str, ...], output: str, damage: str, servers: str, master: str | None, body: bool,
    live: str, rewrite: bool,
) -> None:  # fmt: skip
    """Logs as one events table, or what is new in them into the table."""

    def run(tasks: Sequence[Task], work: Work) -> list[list[File]]:
        is_sparks = master or "PYSPARK_GATEWAY_PORT" in os.environ or "SPARK_REMOTE" in os.environ
        if len(tasks) <= ALONE_TASKS and not is_sparks:
            return in_process(tasks, work)
        return in_tasks(started("events", master), tasks, work)

    with explained():
        given = {"path": inputs[0], "copies": "keep", "records": "history", "tags": "true",
                 "body": str(body).lower(), "damage": damage, "servers": servers,
                 "live": live}  # fmt: skip
        asked = parse_options(given)._replace(paths=inputs)
        with line("events") as say:
            done = write_events(asked, output, run, rewrite)
            segments, rows = told(done.segments, "segment"), told(done.rows, "row")
            say(f"{segments}, {rows} written to {output}")
    if done.problems:
        rows = "1 row tells" if done.problems == 1 else f"{done.problems} rows tell"
        aside(f"{rows} of damage (problem is not null); when it is repaired, "
              "write these logs anew with --rewrite")  # fmt: skip


@click.command()
@click.argument("tables", metavar="TABLE...", nargs=-1, required=True)
@click.option(
    "--keep-hours",
    type=click.FloatRange(0),
    default=RETENTION_HOURS,
    show_default=True,
    help="Files that no version needs are kept so long, for who still reads them.",
)
def optimize(tables: tuple[str, ...], keep_hours: float) -> None:
    """Put small files of Delta tables together, and remove those that no version needs.

    TABLE may also be a folder with tables in it, as `tables` and `live` make it.
    """
    with explained():
        found = [each for table in tables for each in _tables_in(table)]
    for table in found:
        with explained():
            done = open_stored(table).optimize(keep_hours)
        Output().line(
            f"{table}: {told(done.merged, 'file')} became {done.made}, {done.removed} removed"
        )


def _tables_in(place: str) -> list[str]:
    """The place itself; or the tables in it, if it is none and has some."""
    location = Location.of(place)
    if holds_table(location) or (location.is_local and not os.path.isdir(location.path)):
        return [place]
    with location.writing():
        inner = [within(place, name) for name in location.files().names()]
    return [each for each in inner if holds_table(Location.of(each))] or [place]


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def cli() -> None:
    """Make tables of the history of queues, with Spark.

    INPUT is an events table (as `events` writes it), or logs: directories of servers,
    archives, segments, patterns. Convert logs once with `events`; the others then are faster.
    """


for _each in (events, optimize, *SINGLE, tables, poison, snapshot, live):
    cli.add_command(_each)
