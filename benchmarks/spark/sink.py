"""The sink's speed, beside a client that does nothing but put.

    python -m benchmarks.spark.sink [--server NAME] [--jobs N] [--rounds N]

Three ways to put the same jobs: a bare socket that sends windows of `WINDOW` puts, made beforehand,
and counts the replies; the sink's own code on Arrow batches, without Spark; and Spark, with one and
with two partitions, each a connection.  Every measurement has a new server on a free port of
127.0.0.1; the rounds of all ways follow each other, and medians are compared.  Server and clients
share the processors of one machine.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.client import SERVERS, running
from binlog_tools.spark.sink import register
from binlog_tools.spark.writing.job_rows import JobRows, SinkOptions
from binlog_tools.spark.writing.putting import put_partition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WINDOW: Final = 100
"""Puts on their way at once, of all ways."""

BODY_BYTES: Final = 200
BATCH_ROWS: Final = 10_000
"""As many as Spark gives to Python at once."""

Way = Callable[[int], float]
"""Puts all jobs into the server at this port; returns how many a second."""


def bare(jobs: int) -> Way:
    """A socket, and bytes that were made before."""
    put = b"put 1024 0 60 %d\r\n%b\r\n" % (BODY_BYTES, b"x" * BODY_BYTES)
    whole, rest = divmod(jobs, WINDOW)
    sizes = [WINDOW] * whole + ([rest] if rest else [])

    def way(port: int) -> float:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            began = time.perf_counter()
            for size in sizes:
                connection.sendall(put * size)
                while size:
                    size -= connection.recv(1 << 16).count(b"\n")
            return jobs / (time.perf_counter() - began)

    return way


def batches(jobs: int) -> list[pa.RecordBatch]:
    """The jobs, as a table."""
    bodies = pa.array([b"x" * BODY_BYTES] * jobs, pa.binary())
    found: list[pa.RecordBatch] = pa.table({"body": bodies}).to_batches(BATCH_ROWS)
    return found


def without_spark(jobs: int) -> Way:
    """What a task does."""
    table = batches(jobs)

    def way(port: int) -> float:
        options = SinkOptions.of({"address": f"127.0.0.1:{port}", "window": str(WINDOW)})
        began = time.perf_counter()
        put_partition(table, JobRows([("body", "binary")], options), options, 0)
        return jobs / (time.perf_counter() - began)

    return way


def by_spark(spark: SparkSession, folder: Path, jobs: int, partitions: int) -> Way:
    """All of it: reading Parquet, and a connection for each partition."""
    path = folder / f"jobs-{partitions}"
    path.mkdir()
    share = -(-jobs // partitions)
    for number in range(partitions):
        size = min(share, jobs - number * share)
        pq.write_table(pa.Table.from_batches(batches(size)), path / f"{number}.parquet")

    def way(port: int) -> float:
        table = spark.read.parquet(str(path))
        write = table.write.format("beanstalk").mode("append").option("window", str(WINDOW))
        began = time.perf_counter()
        write.option("address", f"127.0.0.1:{port}").save()
        return jobs / (time.perf_counter() - began)

    return way


def started(folder: Path) -> SparkSession:
    """A session on two threads."""
    from binlog_tools.spark.session import session

    return register(
        session(
            "sink",
            {
                "spark.master": "local[2]", "spark.ui.enabled": "false",
                "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1",
                "spark.local.dir": folder / "local", "spark.log.level": "ERROR",
                "spark.sql.warehouse.dir": folder / "warehouse",
                # One partition a file: the files are small, and would be packed together.
                "spark.sql.files.openCostInBytes": 1 << 30,
            },
        )
    )  # fmt: skip


def wait_for(port: int) -> None:
    """Wait until somebody listens: beanstalkd tells its port a moment before."""
    give_up = time.monotonic() + 10
    while time.monotonic() < give_up:
        with suppress(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port)).close()
            return
        time.sleep(0.01)


def compare(server: str, jobs: int, rounds: int) -> dict[str, float]:
    """Measure all ways in turn; the first round is not counted.

    :return: jobs a second, the median of each way.
    """
    with TemporaryDirectory(prefix="sink-") as name:
        folder = Path(name)
        spark = started(folder)
        ways = {
            "bare client": bare(jobs),
            "sink without Spark": without_spark(jobs),
            "Spark, 1 connection": by_spark(spark, folder, jobs, 1),
            "Spark, 2 connections": by_spark(spark, folder, jobs, 2),
        }
        taken: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(rounds + 1):
            for way, measure in ways.items():
                with running(server) as port:
                    wait_for(port)
                    taken[way].append(measure(port))
        spark.stop()
    return {way: statistics.median(rates[1:]) for way, rates in taken.items()}


def main(words: Sequence[str] | None = None) -> int:
    """:return: the exit code."""
    parser = argparse.ArgumentParser(description="Compare the sink with a bare client.")
    parser.add_argument("--server", choices=SERVERS, default="ours", help="%(default)s")
    parser.add_argument("--jobs", type=int, default=100_000, help="%(default)s")
    parser.add_argument("--rounds", type=int, default=5, help="%(default)s")
    given = parser.parse_args(words)
    medians = compare(given.server, given.jobs, given.rounds)
    print(f"{given.server}; {given.jobs} jobs of {BODY_BYTES} bytes; {given.rounds} rounds\n")
    print("| medians | jobs/s | of the bare client |\n| --- | --- | --- |")
    for way, rate in medians.items():
        print(f"| {way} | {rate:,.0f} | {rate / medians['bare client']:.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
