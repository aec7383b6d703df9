"""Histograms of lengths of time, many at once: how many lengths there were in each group.

A length is kept to three significant digits, rounded down, as in the tables; it and its group are
one number, so that sorted numbers are sorted by group, then by length.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

SLOTS: Final = 18_000
"""Lengths that are told apart in a group: 1,000 for each count of digits that 64 bits hold."""

MOST_LOOSE: Final = 4_000_000
"""Entries that are not added up yet: 64 MB of memory."""


def slots_of(lengths_ns: np.ndarray) -> np.ndarray:
    """The place of each length among all that are told apart; a longer one has a higher place.

    :param lengths_ns: whole numbers, 0 or more.
    """
    lengths = np.asarray(lengths_ns, np.int64)
    powers = 10 ** np.arange(3, 19, dtype=np.int64)
    digits = np.searchsorted(powers, lengths, side="right")
    return digits * 1000 + lengths // 10**digits


def lengths_of(slots: np.ndarray) -> np.ndarray:
    """Lengths in nanoseconds, from their places."""
    return np.asarray(slots % 1000 * 10 ** (slots // 1000), np.int64)


class Lengths:
    """How many lengths there were, by group and length."""

    def __init__(self) -> None:
        self._codes: list[np.ndarray] = []
        self._counts: list[np.ndarray] = []
        self._loose = 0

    def add(self, groups: np.ndarray, maps: Any) -> None:
        """:param groups: of each row, its group, 0 or more.
        :param maps: of each row, a map from nanoseconds to how many: an Arrow array of maps.
        """
        # Of a slice, `keys` gives those of the whole; `offsets` says where the slice is.
        offsets = maps.offsets.to_numpy(zero_copy_only=False)
        first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
        keys = maps.keys.slice(first, count).to_numpy(zero_copy_only=False)
        counts = maps.items.slice(first, count).to_numpy(zero_copy_only=False)
        self._put(np.repeat(groups, np.diff(offsets)) * SLOTS + slots_of(keys), counts)

    def add_each(self, groups: np.ndarray, lengths_ns: np.ndarray) -> None:
        """:param lengths_ns: of each row, one length; below 0: there is none."""
        known = lengths_ns >= 0
        codes = groups[known] * SLOTS + slots_of(lengths_ns[known])
        self._put(codes, np.ones(len(codes), np.int64))

    def _put(self, codes: np.ndarray, counts: np.ndarray) -> None:
        self._codes.append(codes)
        self._counts.append(np.asarray(counts, np.int64))
        self._loose += len(codes)
        if self._loose > MOST_LOOSE:
            self._settle()

    def _settle(self) -> tuple[np.ndarray, np.ndarray]:
        if len(self._codes) != 1 or self._loose:
            nothing = np.zeros(0, np.int64)
            codes, places = np.unique(np.concatenate([nothing, *self._codes]), return_inverse=True)
            counts = np.zeros(len(codes), np.int64)
            np.add.at(counts, places, np.concatenate([nothing, *self._counts]))
            self._codes, self._counts, self._loose = [codes], [counts], 0
        return self._codes[0], self._counts[0]

    def regrouped(self, group_of: Callable[[np.ndarray], np.ndarray]) -> "Lengths":
        """The same lengths in other groups; those of a group below 0 are left out."""
        codes, counts = self._settle()
        groups = group_of(codes // SLOTS)
        kept = groups >= 0
        made = Lengths()
        made._put(groups[kept] * SLOTS + codes[kept] % SLOTS, counts[kept])
        return made

    def counts(self, groups: int) -> np.ndarray:
        """How many there are in each of the groups from 0."""
        codes, counts = self._settle()
        return np.bincount(codes // SLOTS, counts, groups).astype(np.int64)[:groups]

    def percentiles(self, shares: Sequence[float], groups: int) -> np.ndarray:
        """Of each group and share, the least length that so many are no longer than.

        :return: nanoseconds, float64, shaped (shares, groups); NaN where a group has none.
        """
        codes, counts = self._settle()
        found = np.full((len(shares), groups), np.nan)
        if not len(codes):
            return found
        sums = np.cumsum(counts)
        ends = np.searchsorted(codes, (np.arange(groups) + 1) * SLOTS)
        until = np.concatenate([[0], sums])[ends]
        before = np.concatenate([[0], until[:-1]])
        has_any = until > before
        for at, share in enumerate(shares):
            # A share of 0.95 of 20 is 19, and not 19.000000000000004.
            wanted = before + np.maximum(np.ceil((until - before) * share - 1e-9), 1)
            places = np.minimum(np.searchsorted(sums, wanted), len(codes) - 1)
            found[at] = np.where(has_any, lengths_of(codes[places] % SLOTS), np.nan)
        return found
