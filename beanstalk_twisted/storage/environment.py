"""Dependencies, callbacks and figures shared by the parts of an open log."""

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from beanstalk_twisted.binlog.batches import Batch
from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.binlog.space_budget import Demand
from beanstalk_twisted.jobs.figures import Histogram
from beanstalk_twisted.storage.clock import LogClock
from beanstalk_twisted.storage.fail_stop import FailStop
from beanstalk_twisted.storage.io_thread import Clock, Io

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
"""Parts into which an interval between syncs is divided to say since when something waits."""

LEAST_NS: Final = 1_000 * US


class CommitFigures:
    """Counts batches by records, and syncs by how long they took with the write before, ns."""

    def __init__(self, lsn: int, interval_s: float | None) -> None:
        """:param interval_s: the longest time between two syncs; None if there are none."""
        self.syncs = Histogram(SYNC_BOUNDS_NS)
        self.batches = Histogram(BATCH_BOUNDS)
        self._lsn = lsn
        self._never = interval_s is None
        self._step_ns = max(LEAST_NS, round((interval_s or 0) * 1e9) // MARKS)
        # Of batches that are not durable: the last LSN, and when they were begun.
        self._unsynced: deque[tuple[int, int]] = deque()

    def began(self, lsn: int, now_ns: int) -> None:
        """Count a batch on its way to disk, up to this LSN."""
        self.batches.note(lsn - self._lsn)
        self._lsn = lsn
        waiting = self._unsynced
        if waiting and (self._never or now_ns - waiting[-1][1] < self._step_ns):
            # It is nearly as old as the one before: so there are at most some `MARKS`.
            waiting[-1] = (lsn, waiting[-1][1])
        else:
            waiting.append((lsn, now_ns))

    def synced(self, lsn: int, took_ns: int) -> None:
        self.syncs.note(took_ns)
        waiting = self._unsynced
        while waiting and waiting[0][0] <= lsn:
            waiting.popleft()

    def unsynced_ns(self, now_ns: int) -> int:
        """How long the oldest change that is not durable has waited; 0 if there is none."""
        return now_ns - self._unsynced[0][1] if self._unsynced else 0


class Environment(NamedTuple):
    """Injected dependencies of an open log.

    :ivar io: does the blocking work; ``unwatched`` does what may take as long as it likes.
    :ivar clock: log time; ``reactor`` has the timers.
    """

    directory: Directory
    io: Io
    unwatched: Io
    reactor: Clock
    clock: LogClock
    fail_stop: FailStop


class Replica(Protocol):
    """Where the batches of a log go beside the disk.

    :ivar acknowledged_lsn: records up to this one are there.
    :ivar changed: called when more is acknowledged, or replies may leave again; set by the
        `GroupCommit`.
    """

    acknowledged_lsn: int
    changed: Callable[[], None]

    @property
    def waiting_bytes(self) -> int:
        """Bytes that are published and not acknowledged."""

    def defers(self, lsn: int, size: int) -> bool:
        """Whether the next batch, of ``size`` bytes up to ``lsn``, should wait for more records.
        `changed` is called when that may have ended.
        """

    def publish(self, batch: Batch) -> None:
        """Called with each batch once, in the order of the log, before it is written."""

    def trimmed(self, seq: int) -> None:
        """A segment and all before it are dead, durably and acknowledged."""

    def hand_over(self) -> "Deferred[None]":
        """The log has ended in order; fires when all is acknowledged, or too long has passed."""


class StoreEvents(NamedTuple):
    """Callbacks of `LogStore`, the first and the last as in `CommitEvents`; ``changed`` says that
    the queue did something by itself.
    """

    acknowledge: Callable[[], None]
    changed: Callable[[], None]
    count_waiting: Callable[[], int]


class SlowSync(NamedTuple):
    """A write or sync that replies have waited for, for long; compares by that.

    :ivar waited_ns: the longest of these waits, ns: from the end of the first turn whose records
        are in the batch, or from when the batch before it was given to the disk.
    :ivar took_ns: the last write or sync itself, ns.
    :ivar connections: how many waited when it ended.
    """

    waited_ns: int
    took_ns: int
    connections: int


class CommitEvents(NamedTuple):
    """Callbacks of `GroupCommit`; the defaults do nothing.

    :ivar acknowledge: more replies may be sent.
    :ivar advanced: the disk has done something.
    :ivar before_batch: records are about to be written, at this log time; it may append more.
    :ivar count_waiting: asks how many connections may wait for what is written next.
    :ivar demand: asks how much room the queue wants.
    :ivar slow: a write or sync has taken long.
    :ivar space_changed: there is more room, or, with a failure, none is to be had.
    """

    acknowledge: Callable[[], None] = lambda: None
    advanced: Callable[[], None] = lambda: None
    before_batch: Callable[[int], None] = lambda now_ns: None
    count_waiting: Callable[[], int] = lambda: 0
    demand: Callable[[], Demand] = Demand
    space_changed: Callable[[Failure | None], None] = lambda refusal: None
    slow: Callable[[SlowSync], object] = lambda slow: None
