"""
How much memory something takes.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable


def growth_bytes(action: Callable[[], object]) -> int:
    """
    Do something and tell how much more memory is in use then.
    """
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
