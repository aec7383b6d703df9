"""The rules: one method for each command, here or of a part, and one for the passing of time."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from beanstalk_twisted.binlog.records.jobs import Kind, Reason
from beanstalk_twisted.binlog.records.others import Counters, Record
from beanstalk_twisted.binlog.space_budget import Demand
from beanstalk_twisted.jobs.job import BURIED, CLIENT, DELAYED, NS, READY, RELEASE, RESERVED, Job
from beanstalk_twisted.jobs.queues import JobTimes
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.jobs.tube import Tube
from beanstalk_twisted.jobs.unique_keys import Remembered
from beanstalk_twisted.rules import statistics
from beanstalk_twisted.rules.batches import Batches
from beanstalk_twisted.rules.bulk import DeadKicks, Flushes, Kicks
from beanstalk_twisted.rules.changes import NOWHERE, Changes, JobLog, small_state
from beanstalk_twisted.rules.following import Following
from beanstalk_twisted.rules.looks import Connections, Listing, Looks
from beanstalk_twisted.rules.moves import Edits, Moves
from beanstalk_twisted.rules.policies import Policies
from beanstalk_twisted.rules.put_batches import PutBatches
from beanstalk_twisted.rules.puts import PLENTY, Memory, Puts
from beanstalk_twisted.rules.reservations import (
    NO_ROOM,
    Answer,
    JobWaits,
    Reservations,
    in_vain,
    leave,
)
from beanstalk_twisted.rules.timekeeping import Slices, Timekeeping
from beanstalk_twisted.rules.watching import Watching
from beanstalk_twisted.rules.withheld import Withheld
from beanstalk_twisted.wire import layouts, replies
from beanstalk_twisted.wire.layouts import Values
from beanstalk_twisted.wire.replies import CANCELLED, RETURNED, CannotHandOver, Reply

TOUCH: Final = Kind.TOUCH

SLICE_WAITS: Final = 500
"""Sessions that one slice of the end of waits asks about, some 3 ms if all wait; one that watches
many tubes counts for as many.
"""

ALONE: Final = "the server is not replicated (--replicate)"
"""Why it hands over to nobody."""


class WorkQueue:
    """A beanstalkd's worth of tubes, jobs and sessions.

    A method decides, has the change logged and made (`changes.Changes`), then says what to answer;
    None if the answer comes later.  Two invariants hold after every call (tests/stateful): no tube
    that is not paused has both a ready job and a waiting session; every job stands where its state
    says, and nowhere else.

    Work on many jobs at once (a large `kick`, the end of a session with thousands of jobs) is done
    in slices; `next_due_ns` says "now" until it is done.

    Differs from beanstalkd: a job exists from its last byte on, not from its first, and an id is
    never given out again (there, ids begin anew behind the largest one in the log).

    :ivar outbox: later answers, and those for sessions other than the one that a call was for, in
        order.
    :ivar tick: does what is due; ``next_due_ns`` says when there is something, 0 for at once, None
        for never.
    :ivar max_job_bytes: the largest body that `put` takes.
    :ivar hand_over: hands the queue over to the standby of this name, any if it is empty; gives a
        `HandingOver` or a `CannotHandOver`.
    :ivar replication: what `stats` says of replication; nothing without it.
    :ivar replication_stats: what `stats-replication` says.
    """

    def __init__(
        self, facts: statistics.FactsSource, counters: Iterable[str], max_job_bytes: int,
        memory: Memory = PLENTY,
    ) -> None:  # fmt: skip
        """:param facts: asked at each `stats`.
        :param counters: the commands' keys in `stats`, in order.
        """
        self.state = QueueState()
        self.memory = memory
        self.max_job_bytes = max_job_bytes
        self.tally = statistics.Tally(counters)
        self._facts = facts
        self._changes = Changes(self.state)
        self.reservations = Reservations(self.state, self._changes, self.tally)
        self.outbox = self.reservations.outbox
        self.job_waits = JobWaits(self.reservations)
        self._timekeeping = timekeeping = Timekeeping(self.reservations, self.job_waits)
        self.tick, self.next_due_ns = timekeeping.tick, timekeeping.next_due_ns
        self._kicks = Kicks(timekeeping)
        self.batches = Batches(timekeeping)
        self.flushes = Flushes(timekeeping)
        self.listing = Listing(timekeeping)
        self.looks = Looks(timekeeping)
        self.watching = Watching(timekeeping)
        self.moves = Moves(timekeeping)
        self.connections = Connections(timekeeping)
        self._copy_waits: int | None = None
        self.puts = Puts(timekeeping, memory)
        self._withheld = Withheld(timekeeping, self.moves, self.puts)
        self.policies = Policies(timekeeping, self.moves, self._withheld)
        self.following = Following(timekeeping, self.policies)
        self.put_batches = PutBatches(timekeeping, self.puts)
        self.edits = Edits(timekeeping, self.puts, self.moves)
        self.dead_kicks = DeadKicks(timekeeping, self.puts, self.moves)
        self.hand_over: Callable[[str], Reply] = lambda name: CannotHandOver(ALONE)
        self.replication: Callable[[], Values] = dict
        self.replication_stats: Callable[[], Values] = lambda: {"role": "alone"}
        self.state.default()

    def tell_wall_clock(self, offset_ns: Callable[[], int]) -> None:
        """:param offset_ns: says the wall clock minus the queue's time; 0 without it."""
        self.put_batches.wall_offset_ns = offset_ns

    def measure_times(self) -> None:
        """Measure how long jobs wait and run, and count what happens to them, from now on."""
        self.state.times = self.reservations.times = JobTimes()

    @property
    def committed_lsn(self) -> int:
        """What has to be durable before all that is the case now may be shown."""
        return self._changes.committed_lsn

    def keep_in(self, log: JobLog) -> None:
        self._changes.log = log

    def connect(self, *, hears_deadlines: bool = True) -> Session:
        """:param hears_deadlines: see `Session.hears_deadlines`."""
        self.tally.connections += 1
        self.tally.connected += 1
        default = self.state.default()
        session = Session(self.tally.connections, default, hears_deadlines=hears_deadlines)
        self.state.sessions[session.number] = session
        default.using += 1
        default.watching += 1
        return session

    def forget_waits(self, session: Session) -> None:
        """End what a connection that has ended waits for; its jobs and tubes stay as they are."""
        session.has_ended = True
        if session.awaited_id:
            self.job_waits.stop(session)
        self.reservations.forget(session)
        self.puts.forget(session)

    def disconnect(self, session: Session, now_ns: int) -> None:
        """A connection has ended: its jobs are ready again, in the order it reserved them."""
        self.forget_waits(session)
        if session.quota is not None:
            # Its jobs count until they are given back.
            session.quota.disconnect(len(session.watching), 0)
        self.tally.connected -= 1
        self.tally.producers -= session.is_producer
        self.tally.workers -= session.is_worker
        self._timekeeping.work_in_slices(self.watching.unwatch_all(session, now_ns))
        using, session.using = session.using, self.state.default()
        using.using -= 1
        self._timekeeping.drop_if_unused(using, now_ns)
        self._timekeeping.work_in_slices(self._release_all(session, now_ns))

    def half_close(self, session: Session) -> Answer | None:
        """End a waiting `reserve`: the peer will send no more (beanstalkd prot.c, STATE_WAIT)."""
        session.is_half_closed = True
        return self.cancel_wait(session)

    def cancel_wait(self, session: Session) -> Answer | None:
        """A session that waits for a job, or for the end of one, does so no longer.

        :return: what it is told; None if it does not wait, or has its answer already.
        """
        if session.awaited_id:
            return self.job_waits.stop(session)
        if not session.is_waiting:
            return None
        reply = in_vain(session)
        self.reservations.stop_waiting(session)
        return reply, 0

    def do_in_slices(self, work: Slices) -> None:
        self._timekeeping.work_in_slices(work)

    def end_waits(self, is_to_end: Callable[[Session], bool], reply: replies.Reply) -> None:
        """:param is_to_end: asked of each session that waits, for a job or for the end of one,
            slice by slice; of one that is doubtful before it is given a job.
        :param reply: what they are told.
        """

        def ends(session: Session) -> bool:
            if not is_to_end(session) or self.cancel_wait(session) is None:
                return False
            leave(self.outbox, session, (reply, 0))
            return True

        self.reservations.ends_wait = ends
        self._timekeeping.work_in_slices(self._end_waits(ends))

    def count(self, counter: str | None) -> None:
        if counter is not None:
            self.tally.commands[counter] += 1

    def reserve_job(self, session: Session, now_ns: int, job_id: int) -> Answer | None:
        """This very job, unless that or too many with its concurrency key are reserved."""
        job = self.state.jobs.get(job_id)
        if job is None or job.state is RESERVED:
            return self._changes.not_found()
        if job.tags is not None and not self.state.concurrency.allows(job.tags):
            return self._changes.not_found()
        if job.state is not READY and not self._changes.has_room():
            return NO_ROOM
        return self.reservations.reserve_job(session, job, now_ns)

    def delete(self, session: Session, now_ns: int, job_id: int) -> Answer:
        """Delete any job but one that another session holds."""
        job = self.state.not_held_by_others(session, job_id)
        if job is None:
            return self._changes.not_found()
        tube = self.state.tubes.ids[job.tube_id]
        if tube.processing_time is not None or self.state.times is not None:
            self.state.note_run(session, job, tube, now_ns)
        return replies.DELETED, self._end(session, job, tube, CLIENT, now_ns)

    def cancel_job(self, session: Session, now_ns: int, job_id: int) -> Answer:
        """End a job, whichever session holds it; that one finds it no more."""
        job = self.state.jobs.get(job_id)
        if job is None:
            return self._changes.not_found()
        tube = self.state.tubes.by_id(job.tube_id)
        return CANCELLED, self._end(session, job, tube, Reason.CANCELLED, now_ns)

    def return_job(self, session: Session, now_ns: int, job_id: int, delay_s: int) -> Answer:
        """Give a job back as if it had not been reserved, perhaps after a delay."""
        job = self._held(session, job_id)
        if job is None:
            return self._changes.not_found()
        if not self._changes.has_room():
            return NO_ROOM
        return RETURNED, self._timekeeping.take_back(
            job, RELEASE, DELAYED if delay_s else READY, Reason.RETURNED, now_ns,
            session.number, now_ns + delay_s * NS if delay_s else 0, None, delay_s or None,
        )  # fmt: skip

    def release(
        self, session: Session, now_ns: int, job_id: int, priority: int, delay_s: int
    ) -> Answer:
        """Give a job back, with a new priority and perhaps after a delay."""
        job = self._held(session, job_id)
        if job is None:
            return self._changes.not_found()
        if not self._changes.has_room():
            return NO_ROOM
        if self.state.times is not None:
            self.state.times.of(self.state.tubes.by_id(job.tube_id)).releases += 1
        return replies.RELEASED, self._timekeeping.take_back(
            job, RELEASE, DELAYED if delay_s else READY, CLIENT, now_ns,
            session.number, now_ns + delay_s * NS if delay_s else 0, priority, delay_s,
        )  # fmt: skip

    def bury(self, session: Session, now_ns: int, job_id: int, priority: int) -> Answer:
        """Put a job aside until it is kicked."""
        job = self._held(session, job_id)
        if job is None:
            return self._changes.not_found()
        if not self._changes.has_room():
            return NO_ROOM
        buried_ns = max(now_ns, self.state.last_buried_ns + 1)
        if self.state.times is not None:
            self.state.times.of(self.state.tubes.by_id(job.tube_id)).buries += 1
        return replies.BURIED, self._timekeeping.move(
            job, Kind.BURY, BURIED, CLIENT, now_ns, session.number, buried_ns, priority
        )

    def touch(self, session: Session, now_ns: int, job_id: int) -> Answer:
        job = self._held(session, job_id)
        if job is None:
            return self._changes.not_found()
        self._changes.move(
            job, TOUCH, RESERVED, CLIENT, now_ns, session.number, now_ns + job.ttr_s * NS
        )
        return replies.TOUCHED, job.lsn

    def kick(self, session: Session, now_ns: int, bound: int) -> Answer | None:
        """Up to ``bound`` buried jobs of the used tube, if none delayed ones, are ready."""
        return self._kicks.kick(session, now_ns, bound)

    def kick_job(self, session: Session, now_ns: int, job_id: int) -> Answer:
        """This very job, if buried or delayed, is ready."""
        job = self.state.jobs.get(job_id)
        if job is None or job.state not in (BURIED, DELAYED):
            return self._changes.not_found()
        if not self._changes.has_room():
            return NO_ROOM
        if self.state.times is not None:
            self.state.times.of(self.state.tubes.by_id(job.tube_id)).kicks += 1
        return replies.KICKED_JOB, self._timekeeping.move(
            job, Kind.KICK, READY, CLIENT, now_ns, session.number
        )

    def stats(self, session: Session, now_ns: int) -> Answer:
        return replies.statistics(layouts.SERVER.write(self.server_stats())), 0

    def server_stats(self) -> Values:
        values = statistics.server(
            self.state, self.tally, self._facts(), max_job_bytes=self.max_job_bytes,
            is_draining=self.puts.is_draining,
        )  # fmt: skip
        values.update(self.replication())
        return values

    def pause_tube(self, session: Session, now_ns: int, name: bytes, seconds: int) -> Answer:
        """A tube hands out no job for so long; 0 ends a pause."""
        tube = self.state.tubes.find(name)
        if tube is None:
            return self._changes.not_found()
        if not self._changes.has_room():
            return NO_ROOM
        tube.pauses += 1
        lsn = self._changes.pause(tube, seconds, now_ns, Reason.CLIENT)
        self._timekeeping.settle(tube, now_ns)
        return replies.PAUSED, lsn

    def cancel_reserve(self, session: Session, now_ns: int) -> Answer:
        """The connection has called `cancel_wait` before, if anything waited."""
        return CANCELLED, 0

    def promote(self, session: Session, now_ns: int, name: bytes) -> Answer:
        """Hand the queue over to a standby, in order.

        :param name: one of the standby's; empty for whichever has the most.
        """
        return self.hand_over(name.decode()), 0

    def stats_replication(self, session: Session, now_ns: int) -> Answer:
        return replies.statistics(layouts.REPLICATION.write(self.replication_stats())), 0

    def room_changed(self, now_ns: int) -> None:
        """The log has more room, or can have no more."""
        self._withheld.give_room(now_ns)

    def demand(self) -> Demand:
        return self.puts.demand(self._copy_waits)

    # Loading, and the head of a log segment.

    def finish_loading(
        self, others: Iterable[tuple[Any, int]], now_ns: int, is_followed: bool = False
    ) -> None:  # fmt: skip
        """Take up all else, and timers, when all jobs are loaded, and forget tubes that nothing
        refers to.

        :param others: records for `QueueState.apply_other`, each with the segment that holds it.
        :param is_followed: whether another server goes on with the log.  It may use each tube that
            its newest segment has named, though no job refers to it: all stay.
        """
        for record, segment in others:
            self.state.apply_other(record, segment)
        self.policies.hold_all()
        if is_followed:
            self.state.tubes.restore_order(self.state.default())
        else:
            self.finish_following(now_ns)

    def finish_following(self, now_ns: int) -> None:
        """This server serves the queue from now on: set all timers."""
        for tube in list(self.state.tubes.in_order):
            self._timekeeping.arm(tube)
            self._withheld.note(tube)
            # Nobody is connected: a running pause keeps its tube until it ends.
            if not tube.pause_until_ns:
                self._timekeeping.drop_if_unused(tube, now_ns)
        self.state.tubes.restore_order(self.state.default())

    def stop_keeping(self) -> None:
        """The log that `keep_in` began is given up, before any change was made."""
        self._changes.log = NOWHERE
        for tube in self.state.tubes.in_order:
            tube.defined_in = 0

    def copy(self, job_ids: Sequence[int], segment: int, now_ns: int) -> int:
        """Log those of these jobs again whose full record, or remembered key, is in that log
        segment.

        :return: how many of them, from the first on, need no more, or their bodies are lost; the
            next waits for room, for which `demand` asks, or for its body.
        """
        self._copy_waits = None
        for at, job_id in enumerate(job_ids):
            job = self.state.jobs.look(job_id)
            key = self.state.unique.of_job(job_id) if job is None else None
            home, size = _home(job, key)
            if home != segment or self.state.bodies.is_lost(job_id):
                continue
            if not self._changes.has_room_to_copy(size):
                self._copy_waits = size
                return at
            if job is not None and job.body is None:
                for each in job_ids[at:]:
                    place = self.state.jobs.place(each)
                    if place is not None and place.segment == segment:
                        self.state.bodies.want(each, now_ns)
                job = self.state.jobs.look(job_id)
                if self.state.bodies.is_lost(job_id):
                    # It was read just now.
                    continue
                if job is None or job.body is None:
                    return at
            self.tally.copies += 1
            if job is not None:
                self._changes.make(job.copy())
            elif key is not None:
                self._changes.copy_key(key)
        return len(job_ids)

    def opening(self, segment: int, now_ns: int) -> tuple[int, list[Record], int]:
        """The next job id, the small state, and the incompat bits that the log needs."""
        records = list(small_state(self.state, segment, now_ns))
        records.append(Counters(0, now_ns, self.tally.counts()))
        return self.state.next_job_id, records, self.state.features

    def _end(self, session: Session, job: Job, tube: Tube, reason: Reason, now_ns: int) -> int:
        """:return: the LSN of the deletion."""
        lsn = self._changes.end(job, reason, now_ns, session.number)
        tube.deletes += 1
        if tube.policy is not None:
            self._timekeeping.settle(tube, now_ns)
        self._timekeeping.drop_if_unused(tube, now_ns)
        if job.tags is not None:
            self._timekeeping.follow(now_ns)
        return lsn

    def _held(self, session: Session, job_id: int) -> Job | None:
        return self.state.jobs.get(job_id) if job_id in session.reserved else None

    def _end_waits(self, ends: Callable[[Session], bool]) -> Slices:
        left = SLICE_WAITS
        for number in list(self.state.sessions):
            session = self.state.sessions.get(number)
            left -= 1
            if session is not None and (session.is_waiting or session.awaited_id):
                ends(session)
                left -= len(session.watching) - 1
            if left <= 0:
                yield None
                left = SLICE_WAITS

    def _release_all(self, session: Session, now_ns: int) -> Slices:
        timekeeping = self._timekeeping
        timekeeping.begin_slice()
        for job_id in list(session.reserved):
            if timekeeping.slice_left <= 0:
                now_ns = yield None
                timekeeping.begin_slice()
            job = self._held(session, job_id)
            if job is None:
                # Deleted between two slices, by a batch of its own.
                continue
            timekeeping.take_back(job, Kind.DISCONNECT_RELEASE, READY, Reason.DISCONNECT, now_ns)
            timekeeping.slice_left -= 1
        del self.state.sessions[session.number]


def _home(job: Job | None, key: Remembered | None) -> tuple[int | None, int]:
    """:return: the log segment that holds a job, or a key, and the bytes to write it again."""
    if job is not None:
        return job.segment, job.data_bytes
    return (None, 0) if key is None else (key.segment, len(key.record.key))
