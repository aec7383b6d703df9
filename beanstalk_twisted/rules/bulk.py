"""Work on many jobs, slice by slice: kicks, kicks of dead letters, and emptying tubes."""

from collections.abc import Callable, Sequence
from typing import Final

from beanstalk_twisted.binlog.records.jobs import Kind, State
from beanstalk_twisted.jobs.job import CLIENT, READY, Job
from beanstalk_twisted.jobs.ordered import ID_MASK, LEAST, OrderedJobs
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.tube import ReadyJobs, Tube
from beanstalk_twisted.rules.moves import Moves, alive, moved_bytes
from beanstalk_twisted.rules.puts import Puts
from beanstalk_twisted.rules.reservations import NO_ROOM, Answer
from beanstalk_twisted.rules.timekeeping import SLICE_JOBS, Part, Timekeeping, Work
from beanstalk_twisted.wire.replies import FORGOTTEN, Flushed, Kicked

RUN_JOBS: Final = 1000
"""Jobs that one slice kicks where nobody waits for them: 0.2 ms, with a log 1 ms, and at most 8 ms
if they have their places far apart among a million.  More would not be quicker.
"""

DEAD_SLICE_JOBS: Final = 100
"""Dead letters that one slice moves: some 5 ms."""

DEAD_SLICE_BYTES: Final = 1 << 20
"""Bytes of bodies after which a slice ends: they are written again."""

ROOM_REST_NS: Final = 5_000_000
"""From a slice that found no room in the log to the next, ns: a segment is made in some ms."""

DEAD_LOOK_JOBS: Final = 1000
"""Dead letters that one slice looks at: some may have to stay."""

LOOK_JOBS: Final = 4000
"""Jobs that one slice looks at: to pass one over takes a tenth of the time of its deletion."""

FLUSH_SLICE_BYTES: Final = 4 << 20
"""Bytes of bodies after which a slice ends: a job that was only put is copied for its deletion."""

TAGGED_JOBS: Final = 3
"""What a job with tags takes of a slice, in jobs without: keys, groups and records of its own."""

ALL: Final = b"all"

FLUSHED: Final = {
    b"ready": (State.READY,),
    b"delayed": (State.DELAYED,),
    b"buried": (State.BURIED,),
    # The ready ones last: whoever becomes ready meanwhile is among them.
    ALL: (State.DELAYED, State.BURIED, State.READY),
}


class Kicks(Part):
    """Makes buried and delayed jobs ready."""

    def kick(self, session: Session, now_ns: int, bound: int) -> Answer | None:
        """All buried or all delayed, ``bound`` at most; fewer on a disk that becomes full."""
        tube = session.using
        jobs = tube.buried if tube.buried.count else tube.delayed
        count = min(bound, jobs.count)
        if count and not self._changes.has_room():
            return NO_ROOM
        kicked = self._kick_slice(session, tube, jobs, count, now_ns)
        if kicked == count or not kicked or not jobs.count:
            return self._changes.of_state(Kicked(kicked))
        work = self._kick_rest(session, tube, jobs, count, kicked)
        self._timekeeping.answer_later(session, work)
        return None

    def _kick_slice(
        self, session: Session, tube: Tube, jobs: OrderedJobs, most: int, now_ns: int
    ) -> int:  # fmt: skip
        """:return: how many were kicked; 0 if there are none, or no room for a change."""
        kicked = singly = 0
        most = min(most, RUN_JOBS)
        while kicked < most and singly < SLICE_JOBS:
            run = 0
            if not tube.waiting or tube.is_closed:
                run = self._changes.kick(tube, jobs, most - kicked, session.number, now_ns)
            if not run:
                run = self._kick_one(session, tube, jobs, now_ns)
                singly += run
            if not run:
                break
            kicked += run
        if self._state.times is not None:
            self._state.times.of(tube).kicks += kicked
        self._timekeeping.settle(tube, now_ns)
        return kicked

    def _kick_one(self, session: Session, tube: Tube, jobs: OrderedJobs, now_ns: int) -> int:
        """Kick the first job if there is one, and room.  A waiting session gets it at once; timers
        are set at the slice's end.
        """
        key = jobs.first()
        if key is None or not self._changes.has_room():
            return 0
        job = self._state.jobs.job(key & ID_MASK)
        self._changes.move(job, Kind.KICK, READY, CLIENT, now_ns, session.number)
        if tube.waiting:
            self._timekeeping.settle(tube, now_ns)
        return 1

    def _kick_rest(
        self, session: Session, tube: Tube, jobs: OrderedJobs, count: int, kicked: int
    ) -> Work:  # fmt: skip
        """Others may act in between; the bound holds all the same."""
        some = 1
        while kicked < count and some and jobs.count:
            now_ns = yield None
            some = self._kick_slice(session, tube, jobs, count - kicked, now_ns)
            kicked += some
        return self._changes.of_state(Kicked(kicked))


