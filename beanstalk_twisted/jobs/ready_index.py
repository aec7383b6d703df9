"""
The best ready job of very many watched tubes, without looking at each.

A heap holds the first key of each watched tube as it was when last looked at.  A tube that may have
a better first job notes so, once until it is looked at again; a first job that has gone is found
out when its entry comes to the top.  So a reserve costs what has changed since the last one, and a
put one note for each index that has looked since.

Reserve and release while watching 1,000 tubes with a job each take 6 us of the queue's time a
command instead of 330.  For few tubes it is quicker to look at all: see `MANY_TUBES`.
"""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Final

from beanstalk_twisted.jobs.tube import Tube, TubeIndex

MANY_TUBES: Final = 256
"""
A session that watches more has an index: looking at so many takes about 20 us, which a put that
has to tell hundreds of such sessions would cost too.
"""

SPARE_OLD: Final = 64
"""Entries that no longer hold that are never worth a rebuild."""

TRIES: Final = 32
"""
Old entries at the top of the heap, and one more for as many tubes, after which all tubes are looked
at: 10,000 that have closed together take 5 ms so, and 30 one by one.
"""


class ReadyIndex(TubeIndex):
    """Watched tubes by their first ready jobs."""

    __slots__ = ("_changed", "_heap", "_keys")

    def __init__(self, tubes: Iterable[Tube]) -> None:
        self._changed = set(tubes)
        self._keys: dict[Tube, int] = {}
        self._heap: list[tuple[int, Tube]] = []

    def watch(self, tube: Tube) -> None:
        """A tube is watched from now on."""
        self._changed.add(tube)

    def ignore(self, tube: Tube) -> None:
        """A tube is no longer watched."""
        self._changed.discard(tube)
        self._keys.pop(tube, None)
        tube.unlisten(self)

    def note(self, tube: Tube) -> None:
        """A tube may have a better first job, or may hand it out again."""
        self._changed.add(tube)

    def first(self) -> int | None:
        """The key of the best job that may be handed out."""
        if self._changed:
            self._take_up()
        tries = TRIES + len(self._keys) // TRIES
        while self._heap:
            # Entries of the same key are of the same tube, so tubes are never compared.
            key, tube = self._heap[0]
            tries -= 1
            if not tries:
                self._look_at_all()
                continue
            if self._keys.get(tube) != key:
                heappop(self._heap)
            elif tube.first_open() == key:
                return key
            else:
                heappop(self._heap)
                del self._keys[tube]
                self._enter(tube)
        return None

    def _look_at_all(self) -> None:
        """So many first jobs have gone that to look at all tubes is quicker than one by one."""
        firsts = [(tube.first_open(), tube) for tube in self._keys]
        self._keys = {tube: key for key, tube in firsts if key is not None}
        self._heap = [(key, tube) for tube, key in self._keys.items()]
        heapify(self._heap)

    def _take_up(self) -> None:
        """Look at the tubes that have changed."""
        changed, self._changed = self._changed, set()
        for tube in changed:
            tube.listen(self)
            self._enter(tube)
        if len(self._heap) > 2 * len(self._keys) + SPARE_OLD:
            self._heap = [(key, tube) for tube, key in self._keys.items()]
            heapify(self._heap)

    def _enter(self, tube: Tube) -> None:
        key = tube.first_open()
        if key is not None and self._keys.get(tube) != key:
            self._keys[tube] = key
            heappush(self._heap, (key, tube))
