"""
Moving jobs between tubes, and burying those that are not to be tried again: dead letters.

A job that was moved knows the tube that it was put into, until it is there again.
"""

from collections.abc import Callable
from typing import Final

from beanstalk_twisted.binlog.records.jobs import (
    READY,
    RESERVED,
    WITHHELD_NS,
    JobImage,
    Kind,
    Reason,
    State,
)
from beanstalk_twisted.binlog.tags import MAX_TAGS_BYTES, NO_TAGS, Tags
from beanstalk_twisted.jobs.job import Job
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.jobs.tube import Tube
from beanstalk_twisted.rules.changes import Changes
from beanstalk_twisted.rules.timekeeping import Timekeeping

MOVE: Final = Kind.MOVE
BURIED: Final = State.BURIED
DELAYED: Final = State.DELAYED

SMALL_BODY_BYTES: Final = 1 << 10
"""
A dead letter with a body of no more is written as any change is, in a segment that is not
allocated ahead if need be: when many come back at once, as many as are would not do.
"""


class Moves:
    """
    Moves jobs.

    :ivar dead_letter_tube: says into which tube the dead letters of a tube go; None: they stay.
    :ivar note_withheld: called with a tube into which a job was moved that is withheld.
    """

    def __init__(self, state: QueueState, changes: Changes, timekeeping: Timekeeping) -> None:
        self.dead_letter_tube: Callable[[Tube], bytes | None] = lambda tube: None
        self.note_withheld: Callable[[Tube], None] = lambda tube: None
        self._state = state
        self._changes = changes
        self._timekeeping = timekeeping

    def has_room(self, job: Job, now_ns: int) -> bool:
        """Whether the log has room for a move of the job, and then for the end of all jobs."""
        changes = self._changes
        return changes.has_room_for(moved_bytes(job)) and changes.allows_extensions(now_ns)

    def move(
        self, job: Job, tube: Tube, now_ns: int, connection: int, body: bytes | None = None
    ) -> int:  # fmt: skip
        """
        Put a job into a tube, in its state; if it was reserved, it is ready there.  A dead letter
        that goes back is none any more, and its attempts are counted from 0.  The job `has_room`,
        and the tube has no other job with its unique key.

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
        """
        Bury a job permanently, where the dead letters of its tube go.

        :param reason: the policy that says so.
        :param how: the `Reason` that is given for it: how the job came back; None for ``reason``.
        :return: whether it was done: without space for it, and without its body in memory, the job
            stays as it is.
        """
        if job.body is None or not self.takes_dead_letter(job, now_ns):
            return False
        source = self._state.tubes.by_id(job.tube_id)
        name = self.dead_letter_tube(source)
        tube = source if name is None else self._state.tubes.get_or_make(name)
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
        """
        :return: the id of the job that keeps this one out of a tube by its unique key; None if none
            does.
        """
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
        """
        Whether the log has room for a dead letter.  As long as the disk gives more, a small one is
        taken as any change is, and for a larger one what is kept for others will do, but for the
        end of all jobs: so most need not wait.
        """
        changes, size = self._changes, moved_bytes(job)
        may_borrow = not changes.log.budget.is_short and (
            job.body_bytes <= SMALL_BODY_BYTES or changes.has_room_to_copy(size)
        )
        has_room = may_borrow or changes.has_room_for(size)
        return has_room and changes.allows_extensions(now_ns, waits=False)

    def image(
        self, job: Job, tube: Tube, state: State, deadline_ns: int, tags: Tags | None,
        body: bytes | None = None,
    ) -> JobImage:  # fmt: skip
        """
        The image of a job that a client moves to a tube.

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
        """
        Make a move, give the job to who waits for one, and forget its old tube if nobody wants it.

        :return: the record's LSN.
        """
        source = self._state.tubes.by_id(self._known(image.job_id).tube_id)
        lsn = self._timekeeping.change(image, now_ns)
        if source.policy is not None:
            self._timekeeping.settle(source, now_ns)
        self._timekeeping.drop_if_unused(source, now_ns)
        return lsn

    def _known(self, job_id: int) -> Job:
        job = self._state.jobs.get(job_id)
        assert job is not None
        return job


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
    """:return: the tags of a job behind its move from ``source`` to ``tube``."""
    tags = tags or NO_TAGS
    home = tags.origin or source.name
    tags = tags._replace(origin=b"" if tube.name == home else home)
    return None if tags == NO_TAGS else tags
