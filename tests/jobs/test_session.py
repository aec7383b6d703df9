"""What the queue knows of one connection."""

from __future__ import annotations

from beanstalk_twisted.binlog.records.jobs import State
from beanstalk_twisted.jobs.job import Job
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.table import JobTable
from beanstalk_twisted.jobs.tube import DEFAULT, TubeList
from tests.rules.memory import growth_bytes


class Place:
    """One session and the jobs it holds."""

    def __init__(self) -> None:
        self.jobs = JobTable()
        self.tubes = TubeList()
        self.session = Session(1, self.tubes.get_or_make(DEFAULT))

    def hold(self, job_id: int, deadline_ns: int) -> None:
        """Let the session hold a job until then, a new one or one that it holds."""
        job = self.jobs.get(job_id)
        if job is None:
            job = Job(job_id, b"", None, (0,) * 16)
            self.jobs.add(job)
        is_held = job_id in self.session.reserved
        job.state, job.deadline_ns = State.RESERVED, deadline_ns
        if is_held:
            self.session.hold_longer(job_id, deadline_ns)
        else:
            self.session.hold(job_id, deadline_ns)

    def let_go(self, job_id: int) -> None:
        """Take a job from the session."""
        job = self.jobs.job(job_id)
        job.state = State.READY
        self.session.let_go(job_id)

    def watched(self) -> list[str]:
        """Give the names of the watched tubes."""
        order = self.session.watching_order
        assert {tube: place for place, tube in enumerate(order)} == self.session.watching
        return [tube.name.decode() for tube in order]


def test_a_job_that_another_took_in_the_same_instant_is_none_of_ours() -> None:
    place = Place()
    place.hold(1, 10)
    place.session.let_go(1)  # It is reserved until then all the same, by another session.
    place.hold(2, 20)
    assert place.session.first_deadline() == (20, 2)


def test_deadlines_that_were_moved_leave_no_memory_behind() -> None:
    place = Place()
    place.hold(1, 10)

    def touch_again_and_again() -> None:
        for deadline_ns in range(20_000):
            place.hold(2, 10**15 + deadline_ns)

    assert growth_bytes(touch_again_and_again) < 300_000
    assert place.session.first_deadline() == (10, 1)


def test_one_wait_is_told_from_another() -> None:
    session = Place().session
    session.is_waiting, session.wait_serial = True, 2
    assert session.is_waiting_since(2)
    assert not session.is_waiting_since(1)
    session.is_waiting = False
    assert not session.is_waiting_since(2)
