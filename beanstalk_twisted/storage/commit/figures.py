"""What a log's commits have cost, and what is not durable yet; for monitoring."""

from collections import deque
from typing import Final

from beanstalk_twisted.jobs.figures.histogram import Histogram

US: Final = 1_000

SYNC_BOUNDS_NS: Final = tuple(
    us * US
    for us in (
        50, 100, 250, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000,
        5_000_000,
    )
)  # fmt: skip
"""From an NVMe disk with a battery to one that hangs; nanoseconds."""

BATCH_BOUNDS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 1024, 4096)
"""Records of a batch."""

MARKS: Final = 16
"""Into so many parts an interval between syncs is divided to say since when something waits."""

LEAST_NS: Final = 1_000 * US


class CommitFigures:
    """
    Counts batches and syncs.

    :ivar syncs: how long they took, with the write before; nanoseconds.
    :ivar batches: how many records they had.
    :ivar rehomings: how often a failed write or sync had all go on in another segment.
    """

    def __init__(self, lsn: int, interval_s: float | None) -> None:
        """
        :param lsn: the newest one of the log.
        :param interval_s: the longest time between two syncs; None if there are none.
        """
        self.syncs = Histogram(SYNC_BOUNDS_NS)
        self.batches = Histogram(BATCH_BOUNDS)
        self.rehomings = 0
        self._lsn = lsn
        self._never = interval_s is None
        self._step_ns = max(LEAST_NS, round((interval_s or 0) * 1e9) // MARKS)
        # Of batches that are not durable: the last LSN, and when they were begun.
        self._unsynced: deque[tuple[int, int]] = deque()

    def began(self, lsn: int, now_ns: int) -> None:
        """A batch is on its way to disk, up to this LSN."""
        self.batches.note(lsn - self._lsn)
        self._lsn = lsn
        waiting = self._unsynced
        if waiting and (self._never or now_ns - waiting[-1][1] < self._step_ns):
            # It is nearly as old as the one before: so there are at most some `MARKS`.
            waiting[-1] = (lsn, waiting[-1][1])
        else:
            waiting.append((lsn, now_ns))

    def synced(self, lsn: int, took_ns: int) -> None:
        """All up to this LSN is durable, by a sync that took so long."""
        self.syncs.note(took_ns)
        waiting = self._unsynced
        while waiting and waiting[0][0] <= lsn:
            waiting.popleft()

    def unsynced_ns(self, now_ns: int) -> int:
        """For how long the oldest change that is not durable has waited; 0 if there is none."""
        return now_ns - self._unsynced[0][1] if self._unsynced else 0
