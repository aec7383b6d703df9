"""Batches: one command deletes or reserves several jobs."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from beanstalk_twisted.binlog.records.jobs import Reason
from beanstalk_twisted.jobs.job import Job
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.rules.reservations import REFUSED, Answer, Reservations, leave
from beanstalk_twisted.rules.timekeeping import Part, Slices, Timekeeping, Work
from beanstalk_twisted.wire import replies
from beanstalk_twisted.wire.replies import NO_JOBS, DeletedBatch, Reserved, ReservedBatch

BATCH_SLICE_JOBS: Final = 200
"""Jobs of one slice of a batch: 1 to 3 ms; 12 ms where a session watches 256 tubes."""

BATCH_SLICE_BYTES: Final = 4 << 20
"""Bytes of bodies after which a slice ends, so that others are served before much is sent."""

TIMED_OUT: Final = (replies.TIMED_OUT, 0)
NOTHING: Final = (NO_JOBS, 0)

AT_ONCE_JOBS: Final = 20
"""Jobs of a batch that is done at once even while other work waits for its slices: 0.2 ms."""

AT_ONCE_BYTES: Final = 16 << 10
"""Bytes of bodies in an answer that is given at once, as one piece; larger ones are delivered."""

MAX_REPLY_BYTES: Final = 64 << 20
"""Bytes of bodies in one reply: 1,000 of the default largest size.  What a peer does not read keeps
them in memory even if others delete the jobs meanwhile; so there are fewer if memory is short
(`BodyRoom.batch_bytes`).
"""


class ReserveBatch:
    """Reserves ready jobs, the best first, until there are enough or no more.  It has their bodies,
    which may leave the queue's memory meanwhile.

    :ivar body_bytes: of the jobs so far.
    :ivar most: how many there may be.
    :ivar ends_ns: until when to wait for the first one; None for not at all.
    """

    def __init__(
        self, session: Session, most: int, ends_ns: int | None, reservations: Reservations
    ) -> None:  # fmt: skip
        self.session = session
        self.body_bytes = 0
        self.most = most
        self.ends_ns = ends_ns
        self._state = reservations.state
        self._reservations = reservations
        # The body of each job, None until it is read.
        self._taken: dict[int, bytes | None] = {}
        self._lsn = self._taken_bytes = 0
        self._most_bytes = min(MAX_REPLY_BYTES, self._state.bodies.room.batch_bytes)

    def add(self, job: Job) -> None:
        self._taken[job.job_id] = None
        self.body_bytes += job.body_bytes
        self._state.bodies.room.promised_bytes += job.body_bytes
        self._lsn = max(self._lsn, job.lsn)
        self.receive(job.job_id)

    def absent(self) -> list[int]:
        held = self.session.reserved
        absent = [each for each, body in self._taken.items() if body is None and each in held]
        for each in absent:
            self.receive(each)
        return [each for each in absent if self._taken[each] is None]

    def receive(self, job_id: int) -> None:
        """Take the body of a job, if it is in memory."""
        job, room = self._state.jobs.get(job_id), self._state.bodies.room
        if job is not None and job.body is not None and self._taken[job_id] is None:
            self._taken[job_id] = job.body
            self._taken_bytes += job.body_bytes
            room.taken_bytes += job.body_bytes
            room.promised_bytes -= job.body_bytes

    def let_go(self) -> None:
        """Its reply is made, or nobody hears it."""
        room = self._state.bodies.room
        room.taken_bytes -= self._taken_bytes
        room.promised_bytes -= self.body_bytes - self._taken_bytes
        self.body_bytes = self._taken_bytes = 0
        self._taken = {}

    def is_done_after_slice(self, now_ns: int) -> bool:
        if self.session.has_ended:
            return True
        end_bytes = self.body_bytes + BATCH_SLICE_BYTES
        for _ in range(BATCH_SLICE_JOBS):
            if not self.takes_one(now_ns):
                return True
            if self.body_bytes >= end_bytes:
                break
        return len(self._taken) == self.most

    def takes_one(self, now_ns: int) -> bool:
        """:return: whether there was one more job, and room for it."""
        quota = self.session.quota
        if len(self._taken) == self.most or (quota is not None and quota.room_to_reserve <= 0):
            return False
        best = self.session.best_id()
        job = None if best is None else self._state.jobs.get(best)
        if job is None:
            return False
        if self._taken and self.body_bytes + job.body_bytes > self._most_bytes:
            self.session.forgo()
            return False
        self._reservations.hand_out(self.session, job, now_ns)
        self.add(job)
        return True

    def answer(self) -> Answer:
        jobs = [Reserved(job.job_id, body, job.priority) for job, body in self._there()]
        self.let_go()
        return ReservedBatch(jobs), self._lsn

    @property
    def has_none(self) -> bool:
        return next(self._there(), None) is None

    def _there(self) -> Iterator[tuple[Job, bytes]]:
        """A TTR may have ended between two slices, or a body may be lost."""
        held = self.session.reserved
        for each, body in self._taken.items():
            job = self._state.jobs.get(each) if each in held else None
            if job is not None and body is not None:
                yield job, body


class Batches(Part):
    """Carries out batches: small ones at once, others in slices of which each tick does one."""

    def __init__(self, timekeeping: Timekeeping) -> None:
        super().__init__(timekeeping)
        self._reservations.begin_batch = self._take_rest

    def delete(self, session: Session, now_ns: int, job_ids: Sequence[int]) -> Answer | None:
        """Delete each of these jobs that `WorkQueue.delete` would, and all at once: a crash leaves
        all or none.
        """
        if len(job_ids) <= BATCH_SLICE_JOBS and self._may_begin(len(job_ids)):
            return self._delete(session, now_ns, job_ids)
        self._timekeeping.answer_later(session, self._delete_later(session, job_ids))
        return None

    def _delete_later(self, session: Session, job_ids: Sequence[int]) -> Work:
        now_ns = yield None
        return self._delete(session, now_ns, job_ids)

    def _delete(self, session: Session, now_ns: int, job_ids: Sequence[int]) -> Answer:
        found = [self._state.not_held_by_others(session, each) for each in dict.fromkeys(job_ids)]
        jobs = [job for job in found if job is not None]
        for job in jobs:
            if job.job_id in session.reserved:
                tube = self._state.tubes.by_id(job.tube_id)
                self._state.note_run(session, job, tube, now_ns)
        if jobs and self._changes.log.budget.is_short:
            # There may be no room for all of them in one piece.
            for job in jobs:
                self._changes.end(job, Reason.CLIENT, now_ns, session.number)
        elif jobs:
            self._changes.end_whole(jobs, Reason.CLIENT, now_ns, session.number)
        for tube_id, count in Counter([job.tube_id for job in jobs]).items():
            tube = self._state.tubes.by_id(tube_id)
            tube.deletes += count
            if tube.policy is not None:
                self._timekeeping.settle(tube, now_ns)
            self._timekeeping.drop_if_unused(tube, now_ns)
        if self._state.tagged:
            self._timekeeping.follow(now_ns)
        return self._changes.of_state(DeletedBatch(len(jobs), len(job_ids) - len(jobs)))

    def reserve(
        self, session: Session, now_ns: int, count: int, timeout_ns: int | None
    ) -> Answer | None:
        """Reserve up to ``count`` ready jobs of the watched tubes.

        :param timeout_ns: how long to wait for the first job; None for not at all, and then none is
            an answer like any other.
        """
        reservations = self._reservations
        if session.quota is not None:
            if reservations.lacks_room(session):
                return REFUSED
            count = min(count, session.quota.room_to_reserve)
        if timeout_ns is not None and not session.has_open_job():
            answer = reservations.reserve(session, now_ns, timeout_ns)
            if answer is None:
                session.wanted = count
            return NOTHING if answer == TIMED_OUT else answer
        if not session.is_worker:
            reservations.note_worker(session)
        ends_ns = None if timeout_ns is None else now_ns + timeout_ns
        batch = ReserveBatch(session, count, ends_ns, reservations)
        if self._may_begin(count):
            is_done = batch.is_done_after_slice(now_ns)
        else:
            # The first job, which others might take meanwhile, decides whether there is a batch.
            is_done = not batch.takes_one(now_ns)
        if not is_done:
            self._carry_on_reserving(batch)
        elif batch.absent():
            self._finish(batch, now_ns)
        elif batch.body_bytes > AT_ONCE_BYTES:
            leave(reservations.outbox, session, batch.answer())
        else:
            return batch.answer()
        return None

    def _take_rest(self, session: Session, count: int, first: Job) -> None:
        """A session that waited for its first job has it.  What else becomes ready in this turn is
        part of its batch, which therefore goes on in the next tick.
        """
        batch = ReserveBatch(session, count, session.timeout_ns, self._reservations)
        batch.add(first)
        self._carry_on_reserving(batch)

    def _may_begin(self, jobs: int) -> bool:
        """Whether the first slice is done at once: no other large work waits for its next one."""
        return jobs <= AT_ONCE_JOBS or not self._timekeeping.is_working

    def _carry_on_reserving(self, batch: ReserveBatch) -> None:
        batch.session.is_busy = True
        self._timekeeping.work_in_slices(self._reserve_rest(batch))

    def _reserve_rest(self, batch: ReserveBatch) -> Slices:
        is_done, now_ns = False, 0
        while not is_done:
            now_ns = yield None
            is_done = batch.is_done_after_slice(now_ns)
        self._finish(batch, now_ns)

    def _finish(self, batch: ReserveBatch, now_ns: int) -> None:
        absent = batch.absent()
        again = partial(self._answer_or_wait, batch)
        answer = self._reservations.busy_until(batch.session, again)
        if not absent:
            answer(now_ns)
            batch.let_go()
            return
        left = len(absent)

        def one_more(job_id: int, now_ns: int) -> None:
            nonlocal left
            batch.receive(job_id)
            left -= 1
            if not left:
                answer(now_ns)
                batch.let_go()

        for job_id in absent:
            self._state.bodies.when_loaded(job_id, partial(one_more, job_id))

    def _answer_or_wait(self, batch: ReserveBatch, now_ns: int) -> Answer | None:
        """Whoever waits for a first job goes on with that if none it was given can be read."""
        if batch.ends_ns is None or not batch.has_none:
            return batch.answer()
        answer = self._reservations.reserve_until(
            batch.session, now_ns, batch.ends_ns, partial(self._reserve_anew, batch.most)
        )
        return NOTHING if answer == TIMED_OUT else answer

    def _reserve_anew(
        self, count: int, session: Session, now_ns: int, timeout_ns: int | None
    ) -> Answer | None:
        return self.reserve(session, now_ns, count, timeout_ns)
