"""
Kicking dead letters: they go back to the tube that they died in, slice by slice.

Each is looked at once, in the order in which they died; those that die meanwhile are not among
them.
"""

from collections.abc import Sequence
from typing import Final

from beanstalk_twisted.binlog.records.jobs import READY, State
from beanstalk_twisted.jobs.job import Job
from beanstalk_twisted.jobs.ordered import ID_MASK, LEAST
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.rules.changes import Changes
from beanstalk_twisted.rules.moves import Moves, alive, moved_bytes
from beanstalk_twisted.rules.puts import Puts
from beanstalk_twisted.rules.reservations import NO_ROOM, Answer
from beanstalk_twisted.rules.timekeeping import Timekeeping, Work
from beanstalk_twisted.wire.replies import Kicked

DEAD_SLICE_JOBS: Final = 100
"""Dead letters that one slice moves: some 5 ms."""

DEAD_SLICE_BYTES: Final = 1 << 20
"""Bytes of bodies after which a slice ends: they are written again."""

ROOM_REST_NS: Final = 5_000_000
"""From a slice that found no room in the log to the next, ns: a segment is made in some ms."""

DEAD_LOOK_JOBS: Final = 1000
"""Dead letters that one slice looks at: some may have to stay."""


class Kicking:
    """
    One command, from its first slice to its answer.

    :ivar left: how many more may be kicked.
    :ivar kicked: how many have been.
    :ivar passed: the key of the last dead letter that was looked at.
    :ivar last: of the last one that is to be.
    :ivar is_over: whether there is no more to be done.
    :ivar is_full: whether that is because there is no room.
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


class DeadKicks:
    """Gives dead letters another life."""

    def __init__(
        self, state: QueueState, changes: Changes, timekeeping: Timekeeping, puts: Puts,
        moves: Moves,
    ) -> None:  # fmt: skip
        self._state = state
        self._changes = changes
        self._timekeeping = timekeeping
        self._puts = puts
        self._moves = moves

    def kick(self, session: Session, now_ns: int, name: bytes, bound: int) -> Answer | None:
        """
        Up to ``bound`` dead letters of a tube are ready there, as if they were never reserved;
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
        """Later slices.  Others may act in between."""
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
            job = self._state.jobs.get(key & ID_MASK)
            assert job is not None
            if self._may_go(kicking, job, now_ns):
                if not self._has_room(kicking, job, now_ns):
                    return
                if self._is_there(kicking, job, keys[at:], now_ns):
                    # Its body may have been read just now.
                    job = self._state.jobs.get(job.job_id)
                    assert job is not None
                    self._kick_one(kicking, job, now_ns)
                    size += job.body_bytes
                    kicked += 1
                elif kicking.waits_for_room:
                    return
            kicking.passed = key
        if len(keys) < DEAD_LOOK_JOBS:
            kicking.is_over = True

    def _may_go(self, kicking: Kicking, job: Job, now_ns: int) -> bool:
        """
        Whether a dead letter is to be kicked: one that somebody has kicked before, or whose unique
        key another job of the tube has, is to stay.
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
        """
        Whether a job's body is in memory.  If it is not, wait for the next slice, and have those of
        the next jobs read too; a job whose body cannot be read is to stay.

        :param keys: from this job's on.
        """
        bodies = self._state.bodies
        if bodies.want(job.job_id, now_ns):
            return True
        if bodies.is_unreadable(job.job_id, now_ns):
            return False
        kicking.waits_for_room = True
        left = DEAD_SLICE_BYTES
        for key in keys[: min(DEAD_SLICE_JOBS, kicking.left)]:
            left -= self._state.jobs.weigh(key & ID_MASK)[0]
            if left < 0:
                break
            bodies.want(key & ID_MASK, now_ns)
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
