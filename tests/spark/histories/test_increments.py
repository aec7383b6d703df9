"""Tables that grew by increments are those that are made at once."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from binlog_tools.spark.histories import entries as entries_module
from binlog_tools.spark.histories.entries import DAY_NS, MINUTE_NS, MINUTES_A_DAY
from binlog_tools.spark.histories.increments import (
    NAMES,
    changed_minutes,
    increment,
    newer,
    split,
    tables_of,
)
from binlog_tools.spark.histories.minutes import MINUTE_US, all_minutes, gone_on
from binlog_tools.spark.histories.resting import is_awake
from binlog_tools.spark.histories.starts import Starts, merged, starts_table
from binlog_tools.spark.histories.tables import TUBE_MINUTES
from tests.spark.histories.test_histories import Log, in_order, servers_of
from tests.spark.tables import queue_model

ServerDay = tuple[str, date]


class Tables:
    """Tables in memory, that are brought up to date as those that are stored."""

    def __init__(self) -> None:
        self.settled: dict[str, list[pa.Table]] = {name: [] for name in NAMES}
        self.unsettled: dict[str, list[pa.Table]] = {name: [] for name in NAMES}
        self.open: list[pa.Table] = []
        self.rested = 0
        self.starts = merged([])
        self.progress: dict[str, dict[str, int]] = {}
        self.minutes = TUBE_MINUTES.empty_table()

    def take(self, events: pa.Table, until: int = 5) -> None:
        """:param until: after so many commits the run is killed."""
        known = self.progress.get("open", {})
        events = events.filter(pa.array(
            [row["lsn"] > known.get(row["server"], -1) for row in events.to_pylist()], pa.bool_()
        ))  # fmt: skip
        starts_rows = merged([self.starts, starts_table(events)])
        starts = Starts(starts_rows)
        asleep = self._sleeping(events, starts)
        together = in_order(pa.concat_tables([
            *(_without(each, asleep).select(events.column_names) for each in self.open), events,
        ]))  # fmt: skip
        made = list(increment(together, starts, self.progress))
        told = {
            row["server"]: row["lsn_max"]
            for row in events.group_by("server").aggregate([("lsn", "max")]).to_pylist()
        }
        rows = self._resting(asleep)
        for each in made:
            rows[each.name, each.settled].append(each.rows)
        if until > 0:
            settled, unsettled = (_entries_in(rows["entries", each]) for each in (True, False))
            self._rewrite(settled, unsettled, starts)
        for place, name in enumerate(NAMES, 1):
            if until > place:
                self.settled[name] += rows[name, True]
                self.unsettled[name] = rows[name, False]
                self.progress[name] = {**self.progress.get(name, {}), **told}
        if until > len(NAMES):
            self.starts, self.open = starts_rows, rows["open", False]
            self.progress["open"] = {**known, **told}

    def _sleeping(self, events: pa.Table, starts: Starts) -> set[ServerDay]:
        """The days of servers of which all jobs rest."""
        known = self.progress.get("open", {})
        if any(self.progress.get(name, {}) != known for name in NAMES):
            return set()
        found = set()
        for (server, day), rows in _by_day(self.open).items():
            jobs, due = (rows[name].to_numpy() for name in ("job", "due_ns"))
            touched = np.unique([
                row["job"] for row in events.to_pylist()
                if row["server"] == server and row["job"] is not None
            ])  # fmt: skip
            due = due[~np.isnan(due)]
            if not is_awake((jobs.min(), jobs.max()), (due.min(), due.max()) if len(due) else None,
                            touched, starts.last_ns[server]):  # fmt: skip
                found.add((server, day))
        self.rested += len(found)
        return found

    def _resting(self, asleep: set[ServerDay]) -> dict[tuple[str, bool], list[pa.Table]]:
        """What stays of jobs that are not gone."""
        found: dict[tuple[str, bool], list[pa.Table]] = defaultdict(list)
        for name, parts in {**self.unsettled, "open": self.open}.items():
            found[name, False] = [_only(part, asleep) for part in parts]
        return found

    def _rewrite(self, settled: pa.Table, unsettled: pa.Table, starts: Starts) -> None:
        before = _entries_in(self.unsettled["entries"])
        after = pa.concat_tables([settled, unsettled])
        known = Starts(self.starts).last_ns
        last = {server: last_ns // MINUTE_NS for server, last_ns in known.items()}
        # What is behind the last minutes need not be looked at.
        old, new = (_before(entries, last) for entries in (before, after))
        settled = _entries_in(self.settled["entries"])
        whole = entries_module.by_day(entries_module.merged([settled, after]), starts.last_ns)
        moments_ns = known, starts.last_ns
        for server, first in changed_minutes(old, new, last, moments_ns).items():
            self._rewrite_since(server, first, whole, starts.last_ns)
        for server in starts.last_ns.keys() - last.keys():
            self._rewrite_since(server, 0, whole, starts.last_ns)

    def _rewrite_since(
        self, server: str, first: int, whole: pa.Table, last: dict[str, int]
    ) -> None:
        mine = whole.filter(pc.equal(whole["server"], server))
        days = mine["minute"].to_numpy() // MINUTES_A_DAY
        first = first or int(min(days, default=last[server] // DAY_NS)) * MINUTES_A_DAY
        minute = pc.divide(self.minutes["minute"].cast(pa.int64()), MINUTE_US)
        is_mine = pc.equal(self.minutes["server"], server)
        is_kept = pc.less(minute, first)
        since = first // MINUTES_A_DAY * MINUTES_A_DAY
        rows = self.minutes.filter(pc.and_(is_mine, is_kept))
        is_before = pc.less(pc.divide(rows["minute"].cast(pa.int64()), MINUTE_US), since)
        made = [self.minutes.filter(pc.invert(is_mine)), rows.filter(is_before)]
        for this in range(first // MINUTES_A_DAY, last[server] // DAY_NS + 1):
            rows = gone_on(rows, mine.filter(pa.array(days == this)), first, last)
            made.append(rows)
            first = (this + 1) * MINUTES_A_DAY
        self.minutes = pa.concat_tables(made)


def _entries_in(parts: list[pa.Table]) -> pa.Table:
    names = entries_module.SCHEMA.names
    return pa.concat_tables([
        entries_module.SCHEMA.empty_table(), *(part.select(names) for part in parts),
    ])  # fmt: skip


def _by_day(parts: list[pa.Table]) -> dict[ServerDay, pa.Table]:
    """Rows of jobs by server and the day on which the job was first seen."""
    if not parts:
        return {}
    rows = pa.concat_tables(parts)
    keys = list(zip(*(rows[name].to_pylist() for name in ("server", "date")), strict=True))
    return {key: rows.filter(pa.array([each == key for each in keys])) for key in {*keys}}


def _only(rows: pa.Table, days: set[ServerDay], is_wanted: bool = True) -> pa.Table:
    server = "server" if "server" in rows.column_names else "example_server"
    keys = zip(*(rows[name].to_pylist() for name in (server, "date")), strict=True)
    return rows.filter(pa.array([(key in days) == is_wanted for key in keys], pa.bool_()))


def _without(rows: pa.Table, days: set[ServerDay]) -> pa.Table:
    return _only(rows, days, False)


def _before(entries: pa.Table, last: dict[str, int]) -> pa.Table:
    return entries.filter(pa.array(
        [row["minute"] < last.get(row["server"], 0) for row in entries.to_pylist()], pa.bool_()
    ))  # fmt: skip


def _sorted(table: pa.Table, *keys: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.sort_by([(name, "ascending") for name in keys]).to_pylist()
    return rows


KEYS = {
    "lifetimes": ("server", "job"), "attempts": ("server", "job", "revivals", "attempt"),
    "entries": ("server", "tube", "minute", "kind", "slot"),
}  # fmt: skip


def stretched(rows: list[dict[str, Any]], days: int) -> list[dict[str, Any]]:
    """The same history over so many days."""
    first = min(row["logged_ns"] for row in rows)
    by = days * DAY_NS // max(10**9, max(row["logged_ns"] for row in rows) - first)

    def later(value: int | None) -> int | None:
        return None if value is None else first + (value - first) * by

    names = ("time_ns", "logged_ns", "deadline_ns", "dead_at_ns")
    return [{**row, **{name: later(row[name]) for name in names}} for row in rows]


def _check(seeds: Iterable[int], cuts: int, kills: bool, days: int = 0) -> int:
    """:param days: over which the histories are stretched; 0: they last as long as they do.
    :return: how many days of jobs were left out of increments.
    """
    chance = random.Random(repr((cuts, kills)))
    servers = servers_of(seeds).values()
    rows = [row for part in servers for row in (stretched(part, days) if days else part)]
    events = queue_model.table(rows).sort_by([("logged_ns", "ascending"), ("lsn", "ascending")])
    starts = Starts(starts_table(events))
    whole = tables_of(in_order(events), starts)
    grown = Tables()
    ends = [*sorted(chance.randrange(events.num_rows) for _ in range(cuts)), events.num_rows]
    before = 0
    for end in ends:
        if kills and chance.random() < 0.5:
            grown.take(events.slice(before, end - before), chance.randrange(5))
        grown.take(events.slice(before, end - before))
        before = end
    grown.take(events.slice(0, 0))
    for name in ("lifetimes", "attempts"):
        made = pa.concat_tables([*grown.settled[name], *grown.unsettled[name]])
        assert _sorted(made, *KEYS[name]) == _sorted(whole[name], *KEYS[name]), name
    minutes = all_minutes(whole["entries"], starts.last_ns)
    key = ("server", "tube", "minute")
    assert _sorted(grown.minutes, *key) == _sorted(minutes, *key)
    return grown.rested


def test_tables_that_grow_are_those_made_at_once() -> None:
    _check((3, 5), 1, True)


def test_tables_of_days_whose_jobs_rest_are_those_made_at_once() -> None:
    assert _check((5, 13), 3, False, days=4) > 2


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(10))
def test_tables_of_days_whose_jobs_rest_after_many_cuts_and_kills(seed: int) -> None:
    assert _check(range(3000 + 3 * seed, 3003 + 3 * seed), 4, seed % 2 == 0, days=3)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(7))
def test_tables_that_grow_after_many_cuts_and_kills(seed: int) -> None:
    _check(range(2000 + 4 * seed, 2004 + 4 * seed), seed % 7, seed % 2 == 0)


@pytest.mark.parametrize("cut", range(1, 8))
def test_starts_and_stops_without_a_job_event_are_increments_too(cut: int) -> None:
    log = Log().at(0, "start").at(1, "put").reserve(2).at(200, "start").at(300, "start")
    log.reserve(310).at(320, "clean-stop").at(400, "start")
    events = queue_model.table(log.rows)
    starts = Starts(starts_table(events))
    whole = tables_of(in_order(events), starts)
    grown = Tables()
    grown.take(events.slice(0, cut))
    grown.take(events.slice(cut))
    for name in ("lifetimes", "attempts"):
        made = pa.concat_tables(grown.unsettled[name])
        assert _sorted(made, *KEYS[name]) == _sorted(whole[name], *KEYS[name])
    key = ("server", "tube", "minute")
    minutes = all_minutes(whole["entries"], starts.last_ns)
    assert _sorted(grown.minutes, *key) == _sorted(minutes, *key)


def test_jobs_are_gone_or_not_and_known_or_not() -> None:
    events = in_order(queue_model.table(queue_model.history(5)))
    gone, still_open = split(events)
    of_jobs = [row for row in events.to_pylist() if row["job"] is not None]
    newest = {row["job"]: row for row in of_jobs}
    assert set(gone["job"].to_pylist()) == {
        job for job, row in newest.items() if row["state"] == "gone"
    }
    assert gone.num_rows + still_open.num_rows == len(of_jobs) < events.num_rows
    server = events["server"][0].as_py()
    lsn = sorted(row["lsn"] for row in newest.values() if row["state"] == "gone")[2]
    assert set(newer(gone, {server: lsn})["job"].to_pylist()) == {
        job for job, row in newest.items() if row["state"] == "gone" and row["lsn"] > lsn
    }
    assert newer(gone, {}) == gone


def _entries(*rows: tuple[str, int, str, int, int]) -> pa.Table:
    names = ("tube", "minute", "kind", "slot", "value")
    return pa.Table.from_pylist(
        [{"server": "s", **dict(zip(names, row, strict=True))} for row in rows],
        entries_module.SCHEMA,
    )


def test_minutes_change_from_the_first_that_has_another_sum_or_an_end_of_a_wait() -> None:
    put, oldest = ("mail", 100, "put", 0, 2), ("mail", 90, "oldest", 120, 7)
    before = _entries(put, oldest)

    def first(*after: tuple[str, int, str, int, int]) -> int:
        last = {"s": 200, "idle": 300}
        return changed_minutes(before, _entries(*after), last, ({}, {}))["s"]

    assert first(put, oldest) == 200
    assert first(("mail", 100, "put", 0, 1), ("mail", 100, "put", 0, 1), oldest) == 200
    assert first(put, oldest, ("mail", 150, "put", 0, 1)) == 150
    assert first(put, oldest, ("mail", 250, "put", 0, 1)) == 200
    assert first(("mail", 100, "put", 0, 3), oldest) == 100
    assert first(put, ("mail", 90, "oldest", 140, 7)) == 120
    assert first(put, ("mail", 90, "oldest", 110, 7)) == 110
    assert first(put, ("mail", 90, "oldest", 120, 6)) == 90
    assert first(put) == 90
    assert changed_minutes(before, before, {"idle": 300}, ({}, {})) == {"idle": 300}


def test_a_day_goes_on_at_any_minute_as_if_it_were_made_whole() -> None:
    rows = queue_model.history(5)
    events = in_order(queue_model.table(rows))
    starts = Starts(starts_table(events))
    last_ns = starts.last_ns
    whole = entries_module.by_day(tables_of(events, starts)["entries"], last_ns)
    minutes = whole["minute"].to_numpy()
    last_day = int(minutes.max()) // MINUTES_A_DAY
    day = whole.filter(pa.array(minutes // MINUTES_A_DAY == last_day))
    expected = all_minutes(whole, last_ns)
    minute = pc.divide(expected["minute"].cast(pa.int64()), MINUTE_US).to_numpy()
    of_day = _sorted(
        expected.filter(pa.array(minute // MINUTES_A_DAY == last_day)), "tube", "minute"
    )
    begun, end = last_day * MINUTES_A_DAY, int(minute.max())
    assert end > begun + 2
    for first in {
        begun,
        begun + 1,
        (begun + end) // 2,
        end - 1,
        end,
        *minutes[minutes > begun][::9].tolist(),
    }:
        kept = expected.filter(pa.array((minute < first) & (minute >= begun - MINUTES_A_DAY)))
        made = gone_on(kept, day, first, last_ns)
        assert made.to_pylist() == _sorted(made, "tube", "minute") == of_day, first
