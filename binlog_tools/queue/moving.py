"""
Jobs from one tube into another, none lost.

A job is reserved, so that no worker has it meanwhile, put into the new tube, and deleted when the
server has confirmed that.  Whatever breaks off in between, the job is there once or, at worst,
twice; as its reservation ends with the connection, it is then ready in its old tube, even if it was
buried or delayed.  It gets a new number; priority, TTR and what is left of its delay stay.

Of a tube, those are moved that are there in the beginning: it ends at their number, or at a job
that was put since.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from binlog_tools.queue.server import Job, Queue, Refused, Stats

BURYING_S: Final = 3600
"""
The delay with which a job is put that is to be buried in its new tube, seconds: no worker gets it
before.  If we die in that moment, it is ready after an hour instead of never.
"""


class Moved(NamedTuple):
    """A job that was moved: its numbers before and after."""

    old: int
    new: int


class Broken(Exception):
    """It broke off where a job may be there twice."""


class Mover:
    """
    Moves jobs.

    :ivar target: the tube that they are moved into.
    :ivar keeps_buried: whether to bury there what was buried.
    :ivar later: the number of the job at which `move_all` stopped, as that was put since it began;
        None if it did not.
    """

    def __init__(self, queue: Queue, target: bytes, keeps_buried: bool = True) -> None:
        """:param keeps_buried: bury in the new tube what was buried; else it is ready there."""
        self._queue = queue
        self.target = target
        self.keeps_buried = keeps_buried
        self._end = float("inf")
        self.later: int | None = None

    def move_all(self, source: bytes, state: str, most: int | None) -> Iterator[Moved]:
        """Move the jobs of a tube that are in a state now, and not those that come meanwhile."""
        key = f"current-jobs-{state}"
        if self._queue.stats_tube(source)[key] == "0":
            return
        # Before they are counted, so that all that were put before are among those.
        self._end = self._queue.next_id()
        stats = self._queue.stats_tube(source)
        left = stats.number(key)
        left = left if most is None else min(left, most)
        take = self._taker(source, state, stats["pause-time-left"] != "0")
        while left > 0 and (taken := take()) is not None:
            yield taken
            left -= 1

    def _taker(self, source: bytes, state: str, is_paused: bool) -> Callable[[], Moved | None]:
        # Nobody can reserve from a paused tube, but each job of it.
        if state == "ready" and not is_paused:
            # A pause in its last second looks like none.
            return lambda: (
                self._move_ready(source)
                or (None if self.later else self._move_first(source, state))
            )
        return lambda: self._move_first(source, state)

    def _move_ready(self, source: bytes) -> Moved | None:
        self._queue.watch_only([source])
        job = self._queue.reserve(0)
        if job is None:
            return None
        stats = self._queue.stats_job(job.id)
        if self._is_later(job):
            self._queue.release(job.id, stats.number("pri"))
            return None
        return self.move_reserved(job, stats, "ready", 0)

    def _move_first(self, source: bytes, state: str) -> Moved | None:
        while True:
            self._queue.use(source)
            first = self._queue.peek_first(state)
            if first is None or self._is_later(first):
                return None
            try:
                return self.move_job(first.id)
            except Refused as refused:
                # Somebody was quicker; look again.
                if refused.reply != b"NOT_FOUND":
                    raise

    def _is_later(self, job: Job) -> bool:
        if job.id >= self._end:
            self.later = job.id
        return self.later is not None

    def move_job(self, job: int) -> Moved:
        """
        Move one job, whichever its tube.

        :raise Refused: there is none, it is reserved, or it cannot be put.
        """
        stats = self._queue.stats_job(job)
        # A reserved job is refused here, and so is one that was taken since.
        taken = self._queue.reserve_job(job)
        delay_s = stats.number("time-left") if stats["state"] == "delayed" else 0
        return self.move_reserved(taken, stats, stats["state"], delay_s)

    def move_reserved(self, job: Job, stats: Stats, state: str, delay_s: int) -> Moved:
        """
        Move a job that we have reserved.

        :param state: its state before, and what was left of its delay.
        :raise Refused: it cannot be put, and is again what it was.
        """
        priority, ttr_s = stats.number("pri"), stats.number("ttr")
        is_buried = state == "buried"
        buries = is_buried and self.keeps_buried
        try:
            self._queue.use(self.target)
            new = self._queue.put(job.body, priority, BURYING_S if buries else delay_s, ttr_s)
        except Refused:
            self.give_back(job.id, priority, is_buried, delay_s)
            raise
        try:
            if buries:
                self._queue.bury_free(new, priority)
            self._queue.delete(job.id)
        except (OSError, Refused) as problem:
            target = self.target.decode()
            raise Broken(
                f"job {job.id} is job {new} of {target} now, but may still be there too: {problem}"
            ) from problem
        return Moved(job.id, new)

    def give_back(self, job: int, priority: int, is_buried: bool, delay_s: int) -> None:
        """Let a job that we have reserved be what it was before."""
        if is_buried:
            self._queue.bury(job, priority)
        else:
            self._queue.release(job, priority, delay_s)
