"""Reservations: dispatches ready jobs to waiting sessions, enforces TTRs, and tells who waits for
the end of a job.

Differs from beanstalkd: a TTR always ends, and whoever gets a job back hears RESERVED; there, a
deadline met to the microsecond is forgotten (prot.c, conn_timeout).
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from beanstalk_twisted.binlog.records.jobs import Kind, Reason, State
from beanstalk_twisted.jobs.job import CLIENT, GONE, NS, RESERVE, RESERVED, Job
from beanstalk_twisted.jobs.queues import DueTimes, JobTimes
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.jobs.tube import Tube
from beanstalk_twisted.rules.changes import Changes
from beanstalk_twisted.rules.statistics import Tally
from beanstalk_twisted.wire import replies
from beanstalk_twisted.wire.replies import NO_JOBS, UNAUTHORIZED, Reply

SAFETY_MARGIN_NS: Final = 1 * NS
"""A worker hears DEADLINE_SOON in the last second of a TTR (beanstalkd prot.c, SAFETY_MARGIN)."""

OVERDUE_NS: Final = 1 * NS
"""A `reserve` that was given a job whose body cannot be read takes the next one until its time is
up, and for so long behind that: who does not wait at all gets past damaged jobs, and does not wait
for each of many that a disk fails to read, which takes seconds.
"""


Answer = tuple[Reply, int]
"""A reply, and the LSN that must be durable before anybody may see it (0: none).  A plain tuple: an
object with named attributes takes 200 ns longer to make (CPython 3.11).
"""

NO_ROOM: Final[Answer] = replies.OUT_OF_MEMORY, 0
"""The disk is full, or memory: all is as it was."""

REFUSED: Final[Answer] = UNAUTHORIZED, 0
"""To a command that its connection has no right to, or that a limit of its identity refuses."""


def leave(outbox: deque[tuple[Session, Answer]], session: Session, answer: Answer) -> None:
    """Leave an answer for a session; its next command waits until this is delivered."""
    session.has_answer = True
    outbox.append((session, answer))


class Reservations:
    """Gives ready jobs to sessions and takes them back.

    :ivar outbox: answers for sessions that had to wait for them, in order.
    :ivar begin_batch: called when a session that waits for a batch has got the first job of it.
    :ivar deadlines: sessions by the time of what is due next: see `expired` and `end_wait`.
    :ivar times: measures how long jobs wait, if somebody wants to know.
    :ivar has_limiters: whether any tube has had a limiter.
    :ivar move: makes a change that others may wait for: `Timekeeping.move`.
    :ivar arm_tube: called with a tube that is closed until its rate lets it give the next job.
    :ivar ends_wait: called with a doubtful session that waits, before it is given a job: ends its
        wait and says so if it may not have one any more.
    """

    def __init__(self, state: QueueState, changes: Changes, tally: Tally) -> None:
        self.outbox: deque[tuple[Session, Answer]] = deque()
        self.state = state
        self.changes = changes
        self.tally = tally
        self.begin_batch: Callable[[Session, int, Job], None]
        self.deadlines: DueTimes[Session] = DueTimes()
        self.has_limiters = False
        self.times: JobTimes | None = None
        self.arm_tube: Callable[[Tube], None]
        self.ends_wait: Callable[[Session], bool] = lambda session: False
        self.move: Callable[[Job, Kind, State, Reason, int, int, int], int]
        state.bodies.tell_lost = self._take_back_lost
        state.bodies.tell_failed = self._put_off

    def reserve(
        self, session: Session, now_ns: int, timeout_ns: int | None = None
    ) -> Answer | None:
        """The best ready job of the watched tubes at once, or None: the answer will come.

        :param timeout_ns: how long to wait at most, None for ever.
        """
        if not session.is_worker:
            self.note_worker(session)
        if session.quota is not None and self.lacks_room(session):
            return REFUSED
        best = session.best_id()
        job = None if best is None else self.state.jobs.get(best)
        if job is not None:
            self.hand_out(session, job, now_ns)
            if job.body is not None:
                return replies.Reserved(job.job_id, job.body, job.priority), job.lsn
            ends_ns = None if timeout_ns is None else now_ns + timeout_ns
            self._read_back(session, job.job_id, ends_ns)
            return None
        if _is_deadline_soon(session, now_ns):
            return replies.DEADLINE_SOON, 0
        if timeout_ns == 0 or session.is_half_closed:
            return replies.TIMED_OUT, 0
        self._wait(session, now_ns, None if timeout_ns is None else now_ns + timeout_ns)
        return None

    def reserve_with_timeout(self, session: Session, now_ns: int, timeout_ns: int) -> Answer | None:
        return self.reserve(session, now_ns, timeout_ns)

    def lacks_room(self, session: Session) -> bool:
        """Whether the session's identity has reserved as many jobs as it may; that is told then.  A
        reserve that waits counts as a job, so that whoever waits may be given one.
        """
        quota = session.quota
        if quota is None or quota.room_to_reserve > 0:
            return False
        quota.refuses(session.number, "reserved")
        return True

    def reserve_job(self, session: Session, job: Job, now_ns: int) -> Answer | None:
        if not session.is_worker:
            self.note_worker(session)
        if session.quota is not None and self.lacks_room(session):
            return REFUSED
        self.hand_out(session, job, now_ns)
        if job.body is not None:
            return replies.Reserved(job.job_id, job.body, job.priority), job.lsn
        self.answer_with_body(session, job.job_id, partial(self._reserved, session, job.job_id))
        return None

    def hand_out(self, session: Session, job: Job, now_ns: int) -> None:
        """Reserve the job for the session until its TTR ends."""
        deadline_ns = now_ns + job.ttr_s * NS
        self.changes.move(job, RESERVE, RESERVED, CLIENT, now_ns, session.number, deadline_ns)
        self.deadlines.arm(session, deadline_ns)
        if self.times is not None:
            tube = self.state.tubes.by_id(job.tube_id)
            if job.reserves == 1:
                self.times.note_wait(tube, now_ns - job.created_ns - job.delay_s * NS)
            else:
                self.times.of(tube).reserves += 1
        if self.has_limiters:
            self._limit(self.state.tubes.by_id(job.tube_id), now_ns)
        if self.state.jobs.absent_bytes:
            self.state.bodies.read_ahead(self.state.tubes.by_id(job.tube_id), job)

    # Bodies that are in the log only.

    def answer_with_body(
        self, session: Session, job_id: int, answer: Callable[[int], Answer | None]
    ) -> None:
        """Leave a session's answer when the body of a job was read, or cannot be; until then its
        next command waits.

        :param answer: called with the time then; gives None if what the session waits for is
            something else by now.
        """
        self.state.bodies.when_loaded(job_id, self.busy_until(session, answer))

    def busy_until(
        self, session: Session, answer: Callable[[int], Answer | None]
    ) -> Callable[[int], None]:
        session.is_busy = True

        def go_on(now_ns: int) -> None:
            session.is_busy = False
            if not session.has_ended:
                given = answer(now_ns)
                if given is not None:
                    leave(self.outbox, session, given)

        return go_on

    def _read_back(self, session: Session, job_id: int, ends_ns: int | None) -> None:
        """:param ends_ns: when the `reserve` ends if the job's body cannot be read."""
        again = partial(self._reserved_or_next, session, job_id, ends_ns)
        self.answer_with_body(session, job_id, again)

    def _reserved(self, session: Session, job_id: int, now_ns: int) -> Answer:
        """The session has asked for this very job; it may have lost it since."""
        job = self.state.jobs.get(job_id) if job_id in session.reserved else None
        if job is None or job.body is None:
            return self.changes.not_found()
        return replies.Reserved(job_id, job.body, job.priority), job.lsn

    def _reserved_or_next(
        self, session: Session, job_id: int, ends_ns: int | None, now_ns: int
    ) -> Answer | None:
        """As `_reserved`, for a session that takes the next job as well."""
        job = self.state.jobs.get(job_id) if job_id in session.reserved else None
        if job is not None and job.body is not None:
            return replies.Reserved(job_id, job.body, job.priority), job.lsn
        return self.reserve_until(session, now_ns, ends_ns, self.reserve)

    def _take_back_lost(self, job_id: int, now_ns: int) -> None:
        """The body of a job is lost: the session that was given it is not to have it."""
        job = self._reserved_with_room(job_id)
        if job is not None:
            buried_ns = max(now_ns, self.state.last_buried_ns + 1)
            self.move(job, Kind.BURY, State.BURIED, Reason.DAMAGED, now_ns, job.holder, buried_ns)

    def _put_off(self, job_id: int, until_ns: int, now_ns: int) -> None:
        """The body of a job cannot be read now: it is as if the session had never had it, and
        nobody is given it before that time.
        """
        job = self._reserved_with_room(job_id)
        if job is not None:
            self.move(
                job, Kind.RELEASE, State.DELAYED, Reason.RETURNED, now_ns, job.holder, until_ns
            )

    def _reserved_with_room(self, job_id: int) -> Job | None:
        """The job, if a session has it, and there is room to take it away."""
        job = self.state.jobs.get(job_id)
        is_held = job is not None and job.state is RESERVED and self.changes.has_room()
        return job if is_held else None

    def reserve_until(
        self, session: Session, now_ns: int, ends_ns: int | None,
        reserve: Callable[[Session, int, int | None], Answer | None],
    ) -> Answer | None:  # fmt: skip
        """Go on with a reserve: none of the jobs that the session was given can be read.

        :param ends_ns: when its time is up; None for never.
        :param reserve: begins anew, with the time that is left.
        """
        if ends_ns is None:
            return reserve(session, now_ns, None)
        if now_ns > ends_ns + OVERDUE_NS:
            return replies.TIMED_OUT, 0
        return reserve(session, now_ns, max(0, ends_ns - now_ns))

    def _limit(self, tube: Tube, now_ns: int) -> None:
        """Count a job that was handed out, and close its tube if it was the last for now."""
        limiter = tube.limiter
        if limiter is not None:
            limiter.take(now_ns)
            tube.set_closed(now_ns)
            if limiter.opens_ns() is not None:
                self.arm_tube(tube)

    def match(self, tube: Tube, now_ns: int) -> None:
        """Give ready jobs to waiting sessions, the first job to who has waited longest."""
        while tube.waiting and tube.ready.count and not tube.is_closed:
            session = tube.first_waiter()
            assert isinstance(session, Session)
            job = self.state.jobs.job(tube.ready.first_id())
            if session.is_doubtful and self.ends_wait(session):
                continue
            wanted = session.wanted
            self.stop_waiting(session)
            self.hand_out(session, job, now_ns)
            if wanted:
                self.begin_batch(session, wanted, job)
            elif job.body is not None:
                reserved = replies.Reserved(job.job_id, job.body, job.priority)
                leave(self.outbox, session, (reserved, job.lsn))
            else:
                self._read_back(session, job.job_id, session.timeout_ns)

    def stop_waiting(self, session: Session) -> None:
        """The session's `reserve` is answered, or nobody hears the answer."""
        session.is_waiting = False
        session.wanted = 0
        if session.quota is not None:
            session.quota.reserved -= 1
        self.tally.waiting -= 1
        for tube in session.watching:
            tube.drop_waiter()

    def forget(self, session: Session) -> None:
        """Drop the deadlines of a session that ends."""
        if session.is_waiting:
            self.stop_waiting(session)
        self.deadlines.forget(session)

    def expired(self, session: Session, now_ns: int) -> Job | None:
        """:return: a job that the session has had for its TTR, if there is one."""
        first = session.first_deadline()
        if first is None or first[0] > now_ns:
            return None
        return self.state.jobs.job(first[1])

    def end_wait(self, session: Session, now_ns: int) -> None:
        """Answer a `reserve` whose time is up, and plan what is due next.

        If margin and timeout come together, the margin counts.
        """
        if session.is_waiting:
            reply: Reply | None = None
            if _is_deadline_soon(session, now_ns):
                reply = replies.DEADLINE_SOON
            elif session.timeout_ns is not None and session.timeout_ns <= now_ns:
                reply = in_vain(session)
            if reply is not None:
                self.stop_waiting(session)
                leave(self.outbox, session, (reply, 0))
        self.arm(session)

    def arm(self, session: Session) -> None:
        """Plan for the earliest of its deadlines, and while it waits for the margin before that and
        its timeout; while it waits for the end of a job, for its timeout.
        """
        first = session.first_deadline()
        if first is not None:
            is_to_hear = session.is_waiting and session.hears_deadlines
            margin_ns = SAFETY_MARGIN_NS if is_to_hear else 0
            self.deadlines.arm(session, first[0] - margin_ns)
        if session.is_waiting or session.awaited_id:
            self.deadlines.arm(session, session.timeout_ns)

    def note_worker(self, session: Session) -> None:
        session.is_worker = True
        self.tally.workers += 1

    def _wait(self, session: Session, now_ns: int, timeout_ns: int | None) -> None:
        session.is_waiting = True
        if session.quota is not None:
            session.quota.reserved += 1
        session.wait_serial += 1
        session.waits_from_ns = now_ns
        session.timeout_ns = timeout_ns
        self.tally.waiting += 1
        for tube in session.watching:
            self.state.tubes.with_waiters += tube.add_waiter(session)
        self.arm(session)


