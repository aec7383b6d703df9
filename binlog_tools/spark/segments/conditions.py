"""What rows have to fulfil: for leaving out what cannot, and single rows that do not."""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple


class Condition(NamedTuple):
    """What a row has to fulfil: ``=`` one of the values, or ``<``, ``<=``, ``>``, ``>=`` the
    only one.
    """

    column: str
    how: str
    values: tuple[Any, ...]


class Span(NamedTuple):
    """The smallest and the largest value of a column."""

    low: int
    high: int

    def meets(self, low: int, high: int) -> bool:
        """Whether one of the values from low to high is in it."""
        return low <= self.high and high >= self.low


EVERY: Final = Span(0, (1 << 63) - 1)
"""All LSNs, and all moments in nanoseconds."""


def bounds(conditions: Iterable[Condition], column: str) -> Span:
    """The values that a column of numbers may have."""
    low, high = EVERY
    for name, how, values in conditions:
        if name != column or not all(isinstance(value, int) for value in values):
            continue
        if how in ("=", ">", ">="):
            low = max(low, min(values) + (how == ">"))
        if how in ("=", "<", "<="):
            high = min(high, max(values) - (how == "<"))
    return Span(low, high)
