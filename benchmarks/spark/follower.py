"""A stream from a log to Parquet, as a program that can be killed: one driver of Spark.

``python -m benchmarks.spark.follower --help``.  `kills` and `latency` begin it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow.parquet as pq

from binlog_tools.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

COLUMNS: Final = "server,lsn,event,job,logged_ns"


def started(folder: Path) -> SparkSession:
    """A session on two threads."""
    return session(
        "follower",
        {
            "spark.master": "local[2]", "spark.ui.enabled": "false",
            "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": 2, "spark.local.dir": folder / "local",
            "spark.sql.warehouse.dir": folder / "warehouse", "spark.log.level": "ERROR",
            "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        },
    )  # fmt: skip


def follow(spark: SparkSession, given: argparse.Namespace) -> StreamingQuery:
    """From the log to ``out``, progress in ``checkpoint``."""
    rows = (
        spark.readStream.format("beanstalk_binlog").option("columns", COLUMNS)
        .option("archive", str(given.archive)).option("maxBytesPerTrigger", given.max_bytes)
        .load(str(given.log))
    )  # fmt: skip
    writing = (
        rows.writeStream.format("parquet").option("path", str(given.folder / "out"))
        .option("checkpointLocation", str(given.folder / "checkpoint"))
    )  # fmt: skip
    if given.available_now:
        return writing.trigger(availableNow=True).start()
    return writing.trigger(processingTime=given.every).start()


def main(words: Sequence[str] | None = None) -> int:
    """:return: the exit code."""
    parser = argparse.ArgumentParser(description="Follow a log into Parquet, until killed.")
    parser.add_argument("folder", type=Path, help="gets out and checkpoint")
    parser.add_argument("--log", type=Path, required=True, help="directory of the server")
    parser.add_argument("--archive", type=Path, required=True, help="its archive")
    parser.add_argument("--max-bytes", default="1M", help="of a batch (%(default)s)")
    parser.add_argument("--every", default="0 seconds", help="between batches (%(default)s)")
    parser.add_argument("--available-now", action="store_true", help="end with what there is")
    parser.add_argument("--result", type=Path, help="then write (server, lsn) of all rows here")
    given = parser.parse_args(words)
    spark = started(given.folder)
    follow(spark, given).awaitTermination()
    if given.result:
        table = spark.read.parquet(str(given.folder / "out")).select("server", "lsn").toArrow()
        pq.write_table(table, given.result)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
