"""
The rules: one method for each command, one for the passing of time.

A method decides, logs an image of the job and applies it (`WorkQueue._emit`), then says what to
answer.  An answer is for the session that asked; None means that it comes later.  Answers that
come later, and those for other sessions, are left in `WorkQueue.outbox`, in order.

Two invariants hold after every call (tests/stateful): no tube that is not paused has both a ready
job and a waiting session; every job stands where its state says, and nowhere else.

Work on many jobs at once (a large `kick`, a session that ends with thousands of jobs, delays that
end together) is done in slices of `SLICE_JOBS`, so that nobody waits long behind it;
`next_due_ns` then says "now" until it is done.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from beanstalk_twisted.binlog.records import (
    Counters,
    JobImage,
    Kind,
    Pause,
    Reason,
    Record,
    State,
    TubeDef,
)
from beanstalk_twisted.jobs import statistics
from beanstalk_twisted.jobs.agenda import Agenda
from beanstalk_twisted.jobs.heap import ID_MASK, LazyHeap
from beanstalk_twisted.jobs.job import Job
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.jobs.tube import Tube
from beanstalk_twisted.wire import replies
from beanstalk_twisted.wire.replies import NOT_FOUND, Reply

NS: Final = 1_000_000_000

SAFETY_MARGIN_NS: Final = 1 * NS
"""A worker hears DEADLINE_SOON in the last second of a TTR (beanstalkd prot.c, SAFETY_MARGIN)."""

SLICE_JOBS: Final = 500
"""Jobs that one slice of work moves: about 5 ms."""


class Answer(NamedTuple):
    """
    A reply, and the LSN that must be durable before anybody may see it (0: none).
    """

    reply: Reply
    lsn: int


class Draft(NamedTuple):
    """
    A job whose `put` line was accepted and whose body is on its way.
    """

    job_id: int
    created_ns: int


class Ledger(Protocol):
    """
    What the queue needs of a log.
    """

    @property
    def segment(self) -> int:
        """
        Where the next record will lie.
        """

    def append(self, record: Record) -> int:
        """
        :return: the record's LSN.
        """


class NoLedger:
    """
    The ledger of a queue without a log.
    """

    segment = 0

    def append(self, record: Record) -> int:
        """
        Nothing is kept, so nothing has to be waited for.
        """
        return 0


class WorkQueue:
    """
    A beanstalkd's worth of tubes, jobs and sessions.

    :ivar outbox: answers for sessions other than the one that a call was for.
    :ivar max_job_bytes: the largest body that `put` takes.
    :ivar is_draining: whether new jobs are refused.
    """

    def __init__(
        self, state: QueueState, ledger: Ledger, facts: statistics.FactsSource,
        counters: Sequence[str], max_job_bytes: int,
    ) -> None:  # fmt: skip
        """
        :param facts: asked at each `stats`.
        :param counters: the commands' keys in `stats`, in order.
        """
        self.state = state
        self.ledger = ledger
        self.max_job_bytes = max_job_bytes
        self.is_draining = False
        self.tally = statistics.Tally()
        self.outbox: list[tuple[Session, Answer]] = []
        self._facts = facts
        self._counters = counters
        self._committed_lsn = 0
        self._delays: Agenda[Tube] = Agenda()
        self._pauses: Agenda[Tube] = Agenda()
        self._deadlines: Agenda[Session] = Agenda()
        self._slices: deque[Iterator[None]] = deque()
        state.default()

    # Sessions.

    def connect(self) -> Session:
        """
        A connection was made: it uses and watches `default`.
        """
        self.tally.connections += 1
        self.tally.connected += 1
        default = self.state.default()
        session = Session(self.tally.connections, default, self.state.jobs)
        self.state.sessions[session.number] = session
        default.using += 1
        default.watching += 1
        return session

    def disconnect(self, session: Session, now_ns: int) -> None:
        """
        A connection has ended: its jobs are ready again, in the order it reserved them.
        """
        if session.is_waiting:
            self._stop_waiting(session)
        self.tally.connected -= 1
        self.tally.producers -= session.is_producer
        self.tally.workers -= session.is_worker
        self._deadlines.forget(session)
        using, session.using = session.using, self.state.default()
        using.using -= 1
        for tube in session.watching_order:
            tube.watching -= 1
        for tube in {using, *session.watching_order}:
            self._drop_if_unused(tube, now_ns)
        self._work_in_slices(self._release_all(session, now_ns))

    def half_close(self, session: Session) -> Answer | None:
        """
        The peer will send no more: whoever waits is told so (beanstalkd prot.c, STATE_WAIT).
        """
        session.is_half_closed = True
        if not session.is_waiting:
            return None
        self._stop_waiting(session)
        return Answer(replies.TIMED_OUT, 0)

    def count(self, counter: str | None) -> None:
        """
        A command was understood.
        """
        if counter is not None:
            self.tally.commands[counter] += 1

    # Time.

    def tick(self, now_ns: int) -> None:
        """
        Do all that is due, in beanstalkd's order: delays, pauses, then deadlines of sessions.
        """
        self._run_slice(now_ns)
        self._end_delays(now_ns)
        self._end_pauses(now_ns)
        self._end_deadlines(now_ns)

    def next_due_ns(self) -> int | None:
        """
        When `tick` has something to do; 0 for at once, None for never.
        """
        if self._slices:
            return 0
        dues = (self._delays.first_ns(), self._pauses.first_ns(), self._deadlines.first_ns())
        return min((due for due in dues if due is not None), default=None)

    # Commands.

    def begin_put(self, session: Session, now_ns: int) -> Draft:
        """
        A `put` line was accepted.  It uses up an id whether or not the body is; no job exists yet.
        """
        if not session.is_producer:
            session.is_producer = True
            self.tally.producers += 1
        job_id = self.state.next_job_id
        self.state.next_job_id += 1
        return Draft(job_id, now_ns)

    def put(
        self, session: Session, now_ns: int, draft: Draft, priority: int, delay_s: int,
        ttr_s: int, body: bytes,
    ) -> Answer:  # fmt: skip
        """
        A whole job has come.
        """
        if self.is_draining:
            return Answer(replies.DRAINING, 0)
        tube = session.using
        image = JobImage(
            Kind.PUT, State.DELAYED if delay_s else State.READY, Reason.CLIENT, priority,
            draft.job_id, draft.created_ns, now_ns + delay_s * NS if delay_s else 0, delay_s,
            ttr_s, tube.tube_id, connection=session.number, body=body,
        )  # fmt: skip
        lsn = self._emit(image, tube)
        self.tally.total_jobs += 1
        tube.total_jobs += 1
        self._settle(tube, now_ns)
        return Answer(replies.Inserted(draft.job_id), lsn)

    def use(self, session: Session, now_ns: int, name: bytes) -> Answer:
        """
        Puts go into this tube from now on.
        """
        tube = self.state.tubes.get_or_make(name)
        tube.using += 1
        old, session.using = session.using, tube
        old.using -= 1
        self._drop_if_unused(old, now_ns)
        return Answer(replies.Using(name), 0)

    def watch(self, session: Session, now_ns: int, name: bytes) -> Answer:
        """
        Reserves take from this tube too.
        """
        tube = self.state.tubes.get_or_make(name)
        if session.watch(tube):
            tube.watching += 1
        return Answer(replies.Watching(len(session.watching)), 0)

    def ignore(self, session: Session, now_ns: int, name: bytes) -> Answer:
        """
        Reserves no longer take from this tube; one tube must stay watched.
        """
        tube = self.state.tubes.find(name)
        if tube in session.watching and tube is not None:
            if len(session.watching) == 1:
                return Answer(replies.NOT_IGNORED, 0)
            session.ignore(tube)
            tube.watching -= 1
            self._drop_if_unused(tube, now_ns)
        return Answer(replies.Watching(len(session.watching)), 0)

    def reserve(self, session: Session, now_ns: int) -> Answer | None:
        """
        The best ready job of the watched tubes, or wait for one.
        """
        return self._reserve(session, now_ns, None)

    def reserve_with_timeout(
        self, session: Session, now_ns: int, timeout_ns: int
    ) -> Answer | None:
        """
        As `reserve`, but wait no longer than that.
        """
        return self._reserve(session, now_ns, timeout_ns)

    def reserve_job(self, session: Session, now_ns: int, job_id: int) -> Answer:
        """
        This very job, whatever tube it is in, unless it is reserved.
        """
        job = self.state.jobs.get(job_id)
        if job is None or job.state is State.RESERVED:
            return self._not_found()
        self._note_worker(session)
        return self._hand_out(session, job, now_ns)

    def delete(self, session: Session, now_ns: int, job_id: int) -> Answer:
        """
        A job is done with: any but one that another session holds.
        """
        job = self.state.jobs.look(job_id)
        if job is None or (job.state is State.RESERVED and job_id not in session.reserved):
            return self._not_found()
        tube = self.state.tubes.by_id(job.tube_id)
        image = job.image(
            Kind.DELETE, State.GONE, Reason.CLIENT, now_ns, connection=session.number
        )
        lsn = self._emit(image, tube)
        tube.deletes += 1
        self._drop_if_unused(tube, now_ns)
        return Answer(replies.DELETED, lsn)

    def release(
        self, session: Session, now_ns: int, job_id: int, priority: int, delay_s: int
    ) -> Answer:
        """
        Give a job back, with a new priority and perhaps after a delay.
        """
        job = self._held(session, job_id)
        if job is None:
            return self._not_found()
        image = job.image(
            Kind.RELEASE, State.DELAYED if delay_s else State.READY, Reason.CLIENT, now_ns,
            deadline_ns=now_ns + delay_s * NS if delay_s else 0, connection=session.number,
        )._replace(priority=priority, delay_s=delay_s, releases=job.releases + 1)  # fmt: skip
        return self._emit_and_settle(image, replies.RELEASED, now_ns)

    def bury(self, session: Session, now_ns: int, job_id: int, priority: int) -> Answer:
        """
        Put a job aside until it is kicked.
        """
        job = self._held(session, job_id)
        if job is None:
            return self._not_found()
        buried_ns = max(now_ns, self.state.last_buried_ns + 1)
        image = job.image(
            Kind.BURY, State.BURIED, Reason.CLIENT, now_ns, deadline_ns=buried_ns,
            connection=session.number,
        )._replace(priority=priority, buries=job.buries + 1)  # fmt: skip
        return self._emit_and_settle(image, replies.BURIED, now_ns)

    def touch(self, session: Session, now_ns: int, job_id: int) -> Answer:
        """
        The worker needs more time: the TTR begins anew.
        """
        job = self._held(session, job_id)
        if job is None:
            return self._not_found()
        image = job.image(
            Kind.TOUCH, State.RESERVED, Reason.CLIENT, now_ns,
            deadline_ns=now_ns + job.ttr_s * NS, connection=session.number,
        )  # fmt: skip
        self._emit(image, self.state.tubes.by_id(job.tube_id))
        return Answer(replies.TOUCHED, job.lsn)

    def kick(self, session: Session, now_ns: int, bound: int) -> Answer | None:
        """
        Up to ``bound`` buried jobs of the used tube, or if it has none delayed ones, are ready.
        """
        tube = session.using
        jobs = tube.buried if tube.buried.count else tube.delayed
        count = min(bound, jobs.count)
        if count <= SLICE_JOBS:
            for _ in range(count):
                self._kick_first(session, tube, jobs, now_ns)
            return Answer(replies.Kicked(count), self._committed_lsn)
        session.is_busy = True
        self._work_in_slices(self._kick_many(session, tube, jobs, count, now_ns))
        return None

    def kick_job(self, session: Session, now_ns: int, job_id: int) -> Answer:
        """
        This very job, if buried or delayed, is ready.
        """
        job = self.state.jobs.get(job_id)
        if job is None or job.state not in (State.BURIED, State.DELAYED):
            return self._not_found()
        return Answer(replies.KICKED_JOB, self._kick(session, job, now_ns))

    def peek(self, session: Session, now_ns: int, job_id: int) -> Answer:
        """
        Look at any job.
        """
        return self._found(job_id)

    def peek_ready(self, session: Session, now_ns: int) -> Answer:
        """
        Look at the first ready job of the used tube.
        """
        return self._found_first(session.using.ready.first())

    def peek_delayed(self, session: Session, now_ns: int) -> Answer:
        """
        Look at the delayed job of the used tube that is due first.
        """
        return self._found_first(session.using.delayed.first())

    def peek_buried(self, session: Session, now_ns: int) -> Answer:
        """
        Look at the job of the used tube that was buried first.
        """
        return self._found_first(session.using.buried.first())

    def stats(self, session: Session, now_ns: int) -> Answer:
        """
        The server's statistics.
        """
        pairs = statistics.server(
            self.state, self.tally, self._counters, self._facts(),
            max_job_bytes=self.max_job_bytes, is_draining=self.is_draining,
        )  # fmt: skip
        return Answer(replies.statistics(pairs), 0)

    def stats_job(self, session: Session, now_ns: int, job_id: int) -> Answer:
        """
        A job's statistics.
        """
        job = self.state.jobs.look(job_id)
        if job is None:
            return self._not_found()
        tube = self.state.tubes.by_id(job.tube_id)
        return Answer(replies.statistics(statistics.job(job, tube, now_ns)), job.lsn)

    def stats_tube(self, session: Session, now_ns: int, name: bytes) -> Answer:
        """
        A tube's statistics.
        """
        tube = self.state.tubes.find(name)
        if tube is None:
            return self._not_found()
        return self._of_state(replies.statistics(statistics.tube(tube, now_ns)))

    def list_tubes(self, session: Session, now_ns: int) -> Answer:
        """
        All tubes.
        """
        return self._of_state(replies.names(tube.name for tube in self.state.tubes.in_order))

    def list_tube_used(self, session: Session, now_ns: int) -> Answer:
        """
        The tube that puts go into.
        """
        return Answer(replies.Using(session.using.name), 0)

    def list_tubes_watched(self, session: Session, now_ns: int) -> Answer:
        """
        The tubes that reserves take from.
        """
        return self._of_state(replies.names(tube.name for tube in session.watching_order))

    def pause_tube(self, session: Session, now_ns: int, name: bytes, seconds: int) -> Answer:
        """
        A tube hands out no job for so long; 0 ends a pause.
        """
        tube = self.state.tubes.find(name)
        if tube is None:
            return self._not_found()
        tube.pauses += 1
        lsn = self._pause(tube, seconds, now_ns, Reason.CLIENT)
        self._settle(tube, now_ns)
        return Answer(replies.PAUSED, lsn)

    # Loading, and the head of a log segment.

    def load_tubes(self, tubes: Mapping[int, bytes], next_tube_id: int, next_job_id: int) -> None:
        """
        Make the tubes that a log names, before any job; see `finish_loading`.
        """
        for tube_id, name in sorted(tubes.items()):
            self.state.define(tube_id, name)
        self.state.tubes.next_tube_id = max(self.state.tubes.next_tube_id, next_tube_id)
        self.state.next_job_id = max(self.state.next_job_id, next_job_id)

    def finish_loading(self, pauses: Sequence[Pause], now_ns: int) -> None:
        """
        All jobs are applied: take up pauses and timers, forget tubes that nothing refers to.
        """
        for pause in pauses:
            if self.state.tubes.has_id(pause.tube_id):
                self.state.apply_pause(pause)
        for tube in list(self.state.tubes.in_order):
            self._arm(tube)
            # Nobody is connected: a running pause keeps its tube until it ends.
            if not tube.pause_until_ns:
                self.state.drop_if_unused(tube)
        self.state.tubes.put_first(self.state.default())

    def opening(self, segment: int, now_ns: int) -> tuple[int, list[Record]]:
        """
        The next job id and the small state, for the head of log segment ``segment``.
        """
        records: list[Record] = []
        for tube in self.state.tubes.in_order:
            if tube.job_count or tube.pause_until_ns:
                tube.defined_in = segment
                records.append(TubeDef(tube.tube_id, tube.name, now_ns))
                records.extend(_small_state(tube, now_ns))
        records.append(Counters(0, now_ns, self.tally.counts()))
        return self.state.next_job_id, records

    # What commands have in common.

    def _emit(self, image: JobImage, tube: Tube) -> int:
        """
        Log a change and make it: the only way a live job changes.
        """
        segment = self._define(tube, image.ts_ns)
        lsn = self.ledger.append(image)
        self.state.apply(image, lsn, segment)
        if image.commits:
            self._committed_lsn = lsn
        return lsn

    def _define(self, tube: Tube, now_ns: int) -> int:
        """
        Each log segment says the name of each tube in it.
        """
        segment = self.ledger.segment
        if tube.defined_in != segment:
            tube.defined_in = segment
            self.ledger.append(TubeDef(tube.tube_id, tube.name, now_ns))
        return segment

    def _emit_and_settle(self, image: JobImage, reply: Reply, now_ns: int) -> Answer:
        tube = self.state.tubes.by_id(image.tube_id)
        lsn = self._emit(image, tube)
        self._settle(tube, now_ns)
        return Answer(reply, lsn)

    def _settle(self, tube: Tube, now_ns: int) -> None:
        """
        A job came into a tube: see who waits for it, and when it needs attention.
        """
        self._match(tube, now_ns)
        self._arm(tube)

    def _arm(self, tube: Tube) -> None:
        first = tube.delayed.first()
        if first is not None:
            self._delays.arm(tube, first >> 64)
        if tube.pause_until_ns:
            self._pauses.arm(tube, tube.pause_until_ns)

    def _match(self, tube: Tube, now_ns: int) -> None:
        """
        Give ready jobs to waiting sessions, the first job to who has waited longest.
        """
        while tube.waiting and not tube.pause_until_ns:
            key = tube.ready.first()
            session = tube.first_waiter()
            if key is None or session is None:
                return
            job = self.state.jobs.get(key & ID_MASK)
            assert job is not None
            self._stop_waiting(session)
            self.outbox.append((session, self._hand_out(session, job, now_ns)))

    def _of_state(self, reply: Reply) -> Answer:
        """
        A reply that shows the queue's state: it may not tell of what a crash could undo.
        """
        return Answer(reply, self._committed_lsn)

    def _not_found(self) -> Answer:
        return self._of_state(NOT_FOUND)

    def _held(self, session: Session, job_id: int) -> Job | None:
        return self.state.jobs.get(job_id) if job_id in session.reserved else None

    def _found(self, job_id: int) -> Answer:
        job = self.state.jobs.look(job_id)
        if job is None:
            return self._not_found()
        return Answer(replies.Found(job_id, job.body), job.lsn)

    def _found_first(self, key: int | None) -> Answer:
        return self._not_found() if key is None else self._found(key & ID_MASK)

    # Reserving.

    def _reserve(
        self, session: Session, now_ns: int, timeout_ns: int | None
    ) -> Answer | None:
        self._note_worker(session)
        job = self._best_job(session)
        if job is not None:
            return self._hand_out(session, job, now_ns)
        if self._is_deadline_soon(session, now_ns):
            return Answer(replies.DEADLINE_SOON, 0)
        if timeout_ns == 0 or session.is_half_closed:
            return Answer(replies.TIMED_OUT, 0)
        self._wait(session, None if timeout_ns is None else now_ns + timeout_ns)
        return None

    def _note_worker(self, session: Session) -> None:
        if not session.is_worker:
            session.is_worker = True
            self.tally.workers += 1

    def _best_job(self, session: Session) -> Job | None:
        best = None
        for tube in session.watching:
            if tube.ready.count and not tube.pause_until_ns:
                key = tube.ready.first()
                if key is not None and (best is None or key < best):
                    best = key
        return None if best is None else self.state.jobs.get(best & ID_MASK)

    def _hand_out(self, session: Session, job: Job, now_ns: int) -> Answer:
        image = job.image(
            Kind.RESERVE, State.RESERVED, Reason.CLIENT, now_ns,
            deadline_ns=now_ns + job.ttr_s * NS, connection=session.number,
        )._replace(reserves=job.reserves + 1)  # fmt: skip
        self._emit(image, self.state.tubes.by_id(job.tube_id))
        self._arm_session(session)
        return Answer(replies.Reserved(job.job_id, job.body), job.lsn)

    def _is_deadline_soon(self, session: Session, now_ns: int) -> bool:
        first = session.first_deadline()
        return first is not None and now_ns >= first[0] - SAFETY_MARGIN_NS

    def _wait(self, session: Session, timeout_ns: int | None) -> None:
        session.is_waiting = True
        session.wait_serial += 1
        session.timeout_ns = timeout_ns
        self.tally.waiting += 1
        for tube in session.watching:
            tube.add_waiter(session)
        self._arm_session(session)

    def _stop_waiting(self, session: Session) -> None:
        session.is_waiting = False
        self.tally.waiting -= 1
        for tube in session.watching:
            tube.drop_waiter()

    def _arm_session(self, session: Session) -> None:
        """
        Wake up for the earliest of its deadlines, and while it waits for the margin before that
        and its timeout.
        """
        first = session.first_deadline()
        if first is not None:
            margin_ns = SAFETY_MARGIN_NS if session.is_waiting else 0
            self._deadlines.arm(session, first[0] - margin_ns)
        if session.is_waiting:
            self._deadlines.arm(session, session.timeout_ns)

    # What happens by itself.

    def _end_delays(self, now_ns: int) -> None:
        for _ in range(SLICE_JOBS):
            tube = self._delays.pop_due(now_ns)
            if tube is None:
                return
            first = tube.delayed.first()
            if first is not None and first >> 64 <= now_ns:
                self.state.ripen(first & ID_MASK)
                self._match(tube, now_ns)
            self._arm(tube)

    def _end_pauses(self, now_ns: int) -> None:
        while (tube := self._pauses.pop_due(now_ns)) is not None:
            if 0 < tube.pause_until_ns <= now_ns:
                tube.pause_until_ns = 0
                self._match(tube, now_ns)
                self._drop_if_unused(tube, now_ns)
            self._arm(tube)

    def _end_deadlines(self, now_ns: int) -> None:
        for _ in range(SLICE_JOBS):
            session = self._deadlines.pop_due(now_ns)
            if session is None:
                return
            self._expire_first(session, now_ns)
            self._end_wait(session, now_ns)
            self._arm_session(session)

    def _expire_first(self, session: Session, now_ns: int) -> None:
        """
        The session's job with the earliest deadline goes back if its TTR has run out.
        """
        first = session.first_deadline()
        if first is None or first[0] > now_ns:
            return
        job = self.state.jobs.get(first[1])
        assert job is not None
        image = job.image(Kind.TTR_EXPIRED, State.READY, Reason.TTR, now_ns)
        self.tally.timeouts += 1
        self._emit_and_settle(
            image._replace(timeouts=job.timeouts + 1), replies.RELEASED, now_ns
        )

    def _end_wait(self, session: Session, now_ns: int) -> None:
        """
        If margin and timeout come together, the margin counts.
        """
        if not session.is_waiting:
            return
        if self._is_deadline_soon(session, now_ns):
            reply: Reply = replies.DEADLINE_SOON
        elif session.timeout_ns is not None and session.timeout_ns <= now_ns:
            reply = replies.TIMED_OUT
        else:
            return
        self._stop_waiting(session)
        self.outbox.append((session, Answer(reply, 0)))

    # Kicking.

    def _kick(self, session: Session, job: Job, now_ns: int) -> int:
        image = job.image(
            Kind.KICK, State.READY, Reason.CLIENT, now_ns, connection=session.number
        )._replace(kicks=job.kicks + 1)
        return self._emit_and_settle(image, replies.KICKED_JOB, now_ns).lsn

    def _kick_first(self, session: Session, tube: Tube, jobs: LazyHeap, now_ns: int) -> bool:
        key = jobs.first()
        if key is None:
            return False
        job = self.state.jobs.get(key & ID_MASK)
        assert job is not None
        self._kick(session, job, now_ns)
        return True

    def _kick_many(
        self, session: Session, tube: Tube, jobs: LazyHeap, count: int, now_ns: int
    ) -> Iterator[None]:
        """
        Slices of a large kick.  Others may act in between; the bound holds all the same.
        """
        kicked = 0
        while kicked < count and self._kick_first(session, tube, jobs, now_ns):
            kicked += 1
            if not kicked % SLICE_JOBS:
                yield
        session.is_busy = False
        self.outbox.append((session, Answer(replies.Kicked(kicked), self._committed_lsn)))

    # Work in slices.

    def _work_in_slices(self, work: Iterator[None]) -> None:
        """
        Do the first slice now and leave the rest, if any, to the next ticks.
        """
        if next(work, self) is None:
            self._slices.append(work)

    def _run_slice(self, now_ns: int) -> None:
        if self._slices:
            self._work_in_slices(self._slices.popleft())

    def _release_all(self, session: Session, now_ns: int) -> Iterator[None]:
        """
        Slices of the end of a session.
        """
        for at, job_id in enumerate(list(session.reserved), start=1):
            job = self.state.jobs.get(job_id)
            assert job is not None
            image = job.image(Kind.DISCONNECT_RELEASE, State.READY, Reason.DISCONNECT, now_ns)
            self._emit_and_settle(image, replies.RELEASED, now_ns)
            if not at % SLICE_JOBS:
                yield
        del self.state.sessions[session.number]

    # Tubes.

    def _pause(self, tube: Tube, seconds: int, now_ns: int, reason: Reason) -> int:
        self._define(tube, now_ns)
        until_ns = now_ns + seconds * NS if seconds else 0
        record = Pause(tube.tube_id, seconds, until_ns, now_ns, reason)
        lsn = self.ledger.append(record)
        self.state.apply_pause(record)
        if record.commits:
            self._committed_lsn = lsn
        return lsn

    def _drop_if_unused(self, tube: Tube, now_ns: int) -> None:
        """
        A tube that nothing refers to is forgotten, and its pause with it.
        """
        if tube.is_referred_to:
            return
        if tube.pause_until_ns:
            self._pause(tube, 0, now_ns, Reason.NONE)
        self._delays.forget(tube)
        self._pauses.forget(tube)
        self.state.drop_if_unused(tube)


def _small_state(tube: Tube, now_ns: int) -> Iterator[Record]:
    if tube.pause_until_ns:
        yield Pause(tube.tube_id, tube.pause_s, tube.pause_until_ns, now_ns)
    yield Counters(
        tube.tube_id, now_ns,
        {
            "total-jobs": tube.total_jobs, "cmd-delete": tube.deletes,
            "cmd-pause-tube": tube.pauses,
        },
    )  # fmt: skip
