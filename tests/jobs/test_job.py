"""A job in memory."""

from __future__ import annotations

import pytest

from beanstalk_twisted.binlog.records.jobs import JobImage, Kind, Reason, State
from beanstalk_twisted.jobs.job import Job

IMAGE = JobImage(
    Kind.RESERVE, State.RESERVED, Reason.CLIENT, priority=1, job_id=2, ts_ns=3, deadline_ns=4,
    delay_s=5, ttr_s=6, tube_id=7, reserves=8, timeouts=9, releases=10, buries=11, kicks=12,
    connection=13,
)  # fmt: skip


def new_job() -> Job:
    """Make a job that nothing was done with yet."""
    return Job.new(IMAGE._replace(kind=Kind.PUT, ts_ns=1, body=b"hello"), lsn=15, segment=14)


def reserved_job() -> Job:
    """Make a job that is as the image says."""
    job = new_job()
    job.become(IMAGE)
    return job


def test_a_job_becomes_all_that_an_image_says_but_keeps_its_birth_and_body() -> None:
    job = reserved_job()
    assert (job.state, job.priority, job.deadline_ns) == (State.RESERVED, 1, 4)
    assert (job.delay_s, job.ttr_s, job.holder) == (5, 6, 13)
    assert (job.reserves, job.timeouts, job.releases, job.buries, job.kicks) == (8, 9, 10, 11, 12)
    assert (job.created_ns, job.body) == (1, b"hello")


@pytest.mark.parametrize("state", sorted(set(State) - {State.RESERVED}))
def test_only_a_reserved_job_has_a_holder(state: State) -> None:
    job = reserved_job()
    job.become(IMAGE._replace(state=state))
    assert job.holder == 0


def test_the_image_of_a_change_says_what_stays_as_it_was() -> None:
    job = reserved_job()
    image = job.image(Kind.BURY, State.BURIED, Reason.CLIENT, 20, deadline_ns=21, connection=22)
    assert image == IMAGE._replace(
        kind=Kind.BURY, state=State.BURIED, ts_ns=20, deadline_ns=21, connection=22
    )
    assert image.body == b"", "only records that are full carry it"
