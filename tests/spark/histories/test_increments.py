"""
Tables that grew by increments are those that are made at once.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from binlog_tools.spark.histories import entries as entries_module
from binlog_tools.spark.histories.entries import DAY_NS, MINUTES_A_DAY
from binlog_tools.spark.histories.increments import (
    NAMES,
    changed_days,
    increment,
    newer,
    split,
    tables_of,
)
from binlog_tools.spark.histories.minutes import all_minutes, depths_after, tube_minutes_of
from binlog_tools.spark.histories.starts import Starts, merged, starts_table
from binlog_tools.spark.histories.tables import TUBE_MINUTES
from tests.spark.histories.test_histories import in_order, servers_of
from tests.spark.tables import queue_model


class Tables:
    """
    Tables in memory, that are brought up to date as those that are stored.
    """

    def __init__(self) -> None:
        self.settled: dict[str, list[pa.Table]] = {name: [] for name in NAMES}
        self.unsettled: dict[str, pa.Table] = {}
        self.open: list[pa.Table] = []
        self.starts = merged([])
        self.progress: dict[str, dict[str, int]] = {}
        self.minutes = TUBE_MINUTES.empty_table()
        self.rewritten: list[int] = []

    def take(self, events: pa.Table, until: int = 5) -> None:
        """
        :param until: after so many commits the run is killed.
        """
        known = self.progress.get("open", {})
        events = events.filter(pa.array(
            [row["lsn"] > known.get(row["server"], -1) for row in events.to_pylist()], pa.bool_()
        ))  # fmt: skip
        starts_rows = merged([self.starts, starts_table(events)])
        starts = Starts(starts_rows)
        together = in_order(pa.concat_tables([*self.open, events]))
        made = list(increment(together, starts, self.progress))
        told = {
            row["server"]: row["lsn_max"]
            for row in events.group_by("server").aggregate([("lsn", "max")]).to_pylist()
        }
        rows = {(each.name, each.settled): each.rows for each in made}
        if until > 0:
            self._rewrite(rows["entries", True], rows["entries", False], starts)
        for place, name in enumerate(NAMES, 1):
            if until > place:
                self.settled[name].append(rows[name, True])
                self.unsettled[name] = rows[name, False]
                self.progress[name] = {**self.progress.get(name, {}), **told}
        if until > len(NAMES):
            self.starts, self.open = starts_rows, [rows["open", False]]
            self.progress["open"] = {**known, **told}

    def _rewrite(self, settled: pa.Table, unsettled: pa.Table, starts: Starts) -> None:
        before = self.unsettled.get("entries", unsettled.schema.empty_table())
        after = pa.concat_tables([settled, unsettled])
        known = Starts(self.starts).last_ns
        last_days = {server: last_ns // DAY_NS for server, last_ns in known.items()}
        whole = entries_module.merged([*self.settled["entries"], after])
        for server, first in changed_days(before, after, last_days).items():
            self._rewrite_days(server, first, whole, starts.last_ns)

    def _rewrite_days(self, server: str, first: int, whole: pa.Table, last: dict[str, int]) -> None:
        is_mine = pc.equal(self.minutes["server"], server)
        day = pc.divide(self.minutes["minute"].cast(pa.int64()), 86_400_000_000)
        kept = pc.or_(pc.invert(is_mine), pc.less(day, first))
        made = [self.minutes.filter(kept)]
        depths = depths_after(made[0].filter(pc.equal(made[0]["server"], server)), first)
        mine = whole.filter(pc.equal(whole["server"], server))
        for this in range(first, last[server] // DAY_NS + 1):
            day = mine["minute"].to_numpy() // MINUTES_A_DAY
            made.append(tube_minutes_of(mine.filter(pa.array(day == this)), depths, last))
            depths = depths_after(made[-1], this + 1)
        self.rewritten.append(len(made) - 1)
        self.minutes = pa.concat_tables(made)


def _sorted(table: pa.Table, *keys: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.sort_by([(name, "ascending") for name in keys]).to_pylist()
    return rows


KEYS = {
    "lifetimes": ("server", "job"), "attempts": ("server", "job", "revivals", "attempt"),
    "entries": ("server", "tube", "minute", "kind", "slot"),
}  # fmt: skip


def _check(seeds: Iterable[int], cuts: int, kills: bool) -> None:
    chance = random.Random(repr((cuts, kills)))
    rows = [row for part in servers_of(seeds).values() for row in part]
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
        made = pa.concat_tables([*grown.settled[name], grown.unsettled[name]])
        assert _sorted(made, *KEYS[name]) == _sorted(whole[name], *KEYS[name]), name
    minutes = all_minutes(whole["entries"], starts.last_ns)
    key = ("server", "tube", "minute")
    assert _sorted(grown.minutes, *key) == _sorted(minutes, *key)


def test_tables_that_grow_are_those_made_at_once() -> None:
    _check((3, 5), 1, True)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(7))
def test_tables_that_grow_after_many_cuts_and_kills(seed: int) -> None:
    _check(range(2000 + 4 * seed, 2004 + 4 * seed), seed % 7, seed % 2 == 0)


def test_jobs_are_gone_or_not_and_known_or_not() -> None:
    events = in_order(queue_model.table(queue_model.history(5)))
    gone, still_open = split(events)
    newest = {row["job"]: row for row in events.to_pylist()}
    assert set(gone["job"].to_pylist()) == {
        job for job, row in newest.items() if row["state"] == "gone"
    }
    assert gone.num_rows + still_open.num_rows == events.num_rows
    server = events["server"][0].as_py()
    lsn = sorted(row["lsn"] for row in newest.values() if row["state"] == "gone")[2]
    assert set(newer(gone, {server: lsn})["job"].to_pylist()) == {
        job for job, row in newest.items() if row["state"] == "gone" and row["lsn"] > lsn
    }
    assert newer(gone, {}) == gone
