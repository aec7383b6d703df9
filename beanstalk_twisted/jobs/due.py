"""
Due times: when each owner wants to be called.

Each owner has one entry, armed for the earliest instant it may have something to do.  It may be too
early: an owner whose plans moved to later keeps its entry, finds nothing due and arms again.  So
the usual command (reserve, then delete before the TTR ends) costs nothing here.
"""

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final, Generic, TypeVar

SPARE_STALE: Final = 1024
"""Stale entries that are never worth a rebuild."""

Owner = TypeVar("Owner", bound=Hashable)


class DueTimes(Generic[Owner]):
    """
    Owners by the instant they are armed for, ns.

    :ivar entries: a heap of all that are armed, and of stale ones; for reading only.
    """

    def __init__(self) -> None:
        self._armed: dict[Owner, tuple[int, int, Owner]] = {}
        self.entries: list[tuple[int, int, Owner]] = []
        self._serials = count()

    def arm(self, owner: Owner, when_ns: int | None) -> None:
        """Call ``owner`` at ``when_ns`` at the latest; None asks for nothing."""
        if when_ns is None:
            return
        armed = self._armed.get(owner)
        if armed is None or when_ns < armed[0]:
            entry = self._armed[owner] = (when_ns, next(self._serials), owner)
            heappush(self.entries, entry)
            self._forget_stale()

    def forget(self, owner: Owner) -> None:
        """Do not call ``owner`` any more."""
        self._armed.pop(owner, None)
        self._forget_stale()

    def _forget_stale(self) -> None:
        if len(self.entries) > 2 * len(self._armed) + SPARE_STALE:
            self.entries = list(self._armed.values())
            heapify(self.entries)

    def first_ns(self) -> int | None:
        """When the next owner is to be called."""
        heap = self.entries
        while heap:
            when_ns, serial, owner = heap[0]
            armed = self._armed.get(owner)
            # By the serial: when this is compiled, tuples are values and have no identity.
            if armed is not None and armed[1] == serial:
                return when_ns
            heappop(heap)
        return None

    def pop_due(self, now_ns: int) -> Owner | None:
        """An owner whose time has come, the earliest first; it is no longer armed."""
        first_ns = self.first_ns()
        if first_ns is None or first_ns > now_ns:
            return None
        _, _, owner = heappop(self.entries)
        del self._armed[owner]
        return owner