class Kicking:
    """One command, from its first slice to its answer.

    :ivar left: how many more may be kicked.
    :ivar passed: the key of the last dead letter that was looked at; ``last`` of the last one that
        is to be.
    :ivar is_full: whether it is over because there is no room.
    :ivar waits_for_room: whether there is none yet, or a body is being read.
    """

    __slots__ = (
        "connection", "is_full", "is_over", "kicked", "last", "left", "name", "passed",
        "waits_for_room",
    )  # fmt: skip

    def __init__(self, name: bytes, connection: int, most: int, last: int) -> None:
        self.name = name
        self.connection = connection
        self.left = most
        self.kicked = 0
        self.passed = LEAST
        self.last = last
        self.is_over = not most
        self.is_full = self.waits_for_room = False


class DeadKicks(Part):
    """Gives dead letters another life, in the tube that they died in.

    Each is looked at once, in the order in which they died; those that die meanwhile are not among
    them.
    """

    def __init__(self, timekeeping: Timekeeping, puts: Puts, moves: Moves) -> None:
        super().__init__(timekeeping)
        self._puts = puts
        self._moves = moves

    def kick(self, session: Session, now_ns: int, name: bytes, bound: int) -> Answer | None:
        """Up to ``bound`` dead letters of a tube are ready there, as if they were never reserved;
        fewer on a disk that becomes full.
        """
        letters = self._state.dead_letters.of(name)
        last = None if letters is None else letters.last()
        if last is None:
            return self._changes.of_state(Kicked(0))
        kicking = Kicking(name, session.number, bound, last)
        self._kick_slice(kicking, now_ns)
        if kicking.is_over:
            return self._kicked(kicking)
        self._timekeeping.answer_later(session, self._kick_rest(kicking))
        return None

    def _kick_rest(self, kicking: Kicking) -> Work:
        due_ns = None
        while not kicking.is_over:
            now_ns = yield due_ns
            self._kick_slice(kicking, now_ns)
            # While the log is given more room there is no sense in looking again and again.
            due_ns = now_ns + ROOM_REST_NS if kicking.waits_for_room else None
        return self._kicked(kicking)

    def _kick_slice(self, kicking: Kicking, now_ns: int) -> None:
        letters = self._state.dead_letters.of(kicking.name)
        keys = [] if letters is None else letters.behind(kicking.passed, DEAD_LOOK_JOBS)
        keys = [key for key in keys if key <= kicking.last]
        kicked = size = 0
        for at, key in enumerate(keys):
            if kicking.is_over or kicked == DEAD_SLICE_JOBS or size >= DEAD_SLICE_BYTES:
                return
            job = self._state.jobs.job(key & ID_MASK)
            if self._may_go(kicking, job, now_ns):
                if not self._has_room(kicking, job, now_ns):
                    return
                if self._is_there(kicking, job, keys[at:], now_ns):
                    # Its body may have been read just now.
                    job = self._state.jobs.job(job.job_id)
                    self._kick_one(kicking, job, now_ns)
                    size += job.body_bytes
                    kicked += 1
                elif kicking.waits_for_room:
                    return
            kicking.passed = key
        if len(keys) < DEAD_LOOK_JOBS:
            kicking.is_over = True

    def _may_go(self, kicking: Kicking, job: Job, now_ns: int) -> bool:
        """One that somebody has kicked before, or whose unique key another job of the tube has, is
        to stay.
        """
        if job.state is not State.BURIED:
            return False
        tube = self._state.tubes.find(kicking.name)
        return tube is None or self._moves.holder(alive(job.tags), tube, now_ns) is None

    def _has_room(self, kicking: Kicking, job: Job, now_ns: int) -> bool:
        """If there is none, ask for it and wait for the next slice; on a full disk, give up."""
        has_room = self._moves.has_room(job, now_ns)
        if not has_room and self._changes.log.budget.is_short:
            kicking.is_over = kicking.is_full = True
        kicking.waits_for_room = not has_room and not kicking.is_over
        self._puts.sliced_bytes = moved_bytes(job) if kicking.waits_for_room else 0
        return has_room

    def _is_there(self, kicking: Kicking, job: Job, keys: Sequence[int], now_ns: int) -> bool:
        """Whether a job's body is in memory.  If it is not, wait for the next slice, and have those
        of the next jobs read too; a job whose body cannot be read is to stay.

        :param keys: from this job's on.
        """
        bodies = self._state.bodies
        if bodies.want(job.job_id, now_ns):
            return True
        if bodies.is_unreadable(job.job_id, now_ns):
            return False
        kicking.waits_for_room = True
        job_ids = [key & ID_MASK for key in keys[: min(DEAD_SLICE_JOBS, kicking.left)]]
        bodies.want_some(job_ids, DEAD_SLICE_BYTES, now_ns)
        return False

    def _kick_one(self, kicking: Kicking, job: Job, now_ns: int) -> None:
        tube = self._state.tubes.get_or_make(kicking.name)
        image = self._moves.image_alive(job, tube, READY, 0)
        self._moves.carry_out(
            image._replace(kicks=job.kicks + 1, connection=kicking.connection), now_ns
        )
        if self._state.times is not None:
            self._state.times.of(tube).kicks += 1
        kicking.kicked += 1
        kicking.left -= 1
        kicking.is_over = not kicking.left

    def _kicked(self, kicking: Kicking) -> Answer:
        if kicking.is_full and not kicking.kicked:
            return NO_ROOM
        return self._changes.of_state(Kicked(kicking.kicked))


