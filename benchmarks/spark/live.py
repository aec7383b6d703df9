"""Live tables of a server under load: how far behind their rows are, and what kill -9 does to them.

    python -m benchmarks.spark.live FOLDER [--seconds N] [--rate N] [--kills N]

A server under the load of `history`, and ``python -m binlog_tools.spark live`` on its
log.  A row's latency is from its record (of `lifetimes` the column ``last``) to when its version of
the Delta table was there.  With kills the driver ends at moments that chance chooses; then the
tables must have the rows that the whole log says, each once.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.streaming.datasource import ReadAllAvailable

from benchmarks.spark.driving import RESTARTS, WARM_S, drive, finish, percentiles, under_load
from binlog_tools.spark.definitions.columns import arrow_schema
from binlog_tools.spark.following.streaming import BinlogStreamReader
from binlog_tools.spark.histories.records import STARTS, TAKEN
from binlog_tools.spark.live import SCHEMAS, LiveServer
from binlog_tools.spark.reading.options import Streamed
from binlog_tools.spark.storing import open_stored

KEYS: Final = {
    "lifetimes": ("server", "job"), "attempts": ("server", "job", "revivals", "attempt"),
    "tube_minutes": ("server", "tube", "minute"),
}  # fmt: skip


class Outcome(NamedTuple):
    """Of a run with kills.

    :ivar rows: in the tables; ``expected``: that the whole log has.
    :ivar wrong: rows that are missing, foreign, doubled or different.
    """

    kills: int
    rows: int
    expected: int
    wrong: int

    @property
    def is_exact(self) -> bool:
        """Whether each row is there once."""
        return self.rows == self.expected > 0 == self.wrong


def command(folder: Path, *more: str) -> list[str]:
    """What keeps the tables."""
    history = folder / "history"
    return [
        sys.executable, "-m", "binlog_tools.spark", "live", str(history / "log"),
        "--archive", str(history / "archive"), "-o", str(folder / "live"),
        *more,
    ]  # fmt: skip


def versions(folder: Path) -> int:
    """Of the table of lifetimes."""
    return len(list((folder / "live" / "lifetimes" / "_delta_log").glob("*.json")))


def drive_live(folder: Path, seconds: float, how: signal.Signals) -> None:
    """Keep the tables until a version more is there, and for so long; then end the driver."""
    drive(command(folder), folder / "driver.log", lambda: versions(folder), seconds, how)


def load(folder: Path, rate: int, restarts: int) -> AbstractContextManager[None]:
    """A server that works."""
    folder.mkdir(parents=True)
    return under_load(folder / "history", rate, 1 << 20, restarts, "--archive-age-s", "5")


def events_of(folder: Path) -> pa.Table:
    """The whole log, as the source gives it."""
    history = folder / "history"
    options = {"path": str(history / "log"), "archive": str(history / "archive"),
               "copies": "keep", "records": "history", "columns": ",".join(TAKEN)}  # fmt: skip
    reader = BinlogStreamReader(Streamed.of(options), TAKEN)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    parts = reader.partitions(start, end)
    return pa.Table.from_batches([batch for part in parts for batch in reader.read(part)])


def compared(folder: Path, kills: int) -> Outcome:
    """The tables with what one process makes of the whole log at once."""
    events = events_of(folder)
    server = LiveServer(events["server"][0].as_py(), arrow_schema(TAKEN).empty_table(),
                        STARTS.empty_table())  # fmt: skip
    made = server.step(events)
    rows = expected = wrong = 0
    for name, key in KEYS.items():
        place = folder / "live" / name
        stored = open_stored(str(place)).read() if place.is_dir() else made[name][:0]
        got = stored.select(SCHEMAS[name].names).to_pylist()
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
    """Kill the driver so often, end the load, let a last driver read the rest, and compare."""
    chance = random.Random(seed)
    with load(folder, rate, RESTARTS):
        for _ in range(kills):
            drive_live(folder, chance.random() * most_s, signal.SIGKILL)
    finish(command(folder, "--once"), folder / "driver.log")
    return compared(folder, kills)


def latencies(folder: Path) -> np.ndarray:
    """Of the rows of warm versions, in seconds."""
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
    """How far behind rows are."""
    with load(folder, rate, 0):
        drive_live(folder, WARM_S + seconds, signal.SIGTERM)
    taken = latencies(folder)
    return {"rows": len(taken), "versions": versions(folder), **percentiles(taken)}


def main(words: Sequence[str] | None = None) -> int:
    """:return: the exit code."""
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
