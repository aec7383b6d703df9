"""What the tables cost in processor time: of a history, and of a day's increment to it.

    python -m benchmarks.spark.tables --jobs 300000
    python -m benchmarks.spark.tables --jobs 400000 --days 365 --increment
    python -m benchmarks.spark.tables --jobs 300000 --spark

Each figure is of a command of its own (`python -m binlog_tools.spark tables`): processor time of it
and all processes that it starts, its start and imports included.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.spark import madeup
from binlog_tools.spark.definitions.columns import BY_NAME, arrow_schema
from binlog_tools.spark.events import PARTITION_BY
from binlog_tools.spark.storing import Layout, open_stored

FEW: Final = 1000
"""Events of a day that is not whole."""

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
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "binlog_tools.spark", "tables", *words]
    subprocess.run(command, check=True, stdout=sys.stderr, env={**os.environ})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    taken = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return taken, after.ru_maxrss // 1024


def last_day(rows: pa.Table) -> Any:
    """The last day with more than a few events."""
    days = rows["logged"].cast(pa.date32())
    counts = pc.value_counts(days).to_pylist()
    return max(each["values"] for each in counts if each["counts"] > FEW)


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
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        rows = madeup.events(asked.jobs, days=asked.days)
        print("| what | events | CPU seconds | MB |\n| --- | ---: | ---: | ---: |")

        def say(what: str, count: int, out: str, source: str) -> None:
            taken, megabytes = cpu_s(str(place / source), "-o", str(place / out), *how)
            print(f"| {what} | {count:,} | {taken:.1f} | {megabytes:,} |", flush=True)

        if not asked.increment:
            write(place / "events", rows)
            say("all tables", rows.num_rows, "tables", "events")
            say("nothing new", 0, "tables", "events")
            return
        is_last = pc.greater_equal(rows["logged"].cast(pa.date32()), last_day(rows))
        before, newest = rows.filter(pc.invert(is_last)), rows.filter(is_last)
        write(place / "events", before)
        write(place / "day", newest)
        say("all but the last day", before.num_rows, "tables", "events")
        write(place / "events", newest)
        say("the last day alone", newest.num_rows, "alone", "day")
        shutil.rmtree(place / "alone")
        say("the last day alone, again", newest.num_rows, "alone", "day")
        say("the last day added to the others", newest.num_rows, "tables", "events")


if __name__ == "__main__":
    main()
