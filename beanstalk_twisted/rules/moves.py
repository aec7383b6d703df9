"""
Moving jobs between tubes, and burying those that are not to be tried again: dead letters.

A job that was moved knows the tube that it was put into, until it is there again.
"""

from collections.abc import Callable
from typing import Final

from beanstalk_twisted.binlog.records.jobs import READY, RESERVED, JobImage, Kind, Reason, State
from beanstalk_twisted.binlog.tags import MAX_TAGS_BYTES, NO_TAGS, Tags
from beanstalk_twisted.jobs.job import Job
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.jobs.tube import Tube
from beanstalk_twisted.rules.changes import Changes
from beanstalk_twisted.rules.timekeeping import Timekeeping

MOVE: Final = Kind.MOVE
BURIED: Final = State.BURIED

SMALL_BODY_BYTES: Final = 1 << 10
"""
A dead letter with a body of no more is written as any change is, in a segment that is not
allocated ahead if need be: when many come back at once, as many as are would not do.
"""


class Moves:
    """
    Moves jobs.

    :ivar dead_letter_tube: says into which tube the dead letters of a tube go; None: they stay.
    """

    def __init__(self, state: QueueState, changes: Changes, timekeeping: Timekeeping) -> None:
        self.dead_letter_tube: Callable[[Tube], bytes | None] = lambda tube: None
        self._state = state
        self._changes = changes
        self._timekeeping = timekeeping

    @property
    def is_short(self) -> bool:
        """Whether the disk is full."""
        return self._changes.log.budget.is_short

    def has_room(self, job: Job, now_ns: int) -> bool:
        """Whether the log has room for a move of the job, and then for the end of all jobs."""
        changes = self._changes
        return changes.has_room_for(moved_bytes(job)) and changes.allows_extensions(now_ns)

    def move(self, job: Job, tube: Tube, now_ns: int, connection: int) -> int:
        """
        Put a job into a tube, in its state; if it was reserved, it is ready there.  It `has_room`,
        and the tube has no other job with its unique key.

        :param connection: of the session that asks.
        :return: the record's LSN.
        """
        state, deadline_ns = job.state, job.deadline_ns
        if state is RESERVED:
            state, deadline_ns = READY, 0
        image = self.image(job, tube, state, deadline_ns, job.tags)
        return self.carry_out(image._replace(connection=connection), now_ns)

    def dead_letter(
        self, job: Job, reason: Reason, now_ns: int, how: Reason | None = None
    ) -> bool:  # fmt: skip
        """
        Bury a job for good, where the dead letters of its tube go.

        :param reason: the policy that says so.
        :param how: how it came back, which is said as its reason; None if it did not.
        :return: whether it was done: on a disk that is full, and until a body that is in the log
            only is read, the job stays as it is.
        """
        if not self._takes_dead_letter(job, now_ns):
            return False
        if not self._state.bodies.want(job.job_id, now_ns):
            return False
        if job.body is None:
            # It has just been read.
            return self.dead_letter(self._known(job.job_id), reason, now_ns, how)
        source = self._state.tubes.by_id(job.tube_id)
        name = self.dead_letter_tube(source)
        tube = source if name is None else self._state.tubes.get_or_make(name)
        buried_ns = max(now_ns, self._state.last_buried_ns + 1)
        image = self.image(job, tube, BURIED, buried_ns, job.tags)
        tags = (image.tags or NO_TAGS)._replace(
            dead_from=source.name, dead_reason=how or reason, dead_at_ns=now_ns
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
        return None if job.tags is None else self.holder(job.tags, tube, now_ns)

    def holder(self, tags: Tags, tube: Tube, now_ns: int) -> int | None:
        """As `holder_of_key`, of a job that has these tags then."""
        if not tags.holds_key:
            return None
        return self._state.unique.holder(tube.tube_id, tags.unique_key, now_ns)

    def _takes_dead_letter(self, job: Job, now_ns: int) -> bool:
        """
        Nobody can wait for more room here: as long as the disk gives more, a small job is taken as
        any change is, and for a larger one what is kept for others will do, but for the end of all
        jobs.
        """
        changes, size = self._changes, moved_bytes(job)
        may_borrow = not changes.log.budget.is_short and (
            job.body_bytes <= SMALL_BODY_BYTES or changes.has_room_to_copy(size)
        )
        has_room = may_borrow or changes.has_room_for(size)
        return has_room and changes.allows_extensions(now_ns, waits=False)

    def image(
        self, job: Job, tube: Tube, state: State, deadline_ns: int, tags: Tags | None
    ) -> JobImage:
        """
        The image of a job that a client moves to a tube.

        :param tags: which it has then, but for its origin.
        """
        source = self._state.tubes.by_id(job.tube_id)
        return job.image(
            MOVE, state, Reason.CLIENT, job.created_ns, deadline_ns=deadline_ns
        )._replace(tube_id=tube.tube_id, body=job.loaded_body, tags=_moved(tags, source, tube))

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


def moved_bytes(job: Job) -> int:
    """What a job takes, as the body of a new one, when it is moved; at most."""
    return job.body_bytes + MAX_TAGS_BYTES


def _moved(tags: Tags | None, source: Tube, tube: Tube) -> Tags | None:
    """:return: the tags of a job behind its move from ``source`` to ``tube``."""
    tags = tags or NO_TAGS
    home = tags.origin or source.name
    tags = tags._replace(origin=b"" if tube.name == home else home)
    return None if tags == NO_TAGS else tags
