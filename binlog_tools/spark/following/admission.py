"""
How much of a log one batch of a stream takes.
"""

from typing import Final

import numpy as np

from binlog_tools.spark.segments.framing import Run

UNLIMITED: Final = (1 << 63) - 1


class Limits:
    """
    How much more may be taken.  One frame with records may be, however large it is.
    """

    def __init__(self, most_bytes: int, most_rows: int) -> None:
        self._bytes = most_bytes
        self._rows = most_rows
        self._has_taken = False

    def take(self, run: Run, to_lsn: int) -> int:
        """
        :return: how many frames of a run.
        """
        lengths, rows = np.cumsum(run.length), np.cumsum(run.n_rec)
        within = int(np.searchsorted(run.base_lsn + run.n_rec, to_lsn, "right"))
        fits = (lengths <= self._bytes) & (rows <= self._rows)
        count = min(int(fits.sum()), within)
        if count == 0 and within and not self._has_taken:
            count = 1
        if count:
            self._has_taken = self._has_taken or bool(rows[count - 1])
            self._bytes -= int(lengths[count - 1])
            self._rows -= int(rows[count - 1])
        return count
