"""Moving jobs between tubes, and burying those that are not to be tried again: dead letters."""

from collections.abc import Callable
from functools import partial
from typing import Final

from beanstalk_twisted.binlog.records.jobs import (
    WITHHELD_NS,
    BodyPlace,
    JobImage,
    Kind,
    Reason,
    State,
)
from beanstalk_twisted.binlog.tags import EXTENSIONS, MAX_TAGS_BYTES, NO_TAGS, Tags
from beanstalk_twisted.jobs.job import BURIED, DELAYED, NS, READY, RESERVED, Job
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.tube import Tube
from beanstalk_twisted.rules.puts import Puts, Waiting
from beanstalk_twisted.rules.reservations import NO_ROOM, Answer
from beanstalk_twisted.rules.timekeeping import Part, Timekeeping
from beanstalk_twisted.wire.replies import INTERNAL_ERROR, MOVED, UPDATED, Duplicate

MOVE: Final = Kind.MOVE
SMALL_BODY_BYTES: Final = 1 << 10
"""A dead letter with a body of no more is written as any change is, in a segment that is not
allocated ahead if need be: when many come back at once, as many as are would not do.
"""

Kept = tuple[BodyPlace, bytes]
"""A body, and where the record is that it was taken from."""


class Moves(Part):
    """Moves jobs.  One that was moved knows the tube that it was put into, until it is there again.

    :ivar note_withheld: called with a tube into which a job was moved that is withheld.
    """

    def __init__(self, timekeeping: Timekeeping) -> None:
        super().__init__(timekeeping)
        self.note_withheld: Callable[[Tube], None] = lambda tube: None

    def has_room(self, job: Job, now_ns: int) -> bool:
        """Whether the log has room for a move of the job, and then for the end of all jobs."""
        changes = self._changes
        return changes.has_room_for(moved_bytes(job)) and changes.allows(EXTENSIONS, now_ns)

    def move(
        self, job: Job, tube: Tube, now_ns: int, connection: int, body: bytes | None = None
    ) -> int:  # fmt: skip
        """Put a job into a tube, in its state; if it was reserved, it is ready there.  A dead
        letter that goes back is none any more, and its attempts are counted from 0.  The job
        `has_room`, and the tube has no other job with its unique key.

        :param connection: of the session that asks.
        :param body: the job's, from who has kept it if that is in the log only.
        :return: the record's LSN.
        """
        state, deadline_ns = job.state, job.deadline_ns
        if state is RESERVED:
            state, deadline_ns = READY, 0
        if not goes_back(job, tube.name):
            image = self.image(job, tube, state, deadline_ns, job.tags, body)
        else:
            image = self.image_alive(job, tube, state, deadline_ns, body)
        lsn = self.carry_out(image._replace(connection=connection), now_ns)
        if state is DELAYED and deadline_ns >= WITHHELD_NS:
            self.note_withheld(tube)
        return lsn

    def dead_letter(
        self, job: Job, reason: Reason, now_ns: int, how: int | None = None
    ) -> bool:  # fmt: skip
        """Bury a job permanently, where the dead letters of its tube go.

        :param reason: the policy that says so.
        :param how: the `Reason` that is given for it: how the job came back; None for ``reason``.
        :return: whether it was done: without space for it, and without its body in memory, the job
            stays as it is.
        """
        if job.body is None or not self.takes_dead_letter(job, now_ns):
            return False
        source = self._state.tubes.by_id(job.tube_id)
        name = None if source.policy is None else source.policy.dead_letter
        tube = self._state.tubes.get_or_make(name) if name else source
        buried_ns = max(now_ns, self._state.last_buried_ns + 1)
        image = self.image(job, tube, BURIED, buried_ns, job.tags)
        tags = (image.tags or NO_TAGS)._replace(
            dead_from=source.name, dead_reason=int(how or reason), dead_at_ns=now_ns
        )
        self.carry_out(image._replace(reason=reason, buries=job.buries + 1, tags=tags), now_ns)
        if self._state.times is not None:
            times = self._state.times.of(source)
            times.buries += 1
            times.deaths += 1
        self._timekeeping.rewrite(len(image.body))
        return True

    def holder_of_key(self, job: Job, tube: Tube, now_ns: int) -> int | None:
        """:return: the id of the job that keeps this one out of a tube by its unique key."""
        if job.tags is None:
            return None
        tags = alive(job.tags) if goes_back(job, tube.name) else job.tags
        return self.holder(tags, tube, now_ns)

    def holder(self, tags: Tags, tube: Tube, now_ns: int) -> int | None:
        """As `holder_of_key`, of a job that has these tags then."""
        if not tags.holds_key:
            return None
        return self._state.unique.holder(tube.tube_id, tags.unique_key, now_ns)

    def takes_dead_letter(self, job: Job, now_ns: int) -> bool:
        """Whether the log has room for a dead letter.  As long as the disk gives more, a small one
        is taken as any change is, and for a larger one what is kept for others will do, but for the
        end of all jobs: so most need not wait.
        """
        changes, size = self._changes, moved_bytes(job)
        may_borrow = not changes.log.budget.is_short and (
            job.body_bytes <= SMALL_BODY_BYTES or changes.has_room_to_copy(size)
        )
        has_room = may_borrow or changes.has_room_for(size)
        return has_room and changes.allows(EXTENSIONS, now_ns, waits=False)

    def image(
        self, job: Job, tube: Tube, state: State, deadline_ns: int, tags: Tags | None,
        body: bytes | None = None,
    ) -> JobImage:  # fmt: skip
        """The image of a job that a client moves to a tube.

        :param tags: which it has then, but for its origin.
        :param body: as `move` takes it.
        """
        source = self._state.tubes.by_id(job.tube_id)
        return job.image(
            MOVE, state, Reason.CLIENT, job.created_ns, deadline_ns=deadline_ns
        )._replace(
            tube_id=tube.tube_id, body=job.loaded_body if body is None else body,
            tags=_moved(tags, source, tube),
        )  # fmt: skip

    def image_alive(
        self, job: Job, tube: Tube, state: State, deadline_ns: int, body: bytes | None = None
    ) -> JobImage:
        """The image of a dead letter that is none any more: as if it was never reserved."""
        image = self.image(job, tube, state, deadline_ns, alive(job.tags), body)
        return image._replace(reserves=0, timeouts=0, releases=0)

    def carry_out(self, image: JobImage, now_ns: int) -> int:
        """Make a move, and forget the job's old tube if nobody wants it.

        :return: the record's LSN.
        """
        source = self._state.tubes.by_id(self._state.jobs.job(image.job_id).tube_id)
        lsn = self._timekeeping.change(image, now_ns)
        if source.policy is not None:
            self._timekeeping.settle(source, now_ns)
        self._timekeeping.drop_if_unused(source, now_ns)
        return lsn


