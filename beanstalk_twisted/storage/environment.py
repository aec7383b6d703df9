"""What the parts of an open log have in common, and whom they tell what happens."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from beanstalk_twisted.binlog.batches import Batch, Rehoming
from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.binlog.errors import WriteFailed
from beanstalk_twisted.binlog.space_budget import Demand
from beanstalk_twisted.storage.clock import LogClock
from beanstalk_twisted.storage.fail_stop import FailStop
from beanstalk_twisted.storage.io_thread import Clock, Io


class Environment(NamedTuple):
    """
    What an open log works with.

    :ivar io: does the blocking work; ``unwatched`` is the same, for what may take as long as it
        likes.
    :ivar clock: log time; ``reactor`` has the timers.
    :ivar failed: called when nothing can be promised any more: memory and log may no longer agree.
    """

    directory: Directory
    io: Io
    unwatched: Io
    reactor: Clock
    clock: LogClock
    failed: FailStop


class Replica(Protocol):
    """
    Where the batches of a log go beside the disk.

    :ivar acknowledged_lsn: records up to this one are there.
    :ivar changed: called when more is acknowledged, or replies may leave again; set by the
        `GroupCommit`.
    """

    acknowledged_lsn: int
    changed: Callable[[], None]

    @property
    def waiting_bytes(self) -> int:
        """How many bytes are published and not acknowledged."""

    def publish(self, batch: Batch) -> None:
        """Called with each batch once, in the order of the log, before it is written."""

    def trimmed(self, seq: int) -> None:
        """
        A segment and all before it are dead, durably and acknowledged: they are wanted no more.
        """

    def hand_over(self) -> "Deferred[None]":
        """
        The log has ended in order.

        :return: fires when all of it is acknowledged, or too long has passed.
        """


class StoreEvents(NamedTuple):
    """
    What a `LogStore` calls: the first and the last as `CommitEvents` do.

    :ivar changed: the queue did something by itself.
    """

    acknowledge: Callable[[], None]
    changed: Callable[[], None]
    count_waiting: Callable[[], int]


class SlowSync(NamedTuple):
    """
    A write or sync that replies have waited for, for long; compares by that.

    :ivar waited_ns: the longest of these waits, ns: from the end of the first turn whose records
        are in the batch, or from when the batch before it was given to the disk.
    :ivar took_ns: the last write or sync itself, ns.
    :ivar connections: how many waited when it ended.
    """

    waited_ns: int
    took_ns: int
    connections: int


class CommitEvents(NamedTuple):
    """
    What a `GroupCommit` calls; by default nothing happens.

    :ivar acknowledge: more replies may be sent.
    :ivar advanced: the disk has done something.
    :ivar before_batch: records are about to be written; it may append more.
    :ivar rehomed: all that is not durable is about to move, because of this error.
    :ivar count_waiting: asks how many connections may wait for what is written next.
    :ivar demand: asks how much room the queue wants.
    :ivar slow: a write or sync has taken long.
    :ivar space_changed: there is more room, or, with a failure, none is to be had.
    """

    acknowledge: Callable[[], None] = lambda: None
    advanced: Callable[[], None] = lambda: None
    before_batch: Callable[[], None] = lambda: None
    rehomed: Callable[[Rehoming, WriteFailed], None] = lambda moved, error: None
    count_waiting: Callable[[], int] = lambda: 0
    demand: Callable[[], Demand] = Demand
    space_changed: Callable[[Failure | None], None] = lambda refusal: None
    slow: Callable[[SlowSync], object] = lambda slow: None