class Flushes(Part):
    """Empties tubes."""

    def flush(self, session: Session, now_ns: int, name: bytes, which: bytes) -> Answer | None:
        """Delete the tube's jobs that are in a state.  The log always has room for that.

        :param which: a key of `FLUSHED`.
        """
        tube = self._state.tubes.find(name)
        if tube is None:
            return self._changes.of_state(Flushed(0))
        queues = [tube.queue(state) for state in FLUSHED[which]]
        walk = Walk(queues, self._state.next_job_id, self._state.jobs.weigh, which == ALL)
        flushed = self._flush_slice(session, tube, walk, now_ns)
        if walk.is_over:
            return self._changes.of_state(Flushed(flushed))
        self._timekeeping.answer_later(session, self._flush_rest(session, tube, walk, flushed))
        return None

    def flush_buried(self, session: Session, now_ns: int, name: bytes) -> Answer | None:
        return self.flush(session, now_ns, name, b"buried")

    def forget_key(self, session: Session, now_ns: int, name: bytes, key: bytes) -> Answer:
        tube = self._state.tubes.find(name)
        found = None if tube is None else self._state.unique.find(tube.tube_id, key)
        if tube is None or found is None or found.record.until_ns <= now_ns:
            return self._changes.not_found()
        if not self._changes.has_room():
            return NO_ROOM
        self._changes.forget_key(found, now_ns)
        self._timekeeping.drop_if_unused(tube, now_ns)
        return self._changes.of_state(FORGOTTEN)

    def _flush_slice(self, session: Session, tube: Tube, walk: "Walk", now_ns: int) -> int:
        job_ids = walk.next_ids()
        for job_id in job_ids:
            job = self._state.jobs.job(job_id)
            self._changes.end(job, CLIENT, now_ns, session.number, forgets=walk.forgets)
        tube.deletes += len(job_ids)
        if job_ids:
            # Otherwise it may be gone already, and have a namesake.
            self._timekeeping.drop_if_unused(tube, now_ns)
        if walk.forgets and not walk.has_jobs:
            self._forget(tube, walk, (SLICE_JOBS - len(job_ids)) // TAGGED_JOBS, now_ns)
        return len(job_ids)

    def _forget(self, tube: Tube, walk: "Walk", most: int, now_ns: int) -> None:
        """Forget some unique keys of jobs that were deleted before; on a full disk they stay."""
        found = self._state.unique.of_tube(tube.tube_id, walk.end_id, most)
        walk.forgets = len(found) == most and tube.remembered > len(found)
        for each in found:
            if not self._changes.has_room():
                walk.forgets = False
                break
            self._changes.forget_key(each, now_ns)
        if found:
            self._timekeeping.drop_if_unused(tube, now_ns)

    def _flush_rest(self, session: Session, tube: Tube, walk: "Walk", flushed: int) -> Work:
        while not walk.is_over:
            now_ns = yield None
            flushed += self._flush_slice(session, tube, walk, now_ns)
        return self._changes.of_state(Flushed(flushed))


class Walk:
    """A walk through the queues of a tube, which may change meanwhile.

    :ivar end_id: jobs with this id or a larger one are passed over.
    :ivar forgets: whether keys of the tube are left to be forgotten, after the jobs.
    """

    def __init__(
        self, queues: Sequence[OrderedJobs | ReadyJobs], end_id: int,
        weigh: Callable[[int], tuple[int, bool]], forgets: bool,
    ) -> None:  # fmt: skip
        self._queues = list(queues)
        self._weigh = weigh
        self.end_id = end_id
        self.forgets = forgets
        self._passed = LEAST
        self._last = self._queues[0].last()

    @property
    def has_jobs(self) -> bool:
        return bool(self._queues)

    @property
    def is_over(self) -> bool:
        return not (self._queues or self.forgets)

    def next_ids(self) -> list[int]:
        """The ids of the next jobs, `SLICE_JOBS` at most, and fewer if `LOOK_JOBS` were looked at,
        their bodies are large, or they have tags.
        """
        job_ids: list[int] = []
        looked = size = jobs = 0
        while (
            self._queues and looked < LOOK_JOBS and jobs < SLICE_JOBS and size < FLUSH_SLICE_BYTES
        ):
            keys = self._queues[0].behind(self._passed, SLICE_JOBS - jobs)
            looked += len(keys)
            for at, key in enumerate(keys, start=1):
                if key & ID_MASK < self.end_id:
                    job_ids.append(key & ID_MASK)
                    body_bytes, has_tags = self._weigh(key & ID_MASK)
                    size += body_bytes
                    jobs += TAGGED_JOBS if has_tags else 1
                    if size >= FLUSH_SLICE_BYTES or jobs >= SLICE_JOBS:
                        keys = keys[:at]
                        break
            self._pass(keys)
        return job_ids

    def _pass(self, keys: list[int]) -> None:
        if keys and self._last is not None and keys[-1] < self._last:
            self._passed = keys[-1]
            return
        del self._queues[0]
        self._passed = LEAST
        self._last = self._queues[0].last() if self._queues else None
