"""Jobs that are whole in a piece of a log are found, and no others."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from binlog_tools.spark.histories.images import EVENTS
from binlog_tools.spark.histories.whole import HELD_ROWS, WholeJobs
from tests.spark.tables import queue_model

ROWS = [{**row, "lsn": lsn} for lsn, row in enumerate(queue_model.history(37), 1)]
ALL = queue_model.table(ROWS)
JOBS = {job: [row for row in ROWS if row["job"] == job and row["event"] in EVENTS]
        for job in {row["job"] for row in ROWS if row["event"] in EVENTS}}  # fmt: skip


def parted(events: pa.Table, pieces: int, held_rows: int = HELD_ROWS) -> tuple[pa.Table, pa.Table]:
    """What is whole, and the rest, of events that come in so many pieces."""
    jobs = WholeJobs(held_rows)
    size = -(-events.num_rows // pieces)
    found = [jobs.take(events.slice(start, size)) for start in range(0, events.num_rows, size)]
    return (pa.concat_tables([each.whole for each in found]),
            pa.concat_tables([*(each.rest for each in found), jobs.rest()]))  # fmt: skip


def lsns_of(events: pa.Table) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for row in events.to_pylist():
        found.setdefault(row["job"], []).append(row["lsn"])
    return found


@pytest.mark.parametrize("pieces", [1, 2, 7])
def test_jobs_that_are_gone_are_whole_and_nothing_is_lost(pieces: int) -> None:
    whole, rest = (lsns_of(part) for part in parted(ALL, pieces))
    for job, rows in JOBS.items():
        is_whole = rows[0]["event"] == "put" and rows[-1]["state"] == "gone"
        assert (job in whole) == is_whole
        assert sorted((whole if is_whole else rest)[job]) == [row["lsn"] for row in rows]
    assert len(whole) > 10 and not whole.keys() & rest.keys()


def test_a_job_is_not_whole_if_a_record_may_be_missing_between_its_own() -> None:
    chance = random.Random(1)
    for _ in range(20):
        missing = chance.randrange(1, ALL.num_rows - 1)
        lsn = ROWS[missing]["lsn"]
        kept = pa.concat_tables([ALL.slice(0, missing), ALL.slice(missing + 1)])
        whole, _ = (lsns_of(part) for part in parted(kept, chance.choice([1, 3])))
        assert not any(lsns[0] < lsn < lsns[-1] for lsns in whole.values())


def test_rows_that_tell_of_damage_are_no_records() -> None:
    place = len(ROWS) // 2
    told = ALL.slice(place, 1).set_column(
        ALL.schema.get_field_index("event"), ALL.schema.field("event"), pa.array(["damage"])
    )
    damaged = pa.concat_tables([ALL.slice(0, place), told, ALL.slice(place + 1)])
    whole, _ = (lsns_of(part) for part in parted(damaged, 1))
    lsn = ROWS[place]["lsn"]
    assert whole and not any(lsns[0] < lsn < lsns[-1] for lsns in whole.values())


def test_pieces_in_another_order_make_no_whole_jobs_of_parts() -> None:
    half = ALL.num_rows // 2
    whole, rest = parted(pa.concat_tables([ALL.slice(half), ALL.slice(0, half)]), 2)
    for job, lsns in lsns_of(whole).items():
        assert lsns == [row["lsn"] for row in JOBS[job]]
    assert whole.num_rows + rest.num_rows == sum(map(len, JOBS.values()))


@pytest.mark.parametrize(("more", "is_held"), [(0, True), (-1, False)])
def test_so_many_events_are_held_and_no_more(more: int, is_held: bool) -> None:
    """A put and, in another piece, the rest of its job."""
    (job, rows) = next((job, rows) for job, rows in JOBS.items()
                       if rows[0]["event"] == "put" and rows[-1]["state"] == "gone")  # fmt: skip
    chain = [{**row, "lsn": lsn} for lsn, row in enumerate(rows, 1)]
    jobs = WholeJobs(1 + more)
    first = jobs.take(queue_model.table(chain[:1]))
    second = jobs.take(queue_model.table(chain[1:]))
    assert (first.rest.num_rows == 0) == is_held
    assert lsns_of(second.whole) == ({job: [row["lsn"] for row in chain]} if is_held else {})
