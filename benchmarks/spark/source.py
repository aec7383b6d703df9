"""How fast logs become tables: ``python -m benchmarks.spark.source --help``.

The decoder alone, in one process, beside one that goes record by record and beside the checksum of
the same bytes; then through Spark, beside a source that gives tuples; then the memory of a worker;
then from S3, and planning.
Rates are rows for each second of processor time, so they are those of one core.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, cycle, islice
from pathlib import Path
from typing import Any, Final

from beanstalk_twisted.binlog.records.jobs import JobImage, Kind, Reason, State
from beanstalk_twisted.binlog.records.others import Record, TubeDef
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import SegmentHeader, archive_name
from benchmarks.spark.bucket import give_credentials
from benchmarks.spark.rows import FEW, TupleSource, as_datetime, as_microseconds, rows
from binlog_tools.spark.definitions.columns import BY_NAME, UNASKED
from binlog_tools.spark.reading.options import parse_options
from binlog_tools.spark.source import BinlogReader

ROOT: Final = Path(__file__).resolve().parents[2]
FRAMES: Final = (1, 8, 64, 512)
"""Records a frame: what a lone client gives, and what many at once do."""

ALL: Final = tuple(name for name in BY_NAME if name not in UNASKED["tags"])
NO_BODY: Final = tuple(name for name in ALL if name != "body")
COLUMNS: Final = {"all and bodies": ALL, "no body": NO_BODY, "4 columns": FEW}

TARGETS: Final = {("all and bodies", 64): 6.0, ("no body", 64): 8.0}
"""How many times the rate of the reader with datetimes, at least."""

RATE_TARGET: Final = 3.0
"""Million rows a second at 64 records a frame without bodies, at least."""

SPARK_TARGET: Final = 5.0
"""How many times the rate of a source of tuples, through Spark."""

MEMORY_TARGET_MB: Final = 80

NS: Final = 1_000_000_000
T0: Final = 1_763_640_000 * NS
SALT: Final = 0x5EED5EED

# Logs to read.


def records(count: int) -> list[JobImage]:
    """Puts with bodies of 20 to 220 bytes, reserves and deletes, in turns."""
    dice = random.Random(1)
    kinds = ((Kind.PUT, State.READY), (Kind.RESERVE, State.RESERVED), (Kind.DELETE, State.GONE))
    return [
        JobImage(
            *kinds[number % 3], Reason.CLIENT, 1024, number // 3 + 1, T0 + number * 1000,
            T0 + NS if number % 3 == 1 else 0, 0, 60, dice.randint(1, 20), connection=number % 50,
            body=dice.randbytes(dice.randint(20, 220)) if number % 3 == 0 else b"",
        )
        for number in range(count)
    ]  # fmt: skip


def write_log(folder: Path, per_frame: int, count: int, segments: int) -> Path:
    """The archive of a log of so many segments, with so many records each."""
    folder.mkdir(parents=True)
    pool = cycle(records(30_000))
    tubes: list[Record] = [TubeDef(number, b"tube-%d" % number, T0) for number in range(1, 21)]
    lsn, end = 1, 0
    for seq in range(1, segments + 1):
        first_lsn = lsn
        header = SegmentHeader(seq, lsn, T0, end, 1, 1, b"\1" * 16, SALT, 0, 1, "benchmark")
        parts = [header.encode()]
        groups: Iterator[list[Record]] = (
            [*islice(pool, per_frame)] for _ in range(count // per_frame)
        )
        for group in chain([tubes], groups):
            last = lsn + len(group) - 1
            parts.append(
                frames.encode(group, base_lsn=lsn, durable_lsn=last, time_ns=T0 + lsn, salt=SALT)
            )
            lsn = last + 1
        content = b"".join(parts)
        end = len(content)
        (folder / archive_name(seq, first_lsn)).write_bytes(content)
    return folder


# Measuring.


def decoded(folder: Path | str, columns: tuple[str, ...]) -> Iterator[Any]:
    """The batches of a log, as the tasks make them."""
    reader = BinlogReader(parse_options({"path": str(folder)}), columns)
    return (batch for each in reader.partitions() for batch in reader.read(each))


def rate(work: Callable[[], int]) -> float:
    """Million rows for each second of the processor."""
    start = time.process_time()
    count = work()
    return count / (time.process_time() - start) / 1e6


def medians(works: dict[str, Callable[[], int]], rounds: int) -> dict[str, float]:
    """The rates of some readers, which take turns."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            found[name].append(rate(work))
    return {name: statistics.median(rates) for name, rates in found.items()}


def alone(place: Path, count: int, rounds: int) -> list[str]:
    """The decoder in this process; prints a table.

    :return: which targets are missed.
    """
    missed = []
    print("records/frame  columns          vector  datetimes  integers    ratios     of crc32")
    for per_frame in FRAMES:
        folder = write_log(place / str(per_frame), per_frame, count, 1)
        (segment,) = folder.glob("*.tql")
        raw = segment.read_bytes()
        bytes_each = len(raw) / count
        crc = medians({"crc": lambda raw=raw: checksum(raw)}, rounds)["crc"]  # type: ignore[misc]
        for label, columns in COLUMNS.items():
            works = readers(folder, raw, columns)
            got = medians(works, rounds)
            dates, numbers = (got["vector"] / got[name] for name in ("datetimes", "integers"))
            share = got["vector"] * bytes_each / crc
            print(
                f"{per_frame:13}  {label:15}  {got['vector']:6.2f}  {got['datetimes']:9.2f}  "
                f"{got['integers']:8.2f}  {dates:5.1f} {numbers:4.1f}  {share:8.2f}",
                flush=True,
            )
            target = TARGETS.get((label, per_frame), 0.0)
            if dates < target:
                missed.append(f"{label}, {per_frame} a frame: {dates:.1f} times, not {target}")
            if target and label == "no body" and got["vector"] < RATE_TARGET:
                missed.append(f"{got['vector']:.2f} million rows/s, not {RATE_TARGET}")
    return missed


