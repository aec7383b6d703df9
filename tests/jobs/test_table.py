"""Where all jobs are."""

from __future__ import annotations

from itertools import accumulate

import pytest

from beanstalk_twisted.binlog.cold import MAX_COUNT, ColdJobs, Records
from beanstalk_twisted.binlog.records.jobs import COUNTERS, JobImage, Kind, Reason, State
from beanstalk_twisted.binlog.tags import NO_TAGS
from beanstalk_twisted.jobs.figures import (
    HOT_JOB_BYTES,
    RESTING_JOB_BYTES,
    data_memory_bytes,
)
from beanstalk_twisted.jobs.job import Job
from beanstalk_twisted.jobs.table import JobTable
from tests.rules.memory import growth_bytes

MAX_U32, MAX_U64 = (1 << 32) - 1, (1 << 64) - 1


def put_image(job_id: int, body: bytes = b"hello") -> JobImage:
    """Make the image of a job that was just put."""
    return JobImage(
        Kind.PUT, State.READY, Reason.CLIENT, priority=7, job_id=job_id, ts_ns=11, deadline_ns=0,
        delay_s=0, ttr_s=13, tube_id=3, body=body,
    )  # fmt: skip


def add_row(table: JobTable, image: JobImage, lsn: int, segment: int) -> bool:
    """Let the job of an image rest."""
    return table.add_row(
        image.job_id, image.body, image.ts_ns, lsn, segment, image.state, image.priority,
        image.deadline_ns, image.delay_s, image.ttr_s, image.tube_id,
    )  # fmt: skip


def table_of(*job_ids: int) -> JobTable:
    """Make a table of jobs that were just put."""
    table = JobTable()
    for job_id in job_ids:
        add_row(table, put_image(job_id), lsn=17, segment=19)
    return table


def held(table: JobTable, job_id: int) -> Job:
    """Let a session hold a job."""
    job = table.get(job_id)
    assert job is not None
    job.state = State.RESERVED
    table.keep(job)
    return job


def remove(table: JobTable, job_id: int) -> None:
    """Get a job, and end it."""
    job = table.get(job_id)
    assert job is not None
    table.remove(job)


@pytest.mark.parametrize("job_id", [1, 63, 64, 65, 1 << 32, MAX_U64])
def test_a_job_is_found_by_any_id_of_64_bits(job_id: int) -> None:
    table = table_of(job_id)
    assert job_id in table
    assert job_id - 1 not in table
    assert list(table) == [job_id]
    job = table.get(job_id)
    assert job is not None and job.job_id == job_id


def test_the_largest_values_fit_a_job_that_was_only_put() -> None:
    table = JobTable()
    image = put_image(1, b"")._replace(
        priority=MAX_U32, ttr_s=MAX_U32, tube_id=MAX_U32, delay_s=MAX_U32, ts_ns=(1 << 63) - 1
    )
    add_row(table, image, lsn=MAX_U64, segment=MAX_U32)
    job = table.look(1)
    assert job is not None
    assert (job.priority, job.ttr_s, job.tube_id, job.delay_s) == (MAX_U32,) * 4
    assert (job.created_ns, job.lsn, job.segment) == ((1 << 63) - 1, MAX_U64, MAX_U32)


@pytest.mark.parametrize("name", COUNTERS)
def test_a_job_rests_up_to_the_largest_counter_of_a_row(name: str) -> None:
    table = table_of(1)
    job = table.job(1)
    setattr(job, name, MAX_COUNT)
    table.keep(job)
    job = table.job(1)
    assert getattr(job, name) == MAX_COUNT and table.memory_bytes == RESTING_JOB_BYTES + 5
    setattr(job, name, MAX_COUNT + 1)
    table.keep(job)
    assert table.get(1) is job and table.memory_bytes == HOT_JOB_BYTES + 5
    table.remove(job)
    assert list(table) == [] and not table.memory_bytes


@pytest.mark.parametrize("state", [State.READY, State.DELAYED, State.BURIED])
def test_a_job_that_was_held_rests_again_with_all_that_it_has(state: State) -> None:
    table = table_of(5)
    job = held(table, 5)
    assert table.get(5) is job
    for at, name in enumerate(FIELDS):
        if name not in ("body", "holder", "job_id", "state"):
            setattr(job, name, 1000 + at)
    job.state, job.full_lsn, job.body_bytes = state, 4711, 5
    table.keep(job)
    assert table.memory_bytes == RESTING_JOB_BYTES + 5
    known = table.get(5)
    assert known is not None and known is not job
    assert {name: getattr(known, name) for name in FIELDS} == {
        name: getattr(job, name) for name in FIELDS
    }
    assert (known.full_lsn, known.body_bytes, known.tags) == (4711, 5, None)


