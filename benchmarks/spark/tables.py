"""What the tables cost: rows per second of processor time, by pipeline, and two ways to Parquet.

    python -m benchmarks.spark.tables --jobs 300000 --repeats 3
    python -m benchmarks.spark.tables --jobs 400000 --days 365 --repeats 3 --only growing

Processor time is that of Spark and its workers together, by what the kernel says of all processes
that this one has started, so other work on the machine does not count.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.spark import madeup
from binlog_tools.spark.definitions.columns import BY_NAME, arrow_schema
from binlog_tools.spark.events import PARTITION_BY, event_rows
from binlog_tools.spark.session import session
from binlog_tools.spark.storing.delta import DeltaStored
from binlog_tools.spark.storing.files import File, Layout, dated, stored_files
from binlog_tools.spark.storing.locations import Location
from binlog_tools.spark.storing.opening import open_stored
from binlog_tools.spark.storing.stored import Change
from binlog_tools.spark.tables.growing import update
from binlog_tools.spark.tables.pipelines import PIPELINES
from binlog_tools.spark.tasks import in_tasks

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
FEW = 1000
"""Events of a day that is not whole."""

_LAYOUT = Layout("events", arrow_schema(BY_NAME).append(pa.field("date", pa.date32())),
                 PARTITION_BY)  # fmt: skip


def cpu_s() -> float:
    """Of this process and all that have come from it."""
    return sum(_ticks(pid) for pid in _family()) * TICK_S


def _family() -> Iterator[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
    for pid in parents:
        ancestor = pid
        while ancestor > 1 and ancestor != os.getpid():
            ancestor = parents.get(ancestor, 0)
        if ancestor == os.getpid():
            yield pid


def _ticks(pid: int) -> int:
    """Its own, and those of its children that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return sum(map(int, fields[11:15]))


def rate(rows: int, repeats: int, work: Callable[[], Any]) -> float:
    """Rows per second of processor time: the median, after one run that does not count."""
    work()
    rates = []
    for _ in range(repeats):
        before = cpu_s()
        work()
        rates.append(rows / (cpu_s() - before))
    return statistics.median(rates)


def batches(path: str) -> Iterator[Any]:
    """The rows of a file, as the source would give them."""
    yield from pq.ParquetFile(path).iter_batches(batch_size=65_536)


def write(out: str, path: str) -> int:
    """What a task does that writes the rows of a file by itself.

    :return: how many.
    """
    rows = (dated(batch, "logged") for batch in batches(path))
    return sum(file.rows for file in stored_files(Location.of(out), rows, _LAYOUT))


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=300_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--days", type=int, default=9, help="how long the history is")
    parser.add_argument("--only", nargs="*", default=[*PIPELINES, "parquet", "growing"])
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        table = madeup.events(asked.jobs, days=asked.days)
        madeup.write(place / "events", table, 4)
        rows = table.num_rows
        del table
        spark = session("benchmark", {"spark.master": "local[2]", "spark.ui.enabled": "false",
                                      "spark.sql.shuffle.partitions": 2})  # fmt: skip
        spark.sparkContext.setLogLevel("ERROR")
        try:
            _measure(spark, place, rows, asked.repeats, asked.only)
        finally:
            spark.stop()


def _measure(spark: Any, place: Path, rows: int, repeats: int, only: list[str]) -> None:
    events = spark.read.parquet(str(place / "events"))
    print(f"{rows:,} events\n\n| what | rows per CPU second |\n| --- | ---: |")
    for name in (name for name in PIPELINES if name in only):
        made = PIPELINES[name].make(events)
        found = rate(rows, repeats, made.write.format("noop").mode("overwrite").save)
        print(f"| {name} | {found:,.0f} |", flush=True)
    if "growing" in only:
        _grow(spark, place, repeats)
    if "parquet" not in only:
        return
    files = sorted(str(path) for path in (place / "events").glob("*.parquet"))
    by_task = rate(rows, repeats, lambda: _by_tasks(spark, place / "tasks", files))
    by_spark = rate(rows, repeats, lambda: _by_spark(spark, place / "spark", files))
    print(f"| Parquet, written by the tasks | {by_task:,.0f} |")
    print(f"| Parquet, written by Spark | {by_spark:,.0f} |\n\nratio {by_task / by_spark:.2f}")


