"""
``live``: tables that follow the logs.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from binlog_tools.console.output import Output
from binlog_tools.spark.cli.running import started
from binlog_tools.spark.definitions.errors import TableError
from binlog_tools.spark.live.querying import BATCH_BYTES, Wish, run
from binlog_tools.spark.live.running import LiveTables
from binlog_tools.spark.segments.decoding import DAMAGE_CHOICES
from binlog_tools.spark.session import explained
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
        spark = started("live", master)
        if not hasattr(spark, "_jsparkSession"):
            raise TableError("TABLE_OPTION", "live needs a classic session: with Spark Connect its "
                             "batches would be taken on the other machine; give --master local[2], "
                             "or use spark-submit")  # fmt: skip
        with LiveTables(wish.output, wanted) as tables, _served(spark, tables, metrics):
            began = time.monotonic()
            run(spark, wish, tables)
            for name, rows in tables.told.items():
                Output().line(f"{name}: {rows} rows, {time.monotonic() - began:.1f} s")


@contextmanager
def _served(spark: "SparkSession", tables: LiveTables, port: int | None) -> Iterator[None]:
    if port is None:
        yield
        return
    queries = Queries()
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
