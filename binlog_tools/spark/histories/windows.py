"""Rows before, behind, and the newest of a kind, within groups of neighbouring rows.

A group is given by the index of its first row, and of the row behind its last, at each of its rows.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np

Ints = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]
Codes = np.ndarray[Any, np.dtype[np.int8]]

NONE: Final = np.iinfo(np.int64).max
"""A time that is not known or never comes: later than any other, so `minimum` passes over it."""

NO_ROW: Final = -1
"""An index where there is no such row."""


class Groups:
    """:ivar number: of its group, at each row, from 0.
    :ivar starts: the index of each group's first row.
    :ivar first: the same, at each row.
    :ivar end: the index behind the group's last row, at each row.
    """

    def __init__(self, is_first: Flags) -> None:
        rows = len(is_first)
        self.starts: Ints = np.flatnonzero(is_first)
        self.number: Ints = np.cumsum(is_first) - 1
        ends = np.append(self.starts, rows)[1:]
        self.lasts: Ints = ends - 1
        self.first: Ints = self.starts[self.number]
        self.end: Ints = ends[self.number]

    def newest(self, chosen: Flags) -> Ints:
        """The newest chosen row of the group up to each row, itself included; or `NO_ROW`."""
        found = np.maximum.accumulate(np.where(chosen, np.arange(len(chosen)), NO_ROW))
        return np.where(found >= self.first, found, NO_ROW)

    def before(self, chosen: Flags) -> Ints:
        """The newest chosen row of the group before each row; or `NO_ROW`."""
        newest = np.append(NO_ROW, np.maximum.accumulate(
            np.where(chosen, np.arange(len(chosen)), NO_ROW))[:-1])[: len(chosen)]  # fmt: skip
        return np.where(newest >= self.first, newest, NO_ROW)

    def behind(self, chosen: Flags) -> Ints:
        """The next chosen row of the group behind each row; or `NO_ROW`."""
        rows = len(chosen)
        marks = np.where(chosen, np.arange(rows), rows)[::-1]
        following = np.append(np.minimum.accumulate(marks)[::-1][1:], rows)[:rows]
        return np.where(following < self.end, following, NO_ROW)

    def count(self, chosen: Flags) -> Ints:
        """How many rows of each group are chosen."""
        return self.sum(chosen.astype(np.int64))

    def sum(self, numbers: Ints) -> Ints:
        """Of each group."""
        return np.add.reduceat(numbers, self.starts) if len(numbers) else numbers

    def least(self, numbers: Ints) -> Ints:
        """Of each group."""
        return np.minimum.reduceat(numbers, self.starts) if len(numbers) else numbers

    def most(self, numbers: Ints) -> Ints:
        """Of each group."""
        return np.maximum.reduceat(numbers, self.starts) if len(numbers) else numbers

    def any(self, chosen: Flags) -> Flags:
        """Whether a row of each group is chosen."""
        return np.logical_or.reduceat(chosen, self.starts) if len(chosen) else chosen


def at(values: Any, rows: Ints, missing: Any) -> Any:
    """The values at these rows, and ``missing`` where the row is `NO_ROW`."""
    if not len(values):
        return np.full(len(rows), missing)
    found = values[rows]
    np.putmask(found, rows == NO_ROW, missing)
    return found


def among(codes: Codes, known: Iterable[int]) -> Flags:
    """Whether each code is one of a few: a fifteenth of what `numpy.isin` costs."""
    found: Flags = np.zeros(len(codes), bool)
    for code in known:
        found |= codes == code
    return found


def changes(*keys: Any) -> Flags:
    """Whether each row has another key than the one before it; so has the first."""
    rows = len(keys[0])
    found: Flags = np.zeros(rows, bool)
    found[:1] = True
    for key in keys:
        found[1:] |= key[1:] != key[:-1]
    return found


def runs(is_first: Flags) -> Iterator[slice]:
    """The rows of each group."""
    starts = [*np.flatnonzero(is_first).tolist(), len(is_first)]
    return map(slice, starts[:-1], starts[1:])