def _grow(spark: Any, place: Path, repeats: int) -> None:
    """All stored tables; and by turns that day alone, and behind the others.  The first run of each
    warms Java up, which goes on for several more: that is why they take turns.
    """
    files = sorted(str(path) for path in (place / "events").glob("*.parquet"))
    table, alone = (open_stored(str(place / name), _LAYOUT) for name in ("log", "day"))
    written = [file for path in files for file in _stored(table, path)]
    days = sorted({_day(file) for file in written})
    # What comes on the morning behind the last day are ends of its jobs.
    last_day = max(day for day in days if sum(
        file.rows for file in written if _day(file) == day) > FEW)  # fmt: skip
    newest = [file for file in written if _day(file) == last_day]
    alone.commit(Change(tuple(each for path in files for each in _stored(alone, path, last_day))))
    table.commit(Change(tuple(file for file in written if _day(file) < last_day)))
    print("\n| what | events | CPU seconds |\n| --- | ---: | ---: |")
    _say("all but the last day, cold", table, _update(spark, table, place / "grown"))
    table.commit(Change(tuple(newest)))
    behind, by_itself = [], []
    for number in range(repeats + 1):
        by_itself.append(_update(spark, alone, place / f"alone-{number}"))
        grown = place / f"grown-{number}"
        shutil.copytree(place / "grown", grown)
        behind.append(_update(spark, table, grown))
        shutil.rmtree(grown)
    _say("the last day alone", alone, statistics.median(by_itself[1:]))
    _say("the last day behind the others", alone, statistics.median(behind[1:]))
    _say("all tables", table, _update(spark, table, place / "whole"))
    ratio = statistics.median(behind[1:]) / statistics.median(by_itself[1:])
    print(f"\nbehind the others / alone {ratio:.2f}")


def _day(file: File) -> str:
    return str(dict(file.partition)["date"])


def _stored(table: DeltaStored, path: str, day: str | None = None) -> list[File]:
    rows = (dated(batch, "logged") for batch in batches(path))
    if day is not None:
        is_wanted = pc.field("date") == pa.scalar(day).cast(pa.date32())
        rows = (batch.filter(is_wanted) for batch in rows)
    return stored_files(table.location, rows, _LAYOUT)


def _update(spark: Any, table: DeltaStored, out: Path) -> float:
    """:return: CPU seconds."""
    before = cpu_s()
    times = []
    for made in update(spark, str(out), partial(event_rows, [str(table.location)])):
        times.append(f"{made.name} {cpu_s() - before:.1f}")
    print(f"  {out.name}, CPU seconds by when: {', '.join(times)}", file=sys.stderr, flush=True)
    return cpu_s() - before


def _say(what: str, table: DeltaStored, taken_s: float) -> None:
    count = sum(file.rows for file in table.files(told=()))
    print(f"| {what} | {count:,} | {taken_s:.1f} |", flush=True)


def _by_tasks(spark: Any, out: Path, files: list[str]) -> None:
    shutil.rmtree(out, ignore_errors=True)
    in_tasks(spark, files, partial(write, str(out)))


def _by_spark(spark: Any, out: Path, files: list[str]) -> None:
    """The same batches, handed to Spark, which writes them by server and day."""
    paths = spark.createDataFrame([(path,) for path in files], "path string").repartition(4, "path")

    def read(given: Iterator[Any]) -> Iterator[Any]:
        for each in given:
            for path in each["path"].to_pylist():
                yield from batches(path)

    schema = spark.read.parquet(files[0]).schema
    rows = paths.mapInArrow(read, schema).selectExpr("*", "to_date(logged) AS date")
    write = rows.write.mode("overwrite").option("compression", "zstd")
    write.partitionBy("server", "date").parquet(str(out))


if __name__ == "__main__":
    main()
