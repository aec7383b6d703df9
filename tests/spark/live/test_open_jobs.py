"""The shelves of open jobs hold what was put there, and no more."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa

from binlog_tools.spark.histories.images import in_order, numbers
from binlog_tools.spark.histories.windows import NONE
from binlog_tools.spark.live import open_jobs
from binlog_tools.spark.live.open_jobs import NAMES, OpenJobs
from tests.spark.live.test_steps import history, table_of


def some(jobs: list[int], lsn: int) -> pa.Table:
    """A record of each job."""
    (row, *_) = [row for row in history(30) if row["event"] == "put"]
    made = table_of([row]).select(NAMES).take(pa.array(np.zeros(len(jobs), np.int64)))
    for name, values in (("job", jobs), ("lsn", range(lsn, lsn + len(jobs)))):
        place = made.schema.get_field_index(name)
        made = made.set_column(place, made.schema.field(place), pa.array(values, pa.int64()))
    return in_order(made)


def test_what_is_put_can_be_taken_once() -> None:
    chance = random.Random(1)
    shelves, known, lsn = OpenJobs(some([], 0)), dict[int, set[int]](), 0
    for _ in range(25):
        jobs = sorted(chance.sample(range(200), 20))
        taken = shelves.take(np.array(jobs))
        assert set(numbers(taken, "lsn").tolist()) == {
            each for job in jobs for each in known.pop(job, set())
        }
        kept = [job for job in jobs if chance.random() < 0.7]
        fresh = some(kept, lsn)
        lsn += 20
        together = in_order(pa.concat_tables([taken, fresh]))
        mine = np.isin(numbers(together, "job"), kept)
        together = together.filter(pa.array(mine))
        shelves.put(together, np.array(kept) * 10)
        for row in together.select(["job", "lsn"]).to_pylist():
            known.setdefault(row["job"], set()).add(row["lsn"])
        assert shelves.jobs == len(known)
        assert shelves.knows(np.arange(200)).nonzero()[0].tolist() == sorted(known)
        assert sorted(shelves.due(700).tolist()) == [job for job in sorted(known) if job <= 70]
        assert shelves.next_alarm_ns() == min(known) * 10
    assert shelves.all().num_rows == sum(map(len, known.values()))


def test_the_small_shelf_becomes_the_large_one_behind_its_limit() -> None:
    shelves = OpenJobs(some([], 0))
    limit = open_jobs.SMALL_ROWS
    shelves.put(some(list(range(limit)), 0), np.full(limit, NONE))
    assert (shelves._large.rows, shelves._small.rows) == (0, limit)
    shelves.put(some([limit], limit), np.full(1, NONE))
    assert (shelves._large.rows, shelves._small.rows) == (limit + 1, 0)
    assert shelves.next_alarm_ns() == NONE
