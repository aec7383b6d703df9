"""Kinds of jobs that fail, from parts of the jobs, are those that a person with a pencil would
find.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from beanstalk_twisted.binlog.bodies import fingerprint
from binlog_tools.spark.definitions.samples import readable
from binlog_tools.spark.histories.failing import (
    FAILING,
    MARKS,
    added,
    failing_of,
    kinds_of,
    unmarked,
)
from binlog_tools.spark.histories.tables import KINDS
from tests.spark.histories.test_histories import Row, assert_same, in_order, servers_of
from tests.spark.tables import oracle, queue_model

ROWS = [row for part in servers_of(range(2, 14)).values() for row in part]
EVENTS = queue_model.table(ROWS)
KEY = ("tube", "fingerprint")


def marks_of(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist([
        {"server": row["server"], "lsn": row["lsn"], "fingerprint": fingerprint(row["body"]),
         "sample": readable(row["body"])}
        for row in rows if row["body"] is not None
    ], MARKS)  # fmt: skip


@pytest.mark.parametrize("failures", [1, 2, 4])
@pytest.mark.parametrize("parts", [1, 3])
def test_kinds_of_parts_added_up_are_those_of_all_jobs(failures: int, parts: int) -> None:
    marks = marks_of(ROWS)
    job = np.array(EVENTS["job"].to_pylist(), float)
    kinds = []
    for part in range(parts):
        mine = in_order(EVENTS.filter(pa.array(np.nan_to_num(job, nan=-1) % parts == part)))
        mine = mine.filter(mine["job"].is_valid())
        kinds.append(kinds_of(failing_of(mine, failures), marks).select(KINDS.names))
    made = added(pa.concat_tables(kinds))
    assert made.schema.equals(KINDS)
    assert_same(made, oracle.poison(ROWS, failures), KEY)
    assert added(made).equals(made)


def test_bodies_are_read_of_jobs_whose_newest_is_not_known() -> None:
    jobs = pa.Table.from_pylist([
        {"server": "s", "job": 1, "lsn": 9, "bodies": [3, 9]},
        {"server": "s", "job": 2, "lsn": 5, "bodies": [5]},
        {"server": "t", "job": 1, "lsn": None, "bodies": []},
    ], FAILING)  # fmt: skip
    none = MARKS.empty_table()
    assert {name: lsns.tolist() for name, lsns in unmarked(jobs, none).items()} == {"s": [3, 5, 9]}
    known = pa.Table.from_pylist([{"server": "s", "lsn": 9}], MARKS)
    assert {name: lsns.tolist() for name, lsns in unmarked(jobs, known).items()} == {"s": [5]}


def test_the_newest_body_that_can_be_read_counts() -> None:
    jobs = pa.Table.from_pylist([
        {"server": "s", "tube": "a", "job": 1, "lsn": 9, "bodies": [3, 9], "timeouts": 3,
         "releases": 0, "buries": 0, "disconnects": 0, "alive": 1, "dead": 0},
    ], FAILING)  # fmt: skip
    marks = pa.Table.from_pylist([{"server": "s", "lsn": 3, "fingerprint": "f"}], MARKS)
    assert kinds_of(jobs, marks)["fingerprint"].to_pylist() == ["f"]
    assert kinds_of(jobs, MARKS.empty_table())["fingerprint"].to_pylist() == [None]
