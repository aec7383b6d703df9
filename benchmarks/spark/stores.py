"""What reading a log costs by where it is: the part ``stores`` of `benchmarks.spark.source`.

The decoder alone and Spark, on a directory, on S3, and on an events table of the same rows; and
what it costs to plan a read of many segments.  The processor time of the S3 server does not count.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

from beanstalk_twisted.binlog.archive_manifest import MANIFEST, Manifest, describe
from beanstalk_twisted.binlog.records.jobs import Kind
from beanstalk_twisted.binlog.records.others import Record, Seal, TubeDef
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    archive_name,
    decode_segment_header,
)
from beanstalk_twisted.binlog.segments.framing import encode_trailer
from beanstalk_twisted.binlog.segments.seals import IndexedFrame, SealIndex
from benchmarks.spark.bucket import Bucket, bucket
from benchmarks.spark.source import (
    NO_BODY,
    ROOT,
    SALT,
    T0,
    anonymous_mb,
    decoded,
    medians,
    records,
    tree_seconds,
    write_log,
)
from binlog_tools.spark.events import write_events
from binlog_tools.spark.reading.options import parse_options
from binlog_tools.spark.source import BinlogReader
from binlog_tools.spark.storing import open_stored
from binlog_tools.spark.tasks import read_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

UUID: Final = b"\1" * 16

FRAMES: Final = 16
"""Of a segment for planning: as many as a manifest tells of one of 64 MiB."""

SOME: Final = 20
"""Without a manifest so many times fewer segments are planned in S3: the server takes its time."""


def from_stores(place: Path, count: int, rounds: int, segments: int) -> list[str]:
    """Print all of it.

    :param count: records in each of two segments.
    :param segments: to plan.
    """
    log = write_log(place / "stored", 64, count, 2)
    many = write_sealed(place / "many", segments)
    some = write_sealed(place / "some", segments // SOME)
    with bucket({"log": log, "some": some}) as there:
        alone(log, there, rounds)
        through_spark(place, log, there, 2 * count, rounds)
        planned(str(many), "without")
        planned(there.url("some"), "without", there)
    write_manifest(many)
    with bucket({"many": many}) as there:
        planned(str(many), "with")
        planned(there.url("many"), "with", there)
    return []


def alone(log: Path, there: Bucket, rounds: int) -> None:
    """The decoder in this process."""
    works: dict[str, Callable[[], int]] = {
        name: lambda path=path: sum(len(batch) for batch in decoded(path, NO_BODY))  # type: ignore[misc]
        for name, path in (("a directory", log), ("S3", there.url("log")))
    }
    for name, found in medians(works, rounds).items():
        print(f"no body, 64 records a frame, from {name}: {found:.2f} million rows/s", flush=True)


# Through Spark.


def through_spark(place: Path, log: Path, there: Bucket, rows: int, rounds: int) -> None:
    """Into nothing, by all columns but bodies, and by two of them."""
    from binlog_tools.spark.session import session

    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    spark = session("benchmark", {"spark.master": "local[2]", "spark.ui.enabled": "false"})
    table = str(place / "events")
    write_events(parse_options({"path": str(log), "copies": "keep"}), table)
    for label, columns in (("no body", NO_BODY), ("2 columns", ("event", "tube"))):
        frames_of: dict[str, Callable[[], DataFrame]] = {
            "a directory": partial(of_log, spark, str(log), columns),
            "S3": partial(of_log, spark, there.url("log"), columns),
            "the events table": partial(of_table, spark, table, columns),
        }
        spent = costs(frames_of, there, rounds)
        for name, seconds in spent.items():
            rate = rows / statistics.median(seconds) / 1e6
            print(f"through Spark, {label}, from {name}: {rate:.2f} million rows/s", flush=True)
    spark.stop()


def of_log(spark: SparkSession, path: str, columns: Sequence[str]) -> DataFrame:
    reading = spark.read.format("beanstalk_binlog")
    return reading.options(columns=",".join(columns), copies="keep").load(path)


def of_table(spark: SparkSession, path: str, columns: Sequence[str]) -> DataFrame:
    return read_frame(spark, open_stored(path), columns)


def costs(
    works: dict[str, Callable[[], DataFrame]], there: Bucket, rounds: int
) -> dict[str, list[float]]:
    """Processor time of Spark and its workers, by turns; the first turn does not count."""

    def now() -> float:
        return tree_seconds(os.getpid()) - tree_seconds(there.pid)

    found: dict[str, list[float]] = {name: [] for name in works}
    for number in range(rounds + 1):
        for name, work in works.items():
            start = now()
            work().write.format("noop").mode("overwrite").save()
            if number:
                found[name].append(now() - start)
    return found


# Planning.


def write_sealed(folder: Path, count: int) -> Path:
    """The archive of a log of so many small segments, with seals as large as those of full ones are
    in a manifest.
    """
    folder.mkdir(parents=True)
    tubes: list[Record] = [TubeDef(number, b"tube-%d" % number, T0) for number in range(1, 21)]
    groups: list[Sequence[Record]] = [tubes, *[records(3)] * (FRAMES - 1)]
    lsn, end = 1, 0
    for seq in range(1, count + 1):
        header = SegmentHeader(seq, lsn, T0 + lsn, end, 1, 1, UUID, SALT, 0, 1, "benchmark")
        content, after = _sealed(header, groups)
        (folder / archive_name(seq, lsn)).write_bytes(content)
        lsn, end = after, len(content) - 40
    return folder


def _sealed(header: SegmentHeader, groups: Sequence[Sequence[Record]]) -> tuple[bytes, int]:
    """:return: a segment, and the LSN behind it."""
    content, lsn, indexed = header.encode(), header.first_lsn, []
    for group in groups:
        indexed.append(IndexedFrame(len(content), lsn, T0 + lsn))
        content += _frame(group, lsn)
        lsn += len(group)
    n_rec = lsn - header.first_lsn
    types = {TubeDef.kind: len(groups[0]), Kind.PUT: n_rec // 3, Kind.RESERVE: n_rec // 3}
    names = {each.tube_id: each.name for each in groups[0] if isinstance(each, TubeDef)}
    seal = SealIndex(n_rec, (1, 9), (T0, T0 + lsn), tuple(indexed), types, names)
    trailer = encode_trailer(len(content), lsn, n_rec, len(indexed))
    return content + _frame([Seal(T0 + lsn, seal.encode())], lsn) + trailer, lsn + 1


def _frame(group: Sequence[Record], lsn: int) -> bytes:
    last = lsn + len(group) - 1
    return frames.encode(group, base_lsn=lsn, durable_lsn=last, time_ns=T0 + lsn, salt=SALT)


def write_manifest(folder: Path) -> None:
    """That of all segments in a folder."""
    files = sorted(folder.iterdir())
    entries: dict[int, bytes] = {}
    for file, after in pairwise([*files, None]):
        assert file is not None
        following = (
            decode_segment_header(after.read_bytes()[:SEGMENT_HEADER_BYTES]) if after else None
        )
        raw = file.read_bytes()
        if following is None or isinstance(following, SegmentHeader):
            entry = describe(lambda start, end, raw=raw: raw[start:end], len(raw), following)  # type: ignore[misc]
            entries[len(entries) + 1] = entry or b""
    (folder / MANIFEST).write_bytes(Manifest(UUID, entries).encode())


def planned(path: str, manifest: str, there: Bucket | None = None) -> None:
    """Print what a plan costs, in a process of its own."""
    before = there.requests if there else 0
    command = [sys.executable, "-m", "benchmarks.spark.stores", path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    where = "S3" if there else "a directory"
    asked = f", {there.requests - before} requests" if there else ""
    print(f"planned in {where} {manifest} manifest: {done.stdout.strip()}{asked}", flush=True)


def main(path: str) -> None:
    """Plan, and print what it cost."""
    reader = BinlogReader(parse_options({"path": path}), NO_BODY)
    idle, start, spent = anonymous_mb(), time.perf_counter(), time.process_time()
    tasks = reader.partitions()
    wall, spent = time.perf_counter() - start, time.process_time() - spent
    count = sum(len(task.value) for task in tasks)
    cost = f"{wall:.2f} s, {spent:.2f} CPU-s, {anonymous_mb() - idle:.0f} MB"
    print(f"{count} segments, {cost}")


if __name__ == "__main__":
    main(sys.argv[1])
