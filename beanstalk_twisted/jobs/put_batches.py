"""
Jobs that are put together, and jobs that are put for a moment of the wall clock.

The jobs of a batch are logged as a whole, and none of them is handed out before all are there.
Their ids follow each other, and are given when they are put.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.records import READY, JobImage, Kind, Reason, State
from beanstalk_twisted.binlog.space_budget import whole_bytes
from beanstalk_twisted.jobs.changes import Changes
from beanstalk_twisted.jobs.puts import Puts, Waiting
from beanstalk_twisted.jobs.reservations import Answer
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.jobs.statistics import Tally
from beanstalk_twisted.jobs.timekeeping import Timekeeping
from beanstalk_twisted.wire.extensions import InsertedBatch
from beanstalk_twisted.wire.replies import BAD_FORMAT, Inserted

NS: Final = 1_000_000_000

MAX_AHEAD_S: Final = (1 << 32) - 1
"""How far ahead a moment may be, seconds: as the longest delay."""


class NewJob(NamedTuple):
    """
    A job that has wholly come.

    :ivar begun_ns: when its line came, or that of its batch.
    :ivar deadline_ns: when it is ready; 0: ``delay_s`` after it was put.
    """

    begun_ns: int
    priority: int
    delay_s: int
    deadline_ns: int
    ttr_s: int
    body: bytes


class PutBatches:
    """
    Takes new jobs as a whole.

    :ivar wall_offset_ns: says the wall clock minus the queue's time.
    """

    def __init__(
        self, state: QueueState, changes: Changes, timekeeping: Timekeeping, tally: Tally,
        puts: Puts,
    ) -> None:  # fmt: skip
        self.wall_offset_ns: Callable[[], int] = _none
        self._state = state
        self._changes = changes
        self._timekeeping = timekeeping
        self._tally = tally
        self._puts = puts

    def put_at(
        self, session: Session, now_ns: int, begun_ns: int, priority: int, at_s: int, ttr_s: int,
        body: bytes,
    ) -> Answer | None:  # fmt: skip
        """
        A job that is ready at a moment: seconds since the epoch.
        """
        deadline_ns = at_s * NS - self.wall_offset_ns()
        delay_s = max(0, -((now_ns - deadline_ns) // NS))
        if delay_s > MAX_AHEAD_S:
            return BAD_FORMAT, 0
        job = NewJob(begun_ns, priority, delay_s, deadline_ns, ttr_s, body)
        return self._put(session, now_ns, [job], is_batch=False)

    def put_batch(
        self, session: Session, now_ns: int, begun_ns: int,
        jobs: Sequence[tuple[int, int, int, bytes]],
    ) -> Answer | None:  # fmt: skip
        """
        :param jobs: priority, delay in seconds, TTR in seconds and body; at least one.
        """
        new_jobs = [
            NewJob(begun_ns, priority, delay_s, 0, ttr_s, body)
            for priority, delay_s, ttr_s, body in jobs
        ]
        return self._put(session, now_ns, new_jobs, is_batch=True)

    def _put(
        self, session: Session, now_ns: int, jobs: Sequence[NewJob], *, is_batch: bool
    ) -> Answer | None:
        if not session.is_producer:
            self._puts.note_producer(session)
        size = whole_bytes(len(jobs), sum([len(job.body) for job in jobs]))

        def take(now_ns: int) -> Answer:
            first_id, lsn = self._take(session, now_ns, jobs, size)
            if is_batch:
                return InsertedBatch(first_id, len(jobs)), lsn
            return Inserted(first_id), lsn

        return self._puts.put_together(Waiting(session, len(jobs), size, take), now_ns)

    def _take(
        self, session: Session, now_ns: int, jobs: Sequence[NewJob], size: int
    ) -> tuple[int, int]:
        """
        :return: the first one's id, and the LSN that is to be durable.
        """
        tube, first_id = session.using, self._state.next_job_id
        images = [
            _image(job, job_id, tube.tube_id, session.number, now_ns)
            for job_id, job in enumerate(jobs, start=first_id)
        ]
        self._state.next_job_id += len(jobs)
        lsn = self._changes.put_whole(tube, images, size, now_ns)
        self._tally.total_jobs += len(jobs)
        tube.total_jobs += len(jobs)
        self._timekeeping.settle(tube, now_ns)
        return first_id, lsn


def _image(job: NewJob, job_id: int, tube_id: int, connection: int, now_ns: int) -> JobImage:
    deadline_ns = job.deadline_ns or now_ns + job.delay_s * NS
    is_delayed = deadline_ns > now_ns
    return JobImage(
        Kind.PUT, State.DELAYED if is_delayed else READY, Reason.CLIENT, job.priority, job_id,
        job.begun_ns, deadline_ns if is_delayed else 0, job.delay_s, job.ttr_s, tube_id,
        connection=connection, body=job.body,
    )  # fmt: skip


def _none() -> int:
    return 0
