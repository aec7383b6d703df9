"""How things to read are shared out to tasks: neighbours together, up to a size."""

from collections.abc import Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")


def packed(
    items: Iterable[Item], size_of: Callable[[Item], int], most: int
) -> list[tuple[Item, ...]]:
    """Items in their order, of so many bytes together at most, or one that has more."""
    tasks: list[list[Item]] = []
    size = 0
    for item in items:
        own = size_of(item)
        if not tasks or size + own > most:
            tasks.append([])
            size = 0
        tasks[-1].append(item)
        size += own
    return [tuple(task) for task in tasks]
