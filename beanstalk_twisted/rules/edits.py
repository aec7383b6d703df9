"""
Commands that change a job where it stands: `move-job` and `update-job`.

Each writes the whole job to the log again, so it needs room as a new job does, and may have to wait
for it as one.  Meanwhile it keeps the body, as a put does: the job's may leave memory.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from beanstalk_twisted.binlog.records.jobs import (
    READY,
    RESERVED,
    WITHHELD_NS,
    BodyPlace,
    JobImage,
    Kind,
    Reason,
    State,
)
from beanstalk_twisted.binlog.tags import MAX_TAGS_BYTES
from beanstalk_twisted.jobs.job import Job
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.rules.changes import Changes
from beanstalk_twisted.rules.job_waits import JobWaits
from beanstalk_twisted.rules.moves import Moves, goes_back
from beanstalk_twisted.rules.puts import Puts, Waiting
from beanstalk_twisted.rules.reservations import NO_ROOM, Answer, Reservations
from beanstalk_twisted.rules.timekeeping import Timekeeping
from beanstalk_twisted.wire.extensions import MOVED, UPDATED, Duplicate
from beanstalk_twisted.wire.replies import INTERNAL_ERROR

NS: Final = 1_000_000_000

DELAYED: Final = State.DELAYED

Kept = tuple[BodyPlace, bytes]
"""A body, and where the record is that it was taken from."""


class Edits:
    """Moves and updates jobs for clients."""

    def __init__(
        self, state: QueueState, changes: Changes, reservations: Reservations,
        timekeeping: Timekeeping, puts: Puts, moves: Moves, job_waits: JobWaits,
    ) -> None:  # fmt: skip
        self._state = state
        self._changes = changes
        self._reservations = reservations
        self._timekeeping = timekeeping
        self._puts = puts
        self._moves = moves
        self._job_waits = job_waits

    def move(self, session: Session, now_ns: int, job_id: int, name: bytes) -> Answer | None:
        """Put a job into a tube, in its state; one that the session holds is ready there."""
        job = self._movable(session, now_ns, job_id, name)
        if not isinstance(job, Job):
            return job
        if job.body is None:
            again = partial(self._move_read, session, job_id, name)
            self._reservations.answer_with_body(session, job_id, again)
            return None
        # As in `PutBatches`, no function in here.
        take = partial(self._move, session, job_id, name, _kept(job))
        return self._when_there_is_room(session, now_ns, job.body_bytes, 0, take)

    def _move_read(
        self, session: Session, job_id: int, name: bytes, now_ns: int
    ) -> Answer | None:  # fmt: skip
        """The body was read, or cannot be."""
        return self._lost_body(job_id) or self.move(session, now_ns, job_id, name)

    def _lost_body(self, job_id: int) -> Answer | None:
        """:return: what to answer if a job is there, and its body was asked for and is not."""
        is_absent = self._state.jobs.place(job_id) is not None
        return (INTERNAL_ERROR, 0) if is_absent else None

    def update(
        self, session: Session, now_ns: int, begun_ns: int, job_id: int, priority: int,
        delay_s: int, ttr_s: int, body: bytes | None,
    ) -> Answer | None:  # fmt: skip
        """
        Give a job another priority, delay and TTR, and perhaps another body.

        :param begun_ns: when the line came.
        :param body: None to keep the one it has.
        """
        job = self._state.not_held_by_others(session, job_id)
        if job is None:
            return self._changes.not_found()
        if body is None and job.body is None:
            again = partial(self._update_read, session, begun_ns, job_id, priority, delay_s, ttr_s)
            self._reservations.answer_with_body(session, job_id, again)
            return None
        kept = None if body is not None else _kept(job)
        take = partial(
            self._update, session, begun_ns, job_id, priority, delay_s, ttr_s, body, kept
        )
        size = job.body_bytes if body is None else len(body)
        growth = max(0, size - job.body_bytes)
        return self._when_there_is_room(session, now_ns, size, growth, take)

    def _update_read(
        self, session: Session, begun_ns: int, job_id: int, priority: int, delay_s: int,
        ttr_s: int, now_ns: int,
    ) -> Answer | None:  # fmt: skip
        """As `_move_read`."""
        return self._lost_body(job_id) or self.update(
            session, now_ns, begun_ns, job_id, priority, delay_s, ttr_s, None
        )

    def _when_there_is_room(
        self, session: Session, now_ns: int, body_bytes: int, growth: int,
        take: Callable[[int], Answer | None],
    ) -> Answer | None:  # fmt: skip
        size = body_bytes + MAX_TAGS_BYTES
        waiting = Waiting(session, 1, size, growth, take, is_extended=True)
        return self._puts.put_together(waiting, now_ns)

    def _movable(
        self, session: Session, now_ns: int, job_id: int, name: bytes
    ) -> Job | Answer:  # fmt: skip
        """:return: the job, or what to answer if it is not to be moved."""
        job = self._state.not_held_by_others(session, job_id)
        if job is None:
            return self._changes.not_found()
        tube = self._state.tubes.find(name)
        if tube is None:
            return job
        if tube.tube_id == job.tube_id and not goes_back(job, name):
            return job if job.state is RESERVED else (MOVED, job.lsn)
        holder = self._moves.holder_of_key(job, tube, now_ns)
        return job if holder is None else self._changes.of_state(Duplicate(holder))

    def _move(
        self, session: Session, job_id: int, name: bytes, kept: Kept, now_ns: int
    ) -> Answer | None:  # fmt: skip
        """
        There was room; if that had to be waited for, the job may be another one by now, and begins
        again if it needs more room, or its body has to be read.
        """
        job = self._movable(session, now_ns, job_id, name)
        if not isinstance(job, Job):
            return job
        body = _body(job, kept)
        if body is None or not self._moves.has_room(job, now_ns):
            return self.move(session, now_ns, job_id, name)
        tube = self._state.tubes.get_or_make(name)
        lsn = self._moves.move(job, tube, now_ns, session.number, body)
        if job_id in self._state.awaited:
            self._job_waits.moved(job_id)
        return MOVED, lsn

    def _update(
        self, session: Session, begun_ns: int, job_id: int, priority: int, delay_s: int,
        ttr_s: int, body: bytes | None, kept: Kept | None, now_ns: int,
    ) -> Answer | None:  # fmt: skip
        """As `_move`."""
        job = self._state.not_held_by_others(session, job_id)
        if job is None:
            return self._changes.not_found()
        new_body = _body(job, kept) if body is None else body
        if new_body is not None:
            if self._puts.lacks(session, 0, len(new_body) - job.body_bytes, now_ns):
                return NO_ROOM
            image = _updated(job, session.number, now_ns, priority, delay_s, ttr_s, new_body)
            has_room = self._changes.has_room_for(image.data_bytes)
        if new_body is None or not has_room or not self._changes.allows_extensions(now_ns):
            return self.update(session, now_ns, begun_ns, job_id, priority, delay_s, ttr_s, body)
        lsn = self._timekeeping.change(image, now_ns)
        if image.state is RESERVED:
            self._reservations.arm(session)
        return UPDATED, lsn


def _updated(
    job: Job, connection: int, now_ns: int, priority: int, delay_s: int, ttr_s: int, body: bytes
) -> JobImage:
    """
    The image of a job after its update: a buried job, one that is reserved, and one that waits for
    no moment stay so; others are delayed if there is a delay, and ready if there is none.
    """
    state, deadline_ns = job.state, job.deadline_ns
    if state is RESERVED:
        deadline_ns = now_ns + ttr_s * NS
    elif state is READY or (state is DELAYED and deadline_ns < WITHHELD_NS):
        state = DELAYED if delay_s else READY
        deadline_ns = now_ns + delay_s * NS if delay_s else 0
    return job.image(
        Kind.UPDATE,
        state,
        Reason.CLIENT,
        job.created_ns,
        deadline_ns=deadline_ns,
        connection=connection,
    )._replace(priority=priority, delay_s=delay_s, ttr_s=ttr_s, tags=job.tags, body=body)


def _kept(job: Job) -> Kept:
    return BodyPlace(job.segment, job.full_lsn), job.loaded_body


def _body(job: Job, kept: Kept | None) -> bytes | None:
    """:return: a job's body, or what was kept of it if that is still the same; else None."""
    if job.body is not None or kept is None:
        return job.body
    return kept[1] if kept[0] == (job.segment, job.full_lsn) else None