def in_vain(session: Session) -> Reply:
    """What a waiting session hears that gets no job."""
    return NO_JOBS if session.wanted else replies.TIMED_OUT


def _is_deadline_soon(session: Session, now_ns: int) -> bool:
    first = session.first_deadline() if session.hears_deadlines else None
    return first is not None and now_ns >= first[0] - SAFETY_MARGIN_NS


class JobWaits:
    """Sessions by the job that they wait for, in the order they came; one waits for one job at
    most.  A change of a job that nobody waits for costs only a look at `QueueState.awaited`.

    :ivar is_to_end: asked, where rights are, whether a session may not wait for its job any more.
    """

    def __init__(self, reservations: Reservations) -> None:
        self.is_to_end: Callable[[Session], bool] | None = None
        self._reservations = reservations
        self._changes = reservations.changes
        self._state = reservations.state
        self._sessions: dict[int, dict[Session, None]] = {}

    def wait(
        self, session: Session, now_ns: int, job_id: int, timeout_ns: int
    ) -> Answer | None:  # fmt: skip
        """The answer comes when the job is gone or buried, if it is not."""
        job = self._state.jobs.look(job_id)
        if job is None:
            return self._changes.not_found()
        if job.state is State.BURIED:
            return replies.BURIED, job.lsn
        if timeout_ns == 0 or session.is_half_closed:
            return replies.TIMED_OUT, job.lsn
        if job_id not in self._sessions:
            self._sessions[job_id] = {}
            self._state.awaited[job_id] = self._ended
        self._sessions[job_id][session] = None
        session.awaited_id = job_id
        session.is_busy = True
        session.timeout_ns = now_ns + timeout_ns
        session.waits_from_ns = now_ns
        self._reservations.arm(session)
        return None

    def stop(self, session: Session) -> Answer:
        job_id = session.awaited_id
        sessions = self._sessions[job_id]
        del sessions[session]
        if not sessions:
            del self._sessions[job_id], self._state.awaited[job_id]
        _go_on(session)
        job = self._state.jobs.look(job_id)
        assert job is not None
        return replies.TIMED_OUT, job.lsn

    def moved(self, job_id: int) -> None:
        """A job is in another tube now: who may not look there waits no longer."""
        if self.is_to_end is None:
            return
        for session in list(self._sessions.get(job_id, ())):
            if self.is_to_end(session):
                self.stop(session)
                leave(self._reservations.outbox, session, REFUSED)

    def end_wait(self, session: Session, now_ns: int) -> None:
        if session.awaited_id and session.timeout_ns is not None and session.timeout_ns <= now_ns:
            leave(self._reservations.outbox, session, self.stop(session))

    def _ended(self, job: Job) -> None:
        reply = replies.DELETED if job.state is GONE else replies.BURIED
        for session in self._sessions.pop(job.job_id):
            _go_on(session)
            leave(self._reservations.outbox, session, (reply, job.lsn))


def _go_on(session: Session) -> None:
    session.awaited_id = 0
    session.is_busy = False
