"""How a server was configured, and what `stats` says of its process."""

import os
import resource
from collections.abc import Callable
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.compaction import Policy
from beanstalk_twisted.binlog.segments.format import DEFAULT_SEGMENT_BYTES
from beanstalk_twisted.jobs.unique_keys import MAX_KEYS
from beanstalk_twisted.server.connections.epoll_reader import BUSY_POLL_US, LIMIT_NS
from beanstalk_twisted.server.execution_context import NEVER_NS
from beanstalk_twisted.storage.clock import NS, LogClock
from beanstalk_twisted.storage.fsync import ALWAYS, DEFAULT_LIMIT_US, FsyncPolicy
from beanstalk_twisted.storage.opening import Verify
from beanstalk_twisted.storage.store import LogFacts, LogOptions
from beanstalk_twisted.storage.watchdog import DEFAULT_LIMIT_S
from beanstalk_twisted.version import VERSION
from beanstalk_twisted.wire.layouts import Values

DEFAULT_MAX_JOB_BYTES: Final = 65_535
"""beanstalkd's (prot.h, JOB_DATA_SIZE_LIMIT_DEFAULT); inclusive."""

DEFAULT_SLOW_MS: Final = 100
"""Milliseconds: ten times what a turn may take, and what a person notices."""

MIN_SLOW_MS: Final = LIMIT_NS // 1_000_000
"""A whole turn: a shorter one is what clients always have to wait for others."""

MAX_SLOW_MS: Final = 60_000
"""A minute; a disk that takes as long is given up."""

DEFAULT_MAX_CONNECTIONS: Final = 10_000
"""Some 40 MB of memory when they are idle, and more workers than one process has work for."""

MAX_MAX_CONNECTIONS: Final = 1 << 20
"""As many as Linux gives one process of file descriptors, unless configured."""

DEFAULT_STALLED_S: Final = 60
"""Seconds: longer than a network fails that recovers, TCP's own retries included, and as long as
proxies wait for a request.
"""

MAX_STALLED_S: Final = 86_400
"""A day is as good as never."""

IN_MEMORY: Final = "in memory only (jobs are lost when the server ends)"


LEAST_LOG_SEGMENTS: Final = 6
"""Segments that a limit on the log's bytes has to allow: one being written, the reserve of two or
three, and two to compact.
"""


class Limits(NamedTuple):
    """How much clients may take together; 0 for no limit.

    :ivar memory_bytes: that jobs may take of memory.
    :ivar connections: of all, ``connections_per_address`` of one address.
    :ivar stalled_s: seconds for the rest of what a peer has begun to send.
    :ivar log_bytes: of the log's files.
    """

    memory_bytes: int = 0
    connections: int = DEFAULT_MAX_CONNECTIONS
    connections_per_address: int = 0
    stalled_s: int = DEFAULT_STALLED_S
    log_bytes: int = 0

    def in_words(self) -> str:
        """Describe those that are not the default, except the memory's, each after a comma."""
        connections = self.connections
        stalled = f"stalled timeout {self.stalled_s} s"
        words = {
            "connections": f"connections up to {connections}" if connections else "any connections",
            "connections_per_address": f"up to {self.connections_per_address} of one address",
            "stalled_s": stalled if self.stalled_s else "no stalled timeout",
            "log_bytes": f"log up to {self.log_bytes} bytes",
        }
        usual = Limits()
        told = [words[name] for name in words if getattr(self, name) != getattr(usual, name)]
        return "".join(f", {each}" for each in told)


class Settings(NamedTuple):
    """How a server was configured.

    :ivar max_connections: as many as there are descriptors for; more are closed immediately, so
        that the log always gets its own.
    :ivar fsync_timeout_s: see `WatchedIo`.
    :ivar fsync_inline_us: see `InlineSyncPolicy`.
    :ivar busy_poll_us: see `BusyPollPolicy`; 0 on a machine with one processor.
    :ivar slow_ms: a command that takes more milliseconds, or waits longer for the disk, is logged,
        `MIN_SLOW_MS` to `MAX_SLOW_MS`; 0 never.
    :ivar max_keys: how many unique keys there may be.
    :ivar body_cache: bytes of bodies that are kept in memory, with a log; None for all.
    :ivar verify: what a start looks at before the server serves.
    """

    max_job_bytes: int = DEFAULT_MAX_JOB_BYTES
    segment_bytes: int = DEFAULT_SEGMENT_BYTES
    fsync: FsyncPolicy = ALWAYS
    verbosity: int = 0
    pidfile: str = ""
    max_connections: int = 1 << 20
    compaction: Policy = Policy()
    fsync_timeout_s: int = DEFAULT_LIMIT_S
    fsync_inline_us: int = DEFAULT_LIMIT_US
    max_keys: int = MAX_KEYS
    slow_ms: int = DEFAULT_SLOW_MS
    limits: Limits = Limits()
    body_cache: int | None = None
    verify: Verify = Verify.FULL
    busy_poll_us: int = BUSY_POLL_US

    @property
    def slow_ns(self) -> int:
        """For never, what is never reached."""
        return self.slow_ms * 1_000_000 if self.slow_ms else NEVER_NS

    @property
    def log(self) -> LogOptions:
        return LogOptions(
            self.fsync, self.compaction, self.fsync_inline_us, self.slow_ns, self.body_cache
        )

    def in_words(self, path: str, has_hub: bool) -> str:
        """Describe what matters to a reader of the server's log.

        :param path: of the log's directory; empty without one.
        :param has_hub: whether one reader serves all sockets.
        """
        kept = IN_MEMORY
        if path:
            limit_s = self.fsync_timeout_s
            timeout = f"fsync timeout {limit_s} s" if limit_s else "no fsync timeout"
            kept = f"binlog {path}, {self._fsync_in_words}, {timeout}"
            if self.body_cache is not None:
                kept += f", bodies in memory up to {self.body_cache} bytes"
                if self.verify is Verify.RECORDS:
                    kept += ", checked after the start"
        reader = ", shared epoll reader" if has_hub else ""
        memory = self.limits.memory_bytes
        jobs = f"memory of jobs up to {memory} bytes" if memory else "memory of jobs not limited"
        most = f"max job size {self.max_job_bytes} bytes"
        return f"{kept}{reader}, {most}, {jobs}{self.limits.in_words()}"

    @property
    def _fsync_in_words(self) -> str:
        if not self.fsync.is_always:
            return self.fsync.in_words
        limit_us = self.fsync_inline_us
        inline = f"inline up to {limit_us} us" if limit_us else "never inline"
        return f"{self.fsync.in_words} ({inline})"


class Process:
    """What the process and its log have to say in `stats`, by key."""

    def __init__(
        self, clock: LogClock, segment_bytes: int, chance: Callable[[int], bytes] = os.urandom
    ) -> None:
        self.log = LogFacts()
        self._clock = clock
        self._segment_bytes = segment_bytes
        self._identity = chance(8).hex()
        self._uname = os.uname()

    def facts(self) -> Values:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "pid": os.getpid(),
            "version": VERSION,
            "rusage-utime": f"{usage.ru_utime:.6f}",
            "rusage-stime": f"{usage.ru_stime:.6f}",
            "uptime": self._clock.uptime_ns() // NS,
            "binlog-oldest-index": self.log.oldest(),
            "binlog-current-index": self.log.current(),
            "binlog-records-migrated": self.log.migrated(),
            "binlog-records-written": self.log.written(),
            "binlog-max-size": self._segment_bytes,
            "id": self._identity,
            "hostname": self._uname.nodename,
            "os": self._uname.version,
            "platform": self._uname.machine,
        }
