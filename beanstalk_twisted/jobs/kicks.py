"""
Kicking: buried jobs, or delayed ones, are ready again; many of them slice by slice.
"""

from typing import Final

from beanstalk_twisted.binlog.records import READY, JobImage, Kind, Reason
from beanstalk_twisted.jobs.changes import Changes
from beanstalk_twisted.jobs.heap import ID_MASK, LazyHeap
from beanstalk_twisted.jobs.job import Job
from beanstalk_twisted.jobs.reservations import NO_ROOM, Answer
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.jobs.timekeeping import SLICE_JOBS, Slices, Timekeeping
from beanstalk_twisted.jobs.tube import Tube
from beanstalk_twisted.wire import replies

KICK: Final = Kind.KICK
CLIENT: Final = Reason.CLIENT


class Kicks:
    """
    Makes jobs ready that were put aside.
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
        Up to ``bound`` jobs of the used tube, of one kind.  On a disk that becomes full there are
        fewer.
        """
        tube = session.using
        jobs = tube.buried if tube.buried.count else tube.delayed
        count = min(bound, jobs.count)
        if count and not self._changes.has_room:
            return NO_ROOM
        if count <= SLICE_JOBS:
            return self._kicked(self._kick_slice(session, tube, jobs, count, now_ns))
        session.is_busy = True
        self._timekeeping.work_in_slices(self._kick_many(session, tube, jobs, count, now_ns))
        return None

    def kick_job(self, session: Session, job: Job, now_ns: int) -> int:
        """
        This very job.

        :return: the record's LSN.
        """
        return self._timekeeping.change(_image(session, job, now_ns), now_ns)

    def _kick_slice(
        self, session: Session, tube: Tube, jobs: LazyHeap, most: int, now_ns: int
    ) -> int:  # fmt: skip
        """
        Kick the first jobs.  Who waits gets each at once; timers are set when all are ready.

        :return: how many there were, and had room.
        """
        kicked = 0
        while kicked < most and (key := jobs.first()) is not None and self._changes.has_room:
            job = self._state.jobs.get(key & ID_MASK)
            assert job is not None
            self._changes.make(_image(session, job, now_ns))
            kicked += 1
            if tube.waiting:
                self._timekeeping.settle(tube, now_ns)
        self._timekeeping.settle(tube, now_ns)
        return kicked

    def _kick_many(
        self, session: Session, tube: Tube, jobs: LazyHeap, count: int, now_ns: int
    ) -> Slices:  # fmt: skip
        """
        Slices of a large kick.  Others may act in between; the bound holds all the same.
        """
        kicked = 0
        while kicked < count:
            most = min(SLICE_JOBS, count - kicked)
            some = self._kick_slice(session, tube, jobs, most, now_ns)
            kicked += some
            if some < most:
                break
            if kicked < count:
                now_ns = yield
        session.is_busy = False
        self._outbox.append((session, self._kicked(kicked)))

    def _kicked(self, count: int) -> Answer:
        return Answer(replies.Kicked(count), self._changes.committed_lsn)


def _image(session: Session, job: Job, now_ns: int) -> JobImage:
    return job.image(KICK, READY, CLIENT, now_ns, connection=session.number, kicks=1)
