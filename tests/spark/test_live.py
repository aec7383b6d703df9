"""Each row of the live tables comes once, wherever the process is killed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from binlog_tools.spark.cli import cli
from binlog_tools.spark.definitions.columns import arrow_schema
from binlog_tools.spark.errors import CODES, TableError
from binlog_tools.spark.histories.counters import counters_of
from binlog_tools.spark.histories.intervals import intervals_of
from binlog_tools.spark.histories.lifetimes import attempts_of, lifetimes_of
from binlog_tools.spark.histories.records import (
    STARTS,
    TAKEN,
    Starts,
    in_order,
    merged_starts,
    starts_table,
)
from binlog_tools.spark.live import SCHEMAS, LiveServer, LiveTables, Rows
from binlog_tools.spark.storing import StoredTable, open_stored
from tests.sampling import one_in
from tests.spark.histories.test_histories import all_minutes
from tests.spark.tables import queue_model

Row = dict[str, Any]
Rng = random.Random


class Late(queue_model.Model):
    """A server that seldom looks at what is due."""

    def tick(self) -> None:
        if self.chance.random() < 0.3:
            super().tick()


def history(seed: int) -> list[Row]:
    chance = random.Random(seed)
    model = Late if seed % 2 else queue_model.Model
    rows = model(f"{seed:032x}", seed).run(chance.choice([5, 40, 150]))
    return rows[chance.randrange(len(rows)) :] if rows and chance.random() < 0.3 else rows


def table_of(rows: Sequence[Row]) -> pa.Table:
    return queue_model.table(rows).select(TAKEN)


def server_of(events: pa.Table) -> LiveServer:
    name = events["server"][0].as_py() if events.num_rows else "s"
    return LiveServer(name, arrow_schema(TAKEN).empty_table(), STARTS.empty_table())


def live(events: pa.Table, seed: int) -> dict[str, list[Row]]:
    """The rows of all steps, the log cut anywhere, and the state given to another process."""
    chance = random.Random(seed)
    server = server_of(events)
    told: dict[str, list[Row]] = {name: [] for name in SCHEMAS}
    at = 0
    while at < events.num_rows:
        size = chance.choice([1, 1, 2, 7, 60])
        add(told, server.step(events.slice(at, size)))
        at += size
        if chance.random() < 0.2:
            name = events["server"][0].as_py()
            server = LiveServer(
                name, server.events, server.starts, server.newest_lsn, server.closed
            )
    return told


def add(told: dict[str, list[Row]], made: Rows) -> None:
    for name, table in made.items():
        told[name] += table.to_pylist()


def batch(events: pa.Table) -> dict[str, list[Row]]:
    starts = Starts(merged_starts([starts_table(events)]))
    intervals = intervals_of(in_order(events), starts)
    return {
        "lifetimes": lifetimes_of(intervals).to_pylist(),
        "attempts": attempts_of(intervals).to_pylist(),
        "tube_minutes": all_minutes(counters_of(intervals), starts.last_ns).to_pylist(),
    }  # fmt: skip


def keyed(rows: list[Row], *key: str) -> dict[tuple[Any, ...], Row]:
    found = {tuple(row[name] for name in key): row for row in rows}
    assert len(found) == len(rows)
    return found


def assert_settled(told: dict[str, list[Row]], events: pa.Table) -> None:
    """Told is what the whole history has of what is settled: all of it, once."""
    whole = batch(events)
    lifetimes = keyed(whole["lifetimes"], "job")
    gone = {job: row for job, row in lifetimes.items() if row["state"] == "gone"}
    assert keyed(told["lifetimes"], "job") == gone
    attempts = keyed(whole["attempts"], "job", "revivals", "attempt")
    over = {key: row for key, row in attempts.items() if row["ended_by"] is not None}
    found = keyed(told["attempts"], "job", "revivals", "attempt")
    assert found == {key: row for key, row in over.items() if key in found}
    newest = {job: max(key[1:] for key in attempts if key[0] == job) for job, *_ in over}
    for key in over.keys() - found.keys():
        # An end that the log does not have, of a job that has done nothing since.
        assert over[key]["ended_by"] == "unlogged"
        assert key[1:] == newest[key[0]]
        assert (key[0],) not in gone
    minutes = keyed(whole["tube_minutes"], "tube", "minute")
    shown = keyed(told["tube_minutes"], "tube", "minute")
    until = max((minute for _, minute in shown), default=datetime.min.replace(tzinfo=UTC))
    assert shown == {key: row for key, row in minutes.items() if key[1] <= until}


@pytest.mark.parametrize("seed", one_in(15, range(60)))
def test_live_rows_are_those_of_the_whole_history(seed: int) -> None:
    rows = history(seed)
    if rows:
        events = table_of(rows)
        assert_settled(live(events, seed), events)


def test_the_samples_tell_something() -> None:
    told = [live(table_of(rows), seed) for seed in (30, 130) if (rows := history(seed))]
    for name in SCHEMAS:
        assert sum(len(each[name]) for each in told) > 20, name


SEED = 30


class Killed(BaseException):
    """As kill -9: nothing handles it."""


@pytest.fixture
def kill_at(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Ends the process before or after the n-th write to a table."""
    left = {"before": 0, "after": 0}
    write = StoredTable.write

    def counted(self: StoredTable, *words: Any) -> int:
        left["before"] -= 1
        if left["before"] == 0:
            raise Killed
        version = write(self, *words)
        left["after"] -= 1
        if left["after"] == 0:
            raise Killed
        return version

    monkeypatch.setattr(StoredTable, "write", counted)
    return left


