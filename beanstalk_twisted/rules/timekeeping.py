"""Timers of the queue: delays, pauses and TTRs end, and large work goes on slice by slice.

Differs from beanstalkd: others are served between the slices of a large `kick` or of the end of a
session with many jobs; there, they wait.
"""

from collections import deque
from collections.abc import Generator
from contextlib import suppress
from itertools import islice
from typing import Final

from beanstalk_twisted.binlog.records.jobs import WITHHELD_NS, JobImage, Kind, Reason, State
from beanstalk_twisted.jobs.job import NS, READY, Job
from beanstalk_twisted.jobs.ordered import ID_MASK
from beanstalk_twisted.jobs.queues import DueTimes
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.tube import Tube
from beanstalk_twisted.rules.reservations import Answer, JobWaits, Reservations, leave

Slices = Generator[int | None, int, None]
"""Work that pauses after about `SLICE_JOBS` jobs, and is then sent the time.  It gives the moment
before which it need not go on, ns, if it waits for something; else None.
"""

Work = Generator[int | None, int, Answer]
"""The same for a session's command: what it returns is the answer."""

WITHHELD_KEY: Final = WITHHELD_NS << 64
"""Less than the keys of delayed jobs that wait for no moment, see `ordered`."""

SLICE_JOBS: Final = 500
"""Jobs that one tick moves, or one slice of work: about 5 ms."""

LEAST_SHARE_JOBS: Final = 50
"""Jobs that each kind of work may move in a tick whatever the others did, so that none starves."""

RELEASED_JOBS: Final = 500
"""Jobs that a command lets go whose groups have ended: about 5 ms."""

REWRITTEN_JOBS: Final = 5
"""What a job that is written again takes of a slice, in jobs that are only changed."""

REWRITTEN_BYTES: Final = 2 << 10
"""Bytes of its body that take as long as one more: 1 MiB of them fill a slice."""


