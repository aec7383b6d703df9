"""
New jobs: one is taken when there is memory for it and its way to the disk, and when the log has
room for it and for the end of every job.

A put for which the log has no room waits until it has been given more, and its connection with it;
it is refused if the disk has no more to give.

Differs from beanstalkd: there, everybody waits while the space of the next segment is allocated;
here, only the put does.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from beanstalk_twisted.binlog.records import READY, JobImage, Kind, Reason, State
from beanstalk_twisted.binlog.space_budget import Demand, new_job_bytes
from beanstalk_twisted.jobs.changes import Changes
from beanstalk_twisted.jobs.reservations import NO_ROOM, Answer, leave
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.jobs.statistics import Tally
from beanstalk_twisted.jobs.timekeeping import Timekeeping
from beanstalk_twisted.wire import replies

NS: Final = 1_000_000_000

PUT: Final = Kind.PUT
CLIENT: Final = Reason.CLIENT


class Memory(Protocol):
    """
    What the queue needs to know of the process's memory.
    """

    def takes(self, size: int) -> bool:
        """
        Whether there is memory for so many bytes of a job, and for all that happens to it.
        """


class Plenty:
    """
    The memory of a queue that nobody limits.
    """

    def takes(self, size: int) -> bool:
        return True


PLENTY: Final = Plenty()


class Draft:
    """
    A job whose `put` line was accepted and whose body is on its way.
    """

    __slots__ = ("created_ns", "job_id")

    def __init__(self, job_id: int, created_ns: int) -> None:
        self.job_id = job_id
        self.created_ns = created_ns


class Waiting(NamedTuple):
    """
    A job, or some that are put together, that have wholly come and wait for room.

    :ivar jobs: how many.
    :ivar size: bytes that they take, as if they were the body of one job.
    :ivar take: takes them, at this time.
    """

    session: Session
    jobs: int
    size: int
    take: Callable[[int], Answer]


class Puts:
    """
    Takes new jobs, or lets them wait.

    :ivar memory: the process's.
    """

    def __init__(
        self, state: QueueState, changes: Changes, timekeeping: Timekeeping, tally: Tally,
        outbox: list[tuple[Session, Answer]], memory: Memory = PLENTY,
    ) -> None:  # fmt: skip
        self.memory = memory
        self._state = state
        self._changes = changes
        self._timekeeping = timekeeping
        self._tally = tally
        self._outbox = outbox
        self._waiting: deque[Waiting] = deque()

    def note_producer(self, session: Session) -> None:
        """
        The session has put for the first time.
        """
        session.is_producer = True
        self._tally.producers += 1

    def begin(self, session: Session, now_ns: int) -> Draft:
        if not session.is_producer:
            self.note_producer(session)
        job_id = self._state.next_job_id
        self._state.next_job_id += 1
        return Draft(job_id, now_ns)

    def put(
        self, session: Session, now_ns: int, draft: Draft, priority: int, delay_s: int,
        ttr_s: int, body: bytes,
    ) -> Answer | None:  # fmt: skip
        """
        Take a job, refuse it, or let it wait.
        """
        if not self.memory.takes(len(body)):
            return NO_ROOM
        if self._changes.has_room_for(len(body)):
            return self._take(session, now_ns, draft, priority, delay_s, ttr_s, body)
        return self._wait_with(session, draft, priority, delay_s, ttr_s, body)

    def put_together(self, waiting: Waiting, now_ns: int) -> Answer | None:
        """
        Take jobs, refuse them, or let them wait.
        """
        if not self.memory.takes(waiting.size):
            return NO_ROOM
        if self._changes.has_room_for_all(waiting.size, waiting.jobs):
            return waiting.take(now_ns)
        return self._wait(waiting)

    def forget(self, session: Session) -> None:
        """
        The session ends: its job is not taken, since nobody would hear of it.
        """
        if session.is_busy:
            self._waiting = deque(each for each in self._waiting if each.session is not session)

    def room_changed(self, now_ns: int) -> None:
        """
        There is more room, or none is to be had: answer those who wait for it, in order.
        """
        while self._waiting:
            waiting = self._waiting.popleft()
            session = waiting.session
            answer = self.put_together(waiting, now_ns)
            if answer is None:
                self._waiting.rotate(1)
                return
            session.is_busy = False
            leave(self._outbox, session, answer)

    def demand(self, copy_bytes: int | None) -> Demand:
        """
        How much room the queue wants.

        :param copy_bytes: the body of a job that compaction waits to copy, if there is one.
        """
        # Each is deleted one day, those that wait too; the log has room for one more anyway.
        jobs = len(self._state.jobs) + sum([waiting.jobs - 1 for waiting in self._waiting])
        if copy_bytes is None and not self._waiting:
            return Demand(jobs)
        sizes = [new_job_bytes(waiting.size) for waiting in self._waiting]
        if copy_bytes is not None:
            sizes.append(new_job_bytes(copy_bytes))
        return Demand(jobs, sum(sizes), max(sizes))

    def _wait_with(
        self, session: Session, draft: Draft, priority: int, delay_s: int, ttr_s: int, body: bytes
    ) -> Answer | None:
        """
        A job has no room.  Not a part of `put`, which would be slower for the function in here.
        """

        def take(now_ns: int) -> Answer:
            return self._take(session, now_ns, draft, priority, delay_s, ttr_s, body)

        return self._wait(Waiting(session, 1, len(body), take))

    def _wait(self, waiting: Waiting) -> Answer | None:
        if self._changes.log.budget.is_short:
            return NO_ROOM
        waiting.session.is_busy = True
        self._waiting.append(waiting)
        return None

    def _take(
        self, session: Session, now_ns: int, draft: Draft, priority: int, delay_s: int,
        ttr_s: int, body: bytes,
    ) -> Answer:  # fmt: skip
        tube = session.using
        job_id = draft.job_id
        image = tuple.__new__(JobImage, (
            PUT, State.DELAYED if delay_s else READY, CLIENT, priority, job_id, draft.created_ns,
            now_ns + delay_s * NS if delay_s else 0, delay_s, ttr_s, tube.tube_id,
            0, 0, 0, 0, 0, session.number, body,
        ))  # fmt: skip
        lsn = self._changes.make(image)
        self._tally.total_jobs += 1
        tube.total_jobs += 1
        self._timekeeping.settle(tube, now_ns)
        return replies.Inserted(job_id), lsn
