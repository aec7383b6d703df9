"""New jobs: one is taken when there is memory for it and its way to the disk, and when the log has
room for it and for the end of every job.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from beanstalk_twisted.binlog.space_budget import Demand, new_job_bytes
from beanstalk_twisted.jobs.figures import HOT_JOB_BYTES
from beanstalk_twisted.jobs.job import NS
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.tube import Tube
from beanstalk_twisted.rules.reservations import NO_ROOM, Answer, leave
from beanstalk_twisted.rules.timekeeping import Part, Slices, Timekeeping
from beanstalk_twisted.wire import replies
from beanstalk_twisted.wire.replies import DRAINS, NOT_DRAINING

Draft = tuple[int, int]
"""A job whose body is on its way: its id, and when its `put` line came, ns."""


class Memory(Protocol):
    """What the queue needs to know of the process's memory."""

    def takes(self, size: int) -> bool:
        """Whether there is memory for so much of a new job, and for all that happens to it."""

    def takes_all(self, size: int, growth: int) -> bool:
        """Whether there is memory for writing so many bytes, after which jobs take so many more."""

    def hold(self, change: int) -> None:
        """So many bytes more, or fewer, are kept of jobs that have not wholly come."""


class Plenty:
    """The memory of a queue that nobody limits."""

    def takes(self, size: int) -> bool:
        return True

    def takes_all(self, size: int, growth: int) -> bool:
        return True

    def hold(self, change: int) -> None:
        pass


PLENTY: Final = Plenty()


class Waiting(NamedTuple):
    """A job, or some that are put together, that have wholly come and wait for room.

    :ivar size: bytes that they take, as if they were the body of one job.
    :ivar growth: bytes of memory that jobs take more then.
    :ivar take: takes them, at this time; None if they wait for something else by now.
    :ivar features: the incompat bits of the log segment that they need.
    """

    session: Session
    jobs: int
    size: int
    growth: int
    take: Callable[[int], Answer | None]
    features: int = 0