class Timekeeping:
    """Knows when something is due, and does it.

    :ivar policies: those of the tubes.
    :ivar slice_left: jobs that this tick or slice may still move; less than one if it is over.
    """

    def __init__(self, reservations: Reservations, job_waits: JobWaits) -> None:
        self.reservations = reservations
        self.job_waits = job_waits
        self._state = reservations.state
        self._changes = reservations.changes
        self._consequences = Consequences(self)
        self._delays: DueTimes[Tube] = DueTimes()
        # When a pause ends, or a tube's policy has something to do.
        self._pauses: DueTimes[Tube] = DueTimes()
        self.policies = TubePolicies(self)
        reservations.arm_tube, reservations.move = self.arm, self.move
        self._slices: deque[Slices] = deque()
        self._resting: list[tuple[int, Slices]] = []
        self.slice_left = SLICE_JOBS

    @property
    def is_working(self) -> bool:
        return bool(self._slices)

    def tick(self, now_ns: int) -> None:
        """Do what is due, in beanstalkd's order: delays, pauses, then deadlines of sessions.

        They and large work share `SLICE_JOBS`; the next tick does what is left.
        """
        self.slice_left = SLICE_JOBS
        if self._resting:
            self._slices += [work for due_ns, work in self._resting if due_ns <= now_ns]
            self._resting = [each for each in self._resting if each[0] > now_ns]
        if self._slices:
            work = self._slices.popleft()
            with suppress(StopIteration):
                self._put_off(work, work.send(now_ns))
            self.slice_left = 0
        self._end_delays(now_ns)
        self._end_pauses(now_ns)
        self._end_keys(now_ns)
        self._end_deadlines(now_ns)
        if self._state.tagged:
            self._consequences.go_on(now_ns, max(self.slice_left, LEAST_SHARE_JOBS))

    def next_due_ns(self) -> int | None:
        """When `tick` has something to do; 0 for at once, None for never."""
        if self._slices or (self._state.tagged and self._consequences.are_due):
            return 0
        due_ns = self.reservations.deadlines.first_ns()
        # Asked once a turn, mostly with nothing else to tell.
        delays, pauses, unique = self._delays, self._pauses, self._state.unique
        if delays.entries or pauses.entries or unique.remembered or self._resting:
            others = [delays.first_ns(), pauses.first_ns(), unique.first_end_ns()]
            others += [resting_ns for resting_ns, _ in self._resting]
            return min([each for each in (due_ns, *others) if each is not None], default=None)
        return due_ns

    def change(self, image: JobImage, now_ns: int) -> int:
        """Make a change that is no deletion, and give jobs that may be reserved now to who waits.

        :return: the record's LSN.
        """
        lsn = self._changes.make(image)
        tube = self._state.tubes.ids[image.tube_id]
        if self._state.tagged:
            self._consequences.serve(tube, now_ns)
        self.settle(tube, now_ns)
        return lsn

    def move(
        self, job: Job, kind: Kind, after: State, reason: Reason, now_ns: int, connection: int,
        deadline_ns: int = 0, priority: int | None = None, delay_s: int | None = None,
    ) -> int:  # fmt: skip
        """`change` by `Changes.move`."""
        lsn = self._changes.move(
            job, kind, after, reason, now_ns, connection, deadline_ns, priority, delay_s
        )
        tube = self._state.tubes.ids[job.tube_id]
        if self._state.tagged:
            self._consequences.serve(tube, now_ns)
        self.settle(tube, now_ns)
        return lsn

    def follow(self, now_ns: int) -> None:
        """Do at once what follows from the deletion of a job with tags; else the next tick does."""
        self._consequences.serve(None, now_ns)
        self._consequences.end_groups(now_ns)

    def take_back(
        self, job: Job, kind: Kind, after: State, reason: Reason, now_ns: int, connection: int = 0,
        deadline_ns: int = 0, priority: int | None = None, delay_s: int | None = None,
    ) -> int:  # fmt: skip
        """`move` for a job that comes back, unless its tube's policy says otherwise."""
        tube = self._state.tubes.ids[job.tube_id]
        if tube.policy is None:
            return self.move(
                job, kind, after, reason, now_ns, connection, deadline_ns, priority, delay_s
            )
        return self.policies.take_back(tube, job.image(
            kind, after, reason, now_ns, deadline_ns=deadline_ns, connection=connection,
            priority=priority, delay_s=delay_s,
        ), now_ns)  # fmt: skip

    def settle(self, tube: Tube, now_ns: int) -> None:
        """Give a changed tube's ready jobs to who waits, and plan when it needs attention."""
        if tube.policy is not None:
            tube.set_closed(now_ns)
            self.reservations.match(tube, now_ns)
            self.arm(tube)
            return
        if tube.waiting:
            self.reservations.match(tube, now_ns)
        if tube.delayed.count or tube.pause_until_ns:
            self.arm(tube)

    def arm(self, tube: Tube) -> None:
        """Plan for the tube's first delayed job, the end of its pause, and its policy."""
        first = tube.delayed.first()
        if first is not None and first < WITHHELD_KEY:
            self._delays.arm(tube, first >> 64)
        if tube.pause_until_ns:
            self._pauses.arm(tube, tube.pause_until_ns)
        if tube.policy is not None:
            self._pauses.arm(tube, self.policies.due_ns(tube))

    def drop_if_unused(self, tube: Tube, now_ns: int) -> None:
        """Forget a tube that nothing refers to, and its pause with it."""
        if tube.using or tube.watching or tube.is_referred_to:
            return
        if tube.pause_until_ns:
            self._changes.pause(tube, 0, now_ns, Reason.NONE)
        self.forget(tube)

    def forget(self, tube: Tube) -> None:
        self._delays.forget(tube)
        self._pauses.forget(tube)
        tube.policy = None
        # A log may name a tube anew, and its rules too.
        self._state.ruled -= bool(tube.rules)
        self._state.tubes.drop(tube)

    def begin_slice(self) -> None:
        self.slice_left = SLICE_JOBS

    def rewrite(self, body_bytes: int) -> None:
        self.slice_left -= REWRITTEN_JOBS + body_bytes // REWRITTEN_BYTES

    def work_in_slices(self, work: Slices) -> None:
        """Do the first slice now, and the others in the next ticks."""
        with suppress(StopIteration):
            self._put_off(work, next(work))

    def _put_off(self, work: Slices, due_ns: int | None) -> None:
        if due_ns is None:
            self._slices.append(work)
        else:
            self._resting.append((due_ns, work))

    def answer_later(self, session: Session, work: Work) -> None:
        """Carry out a session's command slice by slice; its next command waits until then."""
        session.is_busy = True
        self.work_in_slices(self._answered(session, work))

    def _answered(self, session: Session, work: Work) -> Slices:
        answer = yield from work
        session.is_busy = False
        leave(self.reservations.outbox, session, answer)

    def _end_delays(self, now_ns: int) -> None:
        if self.slice_left < LEAST_SHARE_JOBS:
            self.slice_left = LEAST_SHARE_JOBS
        while self.slice_left > 0:
            tube = self._delays.pop_due(now_ns)
            if tube is None:
                return
            self.slice_left -= 1
            first, next_ns = tube.delayed.first(), self._delays.first_ns()
            # A tube is served until another one's turn comes.
            end_ns = now_ns if next_ns is None else min(now_ns, next_ns)
            if first is not None and first >> 64 <= end_ns:
                self._state.promote(first & ID_MASK)
                self.reservations.match(tube, now_ns)
            self.arm(tube)

    def _end_pauses(self, now_ns: int) -> None:
        if self.slice_left < LEAST_SHARE_JOBS:
            self.slice_left = LEAST_SHARE_JOBS
        tubes = []
        while self.slice_left > 0 and (tube := self._pauses.pop_due(now_ns)) is not None:
            tubes.append(tube)
            if 0 < tube.pause_until_ns <= now_ns:
                tube.pause_until_ns = 0
                tube.set_closed(now_ns)
                self.reservations.match(tube, now_ns)
                self.drop_if_unused(tube, now_ns)
            if tube.policy is not None:
                self.policies.expire(tube, now_ns)
                tube.set_closed(now_ns)
                self.reservations.match(tube, now_ns)
            self.slice_left -= 1
        for tube in tubes:
            # Behind the loop: those with more to do go on in the next tick.
            self.arm(tube)

    def _end_keys(self, now_ns: int) -> None:
        if self.slice_left < LEAST_SHARE_JOBS:
            self.slice_left = LEAST_SHARE_JOBS
        for tube in self._state.unique.end(now_ns, self.slice_left):
            self.slice_left -= 1
            self.drop_if_unused(tube, now_ns)

    def _end_deadlines(self, now_ns: int) -> None:
        if self.slice_left < LEAST_SHARE_JOBS:
            self.slice_left = LEAST_SHARE_JOBS
        while self.slice_left > 0:
            session = self.reservations.deadlines.pop_due(now_ns)
            if session is None:
                return
            self.slice_left -= 1
            job = self.reservations.expired(session, now_ns)
            if job is not None:
                self.reservations.tally.timeouts += 1
                if self._state.times is not None:
                    self._state.times.of(self._state.tubes.by_id(job.tube_id)).timeouts += 1
                self.take_back(job, Kind.TTR_EXPIRED, READY, Reason.TTR, now_ns)
            self.job_waits.end_wait(session, now_ns)
            self.reservations.end_wait(session, now_ns)


