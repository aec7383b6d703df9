"""
New jobs, as they come, without taking any.

The protocol has no command for that.  But every put takes the next number, and the server counts
puts: so from one number on, the count says which numbers have been given since.  That first number
we get by a job of our own, in a tube of our own, deleted at once.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from binlog_tools.queue.server import Job, Queue, Refused, Stats, parsed

OWN_TUBE: Final = b"beanstalk-tail"
"""Where our job goes; nobody watches it, and it is there for a moment only."""

LEAST_URGENT: Final = (1 << 32) - 1

OWN_DELAY_S: Final = 3600
"""Its delay, seconds, so that no worker gets it, even one that watches this tube."""

MOST_AT_ONCE: Final = 10_000
"""New numbers looked at after one another; of more in one interval the older ones are missed."""


AHEAD: Final = 16
"""Numbers looked at, in the beginning, beyond those that were counted."""

ALIGNING: Final = 20
"""Attempts to find a moment in which nobody puts; on a server that is so busy some are missed."""


class NewJob(NamedTuple):
    """A new job."""

    job: Job
    stats: Stats


def own_number(queue: Queue) -> int:
    """Put a job of our own, delete it, and say which number it had."""
    queue.use(OWN_TUBE)
    own = queue.put(b"", LEAST_URGENT, OWN_DELAY_S, 1)
    queue.delete(own)
    return own


def next_number(queue: Queue) -> float:
    """Say which number the next job gets.  Where none can be put, none is put later either."""
    try:
        return own_number(queue) + 1
    except Refused as refused:
        if refused.reply == b"DRAINING":
            return float("inf")
        raise


class Follower:
    """
    Looks for new jobs.

    :ivar missed: puts whose jobs were gone before they were seen, or that had been refused; of all
        tubes, since nobody can say of which.
    """

    def __init__(self, queue: Queue, tubes: Sequence[bytes]) -> None:
        """:param tubes: which to show; all if there are none."""
        self.missed = 0
        self._queue = queue
        self._tubes = {tube.decode() for tube in tubes}
        self._next = own_number(queue) + 1
        self._offset = self._align()
        self._markers = self._count_markers()

    def _align(self) -> int:
        """
        Say what to add to the count of puts for the number that comes next.

        Puts of others between our job and the count are counted, so look a little further; that
        holds if nobody put meanwhile.
        """
        counted = self._counted()
        for _ in range(ALIGNING):
            end, before = self._end_of_given(), counted
            counted = self._counted()
            if counted == before:
                break
        return end - counted

    def _counted(self) -> int:
        return self._queue.stats().number("cmd-put")

    def _end_of_given(self) -> int:
        end = self._next
        while True:
            ahead = [b"stats-job %d\r\n" % job for job in range(end, end + AHEAD)]
            replies = list(self._queue.ask_many(ahead))
            there = [place for place, reply in enumerate(replies) if reply.name == b"OK"]
            if not there:
                return end
            end += there[-1] + 1

    def _count_markers(self) -> int:
        # The tube is there as long as anybody uses it, and so is its count.
        return self._queue.stats_tube(OWN_TUBE).number("total-jobs")

    def new(self) -> Iterator[NewJob]:
        """Give the jobs that were put since the last time and are still there."""
        end = max(self._next, self._counted() + self._offset)
        if end - self._next > MOST_AT_ONCE:
            self.missed += end - MOST_AT_ONCE - self._next
            self._next = end - MOST_AT_ONCE
        ids = range(self._next, end)
        self._next = end
        replies = self._queue.ask_many(b"stats-job %d\r\n" % job for job in ids)
        found = [parsed(reply) for reply in replies if reply.name == b"OK"]
        if len(found) < len(ids):
            self._miss(len(ids) - len(found))
        yield from self._bodies([each for each in found if self._is_wanted(each)])

    def _miss(self, count: int) -> None:
        """Count jobs that are gone, but for those of other followers."""
        before, self._markers = self._markers, self._count_markers()
        self.missed += max(0, count - (self._markers - before))

    def _is_wanted(self, stats: Stats) -> bool:
        if stats["tube"] == OWN_TUBE.decode():
            return False
        return not self._tubes or stats["tube"] in self._tubes

    def _bodies(self, wanted: Sequence[Stats]) -> Iterator[NewJob]:
        requests = (b"peek %d\r\n" % stats.number("id") for stats in wanted)
        for stats, reply in zip(wanted, self._queue.ask_many(requests), strict=True):
            if reply.name == b"FOUND":
                yield NewJob(Job(stats.number("id"), reply.data), stats)
            else:
                self.missed += 1
