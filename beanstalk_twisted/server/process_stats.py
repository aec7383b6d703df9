"""
What the process knows of itself and of time.

Differs from beanstalkd: all timing is monotonic; there, setting the wall clock moves every
deadline.
"""

import os
import resource
import time
from collections.abc import Callable
from typing import Final

from beanstalk_twisted import __version__
from beanstalk_twisted.jobs.statistics import ProcessFacts
from beanstalk_twisted.version import VERSION

NS: Final = 1_000_000_000

STEP_NS: Final = NS
"""
A difference that is worth a CLOCK_STEP: clocks that are merely steered stay below it for days.
"""

WRITER: Final = f"beanstalk-twisted/{__version__}"
"""How segment headers name this server."""


class LogClock:
    """
    The server's own time: the wall clock when it started, plus what a monotonic clock has counted.

    Setting the wall clock changes neither order nor deadlines; docs/binlog-format.md, "Time".
    """

    def __init__(
        self, wall_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:  # fmt: skip
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        self._made_ns = monotonic_ns()
        self._offset_ns = wall_ns() - self._made_ns
        self._noted_offset_ns = 0

    def now_ns(self) -> int:
        """
        Nanoseconds since the epoch; never goes back.
        """
        return self._monotonic_ns() + self._offset_ns

    def uptime_ns(self) -> int:
        """
        Nanoseconds since this clock was made.
        """
        return self._monotonic_ns() - self._made_ns

    def not_before(self, logged_ns: int) -> None:
        """
        Go on from the newest time in the log, if the wall clock is behind it.
        """
        self._offset_ns += max(0, logged_ns - self.now_ns())
        self._noted_offset_ns = self.wall_offset_ns()

    def step(self) -> int | None:
        """
        Whether the wall clock was set since the last call, or since this clock was made.

        :return: the new `wall_offset_ns` if it was, by more than `STEP_NS`.
        """
        offset_ns = self.wall_offset_ns()
        if abs(offset_ns - self._noted_offset_ns) <= STEP_NS:
            return None
        self._noted_offset_ns = offset_ns
        return offset_ns

    def wall_offset_ns(self) -> int:
        """
        Wall clock minus `now_ns`.
        """
        return self._wall_ns() - self.now_ns()


class LogFacts:
    """
    What `stats` says of the log; zeros without one.
    """

    def __init__(self) -> None:
        self.oldest: Callable[[], int] = lambda: 0
        self.current: Callable[[], int] = lambda: 0
        self.written: Callable[[], int] = lambda: 0
        self.migrated: Callable[[], int] = lambda: 0


class Process:
    """
    Gathers `ProcessFacts`.
    """

    def __init__(self, clock: LogClock, segment_bytes: int) -> None:
        self.log = LogFacts()
        self._clock = clock
        self._segment_bytes = segment_bytes
        self._identity = os.urandom(8).hex()
        self._uname = os.uname()

    def facts(self) -> ProcessFacts:
        """
        As of now.
        """
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return ProcessFacts(
            pid=os.getpid(),
            version=VERSION,
            utime_us=round(usage.ru_utime * 1_000_000),
            stime_us=round(usage.ru_stime * 1_000_000),
            uptime_s=self._clock.uptime_ns() // NS,
            binlog_oldest=self.log.oldest(),
            binlog_current=self.log.current(),
            binlog_migrated=self.log.migrated(),
            binlog_written=self.log.written(),
            binlog_max_bytes=self._segment_bytes,
            identity=self._identity,
            hostname=self._uname.nodename,
            os=self._uname.version,
            platform=self._uname.machine,
        )