class Part:
    """What carries out some of the commands, with what all of them need."""

    def __init__(self, timekeeping: Timekeeping) -> None:
        self._timekeeping = timekeeping
        self._reservations = reservations = timekeeping.reservations
        self._changes = reservations.changes
        self._state = reservations.state
        self._tally = reservations.tally


class TubePolicies(Part):
    """What the policies of tubes have a say in."""

    def due_ns(self, tube: Tube) -> int | None:
        """When the tube's policy has something to do."""
        raise NotImplementedError

    def expire(self, tube: Tube, now_ns: int) -> None:
        """End jobs that are too old, until the slice is over."""
        raise NotImplementedError

    def take_back(self, tube: Tube, image: JobImage, now_ns: int) -> int:
        """A job comes back to a tube that has a policy.

        :param image: of its return.
        :return: the LSN that is to be durable.
        """
        raise NotImplementedError


class Consequences(Part):
    """Serves sessions that wait for jobs with concurrency keys, and ends groups."""

    def __init__(self, timekeeping: Timekeeping) -> None:
        super().__init__(timekeeping)
        self._is_behind = False

    @property
    def are_due(self) -> bool:
        state = self._state
        concurrency = state.concurrency
        return (
            bool(concurrency.opened)
            or concurrency.is_opening
            or (bool(state.groups.ended) and self._changes.has_room())
        )

    def go_on(self, now_ns: int, most: int) -> None:
        """Do a tick's slice: let up to ``most`` jobs go whose groups have ended."""
        self._state.concurrency.open_next()
        self.serve(None, now_ns)
        if self._state.groups.ended:
            self._is_behind = self._end_groups(now_ns, most)

    def serve(self, changed: Tube | None, now_ns: int) -> None:
        """Give jobs that may be reserved again to waiting sessions, the best one first.

        :param changed: a tube that has another ready job beside, perhaps.
        """
        opened = self._state.concurrency.opened
        if not opened:
            return
        if changed is not None:
            opened[changed] = None
        firsts = [(key, tube) for tube in opened if (key := tube.first_open()) is not None]
        opened.clear()
        # No key is there twice, so tubes are never compared.
        for _, tube in sorted(firsts):
            self._reservations.match(tube, now_ns)

    def end_groups(self, now_ns: int) -> None:
        """Let jobs go whose groups have ended, for a command; leave them to the ticks while there
        are more of them than one slice has done.
        """
        if not self._state.groups.ended:
            self._is_behind = False
        elif not self._is_behind:
            self._is_behind = self._end_groups(now_ns, RELEASED_JOBS)

    def _end_groups(self, now_ns: int, most: int) -> bool:
        """:return: whether there are more jobs to let go, and room for them."""
        groups = self._state.groups
        left = most
        for group in list(islice(groups.ended, most)):
            keys = groups.first_waiting(group, left)
            for key in keys:
                # The log holds extensions already: a job with tags is in it.
                if not self._changes.has_room():
                    return False
                self._let_go(self._state.jobs.job(key & ID_MASK), now_ns)
            left -= len(keys)
            if not left:
                break
        return bool(groups.ended)

    def _let_go(self, job: Job, now_ns: int) -> None:
        """A job waits for its group no longer, but for the rest of its delay, from its put on."""
        ready_ns = job.created_ns + job.delay_s * NS
        is_delayed = ready_ns > now_ns
        self._changes.move(
            job, Kind.GROUP_ENDED, State.DELAYED if is_delayed else READY, Reason.NONE, now_ns, 0,
            ready_ns if is_delayed else 0,
        )  # fmt: skip
        self._timekeeping.settle(self._state.tubes.by_id(job.tube_id), now_ns)
