"""``live``: tables that follow the logs."""

import logging
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from binlog_tools.console.output import Output, aside
from binlog_tools.console.wording import told
from binlog_tools.spark.cli.running import remote_of, started
from binlog_tools.spark.definitions.errors import TableError
from binlog_tools.spark.live.querying import BATCH_BYTES, NAME, Behind, Wish, behind, names_of, run
from binlog_tools.spark.live.running import LiveTables
from binlog_tools.spark.segments.decoding import DAMAGE_CHOICES
from binlog_tools.spark.session import active, explained
from binlog_tools.spark.stream_metrics import METRICS, MetricsServer, Queries, Sample
from binlog_tools.spark.tables.targets import read_targets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    """
    Keep lifetimes, attempts, tube_minutes and breaches up to date in OUTPUT, as Delta tables.

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
    spark: "SparkSession", tables: LiveTables, port: int | None, begun: Mapping[str, Behind]
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
