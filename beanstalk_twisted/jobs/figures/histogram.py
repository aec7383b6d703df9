"""Histograms of plain integers, for the hot path."""

from bisect import bisect_left


class Histogram:
    """
    How many values were at most each bound.

    :ivar bounds: ascending; a value beyond the last is counted too.
    :ivar counts: of the values up to each bound that are above the one before it; one more than
        there are bounds.
    :ivar total: the sum of all values.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[int, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0

    def note(self, value: int) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value
