"""Live rows are those of the batch tables, each once, however the log is cut into pieces."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from binlog_tools.spark.histories.attempts import attempts_of
from binlog_tools.spark.histories.entries import entries_of
from binlog_tools.spark.histories.images import in_order
from binlog_tools.spark.histories.lifetimes import lifetimes_of
from binlog_tools.spark.histories.minutes import all_minutes
from binlog_tools.spark.histories.sla import Target, Targets
from binlog_tools.spark.histories.starts import Starts, merged, starts_table
from binlog_tools.spark.histories.stays import stays_of
from binlog_tools.spark.live.settling import SLACK_NS, breaches, waits_of
from binlog_tools.spark.live.steps import SCHEMAS, LiveState, Rows
from tests.sampling import one_in
from tests.spark.tables import queue_model

Row = dict[str, Any]
NS = 1_000_000_000

FIVE_SECONDS: Targets = [("thumbs", Target(run_ns=NS)), ("*", Target(wait_ns=5 * NS))]
"""In every tube but one."""


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


def live(events: pa.Table, seed: int, state: LiveState | None = None) -> dict[str, list[Row]]:
    """The rows of all steps, the log cut anywhere, and the clock read between them."""
    chance = random.Random(seed)
    state = state or LiveState(FIVE_SECONDS)
    told: dict[str, list[Row]] = {name: [] for name in SCHEMAS}
    logged_ns = events["logged_ns"].to_pylist()
    at = 0
    while at < events.num_rows:
        size = chance.choice([1, 1, 2, 7, 60])
        add(told, state.step(events.slice(at, size)))
        at += size
        if at < events.num_rows and chance.random() < 0.3:
            # As late as it may be: the next record is durable that long after it was built.
            before, then = (logged_ns[row] for row in (at - 1, at))
            add(told, state.step(events[:0], chance.randint(before, then + SLACK_NS - 1)))
        if chance.random() < 0.2:
            # Another process goes on.
            kept = state.kept()
            state = LiveState(FIVE_SECONDS)
            state.restore(*kept)
    return told


def add(told: dict[str, list[Row]], made: Rows) -> None:
    """One step's."""
    for name, table in made.items():
        told[name] += table.to_pylist()


def batch(events: pa.Table) -> dict[str, list[Row]]:
    """What the whole history says, settled or not."""
    starts = Starts(merged([starts_table(events)]))
    stays = stays_of(in_order(events), starts)
    sure_ns = max(starts.last_ns.values()) - SLACK_NS
    return {
        "breaches": breaches(stays, waits_of(stays, FIVE_SECONDS), 0, sure_ns).to_pylist(),
        "lifetimes": lifetimes_of(stays).to_pylist(), "attempts": attempts_of(stays).to_pylist(),
        "tube_minutes": all_minutes(entries_of(stays), starts.last_ns).to_pylist(),
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
    breached = ("job", "lsn", "since_ns")
    assert keyed(told["breaches"], *breached) == keyed(whole["breaches"], *breached)
    minutes = keyed(whole["tube_minutes"], "tube", "minute")
    shown = keyed(told["tube_minutes"], "tube", "minute")
    until = max((minute for _, minute in shown), default=datetime.min.replace(tzinfo=UTC))
    assert shown == {key: row for key, row in minutes.items() if key[1] <= until}


def table_of(rows: Sequence[Row]) -> pa.Table:
    """Events."""
    return queue_model.table(rows)


SEEDS = range(60)


@pytest.mark.parametrize("seed", one_in(15, SEEDS))
def test_live_rows_are_those_of_the_whole_history(seed: int) -> None:
    rows = history(seed)
    if rows:
        events = table_of(rows)
        assert_settled(live(events, seed), events)


@pytest.mark.parametrize("late_ns", [1, SLACK_NS - 1, SLACK_NS, SLACK_NS + 1])
@pytest.mark.parametrize("is_one_step", [True, False])
@pytest.mark.parametrize("end", ["delete", "reserve"])
def test_a_wait_that_ended_soon_behind_its_target_is_told_once(
    late_ns: int, is_one_step: bool, end: str
) -> None:
    """Also of a job that is gone with the same step, or is reserved and never looked at again."""
    rows = waited(5 * NS + late_ns, end)
    state = LiveState(FIVE_SECONDS)
    told: dict[str, list[Row]] = {name: [] for name in SCHEMAS}
    for piece in [rows] if is_one_step else [rows[:1], rows[1:2], rows[2:]]:
        add(told, state.step(table_of(piece)))
    add(told, state.step(table_of([]), rows[-1]["logged_ns"] + 60 * NS))
    (breach,) = told["breaches"]
    assert (breach["lsn"], breach["since_ns"]) == (rows[0]["lsn"], rows[0]["time_ns"])


def test_a_wait_that_ended_at_its_target_is_none_that_was_longer() -> None:
    rows = waited(5 * NS, "delete")
    assert LiveState(FIVE_SECONDS).step(table_of(rows))["breaches"].num_rows == 0


def waited(length_ns: int, end: str) -> list[Row]:
    """A job of which the wait was so long; it is deleted at once, or stays reserved."""
    model = queue_model.Model("a" * 32, 0)
    job = queue_model.Job(1, "mail", model.now_ns, b"")
    model.log("put", job)
    model.now_ns += length_ns
    job = replace(job, state="reserved", deadline_ns=model.now_ns + 600 * NS, reserves=1)
    model.log("reserve", job, 1)
    if end == "delete":
        model.log("delete", replace(job, state="gone", deadline_ns=0), 1)
    return model.rows


def test_the_samples_tell_something() -> None:
    told = [live(table_of(rows), seed) for seed in (30, 130) if (rows := history(seed))]
    for name in SCHEMAS:
        assert sum(len(each[name]) for each in told) > 20, name
