"""The workers of an incarnation that grow with its attempts are those made of all of them."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from binlog_tools.spark.histories.tables import ATTEMPTS, WORKERS
from binlog_tools.spark.histories.workers import Replaced, grown, workers_of

Row = dict[str, Any]


def attempt(job: int, connection: int, started: int | None, ended: int | None, **more: Any) -> Row:
    by = None if ended is None else more.get("ended_by", "release")
    return {"server": "s", "incarnation": 1, "connection": connection, "job": job,
            "started_ns": started, "ended_ns": ended, **more, "ended_by": by}  # fmt: skip


def table(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, ATTEMPTS)


def by_connection(workers: pa.Table) -> list[Row]:
    rows: list[Row] = workers.sort_by("connection").to_pylist()
    return rows


def grow(workers: pa.Table, settled: list[Row], old: list[Row], new: list[Row]) -> pa.Table | None:
    replaced = Replaced.of(table(old), table(new))
    least = min(replaced.since_ns.values(), default=1 << 60)
    near = table(settled)
    near = near.filter(pc.greater(near["ended_ns"], least))
    return grown(workers, replaced, near)


@pytest.mark.parametrize("seed", range(30))
def test_workers_grow_as_if_they_were_made_of_all(seed: int) -> None:
    """Runs of three connections, which end by turns and overlap; some last, some have no
    beginning.
    """
    chance = random.Random(seed)
    settled: list[Row] = []
    old: list[Row] = []
    workers = workers_of(table([]))
    job, now = 0, 1_000_000
    for _ in range(12):
        # Of jobs that are not settled runs go on, end, or are followed by others.
        jobs: dict[int, list[Row]] = {}
        for row in old:
            jobs.setdefault(row["job"], []).append(dict(row))
        for _ in range(chance.randrange(4)):
            job += 1
            jobs[job] = []
        for number, rows in jobs.items():
            if rows and rows[-1]["ended_ns"] is None:
                if chance.random() < 0.5:
                    rows[-1].update(ended_ns=now + chance.randrange(50_000), ended_by="release")
            elif chance.random() < 0.7:
                started = None if chance.random() < 0.1 else now + chance.randrange(50_000)
                ended = None if chance.random() < 0.5 else now + 50_000 + chance.randrange(90_000)
                if started is not None or ended is not None:
                    rows.append(attempt(number, chance.randrange(1, 4), started, ended))
        now += 100_000
        gone = {number for number, rows in jobs.items()
                if chance.random() < 0.4 and all(row["ended_ns"] for row in rows)}  # fmt: skip
        new = [row for rows in jobs.values() for row in rows]
        made = grow(workers, settled, old, new)
        assert made is not None and made.schema.equals(WORKERS)
        assert by_connection(made) == by_connection(workers_of(table([*settled, *new])))
        settled += [row for row in new if row["job"] in gone]
        old = [row for row in new if row["job"] not in gone]
        workers = made


def test_an_end_that_was_the_newest_and_is_no_more_asks_for_all_attempts() -> None:
    old, new = [attempt(1, 1, 10_000, 90_000)], [attempt(1, 1, 10_000, 50_000)]
    workers = workers_of(table(old))
    assert grow(workers, [], old, new) is None
    begun = [attempt(1, 1, 20_000, 90_000)]
    assert grow(workers, [], old, begun) is None
    assert by_connection(grow(workers, [], old, old) or workers.slice(0, 0)) == (
        by_connection(workers)
    )


def test_jobs_whose_attempts_stay_are_left_out_and_all_attempts_of_others_are_there() -> None:
    stays, ends = attempt(1, 1, 10_000, 20_000), attempt(2, 1, 30_000, None)
    first, again = attempt(3, 1, 40_000, 50_000), attempt(3, 1, 60_000, None)
    renamed = attempt(4, 1, 70_000, 80_000, ended_by="unlogged")
    made = Replaced.of(
        table([stays, ends, first, renamed]),
        table([stays, {**ends, "ended_ns": 35_000, "ended_by": "delete"}, first, again,
               {**renamed, "ended_by": "restart"}, attempt(5, 1, 90_000, None)]),
    )  # fmt: skip
    assert made.old["job"].to_pylist() == [2, 3, 4]
    assert made.new["job"].to_pylist() == [2, 3, 3, 4, 5]
    assert made.same["job"].to_pylist() == [1]
    assert made.since_ns == {1: 30_000}
