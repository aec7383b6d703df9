"""
For how long a server may take itself for the active one, and when others may try to be.

An append that the stream accepts proves that no other server has begun a term before it.  So every
accepted append renews the lease, from the moment at which it was *sent*; a server that has nothing
to append sends heartbeats.  A standby counts from the moment at which it *heard* the last message.
Both count by a monotonic clock of their own, so that setting a wall clock changes nothing; a lease
has ended here before it can have there, by the margin at least, as long as the clocks run equally
fast within `MARGIN_PARTS`.

The lease decides what may be *said*; who may *write* is decided by the stream alone.
"""

from typing import Final

HEARTBEATS: Final = 4
"""Heartbeats in the time of a lease: three may be late."""

MARGIN_PARTS: Final = 10
"""A server stops to speak this part of a lease before its end: far more than clocks drift apart."""


class HeldLease:
    """
    The lease of a server that is, or begins to be, the active one.

    :ivar seconds: how long it is.
    :ivar until_ns: it may speak before this moment of its monotonic clock.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._ns = int(seconds * 1e9)
        self.until_ns = 0
        self._is_over = False

    def end(self) -> None:
        """Nothing may be said any more, whatever is accepted."""
        self._is_over = True
        self.until_ns = 0

    def accepted(self, sent_ns: int) -> None:
        """The stream has accepted what was sent at this moment."""
        if not self._is_over:
            self.until_ns = max(self.until_ns, sent_ns + self._ns - self._ns // MARGIN_PARTS)

    def holds(self, now_ns: int) -> bool:
        """Whether replies may leave now."""
        return now_ns < self.until_ns

    def heartbeat_due_ns(self, sent_ns: int) -> int:
        """When to send something, if the last thing was sent at ``sent_ns``."""
        return sent_ns + self._ns // HEARTBEATS


class Silence:
    """For how long a standby has heard nothing of the active server."""

    def __init__(self, seconds: float, now_ns: int) -> None:
        self._own_ns = self._ns = int(seconds * 1e9)
        self._since_ns = now_ns
        self._is_handed_over = False

    @property
    def seconds(self) -> float:
        """For how long nothing must be heard."""
        return self._ns / 1e9

    def lasts(self, seconds: float) -> None:
        """The active server's lease is so long: it may speak for that time, if that is longer."""
        self._ns = max(self._own_ns, int(seconds * 1e9))

    def heard(self, now_ns: int) -> None:
        """A message has come, or the stream can be reached again."""
        self._since_ns = now_ns
        self._is_handed_over = False

    def handed_over(self) -> None:
        """The newest message says that the active server has ended."""
        self._is_handed_over = True

    def read(self) -> None:
        """A message has come that was in the stream when the silence began."""
        self._is_handed_over = False

    def over_ns(self) -> int:
        """When this standby may try to become active."""
        return self._since_ns + (0 if self._is_handed_over else self._ns)
