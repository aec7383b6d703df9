"""Jobs with their bodies, for who looks at many: a body that is in the log only is read by the
thread that reads bodies back, behind those that clients wait for, and does not stay in memory.

While it is read a job may change or go.  What is given is how it is now: a body that was stated
anew meanwhile is read again.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from twisted.internet.defer import Deferred, DeferredSemaphore, gatherResults

from beanstalk_twisted.binlog.records.jobs import BodyPlace
from beanstalk_twisted.jobs.body_room import Unread
from beanstalk_twisted.jobs.job import Job
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.server.service import BeanstalkService

MAX_READING: Final = 4
"""Slices whose bodies are read at a time: of `looking.SLICE_BYTES` each, and one body more."""

MAX_TRIES: Final = 3
"""Times that a body is read which is elsewhere each time: compaction moves it once in a while."""


class Seen(NamedTuple):
    """A job as it is now.

    :ivar body: None if nobody asked for it, or it cannot be read.
    :ivar is_unread: whether it cannot be read.
    """

    job: Job
    body: bytes | None
    is_unread: bool = False


class _Read(NamedTuple):
    """What a read brought, and where the body was then."""

    place: BodyPlace | None
    body: bytes | Unread | None


class Seeing:
    """Reads them."""

    def __init__(self, service: BeanstalkService) -> None:
        self._service = service
        self._turns = DeferredSemaphore(MAX_READING)

    async def see(self, jobs: Sequence[Job], needs: Callable[[Job], bool]) -> list[Seen]:
        """:param jobs: a slice of them, as they are in this turn.
        :param needs: whether a job's body is needed.
        :return: those that are still there.  If all that is needed is in memory this waits for
            nothing.
        """
        state = self._service.queue.state
        read: dict[int, _Read] = {}
        now = list(jobs)
        for _ in range(MAX_TRIES):
            absent = [job.job_id for job in now if needs(job) and _is_absent(state, job, read)]
            if not absent:
                break
            await self._turns.acquire()
            try:
                reads = await gatherResults([self._read(state, job_id) for job_id in absent])
            finally:
                self._turns.release()
            read.update(zip(absent, reads, strict=True))
            found = [state.jobs.look(job.job_id) for job in now]
            now = [job for job in found if job is not None]
        return [_seen(state, job, read, is_needed=needs(job)) for job in now]

    def _read(self, state: QueueState, job_id: int) -> "Deferred[_Read]":
        done: Deferred[_Read] = Deferred()
        if state.bodies.is_unreadable(job_id, self._service.now_ns()):
            unread = Unread("it could not be read before.", is_lost=False)
            done.callback(_Read(state.jobs.place(job_id), unread))
            return done
        state.bodies.look_at(
            job_id, lambda body: done.callback(_Read(state.jobs.place(job_id), body))
        )
        return done


def _is_absent(state: QueueState, job: Job, read: dict[int, _Read]) -> bool:
    """Whether a body is neither in memory nor read from where it is now."""
    known = read.get(job.job_id)
    return job.body is None and (known is None or known.place != state.jobs.place(job.job_id))


def _seen(state: QueueState, job: Job, read: dict[int, _Read], *, is_needed: bool) -> Seen:
    if job.body is not None or not is_needed:
        return Seen(job, job.body)
    known = read.get(job.job_id)
    if known is not None and isinstance(known.body, bytes) and not _is_absent(state, job, read):
        return Seen(job, known.body)
    return Seen(job, None, is_unread=True)
