"""When to sync, and in which thread."""

from typing import Final, NamedTuple

RELAXED_SYNC_S: Final = 1.0
"""Seconds from the write of relaxed records to their sync at the latest, where replies wait for
syncs: one sync a second is a small part of any disk's.
"""


US: Final = 1_000

DEFAULT_LIMIT_US: Final = 300
"""The mean above which the thread syncs: measured, a lone client's round trips are clearly faster
without it at 50 us, and no faster at 300; with many clients nobody waits for longer than that.
"""

MAX_LIMIT_US: Final = 10_000
"""A hard disk's seek: there nothing is to be saved, and others wait for long."""

LESSONS: Final = 8
"""Syncs done by the thread before anything is known; a client makes them in 2 ms."""

WEIGHT: Final = 8
"""The newest sync counts for one part in this number of the mean."""

STALL: Final = 10
"""A sync that takes this many times the limit is slow by far: by default 3 ms."""

REST: Final = 20
"""And then others have this many times as long without another one."""

MAX_BATCH_BYTES: Final = 64 << 10
"""Some 500 small jobs; the times of longer ones say little of the others."""


class FsyncPolicy(NamedTuple):
    """When to sync.

    :ivar interval_s: seconds from a write to its sync at the latest; 0 syncs before each reply,
        None never does.
    """

    interval_s: float | None

    @property
    def is_always(self) -> bool:
        return self.interval_s == 0

    @property
    def latest_s(self) -> float | None:
        """Seconds from a write to its sync at the latest, also of what no reply waits for."""
        return RELAXED_SYNC_S if self.is_always else self.interval_s

    @property
    def in_words(self) -> str:
        if self.is_always:
            return "fsync always"
        if self.interval_s is None:
            return "fsync never"
        return f"fsync within {round(self.interval_s * 1000)} ms"


ALWAYS: Final = FsyncPolicy(0)
NEVER: Final = FsyncPolicy(None)


class InlineSyncPolicy:
    """Whether the disk is quick enough for the reactor's thread to write and sync by itself, learnt
    from how long that takes, in nanoseconds on any clock that does not go back.

    To hand a batch to another thread and back costs more than a quick disk's sync: both threads
    want the interpreter's lock at each call of the kernel.  Each sync teaches, whichever thread
    does it, so what is known of a slow disk costs no trials.

    After a write or sync here that took longer than `STALL` times the limit, the thread has all of
    them for `REST` times as long: to such ones others lose no more than a twentieth of their time.
    Shorter ones cause no rest, so only the mean bounds what they cost.  A write without a sync goes
    to the kernel's memory: it takes long only when the disk cannot keep up, and needs no lessons;
    docs/durability.md, "Inline sync".
    """

    def __init__(self, limit_us: int = DEFAULT_LIMIT_US) -> None:
        """:param limit_us: up to what mean it syncs, 0 to `MAX_LIMIT_US`; 0 is never."""
        self._limit_ns = limit_us * US
        self._stall_ns = STALL * (limit_us or DEFAULT_LIMIT_US) * US
        self._lessons = 0
        self._mean_ns = 0
        self._closed_until_ns = 0
        self._is_taken = False

    def take(self, now_ns: int, *, syncs: bool = True) -> bool:
        """Return True if what is to be noted next, a sync or a write, should be done at once."""
        is_quick = not syncs or (self._lessons >= LESSONS and 0 < self._limit_ns >= self._mean_ns)
        self._is_taken = is_quick and now_ns >= self._closed_until_ns
        return self._is_taken

    def note(self, now_ns: int, took_ns: int, *, syncs: bool) -> None:
        """A write has ended, perhaps with a sync.  Without one it says nothing of the disk as a
        rule.  No more than a stall is learnt from a sync, so that one that took for ever is
        forgotten some day.
        """
        if took_ns > self._stall_ns:
            if self._is_taken:
                self._closed_until_ns = now_ns + REST * took_ns
            took_ns = self._stall_ns
        self._is_taken = False
        if not syncs:
            return
        if not self._lessons:
            self._mean_ns = took_ns
        self._lessons += 1
        self._mean_ns += (took_ns - self._mean_ns) // WEIGHT