class Puts(Part):
    """Takes new jobs, or lets them wait.

    A put for which the log has no room waits until it has been given more, and its connection with
    it; it is refused if the disk has no more to give.

    Differs from beanstalkd: there, everybody waits while the space of the next segment is
    allocated; here, only the put does.

    :ivar memory: the process's.
    :ivar sliced_bytes: of a job that work in slices waits to write again, 0 if none does;
        ``withheld_bytes`` of one that waits to be a dead letter.
    :ivar is_draining: whether new jobs are refused; ``draining_changed`` is called when
        `set_draining` has changed that.
    """

    def __init__(self, timekeeping: Timekeeping, memory: Memory) -> None:
        super().__init__(timekeeping)
        self.memory = memory
        self.sliced_bytes = self.withheld_bytes = 0
        self.is_draining = False
        self.draining_changed: Callable[[], None] = lambda: None
        self._waiting: deque[Waiting] = deque()

    def note_producer(self, session: Session) -> None:
        session.is_producer = True
        self._tally.producers += 1

    def begin(self, session: Session, now_ns: int) -> Draft:
        """A `put` line was accepted.  It uses up an id, whether or not the body comes."""
        if not session.is_producer:
            self.note_producer(session)
        job_id = self._state.next_job_id
        self._state.next_job_id = job_id + 1
        return job_id, now_ns

    def put(
        self, session: Session, now_ns: int, draft: Draft, priority: int, delay_s: int,
        ttr_s: int, body: bytes,
    ) -> Answer | None:  # fmt: skip
        """Take a job that has wholly come, refuse it, or let it wait."""
        if self.is_draining:
            return replies.DRAINING, 0
        if session.using.policy is not None or session.quota is not None:
            refusal = self.refusal(session, now_ns, [len(body)])
            if refusal is not None:
                return refusal
        size = len(body)
        if not self.memory.takes(size):
            return NO_ROOM
        if self._changes.has_room_for(size):
            return self._take(session, now_ns, draft, priority, delay_s, ttr_s, body)
        return self._wait_with(session, draft, priority, delay_s, ttr_s, body)

    def refusal(self, session: Session, now_ns: int, sizes: Sequence[int]) -> Answer | None:
        """:param sizes: bytes of the bodies of new jobs, perhaps none.
        :return: what is answered if the policy of the tube in use does not take them, or a limit of
            the session's identity.
        """
        answer = _refused(session.using, sizes)
        if answer is not None:
            if self._state.times is not None:
                self._state.times.of(session.using).refusals += 1
        elif session.quota is not None and self.lacks(session, len(sizes), sum(sizes), now_ns):
            answer = NO_ROOM
        return answer

    def lacks(self, session: Session, jobs: int, body_bytes: int, now_ns: int) -> bool:
        """Whether a limit of the session's identity refuses so many more; that is told then."""
        quota = session.quota
        limit = "" if quota is None else quota.lacks(jobs, body_bytes, now_ns)
        if quota is None or not limit:
            return False
        quota.refuses(session.number, limit)
        return True

    def put_together(self, waiting: Waiting, now_ns: int) -> Answer | None:
        if not self.memory.takes_all(waiting.size, waiting.growth):
            return NO_ROOM
        return waiting.take(now_ns) if self._has_room(waiting) else self._wait(waiting)

    def _has_room(self, waiting: Waiting) -> bool:
        may_hold = self._changes.may_allow(waiting.features)
        return may_hold and self._changes.has_room_for_all(waiting.size, waiting.jobs)

    def put_soon(self, waiting: Waiting) -> None:
        """As `put_together`, in a later turn: in this one what has come has kept others waiting
        already, as in the turn after theirs the log will that writes them.
        """
        waiting.session.is_busy = True
        self._timekeeping.work_in_slices(self._put_next(waiting))

    def _put_next(self, waiting: Waiting) -> Slices:
        yield None
        # The first tick may still be of the same turn.
        now_ns = yield None
        session = waiting.session
        if session.has_ended:
            return
        answer = self.put_together(waiting, now_ns)
        if answer is not None:
            session.is_busy = False
            leave(self._reservations.outbox, session, answer)

    def set_draining(self, is_draining: bool) -> None:
        if is_draining is not self.is_draining:
            self.is_draining = is_draining
            self.draining_changed()

    def drain(self, session: Session, now_ns: int) -> Answer:
        self.set_draining(True)
        return DRAINS, 0

    def undrain(self, session: Session, now_ns: int) -> Answer:
        self.set_draining(False)
        return NOT_DRAINING, 0

    def forget(self, session: Session) -> None:
        """The session ends: its job is not taken, since nobody would hear of it."""
        if session.is_busy:
            self._waiting = deque(each for each in self._waiting if each.session is not session)

    def room_changed(self, now_ns: int) -> None:
        """There is more room, or none is to be had: answer those who wait for it, in order."""
        while self._waiting:
            if not (self._changes.log.budget.is_short or self._has_room(self._waiting[0])):
                return
            waiting = self._waiting.popleft()
            waiting.session.is_busy = False
            answer = self.put_together(waiting, now_ns)
            if answer is not None:
                leave(self._reservations.outbox, waiting.session, answer)

    def demand(self, copy_bytes: int | None) -> Demand:
        """:param copy_bytes: the body of a job that compaction waits to copy, if there is one."""
        jobs = self._state.ends()
        has_again = self.sliced_bytes or self.withheld_bytes
        if copy_bytes is None and not self._waiting and not has_again:
            return Demand(jobs)
        # Each is deleted one day, those that wait too; the log has room for one more anyway.
        jobs += sum([waiting.jobs - 1 for waiting in self._waiting])
        sizes = [new_job_bytes(waiting.size) for waiting in self._waiting]
        if copy_bytes is not None:
            sizes.append(new_job_bytes(copy_bytes))
        again = (self.sliced_bytes, self.withheld_bytes)
        sizes += [new_job_bytes(size) for size in again if size]
        return Demand(jobs, sum(sizes), max(sizes))

    def _wait_with(
        self, session: Session, draft: Draft, priority: int, delay_s: int, ttr_s: int, body: bytes
    ) -> Answer | None:
        """Not a part of `put`, which would be slower for the function in here."""

        def take(now_ns: int) -> Answer:
            refusal = self.refusal(session, now_ns, [len(body)])
            if refusal is not None:
                return refusal
            return self._take(session, now_ns, draft, priority, delay_s, ttr_s, body)

        return self._wait(Waiting(session, 1, len(body), len(body) + HOT_JOB_BYTES, take))

    def _wait(self, waiting: Waiting) -> Answer | None:
        if self._changes.log.budget.is_short:
            return NO_ROOM
        waiting.session.is_busy = True
        self._waiting.append(waiting)
        return None

    def _take(
        self, session: Session, now_ns: int, draft: Draft, priority: int, delay_s: int,
        ttr_s: int, body: bytes,
    ) -> Answer:  # fmt: skip
        tube = session.using
        if session.quota is not None:
            session.quota.spend(1)
        deadline_ns = now_ns + delay_s * NS if delay_s else 0
        lsn = self._changes.put(
            tube, draft, priority, deadline_ns, delay_s, ttr_s, body, session.number
        )
        self._tally.total_jobs += 1
        tube.total_jobs += 1
        self._timekeeping.settle(tube, now_ns)
        return replies.Inserted(draft[0]), lsn


def _refused(tube: Tube, sizes: Sequence[int]) -> Answer | None:
    policy = tube.policy
    if policy is None or not sizes:
        return None
    if 0 <= policy.max_job_bytes < max(sizes):
        return replies.JOB_TOO_BIG, 0
    if 0 <= policy.max_jobs < tube.job_count + len(sizes):
        return NO_ROOM
    if 0 <= policy.max_bytes < tube.body_bytes + sum(sizes):
        return NO_ROOM
    return None