def readers(
    folder: Path, raw: bytes, columns: tuple[str, ...]
) -> dict[str, Callable[[], int]]:  # fmt: skip
    """The decoder, and the two that go record by record."""
    return {
        "vector": lambda: sum(len(batch) for batch in decoded(folder, columns)),
        "datetimes": lambda: sum(1 for _ in rows(raw, columns, as_datetime)),
        "integers": lambda: sum(1 for _ in rows(raw, columns, as_microseconds)),
    }


def checksum(raw: bytes) -> int:
    """The checksum of all bytes, in blocks of 64 KiB."""
    view = memoryview(raw)
    for at in range(0, len(raw), 1 << 16):
        zlib.crc32(view[at : at + (1 << 16)])
    return len(raw)


def through_spark(place: Path, count: int, rounds: int, labels: Sequence[str]) -> list[str]:
    """Both sources through Spark into nothing; prints a table.

    :param labels: which of `COLUMNS`.
    """
    from binlog_tools.spark.session import session

    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    folder = write_log(place / "spark", 64, count, 2)
    spark = session("benchmark", {"spark.master": "local[2]", "spark.ui.enabled": "false"})
    spark.dataSource.register(TupleSource)
    missed = []
    print("columns          source  tuples  ratio")
    for label in labels:
        columns = COLUMNS[label]
        ours = spark.read.format("beanstalk_binlog").options(columns=",".join(columns))
        tuples = spark.read.format("beanstalk_tuples").options(columns=json.dumps(columns))
        found: dict[str, list[float]] = {"ours": [], "tuples": []}
        for round_number in range(rounds + 1):
            for name, reading in (("ours", ours), ("tuples", tuples)):
                start = tree_seconds(os.getpid())
                reading.load(str(folder)).write.format("noop").mode("overwrite").save()
                spent = tree_seconds(os.getpid()) - start
                if round_number:
                    found[name].append(2 * count / spent / 1e6)
        got = {name: statistics.median(rates) for name, rates in found.items()}
        ratio = got["ours"] / got["tuples"]
        print(f"{label:15}  {got['ours']:6.2f}  {got['tuples']:6.2f}  {ratio:5.1f}", flush=True)
        if ratio < SPARK_TARGET:
            missed.append(f"through Spark, {label}: {ratio:.1f} times, not {SPARK_TARGET}")
    spark.stop()
    return missed


def tree_seconds(root: int) -> float:
    """Processor time of a process and of all below it, ended ones that were waited for included."""
    parents, spent = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        number = int(folder.name)
        parents[number] = int(fields[1])
        spent[number] = sum(int(ticks) for ticks in fields[11:15])
    wanted = {root}
    while more := {each for each, parent in parents.items() if parent in wanted} - wanted:
        wanted |= more
    return sum(spent.get(each, 0) for each in wanted) / os.sysconf("SC_CLK_TCK")


# Memory.


def anonymous_mb() -> float:
    """Memory of this process that is no file."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) / 1024


def memory_of(folder: str) -> None:
    """Prints how much memory reading a log takes above what is there before; in a process of
    its own.
    """
    reader = BinlogReader(parse_options({"path": folder}), ALL)
    partitions = reader.partitions()
    idle = most = anonymous_mb()
    for each in partitions:
        for batch in reader.read(each):
            most = max(most, anonymous_mb())
            del batch
    print(f"{most - idle:.0f}")


def memory(place: Path, count: int) -> list[str]:
    """The memory of a worker, for segments of two sizes; prints it."""
    missed = []
    for factor in (1, 4):
        folder = write_log(place / f"memory-{factor}", 64, count * factor, 1)
        command = [sys.executable, "-m", "benchmarks.spark.source", "--memory-of", str(folder)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        size = sum(file.stat().st_size for file in folder.iterdir()) / 1e6
        print(
            f"memory above idle, all columns, a segment of {size:.0f} MB: {done.stdout.strip()} MB"
        )
        if float(done.stdout) > MEMORY_TARGET_MB:
            missed.append(f"memory: {done.stdout.strip()} MB, not {MEMORY_TARGET_MB}")
    return missed


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and end with 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark.source")
    parser.add_argument("--records", type=int, default=300_000, help="in a segment")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--parts", default="alone,spark,memory,stores", help="which, of these")
    parser.add_argument("--segments", type=int, default=10_000, help="planned, in the part stores")
    parser.add_argument(
        "--spark-columns", nargs="+", choices=COLUMNS, default=list(COLUMNS), help="through Spark"
    )
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.memory_of:
        memory_of(given.memory_of)
        return
    parts = given.parts.split(",")
    give_credentials()
    missed = []
    with tempfile.TemporaryDirectory() as place:
        if "alone" in parts:
            missed += alone(Path(place), given.records, given.rounds)
        if "spark" in parts:
            missed += through_spark(Path(place), given.records, given.rounds, given.spark_columns)
        if "memory" in parts:
            missed += memory(Path(place), given.records)
        if "stores" in parts:
            from benchmarks.spark.stores import from_stores

            missed += from_stores(Path(place), given.records, given.rounds, given.segments)
    for each in missed:
        print(f"missed: {each}")
    raise SystemExit(bool(missed))


if __name__ == "__main__":
    main()
