"""Garbage collection that does not look at all jobs again and again.

A full collection of Python's looks at all objects that may be part of a cycle, and one comes
whenever there are a quarter more.  Jobs that have been reserved, delayed or buried are such objects
(ready ones are not, see `jobs.table`): with a million of them one takes 0.4 s, in which nobody is
served.  They form no cycles.  So what a full collection has left is frozen, and the next one looks
at what has come since.  Full collections then cost the same in all however often they come, so
they come three times as often as Python has them: each looks at some 21,000 objects, in 7 ms.

A frozen object that becomes part of a cycle stays: connections that TLS or another protocol wraps,
if a full collection came while they were there.  So when many of those have ended all is looked at
again.
"""

import gc
from collections.abc import Callable
from typing import Final, Literal, Protocol

FULL: Final = 2
"""The generation that holds the oldest objects."""

MIDDLE_RUNS: Final = 3
"""Collections of the middle generation, of 7,000 objects each, between two full ones."""

MAX_ENDED: Final = 10_000
"""Wrapped connections that may have ended before all is looked at again: at most 50 MB are kept."""


Phase = Literal["start", "stop"]
"""Of a collection."""


class Collector(Protocol):
    """What is needed of Python's collector; the module `gc` is one."""

    callbacks: list[Callable[[Phase, dict[str, int]], object]]

    def collect(self, generation: int) -> object:
        """Look at the objects of this generation and younger ones now."""

    def get_threshold(self) -> tuple[int, int, int]:
        """Tell how many objects, and how many collections of younger generations, bring one of
        each.
        """

    def set_threshold(self, youngest: int, middle: int, oldest: int, /) -> None:
        """Set that."""

    def freeze(self) -> None:
        """Look at no object again that is there now."""

    def unfreeze(self) -> None:
        """Look at all objects again."""


class Collecting:
    """Freezes what full collections have left; for a process that is a server only."""

    def __init__(self, count_ended: Callable[[], int], collector: Collector = gc) -> None:
        """:param count_ended: how many wrapped connections have ended so far."""
        self._count_ended = count_ended
        self._collector = collector
        self._ended = 0
        self._before = collector.get_threshold()

    def start(self) -> None:
        """Begin, with a full collection: later, that would be a pause."""
        self._ended = self._count_ended()
        self._collector.callbacks.append(self._told)
        self._before = self._collector.get_threshold()
        self._collector.set_threshold(*self._before[:FULL], MIDDLE_RUNS)
        self._collector.collect(FULL)

    def stop(self) -> None:
        """End, if it was started."""
        if self._told in self._collector.callbacks:
            self._collector.callbacks.remove(self._told)
            self._collector.set_threshold(*self._before)
            self._collector.unfreeze()

    def _told(self, phase: Phase, about: dict[str, int]) -> None:
        """Freeze or unfreeze; the collector calls it at each start and stop (`gc.callbacks`)."""
        if about["generation"] != FULL:
            return
        if phase == "stop":
            self._collector.freeze()
        elif self._count_ended() - self._ended >= MAX_ENDED:
            self._ended = self._count_ended()
            self._collector.unfreeze()