def events_of(seed: int = SEED) -> pa.Table:
    return table_of(history(seed))


def pieces(events: pa.Table, seed: int) -> list[pa.Table]:
    chance = random.Random(seed)
    found, at = [], 0
    while at < events.num_rows:
        size = chance.choice([30, 60])
        found.append(events.slice(at, size))
        at += size
    return found


def rows_of(place: Path) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for name in SCHEMAS:
        rows = []
        if (place / name).is_dir():
            rows = open_stored(str(place / name)).read(names=SCHEMAS[name].names).to_pylist()
        found[name] = sorted(rows, key=str)
    return found


def expected(events: pa.Table) -> dict[str, list[Row]]:
    told: dict[str, list[Row]] = {name: [] for name in SCHEMAS}
    add(told, server_of(events).step(events))
    return {name: sorted(rows, key=str) for name, rows in told.items()}


def run(place: Path, events: pa.Table, seed: int, is_stored: bool = False) -> bool:
    try:
        tables = LiveTables(str(place))
        known = [server.newest_lsn for server in tables.servers.values()]
        rest = events.filter(pa.compute.greater(events["lsn"], (known or [-1])[0]))
        for number, piece in enumerate(pieces(rest, seed)):
            tables.take(piece)
            if is_stored and number % 2:
                tables.store_open()
    except Killed:
        return True
    return False


@pytest.mark.parametrize("is_stored", [True, False])
@pytest.mark.parametrize("after", one_in(4, range(1, 24)))
def test_a_kill_at_any_commit_loses_and_doubles_nothing(
    tmp_path: Path, kill_at: dict[str, int], after: int, is_stored: bool
) -> None:
    events = events_of()
    kill_at["after"] = after
    was_killed = run(tmp_path, events, 1, is_stored)
    kill_at["before"] = after // 2 + 2
    run(tmp_path, events, 2, is_stored)
    kill_at["before"] = 0
    assert not run(tmp_path, events, 3, is_stored)
    assert rows_of(tmp_path) == expected(events)
    assert was_killed or after > 10


def test_the_second_process_on_the_same_tables_ends(tmp_path: Path) -> None:
    first, second = LiveTables(str(tmp_path)), LiveTables(str(tmp_path))
    events = events_of()
    half = events.num_rows // 2
    first.take(events.slice(0, half))
    with pytest.raises(TableError, match=r"^\[TABLE_BUSY\] .*another run has changed this table"):
        second.take(events.slice(0, half))
    open_stored(str(tmp_path / "lifetimes")).optimize()
    first.take(events.slice(half))
    assert rows_of(tmp_path) == expected(events)


def test_a_log_that_is_not_there_is_reported(tmp_path: Path) -> None:
    words = ["live", str(tmp_path / "nothere"), "-o", str(tmp_path / "live")]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == CODES["BINLOG_NOT_FOUND"]
    assert not (tmp_path / "live").exists()
    assert done.stderr.startswith("[BINLOG_NOT_FOUND] ") and done.stderr.count("\n") == 1
