"""How much memory something takes."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable


def growth_bytes(action: Callable[[], object]) -> int:
    """Do something and tell how much more memory is in use then."""
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        action()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return after - before


class Scarce:
    """A `puts.Memory` that has less than so many bytes for anything."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes

    def takes(self, size: int) -> bool:
        """See `Memory.takes`."""
        return size < self._most_bytes

    def takes_all(self, size: int, growth: int) -> bool:
        """See `Memory.takes_all`."""
        return size < self._most_bytes

    def hold(self, change: int) -> None:
        """See `Memory.hold`."""
