"""Live rows are those of the batch tables, each once, however the log is cut into pieces."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from binlog_tools.spark.definitions.columns import arrow_schema
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
from binlog_tools.spark.live import SCHEMAS, LiveServer, OpenJobs, Rows
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
    """What one server's log has, from its beginning or from the middle."""
    chance = random.Random(seed)
    model = Late if seed % 2 else queue_model.Model
    rows = model(f"{seed:032x}", seed).run(chance.choice([5, 40, 150]))
    return rows[chance.randrange(len(rows)) :] if rows and chance.random() < 0.3 else rows


def table_of(rows: Sequence[Row]) -> pa.Table:
    return queue_model.table(rows).select(TAKEN)


def server_of(events: pa.Table) -> LiveServer:
    """A server of which nothing has been taken."""
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
    """What the whole history says, settled or not."""
    starts = Starts(merged_starts([starts_table(events)]))
    intervals = intervals_of(in_order(events), starts)
    return {
        "lifetimes": lifetimes_of(intervals).to_pylist(),
        "attempts": attempts_of(intervals).to_pylist(),
        "tube_minutes": all_minutes(counters_of(intervals), starts.last_ns).to_pylist(),
    }  # fmt: skip


def keyed(rows: list[Row], *key: str) -> dict[tuple[Any, ...], Row]:
    """By key; each once."""
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


@pytest.mark.parametrize("small", [1, 1 << 30])
def test_records_of_open_jobs_go_in_and_out_by_jobs(
    small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("binlog_tools.spark.live.SMALL_ROWS", small)
    events = table_of([row for row in history(30) if row["job"] is not None])
    jobs = sorted(set(events["job"].to_pylist()))
    kept = OpenJobs(events.slice(0, 0))
    dice = Rng(1)
    inside: set[int] = set()
    for _ in range(60):
        import numpy as np
        import pyarrow.compute as pc

        some = np.array(sorted(dice.sample(jobs, 3)), np.int64)
        mine = events.filter(pc.is_in(events["job"], pa.array(some)))
        assert kept.knows(some).tolist() == [job in inside for job in some.tolist()]
        found = kept.take(some)
        expected = mine.filter(pc.is_in(mine["job"], pa.array(sorted(inside), pa.int64())))
        assert in_order(found) == in_order(expected)
        inside -= set(some.tolist())
        if dice.random() < 0.7:
            kept.put(mine)
            inside |= set(some.tolist())
    assert set(kept.all()["job"].to_pylist()) == inside
