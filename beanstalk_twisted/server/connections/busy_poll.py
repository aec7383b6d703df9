"""
Whether the sockets are looked at for a while before the reactor sleeps.

Who sends a command when the reply to the last one has come does so some tens of microseconds later.
A processor that goes to sleep meanwhile needs as long to wake up, and comes back to cold caches;
to look at the sockets in a loop costs less of it, and the client waits less.  That is done for a
lone client: behind a turn of one socket that had the turn before it alone, too.  With more of them
the loop would find each command as it comes, where a sleep brings several in one turn.

To look for as long as a wake-up costs never costs more than twice what the better choice would
have.  Where clients think for longer it is left alone: each look that finds something earns a
point, each in vain takes one, and without points there is one trial in `REST` turns.
"""

from typing import Final

BUSY_POLL_US: Final = 60
"""
Microseconds: about what a sleep and a wake-up cost.  Measured, a lone client's round trips are
slower with 30, and no quicker with 120.
"""

MOST_POINTS: Final = 8
"""Looks in vain, one after the other, that end it for a client that always was quick."""

REST: Final = 64
"""So a look in vain costs clients that think for long a microsecond of each command."""

SEVERAL: Final = -1
"""In place of a socket: there was more than one in a turn."""


class BusyPollPolicy:
    """
    Learns whether looking pays.

    :ivar limit_us: how long to look, microseconds.
    """

    def __init__(self, limit_us: int = BUSY_POLL_US) -> None:
        """:param limit_us: 0 is never."""
        self.limit_us = limit_us
        self._socket = SEVERAL
        self._points = MOST_POINTS
        self._rested = 0

    def take(self, socket: int) -> bool:
        """Whether to look now, behind a turn of this socket, or of `SEVERAL`."""
        is_lone = socket == self._socket != SEVERAL
        self._socket = socket
        if not is_lone or not self.limit_us:
            return False
        if self._points:
            return True
        self._rested = (self._rested + 1) % REST
        return not self._rested

    def note(self, has_found: bool) -> None:
        """A look that was taken has ended."""
        if has_found:
            self._points = min(self._points + 1, MOST_POINTS)
        elif self._points:
            self._points -= 1
