"""
Who wants to be called when.

Each owner has one entry, armed for the earliest instant it may have something to do.  It is a lower
bound: an owner whose plans moved to later keeps its entry, is called early, finds nothing due and
arms again.  So the usual command (reserve, then delete before the TTR ends) costs nothing here.
"""

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final, Generic, TypeVar

SPARE_STALE: Final = 1024
"""Stale entries that are never worth a rebuild."""

Owner = TypeVar("Owner", bound=Hashable)


class Agenda(Generic[Owner]):
    """
    Owners by the instant they are armed for, ns.
    """

    def __init__(self) -> None:
        self._armed: dict[Owner, tuple[int, int, Owner]] = {}
        self._heap: list[tuple[int, int, Owner]] = []
        self._serials = count()

    def arm(self, owner: Owner, when_ns: int | None) -> None:
        """
        Call ``owner`` at ``when_ns`` at the latest; None asks for nothing.
        """
        if when_ns is None:
            return
        armed = self._armed.get(owner)
        if armed is None or when_ns < armed[0]:
            entry = self._armed[owner] = (when_ns, next(self._serials), owner)
            heappush(self._heap, entry)
            self._forget_stale()

    def forget(self, owner: Owner) -> None:
        """
        Do not call ``owner`` any more.
        """
        self._armed.pop(owner, None)
        self._forget_stale()

    def _forget_stale(self) -> None:
        if len(self._heap) > 2 * len(self._armed) + SPARE_STALE:
            self._heap = [entry for entry in self._heap if self._is_valid(entry)]
            heapify(self._heap)

    def first_ns(self) -> int | None:
        """
        When the next owner is to be called.
        """
        heap = self._heap
        while heap:
            entry = heap[0]
            if self._armed.get(entry[2]) is entry:
                return entry[0]
            heappop(heap)
        return None

    def pop_due(self, now_ns: int) -> Owner | None:
        """
        An owner whose time has come, the earliest first; it is no longer armed.
        """
        first_ns = self.first_ns()
        if first_ns is None or first_ns > now_ns:
            return None
        _, _, owner = heappop(self._heap)
        del self._armed[owner]
        return owner

    def _is_valid(self, entry: tuple[int, int, Owner]) -> bool:
        return self._armed.get(entry[2]) is entry
