"""
How much memory jobs may take (`--max-memory`).

What they take is counted as they come and go, bodies and a measured number for each job by its kind
(`QueueState.memory_bytes`), so that asking costs nothing, and memory that was freed counts as free
at once, which the process's size does not show.  Not counted is what else a process needs: its code
(some 50 MB), connections, and what waits for the disk.

A job that nobody holds takes least.  Room is kept for it as for one that is reserved, but not for
all that were taken before: nothing but new jobs is ever refused, so jobs that are reserved may take
more than the limit.  Then no job is taken until enough have ended.

Differs from beanstalkd: it takes jobs until malloc() fails, or the kernel kills it.
"""

from collections.abc import Callable
from typing import Final

from beanstalk_twisted.jobs.figures.memory_use import HOT_JOB_BYTES

NO_LIMIT: Final = 1 << 62
"""More bytes than any memory has."""


class MemoryLimit:
    """
    Says whether jobs may take more memory.

    :ivar most_bytes: that they may take.
    :ivar incoming_bytes: kept of jobs that have not wholly come; they count.
    :ivar changed: called with whether jobs are refused, when that has changed.
    """

    def __init__(self, used: Callable[[], int], most_bytes: int = NO_LIMIT) -> None:
        """:param used: says how many bytes the jobs take that there are."""
        self.most_bytes = most_bytes
        self.incoming_bytes = 0
        self.changed: Callable[[bool], None] = lambda is_full: None
        self._used = used
        self._refused_bytes = 0

    @property
    def used_bytes(self) -> int:
        """What jobs take now."""
        return self._used() + self.incoming_bytes

    @property
    def is_full(self) -> bool:
        """Whether the job that was refused last would be refused again."""
        return self._refused_bytes > 0 and self.room(self._refused_bytes) < 0

    def room(self, growth: int) -> int:
        """
        :return: how many bytes are left when jobs take so many more; negative if they may not.
        """
        return self.most_bytes - self.used_bytes - growth

    def look(self) -> None:
        """Jobs were loaded, perhaps more than may be taken."""
        if self.room(HOT_JOB_BYTES) < 0:
            self.note(HOT_JOB_BYTES)

    def note(self, refused_bytes: int) -> None:
        """A job was refused that would take so many bytes; 0: one was taken."""
        was_full, self._refused_bytes = self._refused_bytes > 0, refused_bytes
        if was_full is not (refused_bytes > 0):
            self.changed(not was_full)
