"""Kinds of jobs that fail are those that a person with a pencil would count."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from binlog_tools.spark.definitions.samples import readable
from binlog_tools.spark.histories.failing import (
    FAILURES,
    MARKS,
    failing_of,
    marked,
    poison_of,
    unmarked,
)
from tests.spark.histories.test_histories import Row, assert_same, in_order, servers_of
from tests.spark.tables import oracle, queue_model


def _marks(rows: list[Row], wanted: dict[str, set[int]]) -> pa.Table:
    """What the bodies of these records say."""
    found = [
        {"server": row["server"], "lsn": row["lsn"], "fingerprint": oracle.fingerprint(row["body"]),
         "sample": readable(row["body"])}
        for row in rows if row["lsn"] in wanted.get(row["server"], ()) and row["body"] is not None
    ]  # fmt: skip
    return pa.Table.from_pylist(found, MARKS)


@pytest.mark.parametrize("failures", [2, FAILURES])
def test_kinds_are_what_the_records_say_and_may_be_counted_in_parts(failures: int) -> None:
    rows = [row for part in servers_of(range(1, 12)).values() for row in part]
    failing = failing_of(in_order(queue_model.table(rows)), failures)
    wanted = {server: set(lsns.tolist())
              for server, lsns in unmarked(failing, MARKS.empty_table()).items()}  # fmt: skip
    marks = _marks(rows, wanted)
    jobs = marked(failing, marks)
    dice = random.Random(failures)
    mixed = jobs.take(pa.array(dice.sample(range(jobs.num_rows), jobs.num_rows)))
    for each in (jobs, mixed):
        found = poison_of(each)
        assert_same(found, oracle.poison(rows, failures), ("tube", "fingerprint"))
    assert not unmarked(failing, marks.filter(pa.array([True] * marks.num_rows)))


def test_of_jobs_without_bodies_there_is_one_kind_a_tube() -> None:
    rows = [{**row, "body": None} for part in servers_of((3, 5)).values() for row in part]
    failing = failing_of(in_order(queue_model.table(rows)), 1)
    found = poison_of(marked(failing, MARKS.empty_table()))
    assert found.num_rows == len(set(found["tube"].to_pylist())) > 1
    assert found["fingerprint"].null_count == found.num_rows
    assert poison_of(marked(failing[:0], MARKS.empty_table())).num_rows == 0
