"""How soon what is written is synced: before each reply, within an interval, or never."""

from typing import Final, NamedTuple

RELAXED_SYNC_S: Final = 1.0
"""
Seconds from the write of relaxed records to their sync at the latest, where replies wait for syncs:
readers of the log take what is durable, and one sync a second is a small part of any disk's.
"""


class FsyncPolicy(NamedTuple):
    """
    When to sync.

    :ivar interval_s: seconds from a write to its sync at the latest; 0 syncs before each reply,
        None never does.
    """

    interval_s: float | None

    @property
    def is_always(self) -> bool:
        """Whether replies wait for the sync."""
        return self.interval_s == 0

    @property
    def latest_s(self) -> float | None:
        """Seconds from a write to its sync at the latest, also of what no reply waits for."""
        return RELAXED_SYNC_S if self.is_always else self.interval_s

    @property
    def in_words(self) -> str:
        """Say it as the option does."""
        if self.is_always:
            return "fsync always"
        if self.interval_s is None:
            return "fsync never"
        return f"fsync within {round(self.interval_s * 1000)} ms"


ALWAYS: Final = FsyncPolicy(0)
NEVER: Final = FsyncPolicy(None)
