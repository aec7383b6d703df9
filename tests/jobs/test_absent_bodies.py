"""Jobs whose bodies are in the log only, in the table of all jobs."""

from __future__ import annotations

import pytest

from beanstalk_twisted.binlog.records.jobs import BodyPlace, State
from beanstalk_twisted.binlog.tags import NO_TAGS
from beanstalk_twisted.jobs.figures import BODY_OBJECT_BYTES
from beanstalk_twisted.jobs.job import Job
from beanstalk_twisted.jobs.table import JobTable
from tests.jobs.test_table import add_row, held, put_image, table_of

KINDS = pytest.mark.parametrize("is_row", [True, False], ids=["row", "tagged"])


def table_with(is_row: bool) -> JobTable:
    """Job 5, with its body in memory."""
    table = table_of(5)
    if not is_row:
        tagged = seen(table)
        table.remake(tagged, b"hello", NO_TAGS._replace(group=b"g"))
        table.keep(tagged)
    return table


def seen(table: JobTable) -> Job:
    """Job 5 as it is."""
    job = table.look(5)
    assert job is not None
    return job


@KINDS
def test_a_body_is_dropped_and_loaded_again(is_row: bool) -> None:
    table = table_with(is_row)
    before = table.memory_bytes
    assert table.drop_body(5, durable_lsn=17)
    assert (table.memory_bytes, table.loaded_bytes) == (before - 5 - BODY_OBJECT_BYTES, 0)
    assert table.place(5) == BodyPlace(segment=19, lsn=17)
    assert (seen(table).body, seen(table).body_bytes) == (None, 5)
    table.load_body(5, b"hello")
    assert (table.memory_bytes, table.loaded_bytes) == (before, 5)
    assert table.place(5) is None
    job = seen(table)
    assert (job.body, job.lsn, job.full_lsn, job.segment) == (b"hello", 17, 17, 19)
    assert (job.priority, job.ttr_s, job.tube_id, job.created_ns) == (7, 13, 3, 11)


@KINDS
def test_no_body_leaves_before_its_record_is_durable(is_row: bool) -> None:
    table = table_with(is_row)
    assert not table.drop_body(5, durable_lsn=16)
    assert seen(table).body == b"hello"


@KINDS
def test_a_body_is_dropped_once(is_row: bool) -> None:
    table = table_with(is_row)
    assert table.drop_body(5, durable_lsn=17)
    assert not table.drop_body(5, durable_lsn=17)
    assert not table.loaded_bytes


def test_a_job_that_is_gone_has_no_body_to_drop_and_no_place() -> None:
    table = table_of(5)
    assert not table.drop_body(6, durable_lsn=17)
    assert not table.drop_body(5000, durable_lsn=17)
    assert table.place(6) is None


def test_an_empty_body_stays() -> None:
    table = JobTable()
    add_row(table, put_image(5, b""), lsn=17, segment=19)
    assert not table.drop_body(5, durable_lsn=17)
    assert seen(table).body == b""


@pytest.mark.parametrize(("lsn", "segment"), [(0, 19), (17, 0)])
def test_a_body_whose_place_is_not_known_stays(lsn: int, segment: int) -> None:
    table = JobTable()
    add_row(table, put_image(5), lsn, segment)
    assert not table.drop_body(5, durable_lsn=17)
    assert seen(table).body == b"hello"


def test_the_body_of_a_job_that_a_session_holds_leaves_too() -> None:
    table = table_of(5)
    job = held(table, 5)
    assert not table.drop_body(5, durable_lsn=16)
    assert table.drop_body(5, durable_lsn=17)
    assert (job.body, job.body_bytes, table.loaded_bytes) == (None, 5, 0)
    job.state = State.BURIED
    table.keep(job)
    assert seen(table).body is None


def test_a_body_that_was_read_for_who_holds_the_job_leaves_unless_it_was_stated_again() -> None:
    table = table_of(5)
    held(table, 5)
    table.drop_body(5, durable_lsn=17)
    place = table.place(5)
    assert place is not None
    table.load_body(5, b"hello")
    assert not table.drop_reserved(5, place._replace(lsn=16))
    assert table.drop_reserved(5, place)
    assert not table.drop_reserved(5, place)
    assert not table.drop_reserved(6, place)


@KINDS
def test_a_job_that_is_stated_again_has_another_place(is_row: bool) -> None:
    table = table_with(is_row)
    assert table.rehome(5, segment=23, lsn=40) == 19
    assert not table.drop_body(5, durable_lsn=39)
    assert table.drop_body(5, durable_lsn=40)
    assert table.place(5) == BodyPlace(segment=23, lsn=40)
    # Replies wait for the change that it had, not for the copy of it.
    assert seen(table).lsn == 17
    assert table.rehome(5, segment=24) == 23
    assert table.place(5) == BodyPlace(segment=24, lsn=40)
    assert (seen(table).segment, seen(table).body_bytes) == (24, 5)


@KINDS
def test_a_job_without_its_body_in_memory_ends(is_row: bool) -> None:
    table = table_with(is_row)
    table.drop_body(5, durable_lsn=17)
    job = table.get(5)
    assert job is not None and job.body is None
    table.remove(job)
    assert (len(table), table.memory_bytes, table.loaded_bytes) == (0, 0, 0)


def test_a_job_without_its_body_in_memory_gets_another_one() -> None:
    table = table_of(5)
    table.drop_body(5, durable_lsn=17)
    job = table.get(5)
    assert job is not None
    table.remake(job, b"other body", None)
    table.keep(job)
    assert (job.body, job.body_bytes, table.loaded_bytes) == (b"other body", 10, 10)
    assert (seen(table).body, seen(table).body_bytes) == (b"other body", 10)
    table.remove(job)
    assert (table.memory_bytes, table.loaded_bytes) == (0, 0)


@pytest.mark.parametrize("is_loaded", [True, False])
def test_a_job_is_weighed_wherever_its_body_is(is_loaded: bool) -> None:
    table = table_of(5)
    table.drop_body(5, durable_lsn=17)
    if is_loaded:
        table.load_body(5, b"hello")
    assert table.weigh(5) == (5, False)
    (facts,) = table.facts(0)
    assert (facts.body_bytes, facts.job) == (5, None)