def goes_back(job: Job, name: bytes) -> bool:
    """Whether a job that is put into this tube is a dead letter that died there."""
    return job.tags is not None and job.tags.dead_from == name


def alive(tags: Tags | None) -> Tags:
    """:return: the tags of a dead letter when it is none any more."""
    return (tags or NO_TAGS)._replace(dead_from=b"", dead_reason=0, dead_at_ns=0)


def moved_bytes(job: Job) -> int:
    """What a job takes, as the body of a new one, when it is moved; at most."""
    return job.body_bytes + MAX_TAGS_BYTES


def _moved(tags: Tags | None, source: Tube, tube: Tube) -> Tags | None:
    tags = tags or NO_TAGS
    home = tags.origin or source.name
    tags = tags._replace(origin=b"" if tube.name == home else home)
    return None if tags == NO_TAGS else tags


class Edits(Part):
    """Moves and updates jobs for clients."""

    def __init__(self, timekeeping: Timekeeping, puts: Puts, moves: Moves) -> None:
        super().__init__(timekeeping)
        self._puts = puts
        self._moves = moves

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
        return self._lost_body(job_id) or self.move(session, now_ns, job_id, name)

    def _lost_body(self, job_id: int) -> Answer | None:
        """:return: what to answer if a job is there, and its body was asked for and is not."""
        is_absent = self._state.jobs.place(job_id) is not None
        return (INTERNAL_ERROR, 0) if is_absent else None

    def update(
        self, session: Session, now_ns: int, begun_ns: int, job_id: int, priority: int,
        delay_s: int, ttr_s: int, body: bytes | None,
    ) -> Answer | None:  # fmt: skip
        """Give a job another priority, delay and TTR, and perhaps another body.

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
        return self._lost_body(job_id) or self.update(
            session, now_ns, begun_ns, job_id, priority, delay_s, ttr_s, None
        )

    def _when_there_is_room(
        self, session: Session, now_ns: int, body_bytes: int, growth: int,
        take: Callable[[int], Answer | None],
    ) -> Answer | None:  # fmt: skip
        size = body_bytes + MAX_TAGS_BYTES
        waiting = Waiting(session, 1, size, growth, take, EXTENSIONS)
        return self._puts.put_together(waiting, now_ns)

    def _movable(
        self, session: Session, now_ns: int, job_id: int, name: bytes
    ) -> Job | Answer:  # fmt: skip
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
        """There was room; if that had to be waited for, the job may be another one by now, and
        begins again if it needs more room, or its body has to be read.
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
            self._timekeeping.job_waits.moved(job_id)
        return MOVED, lsn

    def _update(
        self, session: Session, begun_ns: int, job_id: int, priority: int, delay_s: int,
        ttr_s: int, body: bytes | None, kept: Kept | None, now_ns: int,
    ) -> Answer | None:  # fmt: skip
        job = self._state.not_held_by_others(session, job_id)
        if job is None:
            return self._changes.not_found()
        new_body = _body(job, kept) if body is None else body
        if new_body is not None:
            if self._puts.lacks(session, 0, len(new_body) - job.body_bytes, now_ns):
                return NO_ROOM
            image = _updated(job, session.number, now_ns, priority, delay_s, ttr_s, new_body)
            has_room = self._changes.has_room_for(image.data_bytes)
        if new_body is None or not has_room or not self._changes.allows(EXTENSIONS, now_ns):
            return self.update(session, now_ns, begun_ns, job_id, priority, delay_s, ttr_s, body)
        lsn = self._timekeeping.change(image, now_ns)
        if image.state is RESERVED:
            self._reservations.arm(session)
        return UPDATED, lsn


