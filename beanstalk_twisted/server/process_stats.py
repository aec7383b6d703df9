"""What `stats` says of the process and of its log."""

import os
import resource
from collections.abc import Callable

from beanstalk_twisted.rules.statistics import ProcessFacts
from beanstalk_twisted.storage.clock import NS, LogClock
from beanstalk_twisted.storage.store import LogFacts
from beanstalk_twisted.version import VERSION


class Process:
    """Gathers `ProcessFacts`."""

    def __init__(
        self, clock: LogClock, segment_bytes: int, chance: Callable[[int], bytes] = os.urandom
    ) -> None:
        """:param chance: gives so many random bytes, by which processes are told apart."""
        self.log = LogFacts()
        self._clock = clock
        self._segment_bytes = segment_bytes
        self._identity = chance(8).hex()
        self._uname = os.uname()

    def facts(self) -> ProcessFacts:
        """As of now."""
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
