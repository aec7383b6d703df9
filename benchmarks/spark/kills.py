"""Kill -9 of a stream's driver, again and again, under load: is each record in the output once?

    python -m benchmarks.spark.kills FOLDER [--kills N]

A server runs under the load of `history`, with small segments that it archives and
deletes, and is restarted itself.  `follower` writes its log to Parquet, and is killed
with its whole process group, JVM and all, at moments that chance chooses, each after the query has
finished a batch.  In the end the output, as Spark reads it, must have each (server, LSN) of the log
once, and no others.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

from beanstalk_twisted.binlog.records.jobs import Flag
from beanstalk_twisted.binlog.records.others import JOB_KINDS
from beanstalk_twisted.binlog.segments.frames import Frame, raw_records
from benchmarks.spark.driving import RESTARTS, drive, finish, under_load
from binlog_tools.logs.opening import open_source
from binlog_tools.logs.reading import OpenSegment, segments

Key = tuple[str, int]


class Plan(NamedTuple):
    """What is to be done.

    :ivar rate: jobs a second; each makes three records and more.
    :ivar most_s: how long a driver lives at the most, after its first batch.
    """

    kills: int = 20
    rate: int = 400
    segment_bytes: int = 1 << 18
    most_s: float = 6
    seed: int = 1


class Outcome(NamedTuple):
    """What came out.

    :ivar in_batch: how many kills hit a batch that was planned and not finished.
    :ivar missing: records of the log that are not in the output; ``doubled``, that are there more
        than once; ``foreign``, that are there and not in the log.
    """

    kills: int
    in_batch: int
    segments: int
    records: int
    rows: int
    missing: int
    doubled: int
    foreign: int
    seconds: float

    @property
    def is_exact(self) -> bool:
        """Whether each record is there once."""
        return self.rows == self.records > 0 == self.missing == self.doubled == self.foreign


def command(folder: Path, *more: object) -> list[str]:
    """What runs a driver."""
    history = folder / "history"
    return [
        sys.executable, "-m", "benchmarks.spark.follower", str(folder),
        "--log", str(history / "log"), "--archive", str(history / "archive"), *map(str, more),
    ]  # fmt: skip


def batches(folder: Path, kind: str) -> int:
    """How many batches are planned (``offsets``) or finished (``commits``)."""
    path = folder / "checkpoint" / kind
    numbers = [int(each.name) for each in path.iterdir() if each.name.isdigit()] if (
        path.is_dir()) else []  # fmt: skip
    return max(numbers, default=-1) + 1


def kill_once(folder: Path, after_s: float) -> bool:
    """Start a driver, let it finish a batch and go on for a while, and kill it.

    :return: whether a batch was planned and not finished.
    :raise SystemExit: it does not get there.
    """
    drive(command(folder), folder / "driver.log", lambda: batches(folder, "commits"), after_s)
    return batches(folder, "offsets") > batches(folder, "commits")


def records_of(archive: Path) -> Counter[Key]:
    """What the log has: the records of jobs, copies left aside, read one by one."""
    found: Counter[Key] = Counter()
    for opened in segments(open_source(str(archive))):
        assert isinstance(opened, OpenSegment), f"{opened.name} is damaged"
        server = opened.header.store_uuid.hex()
        for frame in opened.pieces():
            assert isinstance(frame, Frame), f"{opened.path} is damaged"
            for at, raw in enumerate(raw_records(opened.buffer, frame)):
                if raw[0] in JOB_KINDS and not raw[2] & Flag.COPY:
                    found[server, frame.base_lsn + at] += 1
    return found


def rows_of(result: Path) -> Counter[Key]:
    """What the output has."""
    table = pq.read_table(result)
    return Counter(zip(table["server"].to_pylist(), table["lsn"].to_pylist(), strict=True))


def run(folder: Path, plan: Plan) -> Outcome:
    """Do all of it.

    :param folder: a new one.
    """
    began = time.monotonic()
    folder.mkdir(parents=True)
    chance = random.Random(plan.seed)
    history = folder / "history"
    with under_load(history, plan.rate, plan.segment_bytes, RESTARTS, "--archive-age-s", "5"):
        in_batch = sum(kill_once(folder, chance.random() * plan.most_s) for _ in range(plan.kills))
    result = folder / "result.parquet"
    more = ("--available-now", "--max-bytes", "64M", "--result", result)
    finish(command(folder, *more), folder / "driver.log")
    records, rows = records_of(history / "archive"), rows_of(result)
    return Outcome(
        plan.kills, in_batch, len(list((history / "archive").glob("*/*.tql"))), records.total(),
        rows.total(), len(records.keys() - rows.keys()),
        sum(count > 1 for count in rows.values()), len(rows.keys() - records.keys()),
        round(time.monotonic() - began, 1),
    )  # fmt: skip


def main(words: Sequence[str] | None = None) -> int:
    """:return: the exit code."""
    parser = argparse.ArgumentParser(description="Kill the driver of a stream under load.")
    parser.set_defaults(**Plan()._asdict())
    parser.add_argument("folder", type=Path, help="a new one")
    parser.add_argument("--kills", type=int, help="%(default)s")
    parser.add_argument("--rate", type=int, help="jobs a second (%(default)s)")
    parser.add_argument("--segment-bytes", type=int, help="%(default)s")
    parser.add_argument("--most-s", type=float, help="life of a driver (%(default)s)")
    parser.add_argument("--seed", type=int, help="%(default)s")
    given = parser.parse_args(words)
    outcome = run(given.folder, Plan(*(getattr(given, name) for name in Plan._fields)))
    print(json.dumps({**outcome._asdict(), "exact": outcome.is_exact}, indent=1))
    return 0 if outcome.is_exact else 1


if __name__ == "__main__":
    sys.exit(main())