def _updated(
    job: Job, connection: int, now_ns: int, priority: int, delay_s: int, ttr_s: int, body: bytes
) -> JobImage:
    """The image of a job after its update: a buried job, one that is reserved, and one that waits
    for no moment stay so; others are delayed if there is a delay, and ready if there is none.
    """
    state, deadline_ns = job.state, job.deadline_ns
    if state is RESERVED:
        deadline_ns = now_ns + ttr_s * NS
    elif state is READY or (state is DELAYED and deadline_ns < WITHHELD_NS):
        state = DELAYED if delay_s else READY
        deadline_ns = now_ns + delay_s * NS if delay_s else 0
    return job.image(
        Kind.UPDATE, state, Reason.CLIENT, job.created_ns, deadline_ns=deadline_ns,
        connection=connection,
    )._replace(
        priority=priority, delay_s=delay_s, ttr_s=ttr_s, tags=job.tags, body=body
    )  # fmt: skip


def _kept(job: Job) -> Kept:
    return BodyPlace(job.segment, job.full_lsn), job.loaded_body


def _body(job: Job, kept: Kept | None) -> bytes | None:
    """:return: a job's body, or what was kept of it if that is still the same; else None."""
    if job.body is not None or kept is None:
        return job.body
    return kept[1] if kept[0] == (job.segment, job.full_lsn) else None