def test_a_job_with_tags_is_an_object_until_it_has_none() -> None:
    table, tags = table_of(5), NO_TAGS._replace(group=b"g")
    job = table.get(5)
    assert job is not None
    table.remake(job, b"other", tags)
    table.keep(job)
    assert table.get(5) is job
    assert table.memory_bytes == HOT_JOB_BYTES + data_memory_bytes(5, tags)
    table.remake(job, b"third one", None)
    table.keep(job)
    known = table.get(5)
    assert known is not None and known is not job and known.body == b"third one"
    assert table.memory_bytes == RESTING_JOB_BYTES + 9


@pytest.mark.parametrize("created_ns", [-(1 << 63), -1])
def test_a_job_may_have_been_put_before_1970(created_ns: int) -> None:
    """The log's times are signed: a server starts on whatever a tool has written there."""
    table = JobTable()
    add_row(table, put_image(1)._replace(ts_ns=created_ns), lsn=17, segment=19)
    job = table.look(1)
    assert job is not None and job.created_ns == created_ns


def test_one_id_is_given_to_one_job_only() -> None:
    table = table_of(1)
    with pytest.raises(AssertionError):
        table.add(Job.new(put_image(1), 0, 0))


def test_jobs_that_are_gone_leave_no_memory_behind() -> None:
    table = table_of(1)

    def come_and_go() -> None:
        for job_id in range(2, 8_000):
            add_row(table, put_image(job_id), lsn=0, segment=0)
            remove(table, job_id)

    counted = table.memory_bytes
    assert growth_bytes(come_and_go) < 20_000
    assert table.memory_bytes == counted


@pytest.mark.parametrize("state", [State.READY, State.DELAYED, State.BURIED])
def test_a_job_that_nobody_holds_takes_few_bytes_beside_its_body(state: State) -> None:
    table, body = JobTable(), b"b" * 100
    image = put_image(1, body)._replace(state=state, deadline_ns=17, reserves=3, buries=2)

    def fill() -> None:
        for job_id in range(1, 10_001):
            add_row(table, image._replace(job_id=job_id), lsn=0, segment=0)
            job = held(table, job_id)
            job.state, job.reserves = state, 4
            table.keep(job)

    assert growth_bytes(fill) / 10_000 < 90


FIELDS = (
    "body", "buries", "created_ns", "deadline_ns", "delay_s", "holder", "job_id", "kicks", "lsn",
    "priority", "releases", "reserves", "segment", "state", "timeouts", "ttr_s", "tube_id",
)  # fmt: skip
"""All that a job has; a compiled class has no ``__slots__`` to ask."""


def cold_jobs(job_ids: list[int], segment: int = 19) -> ColdJobs:
    """Many jobs that were just put."""
    images = [put_image(job_id, b"%d" % job_id) for job_id in job_ids]
    heap = b"".join(image.body for image in images)
    offsets = accumulate((len(image.body) for image in images), initial=0)
    encoded = [
        image.encode((offset, len(image.body), 0))
        for image, offset in zip(images, offsets, strict=False)
    ]
    records = Records()
    records.add(job_ids, [memoryview(b"".join(encoded))], memoryview(heap))
    jobs, others = records.take({3}, segment, now_ns=17)
    assert not others
    return jobs


@pytest.mark.parametrize(
    "job_ids",
    [
        [1], [63, 64], list(range(1, 200)), list(range(60, 64)), [5, 4, 9], [200, 1, 64, 63],
        [MAX_U64], list(range(1 << 40, (1 << 40) + 70)),
    ],
)  # fmt: skip
def test_many_jobs_are_added_as_they_would_be_one_by_one(job_ids: list[int]) -> None:
    table, alike = table_of(2, 4096), table_of(2, 4096)
    job_ids = [job_id for job_id in job_ids if job_id != 2]
    table.add_all_cold(cold_jobs(job_ids))
    for job_id in job_ids:
        add_row(alike, put_image(job_id, b"%d" % job_id), lsn=0, segment=19)
    assert list(table) == list(alike)
    assert len(table) == len(alike)
    for job_id in alike:
        known, other = table.look(job_id), alike.look(job_id)
        assert known is not None and other is not None
        for name in FIELDS:
            assert getattr(known, name) == getattr(other, name), name
    for job_id in list(table):
        remove(table, job_id)
    assert len(table) == 0


@pytest.mark.parametrize("job_ids", [[1, 2, 3], [2, 9], [9, 2]])
def test_one_id_is_given_to_one_of_many_jobs_only(job_ids: list[int]) -> None:
    table = table_of(2)
    with pytest.raises(AssertionError):
        table.add_all_cold(cold_jobs(job_ids))


def test_jobs_that_were_loaded_take_no_more_bytes_than_those_that_were_put() -> None:
    table, alike = JobTable(), JobTable()
    job_ids = list(range(1, 10_001))

    def put_each() -> None:
        for job_id in job_ids:
            add_row(alike, put_image(job_id, b"%d" % job_id), lsn=0, segment=19)

    jobs = cold_jobs(job_ids)
    assert growth_bytes(lambda: table.add_all_cold(jobs)) <= growth_bytes(put_each) + 1000
