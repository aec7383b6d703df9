"""
What rebuilding a log costs, in one process and by Spark: ``python -m benchmarks.spark.rebuild``.

    python -m benchmarks.spark.rebuild --segments 4 --records 500000 --repeats 3

The log is made up: of every hundred jobs that are put, reserved and deleted one stays.  Each way
has the same segments, writes the same log, and has one run that does not count.  Processor time is
that of all processes that the way has started; bytes are those of the segments.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

from beanstalk_twisted.binlog.records.decoding import Record
from beanstalk_twisted.binlog.records.jobs import JobImage, Kind, Reason, State
from beanstalk_twisted.binlog.records.others import Seal, TubeDef
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import TRAILER_BYTES, SegmentHeader, archive_name
from beanstalk_twisted.binlog.segments.framing import SegmentIndex, encode_trailer
from benchmarks.spark.tables import cpu_s
from binlog_tools.logs.loading import load
from binlog_tools.logs.opening import open_source
from binlog_tools.rewrite.rewriting import rewrite
from binlog_tools.spark.rebuilding import Wish, rebuild
from binlog_tools.spark.session import session
from binlog_tools.spark.surviving.gathering import Gather, one_by_one, with_spark

NS: Final = 1_000_000_000
T0: Final = 1_763_640_000 * NS
SALT: Final = 0x5EED5EED
TUBES: Final[list[Record]] = [TubeDef(number, b"tube-%d" % number, T0) for number in range(1, 21)]

STAYS_OF: Final = 100
"""One of so many jobs is never deleted."""

BODY: Final = bytes(range(120))


def history() -> Iterator[JobImage]:
    """
    What happens to jobs; each is deleted half a second after it was put, in the records of others.
    """
    number = 0
    while True:
        number += 1
        made = Reason.CLIENT, 1024, number, T0 + number, 0, 0, 60, number % 20 + 1
        yield JobImage(Kind.PUT, State.READY, *made, body=BODY)
        yield JobImage(Kind.RESERVE, State.RESERVED, *made, reserves=1, connection=7)
        old = number - 1000
        if old > 0 and old % STAYS_OF:
            told = Reason.CLIENT, 1024, old, T0 + number, 0, 0, 60, old % 20 + 1
            yield JobImage(Kind.DELETE, State.GONE, *told, reserves=1, connection=7)


def write_archive(folder: Path, segments: int, records: int, per_frame: int) -> int:
    """
    The archive of such a server.

    :return: its size, bytes.
    """
    folder.mkdir(parents=True)
    happens, lsn, end, size = history(), 1, 0, 0
    for seq in range(1, segments + 1):
        header = SegmentHeader(seq, lsn, T0, end, 1, 1, b"\1" * 16, SALT, 0, 1, "benchmark")
        segment = Segment(header)
        segment.add(TUBES)
        for _ in range(records // per_frame):
            segment.add([*islice(happens, per_frame)])
        content = segment.sealed()
        (folder / archive_name(seq, lsn)).write_bytes(content)
        lsn, end, size = segment.lsn, len(content) - TRAILER_BYTES, size + len(content)
    return size


class Segment:
    """
    One that is being made.

    :ivar lsn: of the next record.
    """

    def __init__(self, header: SegmentHeader) -> None:
        self.lsn = header.first_lsn
        self._content = bytearray(header.encode())
        self._index = SegmentIndex()

    def add(self, records: list[Record]) -> None:
        """A frame of these."""
        place = (len(self._content), self.lsn, T0 + self.lsn)
        self._append(records)
        self._index.add([place], len(self._content), records)

    def _append(self, records: list[Record]) -> None:
        last = self.lsn + len(records) - 1
        self._content += frames.encode(
            records, base_lsn=self.lsn, durable_lsn=last, time_ns=T0 + self.lsn, salt=SALT
        )
        self.lsn = last + 1

    def sealed(self) -> bytes:
        """All of it, with its seal."""
        at, lsn = len(self._content), self.lsn
        self._append([Seal(T0 + lsn, self._index.encode())])
        n_rec, n_index = self._index.records, self._index.indexed
        return bytes(self._content + encode_trailer(at, lsn, n_rec, n_index))


class Measured:
    """
    One way.

    :ivar wall: seconds by the clock, the median; ``cpu``, of the processor.
    """

    def __init__(self, work: Callable[[], Any], repeats: int) -> None:
        work()
        walls, cpus = [], []
        for _ in range(repeats):
            wall, cpu = time.monotonic(), cpu_s()
            work()
            walls.append(time.monotonic() - wall)
            cpus.append(cpu_s() - cpu)
        self.wall, self.cpu = statistics.median(walls), statistics.median(cpus)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--segments", type=int, default=4)
    parser.add_argument("--records", type=int, default=500_000, help="in each")
    parser.add_argument("--per-frame", type=int, default=64, help="records")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--row-by-row", action="store_true", help="binlog-inspect compact too")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        archive, new = Path(folder, "archive"), Path(folder, "new")
        size = write_archive(archive, asked.segments, asked.records, asked.per_frame)
        records = asked.segments * asked.records
        print(f"{records:,} records, {size / 1e6:.0f} MB, {asked.segments} segments\n")
        print("| way | wall, s | CPU, s | records a CPU second | MB a second |")
        print("| --- | ---: | ---: | ---: | ---: |")

        def tell(name: str, work: Callable[[], Any]) -> None:
            found = Measured(work, asked.repeats)
            print(f"| {name} | {found.wall:.2f} | {found.cpu:.2f} | {records / found.cpu:,.0f} | "
                  f"{size / found.wall / 1e6:.0f} |", flush=True)  # fmt: skip

        tell("one process", _rebuilding(archive, new, one_by_one))
        if asked.row_by_row:
            tell("binlog-inspect compact", _compacting(archive, new))
        spark = session("benchmark", {"spark.master": asked.master, "spark.ui.enabled": "false",
                                      "spark.sql.shuffle.partitions": 2})  # fmt: skip
        spark.sparkContext.setLogLevel("ERROR")
        try:
            tell(f"Spark, {asked.master}", _rebuilding(archive, new, with_spark(spark)))
        finally:
            spark.stop()


def _rebuilding(archive: Path, new: Path, gather: Gather) -> Callable[[], Any]:
    def work() -> None:
        shutil.rmtree(new, ignore_errors=True)
        rebuild(Wish((str(archive),), str(new)), gather)

    return work


def _compacting(archive: Path, new: Path) -> Callable[[], Any]:
    def work() -> None:
        shutil.rmtree(new, ignore_errors=True)
        rewrite(load(open_source(str(archive))), str(new), "compact")

    return work


if __name__ == "__main__":
    main()
