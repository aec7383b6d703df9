"""
Batches: one command deletes or reserves several jobs, many of them slice by slice.
"""

from collections.abc import Callable, Sequence
from typing import Final

from beanstalk_twisted.jobs.changes import Changes
from beanstalk_twisted.jobs.ordered import ID_MASK
from beanstalk_twisted.jobs.reservations import Answer, Reservations, leave
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.jobs.timekeeping import Slices, Timekeeping
from beanstalk_twisted.wire.extensions import DeletedBatch, ReservedBatch
from beanstalk_twisted.wire.replies import DELETED, Reserved

BATCH_SLICE_JOBS: Final = 200
"""Jobs of one slice of a batch: 1 to 3 ms; 12 ms where a session watches 256 tubes."""

BATCH_SLICE_BYTES: Final = 4 << 20
"""Bytes of bodies after which a slice ends: to make `Job`s of cold ones copies them, in 2 ms."""

AT_ONCE_JOBS: Final = 20
"""Jobs of a batch that is done at once even while other work waits for its slices: 0.2 ms."""

AT_ONCE_BYTES: Final = 16 << 10
"""Bytes of bodies in an answer that is given at once, as one piece; larger ones are delivered."""

MAX_BATCH_BYTES: Final = 64 << 20
"""
Bytes of bodies in one reply: 1,000 of the default largest size.  What a peer does not read keeps
them in memory even if others delete the jobs meanwhile.
"""

Delete = Callable[[Session, int, int], Answer]


class Batch:
    """
    One command, from its first slice to its answer.

    :ivar session: which asked.
    """

    def __init__(self, session: Session) -> None:
        self.session = session

    def is_done_after_slice(self, now_ns: int) -> bool:
        """
        Do the next slice.

        :return: whether it was the last.
        """
        raise NotImplementedError

    def answer(self) -> Answer:
        """
        Give the answer when all is done.
        """
        raise NotImplementedError


class DeleteBatch(Batch):
    """
    Deletes jobs by their ids, each as `delete` does at its moment.
    """

    def __init__(
        self, session: Session, job_ids: Sequence[int], delete: Delete, changes: Changes
    ) -> None:
        super().__init__(session)
        self._job_ids = job_ids
        self._delete = delete
        self._changes = changes
        self._next = self._deleted = 0

    def is_done_after_slice(self, now_ns: int) -> bool:
        end = self._next + BATCH_SLICE_JOBS
        for job_id in self._job_ids[self._next : end]:
            reply, _ = self._delete(self.session, now_ns, job_id)
            self._deleted += reply is DELETED
        self._next = end
        return end >= len(self._job_ids)

    def answer(self) -> Answer:
        deleted = self._deleted
        reply = DeletedBatch(deleted, len(self._job_ids) - deleted)
        return reply, self._changes.committed_lsn


class ReserveBatch(Batch):
    """
    Reserves ready jobs, the best first, until there are enough or no more.

    :ivar body_bytes: of the jobs so far.
    """

    def __init__(
        self, session: Session, most: int, state: QueueState, reservations: Reservations
    ) -> None:
        super().__init__(session)
        self.body_bytes = 0
        self._most = most
        self._state = state
        self._reservations = reservations
        self._taken: dict[int, Reserved] = {}
        self._lsn = 0

    def add(self, answer: Answer) -> None:
        """
        Add a job that the session was given.
        """
        reply, lsn = answer
        assert isinstance(reply, Reserved)
        self._taken[reply.job_id] = reply
        self.body_bytes += len(reply.body)
        self._lsn = max(self._lsn, lsn)

    def is_done_after_slice(self, now_ns: int) -> bool:
        if self.session.has_ended:
            return True
        end_bytes = self.body_bytes + BATCH_SLICE_BYTES
        for _ in range(BATCH_SLICE_JOBS):
            if not self.takes_one(now_ns):
                return True
            if self.body_bytes >= end_bytes:
                break
        return len(self._taken) == self._most

    def takes_one(self, now_ns: int) -> bool:
        """
        Reserve one more job.

        :return: whether there was one, and room for it.
        """
        key = self.session.best_key()
        job = None if key is None else self._state.jobs.get(key & ID_MASK)
        if job is None or len(self._taken) == self._most:
            return False
        if self._taken and self.body_bytes + len(job.body) > MAX_BATCH_BYTES:
            return False
        self.add(self._reservations.hand_out(self.session, job, now_ns))
        return True

    def answer(self) -> Answer:
        held = self.session.reserved
        # A TTR may have ended between two slices.
        jobs = [reply for job_id, reply in self._taken.items() if job_id in held]
        return ReservedBatch(jobs), self._lsn


class Batches:
    """
    Carries out batches: small ones at once, others in slices of which each tick does one.
    """

    def __init__(
        self, state: QueueState, changes: Changes, reservations: Reservations,
        timekeeping: Timekeeping, delete: Delete,
    ) -> None:  # fmt: skip
        """
        :param delete: deletes one job.
        """
        self._state = state
        self._changes = changes
        self._reservations = reservations
        self._timekeeping = timekeeping
        self._delete = delete
        reservations.begin_batch = self._take_rest

    def delete(self, session: Session, now_ns: int, job_ids: Sequence[int]) -> Answer | None:
        """
        Delete these jobs, as if each were asked for alone.
        """
        batch = DeleteBatch(session, job_ids, self._delete, self._changes)
        if self._may_begin(len(job_ids)) and batch.is_done_after_slice(now_ns):
            return batch.answer()
        self._carry_on(batch)
        return None

    def reserve(
        self, session: Session, now_ns: int, count: int, timeout_ns: int | None
    ) -> Answer | None:
        """
        Reserve up to ``count`` jobs.

        :param timeout_ns: how long to wait for the first job; None for not at all, and then none is
            an answer like any other.
        """
        reservations = self._reservations
        if timeout_ns is not None and session.best_key() is None:
            answer = reservations.reserve(session, now_ns, timeout_ns)
            if answer is None:
                session.wanted = count
            return answer
        reservations.note_worker(session)
        batch = ReserveBatch(session, count, self._state, reservations)
        if self._may_begin(count):
            is_done = batch.is_done_after_slice(now_ns)
        else:
            # The first job, which others might take meanwhile, decides whether there is a batch.
            is_done = not batch.takes_one(now_ns)
        if not is_done:
            self._carry_on(batch)
        elif batch.body_bytes > AT_ONCE_BYTES:
            leave(reservations.outbox, session, batch.answer())
        else:
            return batch.answer()
        return None

    def _take_rest(self, session: Session, count: int, first: Answer) -> None:
        """
        A session that waited for its first job has it.  What else becomes ready in this turn is
        part of its batch, which therefore goes on in the next tick.
        """
        batch = ReserveBatch(session, count, self._state, self._reservations)
        batch.add(first)
        self._carry_on(batch)

    def _may_begin(self, jobs: int) -> bool:
        """
        Whether the first slice is done at once: no other large work waits for its next one.
        """
        return jobs <= AT_ONCE_JOBS or not self._timekeeping.is_working

    def _carry_on(self, batch: Batch) -> None:
        batch.session.is_busy = True
        self._timekeeping.work_in_slices(self._slices(batch))

    def _slices(self, batch: Batch) -> Slices:
        is_done = False
        while not is_done:
            now_ns = yield
            is_done = batch.is_done_after_slice(now_ns)
        batch.session.is_busy = False
        leave(self._reservations.outbox, batch.session, batch.answer())
