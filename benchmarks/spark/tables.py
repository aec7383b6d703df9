"""What the tables cost in processor time and memory: of a history, and of a day's increment to it.

    python -m benchmarks.spark.tables --jobs 300000
    python -m benchmarks.spark.tables --jobs 1600000 --days 40
    python -m benchmarks.spark.tables --jobs 400000 --days 365 --increment
    python -m benchmarks.spark.tables --jobs 300000 --spark

Each figure is of a command of its own (`python -m binlog_tools.spark tables`): processor time of it
and all processes that it starts, its start and imports included.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.spark import madeup
from binlog_tools.spark.definitions.columns import BY_NAME, arrow_schema
from binlog_tools.spark.events import PARTITION_BY
from binlog_tools.spark.histories.counters import DAY_NS
from binlog_tools.spark.storing import Layout, open_stored

FEW: Final = 1000
"""Events of a day that is not whole."""

PART_JOBS: Final = 400_000
"""Jobs that are made up at once: some 3 GB."""

_LAYOUT: Final = Layout("events", arrow_schema(BY_NAME).append(pa.field("date", pa.date32())),
                        PARTITION_BY)  # fmt: skip


def write(place: Path, rows: pa.Table) -> None:
    """Add rows to an events table."""
    dated = rows.append_column("date", rows["logged"].cast(pa.date32()))
    for field in _LAYOUT.schema:
        if field.name not in dated.column_names:
            dated = dated.append_column(field.name, pa.nulls(dated.num_rows, field.type))
    open_stored(str(place), _LAYOUT).write(dated.select(_LAYOUT.schema.names))


def cpu_s(*words: str) -> tuple[float, int]:
    """Run the command; return its processor time, and the most memory it had, MB."""
    command = [sys.executable, "-m", "binlog_tools.spark", "tables", *words]
    process = subprocess.Popen(command, stdout=sys.stderr)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)}: {status}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss // 1024


def last_day(rows: pa.Table) -> Any:
    """The last day with more than a few events."""
    days = rows["logged"].cast(pa.date32())
    counts = pc.value_counts(days).to_pylist()
    return max(each["values"] for each in counts if each["counts"] > FEW)


def make(place: Path, jobs: int, days: int, first: int, is_cut: bool = False) -> int:
    """Write the events of so many jobs from a first one on: the last day to the table
    ``day`` if they are cut.  Return how many the last table has got.
    """
    rows = madeup.events(jobs, days=days, seed=first + 1)
    if not is_cut:
        write(place / "events", _moved(rows, first, first // jobs * days))
        return int(rows.num_rows)
    is_last = pc.greater_equal(rows["logged"].cast(pa.date32()), last_day(rows))
    write(place / "events", rows.filter(pc.invert(is_last)))
    write(place / "day", rows.filter(is_last))
    return int(pc.sum(is_last).as_py())


def _moved(rows: pa.Table, jobs: int, days: int) -> pa.Table:
    """The same history, so many jobs and days later."""
    for place, field in enumerate(rows.schema):
        name = field.name
        if name in ("job", "lsn"):
            moved = pc.add(rows[name], jobs * (10 if name == "lsn" else 1))
        elif name.endswith("_ns"):
            moved = pc.add(rows[name], days * DAY_NS)
        elif pa.types.is_timestamp(field.type):
            moved = pc.add(rows[name], pa.scalar(days * DAY_NS // 1000, pa.duration("us")))
        else:
            continue
        rows = rows.set_column(place, field, moved)
    return rows


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=300_000)
    parser.add_argument("--days", type=int, default=9, help="how long the history is")
    parser.add_argument("--spark", action="store_true", help="by Spark, not in one process")
    parser.add_argument("--increment", action="store_true",
                        help="the last day alone, and added to the others")  # fmt: skip
    asked = parser.parse_args()
    how = ["--master", "local[2]"] if asked.spark else ["--local"]
    # In processes of their own: a command has at least the memory that its parent had.
    own = ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1)
    with own as made, tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        print("| what | events | CPU seconds | MB |\n| --- | ---: | ---: | ---: |")

        def say(what: str, count: int, out: str, source: str) -> None:
            taken, megabytes = cpu_s(str(place / source), "-o", str(place / out), *how)
            print(f"| {what} | {count:,} | {taken:.1f} | {megabytes:,} |", flush=True)

        if not asked.increment:
            parts = -(-asked.jobs // PART_JOBS)
            sizes = (asked.jobs // parts, asked.days // parts)
            counts = [made.submit(make, place, *sizes, part * sizes[0]).result()
                      for part in range(parts)]  # fmt: skip
            say("all tables", sum(counts), "tables", "events")
            say("nothing new", 0, "tables", "events")
            return
        newest = made.submit(make, place, asked.jobs, asked.days, 0, True).result()
        say("all but the last day", 0, "tables", "events")
        say("the last day alone", newest, "alone", "day")
        shutil.rmtree(place / "alone")
        say("the last day alone, again", newest, "alone", "day")
        write(place / "events", open_stored(str(place / "day")).read().drop_columns("date"))
        say("the last day added to the others", newest, "tables", "events")


if __name__ == "__main__":
    main()
