"""Whether there is memory for another job, and for all that happens to it until it is on disk."""

import mmap
import time
from collections.abc import Callable
from typing import Final

from beanstalk_twisted.jobs.figures import HOT_JOB_BYTES

NO_LIMIT: Final = 1 << 62
"""More bytes than any memory has."""

HEADROOM_BYTES: Final = 16 << 20
"""What is kept for everything except jobs: a turn's commands and replies of 256 connections,
Python's own pieces of 1 MB, and what is taken between two looks.
"""

CONNECTIONS_BYTES: Final = HEADROOM_BYTES // 2
"""What has to be left for new connections: the other half of the headroom is some 1,000 of them."""

LOOK_BYTES: Final = 1 << 20
"""Bytes of jobs between two looks, which take 10 us each: nothing compared to 1 MB of them."""

COPIES: Final = 3
"""Copies of an unsettled job besides its body: in its frame, in what is written, for a replica."""

AGAIN_S: Final = 0.01
"""From a look that found too little to the next: it may have taken some milliseconds."""

LARGE_AGAIN_S: Final = 0.1
"""The same for what is larger than `LOOK_BYTES`: such a look may take 20 ms."""

FRAMED_COPIES: Final = 2
"""Copies that a start has of what was not known durable: as it was read, and in a new frame."""

PIECED_BYTES: Final = 2 * HEADROOM_BYTES
"""So much is looked for between what is in use, which takes its pages for a moment; not more."""

PIECE_BYTES: Final = 64 << 10
"""Small enough to be found between what is in use, and the largest part of a body that comes."""


class MemoryLimit:
    """Says whether jobs may take more memory.

    :ivar incoming_bytes: kept of jobs that have not wholly come; they count.
    :ivar changed: called with whether jobs are refused, when that has changed.
    """

    def __init__(self, used: Callable[[], int], most_bytes: int = NO_LIMIT) -> None:
        """:param used: returns how many bytes the jobs take that there are."""
        self.most_bytes = most_bytes
        self.incoming_bytes = 0
        self.changed: Callable[[bool], None] = lambda is_full: None
        self._used = used
        self._refused_bytes = 0

    @property
    def used_bytes(self) -> int:
        return self._used() + self.incoming_bytes

    @property
    def is_full(self) -> bool:
        """Whether the job that was refused last would be refused again."""
        return self._refused_bytes > 0 and self.room(self._refused_bytes) < 0

    def room(self, growth: int) -> int:
        """Return how many bytes are left after that growth of jobs; negative if it is too much."""
        return self.most_bytes - self.used_bytes - growth

    def look(self) -> None:
        """Jobs were loaded, perhaps more than may be taken."""
        if self.room(HOT_JOB_BYTES) < 0:
            self.note(HOT_JOB_BYTES)

    def note(self, refused_bytes: int) -> None:
        """A job of that size was refused; 0: one was taken."""
        was_full, self._refused_bytes = self._refused_bytes > 0, refused_bytes
        if was_full is not (refused_bytes > 0):
            self.changed(not was_full)


