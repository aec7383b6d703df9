"""
Kicks: buried and delayed jobs that are ready at once.

Differs from beanstalkd: others are served between the slices of a large kick; and on a full disk a
kick ends early, or is refused, rather than to leave jobs that a restart would find buried.
"""

from typing import Final

from beanstalk_twisted.binlog.records import Kind, Reason, State
from beanstalk_twisted.jobs.changes import Changes
from beanstalk_twisted.jobs.heap import ID_MASK, LazyHeap
from beanstalk_twisted.jobs.job import Job
from beanstalk_twisted.jobs.reservations import NO_ROOM, Answer
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.jobs.timekeeping import SLICE_JOBS, Slices, Timekeeping
from beanstalk_twisted.wire import replies

MOVABLE: Final = frozenset({State.BURIED, State.DELAYED})
"""The states that a job is kicked out of."""


class Kicks:
    """
    Kicks jobs, many in slices.
    """

    def __init__(
        self, state: QueueState, changes: Changes, timekeeping: Timekeeping,
        outbox: list[tuple[Session, Answer]],
    ) -> None:  # fmt: skip
        self._state = state
        self._changes = changes
        self._timekeeping = timekeeping
        self._outbox = outbox

    def kick(self, session: Session, now_ns: int, bound: int) -> Answer | None:
        """
        Up to ``bound`` buried jobs of the used tube, or if it has none delayed ones.
        """
        tube = session.using
        jobs = tube.buried if tube.buried.count else tube.delayed
        count = min(bound, jobs.count)
        if count and not self._changes.has_room:
            return NO_ROOM
        if count <= SLICE_JOBS:
            kicked = sum(self._kick_first(session, jobs, now_ns) for _ in range(count))
            return Answer(replies.Kicked(kicked), self._changes.committed_lsn)
        session.is_busy = True
        self._timekeeping.work_in_slices(self._kick_many(session, jobs, count, now_ns))
        return None

    def kick_job(self, session: Session, job: Job, now_ns: int) -> Answer:
        """
        This very job, which is buried or delayed.
        """
        if not self._changes.has_room:
            return NO_ROOM
        return Answer(replies.KICKED_JOB, self._make_ready(session, job, now_ns))

    def _make_ready(self, session: Session, job: Job, now_ns: int) -> int:
        image = job.image(
            Kind.KICK, State.READY, Reason.CLIENT, now_ns, connection=session.number
        )._replace(kicks=job.kicks + 1)
        return self._timekeeping.change(image, now_ns)

    def _kick_first(self, session: Session, jobs: LazyHeap, now_ns: int) -> bool:
        key = jobs.first()
        if key is None or not self._changes.has_room:
            return False
        job = self._state.jobs.get(key & ID_MASK)
        assert job is not None
        self._make_ready(session, job, now_ns)
        return True

    def _kick_many(self, session: Session, jobs: LazyHeap, count: int, now_ns: int) -> Slices:
        """
        Slices of a large kick.  Others may act in between; the bound holds all the same.
        """
        kicked = 0
        while kicked < count and self._kick_first(session, jobs, now_ns):
            kicked += 1
            if not kicked % SLICE_JOBS:
                now_ns = yield
        session.is_busy = False
        self._outbox.append((session, Answer(replies.Kicked(kicked), self._changes.committed_lsn)))
