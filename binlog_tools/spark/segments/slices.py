"""Bytes of a segment, one piece for some of the rows, as an Arrow array that copies each once."""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from binlog_tools.spark.segments.framing import Ints


class Slices(NamedTuple):
    """:ivar total: how many rows there are.
    :ivar rows: those that have a piece, ascending; ``starts``, where in the segment.
    """

    buffer: memoryview
    total: int
    rows: Ints
    starts: Ints
    lengths: Ints

    def array(self) -> Any:
        """A value for each row; null where it has none."""
        indices, none = np.zeros(self.total, np.int64), np.ones(self.total, bool)
        indices[self.rows] = np.arange(0, 2 * len(self.rows), 2)
        none[self.rows] = False
        return self._alternating().take(pa.array(indices, pa.int64(), mask=none))

    def _alternating(self) -> Any:
        """A piece, what is between it and the next one, and so on: an array over the segment, not
        copied.
        """
        if not len(self.rows):
            return pa.array([b""], pa.binary())
        ends = self.starts + self.lengths
        if (self.starts[1:] < ends[:-1]).any():
            return self._one_by_one()
        first = int(self.starts[0])
        offsets = np.empty(2 * len(ends), np.int32)
        offsets[::2], offsets[1::2] = self.starts - first, ends - first
        under = pa.py_buffer(self.buffer[first : int(ends[-1])])
        buffers = [None, pa.py_buffer(offsets), under]
        return pa.Array.from_buffers(pa.binary(), 2 * len(ends) - 1, buffers)

    def _one_by_one(self) -> Any:
        """The same where pieces do not lie in order, which no writer of ours does."""
        pieces: list[bytes] = []
        for start, length in zip(self.starts.tolist(), self.lengths.tolist(), strict=True):
            pieces += (bytes(self.buffer[start : start + length]), b"")
        return pa.array(pieces, pa.binary())