class Headroom:
    """Says whether jobs may be taken; a `puts.Memory`.

    Where memory ends (`ulimit -v`, a strict kernel), it ends for any step, also for the one that
    hands an accepted job to the disk, which must not fail.  So puts are refused in time
    (OUT_OF_MEMORY): now and then the kernel is asked whether it would still give the headroom.  All
    else continues until jobs are deleted, and new connections are taken until half of the headroom
    is gone too.

    So much is kept, too, that a server that is killed when it is full can start again under the
    same limit: with the jobs, the part of the log that it reads (one frame, `replay.PART_BYTES` or
    one large job), and at its end what it writes in new frames.

    A limit on what is resident (a container's) is not seen by asking: the kernel kills a process
    that passes it, and what was answered is on disk.  So jobs have a limit of their own,
    `MemoryLimit`, which is looked at here too.

    Differs from beanstalkd: it asks for a job's memory only, and has its log written without more.

    :ivar unsettled: returns how many bytes wait for the disk.
    :ivar undurable: returns how many bytes a start would have to frame again.
    :ivar changed: called with whether memory is short, when that has changed.
    :ivar refused: how many puts were refused since it was closed.
    :ivar largest: bytes of the largest part that a start reads of the log at a time; None without a
        log.  It never becomes less.
    """

    def __init__(
        self, has: Callable[[int], bool] | None = None,
        seconds: Callable[[], float] = time.monotonic, limit: MemoryLimit | None = None,
    ) -> None:  # fmt: skip
        """:param has: whether N bytes can be had; by default the kernel is asked."""
        self.limit = MemoryLimit(lambda: 0) if limit is None else limit
        self.unsettled: Callable[[], int] = lambda: 0
        self.undurable: Callable[[], int] = lambda: 0
        self.largest: int | None = None
        self.changed: Callable[[bool], None] = lambda is_short: None
        self._has = can_have if has is None else has
        self._seconds = seconds
        self._left = 0
        self._is_closed = self._is_short = False
        self.refused = 0
        self._again_s = self._large_again_s = 0.0

    def close(self, is_closed: bool) -> None:
        """Take no jobs, whatever memory there is, or take them again."""
        self._is_closed = is_closed
        self._left = -1 if is_closed else 0

    def takes(self, size: int) -> bool:
        self._left -= size + HOT_JOB_BYTES
        return self._left >= 0 or self._look(size, size + HOT_JOB_BYTES)

    def takes_all(self, size: int, growth: int) -> bool:
        self._left -= max(size + HOT_JOB_BYTES, growth)
        return self._left >= 0 or self._look(size, growth)

    def hold(self, change: int) -> None:
        self.limit.incoming_bytes += change

    @property
    def takes_connections(self) -> bool:
        """Whether there is memory for another connection, such as one that deletes jobs."""
        return not self._is_short or self._has(CONNECTIONS_BYTES)

    def _look(self, size: int, growth: int) -> bool:
        """:param growth: what jobs take more of memory afterwards."""
        if self._is_closed:
            self.refused += 1
            return False
        if growth > 0:
            fits = self.limit.room(growth) >= 0
            self.limit.note(0 if fits else growth)
            if not fits:
                return False
        if size > LOOK_BYTES:
            return self._look_for_large(size)
        now_s = self._seconds()
        if self._is_short and now_s < self._again_s:
            return False
        is_short = not self._has(HEADROOM_BYTES + self._wanted(size))
        self._left = 0 if is_short else min(LOOK_BYTES, self.limit.room(growth))
        if is_short:
            self._again_s = self._seconds() + AGAIN_S
        elif self.largest is not None:
            self.largest = max(self.largest, size)
        if is_short != self._is_short:
            self._is_short = is_short
            self.changed(is_short)
        return not is_short

    def _look_for_large(self, size: int) -> bool:
        """Look for what is so large that it may be refused while all other jobs are taken."""
        if self._seconds() < self._large_again_s:
            return False
        has = self._has(HEADROOM_BYTES + self._wanted(size))
        if not has:
            self._large_again_s = self._seconds() + LARGE_AGAIN_S
        elif self.largest is not None:
            self.largest = max(self.largest, size)
        return has

    def _wanted(self, size: int) -> int:
        """Return what is kept in addition to the headroom, with a job of that size."""
        now = COPIES * (self.unsettled() + size)
        if self.largest is None:
            return now
        return max(now, self.largest, FRAMED_COPIES * (self.undurable() + size))


def can_have(size: int) -> bool:
    """Return True if memory can be had.  The kernel is asked first, for one piece that is never
    touched; when it has no more, pieces may lie between what is in use.
    """
    try:
        mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except (OSError, MemoryError):
        return size <= PIECED_BYTES and _has_pieces(-(-size // PIECE_BYTES))
    return True


def _has_pieces(count: int) -> bool:
    pieces = []
    try:
        for _ in range(count):
            pieces.append(bytearray(PIECE_BYTES))
    except MemoryError:
        return False
    return True
