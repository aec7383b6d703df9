"""Looks at all that a crash may leave, right before each operation on the disk.

For each disk that may be left a server loads it, and what it has is judged.  On some of them a
server is also started, and crashed once more before each of its own operations.
"""

import gc
import random
from typing import Final

from beanstalk_twisted.binlog.errors import BinlogError
from beanstalk_twisted.binlog.reading.replay import Replay
from beanstalk_twisted.rules.workqueue import WorkQueue
from beanstalk_twisted.storage.clock import LogClock
from beanstalk_twisted.storage.opening import begin, load
from tests.binlog.memory import MemoryDirectory
from tests.crash.disks import Left, after_kill, after_power_loss, only_synced
from tests.crash.history import Broken
from tests.crash.promises import Promises
from tests.crash.simulation import SEGMENT_BYTES, SOUND, Parts
from tests.storage.test_opening import Quiet, no_facts

AGAIN: Final = 0.02
"""The share of disks on which a server is started, and crashed at each of its operations."""

AGAIN_AFTER_KILL: Final = 0.2
"""Likewise after a kill, when much that the server reads is not synced."""

SAMPLE: Final = 3
"""Disks looked at before each operation of such a server."""

COLLECT_EVERY: Final = 1000
"""Disks between two collections of garbage."""


class Explorer:
    """Looks at what crashes leave.

    :ivar states: how many disks a server was started on and judged, no two of them alike;
        ``second_crashes`` how many of them a server had left that crashed while it started.
    """

    def __init__(self, seed: int, limit: int, parts: Parts = SOUND) -> None:
        """:param limit: how many disks to look at."""
        self.states = self.second_crashes = 0
        self._random = random.Random(seed)
        self._limit = limit
        self._parts = parts
        self._seen: dict[int, int] = {}

    @property
    def is_done(self) -> bool:
        """Whether all was looked at that should be."""
        return self.states >= self._limit

    def crash(self, directory: MemoryDirectory, promises: Promises, now_ns: int) -> None:
        """Look at what a crash at this very moment may leave."""
        if self.is_done:
            return
        for left in (after_kill(directory), *after_power_loss(directory, self._random)):
            least = promises.least(left.is_power_lost)
            # After an error of the disk, a start does not believe all that it could read.
            is_doubtful = promises.is_in_doubt and not left.is_power_lost
            lsn = self.examine(left, promises, now_ns, least, is_doubtful=is_doubtful)
            share = AGAIN if left.is_power_lost else AGAIN_AFTER_KILL
            if lsn is not None and self._random.random() < share:
                self._crash_again(left, promises, now_ns, lsn)

    def examine(
        self, left: Left, promises: Promises, now_ns: int, least: int, most: int = 1 << 62,
        is_doubtful: bool = False,
    ) -> int | None:  # fmt: skip
        """Judge a disk.

        :param most: LSNs above this one are of a server that crashed while it started.
        :param is_doubtful: whether it is not what it seems.
        :return: the last LSN found, or None if the same disk was judged before.
        """
        if self.is_done:
            return None
        content = hash((left.content, is_doubtful))
        known = self._seen.get(content)
        if known is not None:
            if min(known, most) < least:
                raise Broken(f"after {left.how} the log ends with LSN {known}, not {least}")
            return None
        queue, found = self._load(left, left.make(), now_ns)
        lsn = last_lsn(found)
        try:
            promises.check(queue, min(lsn, most), now_ns, least)
        except Broken as broken:
            raise Broken(f"after {left.how}: {broken}") from None
        self._seen[content] = lsn
        self.states += 1
        return lsn

    def _load(self, left: Left, disk: MemoryDirectory, now_ns: int) -> tuple[WorkQueue, Replay]:
        if not self.states % COLLECT_EVERY:
            gc.collect()
        queue = WorkQueue(no_facts, (), 65_535)
        try:
            found = load(disk, queue, clock_at(now_ns), Quiet(), self._parts.read)
        except BinlogError as problem:
            raise Broken(f"after {left.how} the server does not start: {problem}") from None
        return queue, found

    def _crash_again(self, left: Left, promises: Promises, now_ns: int, lsn: int) -> None:
        """Start a server on a disk and crash it at each operation; it finds the same each time."""
        second = left.make()

        def crash(operation: str, name: str) -> None:
            thens = [after_kill(second), *after_power_loss(second, self._random)]
            for then in self._random.sample(thens, min(SAMPLE, len(thens))):
                keeps_all = left.is_power_lost or not then.is_power_lost
                least = lsn if keeps_all else min(lsn, promises.least(True))
                both = then._replace(how=f"{left.how}, and while starting {then.how}")
                if self.examine(both, promises, now_ns, least, most=lsn) is not None:
                    self.second_crashes += 1

        second.fault = crash
        queue, found = self._load(left, second, now_ns)
        try:
            begin(
                self._parts.disk(second), queue, clock_at(now_ns), SEGMENT_BYTES, found,
                chance=self._random.randbytes,
            )  # fmt: skip
        except BinlogError as problem:
            raise Broken(f"after {left.how} the server does not start: {problem}") from None
        # What was found is durable now, and found again.
        synced = only_synced(second)._replace(how=f"{left.how}, a start and a power loss")
        self.examine(synced, promises, now_ns, least=lsn, most=lsn)

    def found_lsn(self, directory: MemoryDirectory, now_ns: int) -> int:
        """Where the log ends that a server would find."""
        left = after_kill(directory)
        return last_lsn(self._load(left, left.make(), now_ns)[1])


def last_lsn(found: Replay) -> int:
    """Where a log ends."""
    segments = found.survey.segments
    return segments[-1].ending.next_lsn - 1 if segments else 0


def clock_at(now_ns: int) -> LogClock:
    """The clock of a server that starts now."""
    return LogClock(lambda: now_ns, lambda: now_ns)


class without_garbage_collection:
    """Thousands of queues are made and thrown away: `collect` them now and then, and keep none.
    (`load` freezes what it has loaded, unless garbage collection is off already.)
    """

    def __enter__(self) -> None:
        gc.collect()
        gc.freeze()
        gc.disable()

    def __exit__(self, *ignored: object) -> None:
        # What was frozen stays so: to look at it again takes half a second late in a run.
        gc.enable()
        gc.collect()
