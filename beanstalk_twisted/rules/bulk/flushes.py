"""
Flushing: the unreserved jobs of a tube are deleted, slice by slice, and its unique keys forgotten.

Jobs whose `put` came after the flush are not deleted by it, and it ends however many there are:
each queue is walked once, up to the job that was the last one when that walk began.
"""

from collections.abc import Callable, Sequence
from typing import Final

from beanstalk_twisted.binlog.records.jobs import Reason, State
from beanstalk_twisted.jobs.ordered import ID_MASK, LEAST, OrderedJobs
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.jobs.tube import ReadyJobs, Tube
from beanstalk_twisted.rules.changes import Changes
from beanstalk_twisted.rules.reservations import NO_ROOM, Answer
from beanstalk_twisted.rules.timekeeping import SLICE_JOBS, Timekeeping, Work
from beanstalk_twisted.wire.extensions import FORGOTTEN, Flushed

LOOK_JOBS: Final = 4000
"""Jobs that one slice looks at: to pass one over takes a tenth of the time of its deletion."""

FLUSH_SLICE_BYTES: Final = 4 << 20
"""Bytes of bodies after which a slice ends: a job that was only put is copied for its deletion."""

TAGGED_JOBS: Final = 3
"""What a job with tags takes of a slice, in jobs without: keys, groups and records of its own."""

CLIENT: Final = Reason.CLIENT

ALL: Final = b"all"

FLUSHED: Final = {
    b"ready": (State.READY,),
    b"delayed": (State.DELAYED,),
    b"buried": (State.BURIED,),
    # The ready ones last: whoever becomes ready meanwhile is among them.
    ALL: (State.DELAYED, State.BURIED, State.READY),
}


class Flushes:
    """Empties tubes."""

    def __init__(self, state: QueueState, changes: Changes, timekeeping: Timekeeping) -> None:
        self._state = state
        self._changes = changes
        self._timekeeping = timekeeping

    def flush(self, session: Session, now_ns: int, name: bytes, which: bytes) -> Answer | None:
        """
        Delete the tube's jobs that are in a state.  The log always has room for that.

        :param which: a key of `FLUSHED`.
        """
        tube = self._state.tubes.find(name)
        if tube is None:
            return self._changes.not_found()
        queues = [tube.queue(state) for state in FLUSHED[which]]
        walk = Walk(queues, self._state.next_job_id, self._state.jobs.weigh, which == ALL)
        flushed = self._flush_slice(session, tube, walk, now_ns)
        if walk.is_over:
            return self._flushed(flushed)
        self._timekeeping.answer_later(session, self._flush_rest(session, tube, walk, flushed))
        return None

    def forget_key(self, session: Session, now_ns: int, name: bytes, key: bytes) -> Answer:
        """Forget the unique key of a deleted job."""
        tube = self._state.tubes.find(name)
        found = None if tube is None else self._state.unique.find(tube.tube_id, key)
        if tube is None or found is None or found.record.until_ns <= now_ns:
            return self._changes.not_found()
        if not self._changes.has_room:
            return NO_ROOM
        self._changes.forget_key(found, now_ns)
        self._timekeeping.drop_if_unused(tube, now_ns)
        return self._changes.of_state(FORGOTTEN)

    def _flush_slice(self, session: Session, tube: Tube, walk: "Walk", now_ns: int) -> int:
        """:return: how many jobs were deleted."""
        job_ids = walk.next_ids()
        for job_id in job_ids:
            job = self._state.jobs.get(job_id)
            assert job is not None
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
            if not self._changes.has_room:
                walk.forgets = False
                break
            self._changes.forget_key(each, now_ns)
        if found:
            self._timekeeping.drop_if_unused(tube, now_ns)

    def _flush_rest(self, session: Session, tube: Tube, walk: "Walk", flushed: int) -> Work:
        """Later slices of a large flush.  Others may act in between."""
        while not walk.is_over:
            now_ns = yield None
            flushed += self._flush_slice(session, tube, walk, now_ns)
        return self._flushed(flushed)

    def _flushed(self, count: int) -> Answer:
        return self._changes.of_state(Flushed(count))


class Walk:
    """
    A walk through the queues of a tube, which may change meanwhile.

    :ivar end_id: jobs with this id or a larger one are passed over.
    :ivar forgets: whether keys of the tube are left to be forgotten, after the jobs.
    """

    def __init__(
        self, queues: Sequence[OrderedJobs | ReadyJobs], end_id: int,
        weigh: Callable[[int], tuple[int, bool]], forgets: bool,
    ) -> None:  # fmt: skip
        """:param weigh: says how large the body of a job is, and whether it has tags, by its id."""
        self._queues = list(queues)
        self._weigh = weigh
        self.end_id = end_id
        self.forgets = forgets
        self._passed = LEAST
        self._last = self._queues[0].last()

    @property
    def has_jobs(self) -> bool:
        """Whether there may be more jobs to be found."""
        return bool(self._queues)

    @property
    def is_over(self) -> bool:
        """Whether there is no more to be done."""
        return not (self._queues or self.forgets)

    def next_ids(self) -> list[int]:
        """
        The ids of the next jobs, `SLICE_JOBS` at most, and fewer if `LOOK_JOBS` were looked at,
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
        """These come next; go to the next queue if there are none, or they reach the end."""
        if keys and self._last is not None and keys[-1] < self._last:
            self._passed = keys[-1]
            return
        del self._queues[0]
        self._passed = LEAST
        self._last = self._queues[0].last() if self._queues else None
