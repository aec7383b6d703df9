"""
Live tables of a server under load: how far behind their rows are, and what kill -9 does to them.

    python -m benchmarks.live FOLDER [--seconds N] [--rate N] [--kills N]

A server under the load of `benchmarks.history`, and ``python -m binlog_tools.spark live`` on its
log.  A row's latency is from its record (of `lifetimes` the column ``last``) to when its version of
the Delta table was there.  With kills the driver ends at moments that chance chooses; then the
tables must have the rows that the whole log says, each once.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.streaming.datasource import ReadAllAvailable

from benchmarks.kills import LIMIT_S, LOAD_S, wait_for_log
from binlog_tools.spark.following.startings import Streamed
from binlog_tools.spark.following.streaming import BinlogStreamReader
from binlog_tools.spark.live.open_jobs import NAMES
from binlog_tools.spark.live.steps import SCHEMAS, LiveState
from binlog_tools.spark.storing.opening import open_stored
from binlog_tools.spark.storing.stored import dataset

WARM_S: Final = 20.0
"""What is left aside, from the first version of a table on."""

KEYS: Final = {
    "lifetimes": ("server", "job"), "attempts": ("server", "job", "revivals", "attempt"),
    "tube_minutes": ("server", "tube", "minute"),
}  # fmt: skip


class Outcome(NamedTuple):
    """
    Of a run with kills.

    :ivar rows: in the tables; ``expected``: that the whole log has.
    :ivar wrong: rows that are missing, foreign, doubled or different.
    """

    kills: int
    rows: int
    expected: int
    wrong: int

    @property
    def is_exact(self) -> bool:
        """
        Whether each row is there once.
        """
        return self.rows == self.expected > 0 == self.wrong


def command(folder: Path, *more: str) -> list[str]:
    """
    What keeps the tables.
    """
    history = folder / "history"
    return [
        sys.executable, "-m", "binlog_tools.spark", "live", str(history / "log"),
        "--archive", str(history / "archive"), "-o", str(folder / "live"),
        "--targets", str(folder / "targets.toml"),
        "--master", "local[2]", *more,
    ]  # fmt: skip


def versions(folder: Path) -> int:
    """
    Of the table of lifetimes.
    """
    return len(list((folder / "live" / "lifetimes" / "_delta_log").glob("*.json")))


def drive(folder: Path, seconds: float, how: signal.Signals) -> None:
    """
    Keep the tables until a version more is there, and for so long; then end the driver.
    """
    before = versions(folder)
    with (folder / "driver.log").open("ab") as said:
        driver = subprocess.Popen(command(folder), stdout=said, stderr=said, start_new_session=True)
    try:
        give_up = time.monotonic() + LIMIT_S
        while versions(folder) <= before:
            if driver.poll() is not None or time.monotonic() > give_up:
                raise SystemExit(f"the driver writes nothing; see {folder / 'driver.log'}")
            time.sleep(0.2)
        time.sleep(seconds)
    finally:
        if driver.poll() is None:
            os.killpg(driver.pid, how)
        driver.wait()


def under_load(folder: Path, rate: int, restarts: int) -> subprocess.Popen[bytes]:
    """
    A server that works until it is told to end.
    """
    folder.mkdir(parents=True)
    (folder / "targets.toml").write_text('[[target]]\ntube = "*"\nwait_s = 1\n')
    load = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.history", str(folder / "history"), "--jobs", "0",
         "--seconds", str(LOAD_S), "--rate", str(rate), "--restarts", str(restarts),
         "--segment-bytes", str(1 << 20), "--archive-age-s", "5"],
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    wait_for_log(folder / "history" / "log")
    return load


def events_of(folder: Path) -> pa.Table:
    """
    The whole log, as the source gives it.
    """
    history = folder / "history"
    options = {"path": str(history / "log"), "archive": str(history / "archive"),
               "copies": "keep", "columns": ",".join(NAMES)}  # fmt: skip
    reader = BinlogStreamReader(Streamed.of(options), NAMES)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    parts = reader.partitions(start, end)
    return pa.Table.from_batches([batch for part in parts for batch in reader.read(part)])


def compared(folder: Path, kills: int) -> Outcome:
    """
    The tables with what one process makes of the whole log at once.
    """
    made = LiveState().step(events_of(folder))
    rows = expected = wrong = 0
    for name, key in KEYS.items():
        place = folder / "live" / name
        table = dataset(open_stored(str(place))).to_table() if place.is_dir() else made[name][:0]
        got = table.select(SCHEMAS[name].names).to_pylist()
        want = {_key(row, key): row for row in made[name].to_pylist()}
        found = {_key(row, key): row for row in got}
        rows, expected = rows + len(got), expected + len(want)
        wrong += len(got) - len(found) + sum(
            found.get(each) != want.get(each) for each in found.keys() | want.keys()
        )  # fmt: skip
    return Outcome(kills, rows, expected, wrong)


def _key(row: dict[str, Any], names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def killed(folder: Path, kills: int, rate: int, most_s: float, seed: int = 1) -> Outcome:
    """
    Kill the driver so often, end the load, let a last driver read the rest, and compare.
    """
    chance = random.Random(seed)
    load = under_load(folder, rate, LOAD_S // 15)
    try:
        for _ in range(kills):
            drive(folder, chance.random() * most_s, signal.SIGKILL)
    finally:
        load.send_signal(signal.SIGINT)
        load.wait(LIMIT_S)
    with (folder / "driver.log").open("ab") as said:
        subprocess.run(
            command(folder, "--once"), stdout=said, stderr=said, timeout=LIMIT_S, check=True
        )
    return compared(folder, kills)


def latencies(folder: Path) -> np.ndarray:
    """
    Of the rows of warm versions, in seconds.
    """
    place = folder / "live" / "lifetimes"
    found = []
    warm_ns = 0
    for path in sorted((place / "_delta_log").glob("*.json")):
        done_ns = path.stat().st_mtime_ns
        warm_ns = warm_ns or done_ns + int(WARM_S * 1e9)
        actions = map(json.loads, path.read_text().splitlines())
        files = [each["add"]["path"] for each in actions if "add" in each]
        if done_ns >= warm_ns:
            for file in files:
                last = pq.read_table(place / file, columns=["last"])["last"]
                found.append((done_ns - last.cast(pa.int64()).to_numpy() * 1000) / 1e9)
    return np.concatenate(found) if found else np.zeros(0)


def measured(folder: Path, seconds: float, rate: int) -> dict[str, float]:
    """
    How far behind rows are.
    """
    load = under_load(folder, rate, 0)
    try:
        drive(folder, WARM_S + seconds, signal.SIGTERM)
    finally:
        load.send_signal(signal.SIGINT)
        load.wait(LIMIT_S)
    taken = latencies(folder)
    p50, p95, p99 = np.percentile(taken, [50, 95, 99]).round(3).tolist()
    return {"rows": len(taken), "versions": versions(folder), "p50_s": p50, "p95_s": p95,
            "p99_s": p99, "load_average": round(os.getloadavg()[0], 1)}  # fmt: skip


def main(words: Sequence[str] | None = None) -> int:
    """
    :return: the exit code.
    """
    parser = argparse.ArgumentParser(description="Live tables under load.")
    parser.add_argument("folder", type=Path, help="a new one")
    parser.add_argument("--seconds", type=float, default=60, help="%(default)s")
    parser.add_argument("--rate", type=int, default=400, help="jobs a second (%(default)s)")
    parser.add_argument("--kills", type=int, default=0, help="instead of measuring (%(default)s)")
    parser.add_argument("--most-s", type=float, default=6, help="life of a driver (%(default)s)")
    given = parser.parse_args(words)
    if not given.kills:
        print(json.dumps(measured(given.folder, given.seconds, given.rate), indent=1))
        return 0
    outcome = killed(given.folder, given.kills, given.rate, given.most_s)
    print(json.dumps({**outcome._asdict(), "exact": outcome.is_exact}, indent=1))
    return 0 if outcome.is_exact else 1


if __name__ == "__main__":
    sys.exit(main())
