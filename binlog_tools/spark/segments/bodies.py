"""Where the bodies of jobs are, and copying them, each once."""

import zlib
from typing import Any, Final

import numpy as np
import pyarrow as pa

from beanstalk_twisted.binlog.records.jobs import FULL, Flag
from binlog_tools.spark.segments.framing import Ints, Run
from binlog_tools.spark.segments.rows import DATA_CRC, DATA_LEN, DATA_OFF, FLAGS, TYPE, Mask, Rows
from binlog_tools.spark.segments.slices import Slices

IS_FULL: Final = np.isin(np.arange(256), [int(kind) for kind in FULL])
"""By type: whether a record of it carries the body."""

_OUTSIDE: Final = "its body lies outside its frame"
_EXTENSIONS: Final = "its extensions are longer than the data that they stand in"
_CHECKSUM: Final = "the checksum of its body is wrong"


class Bodies:
    """The bodies of some rows.

    :ivar rows: those that have one, ``starts`` where it begins in the segment, ``lengths`` without
        extensions.
    :ivar problems: rows whose body cannot be given, and why; they are not in ``rows``.
    """

    def __init__(self, buffer: memoryview, run: Run, rows: Rows, bad_heaps: Ints) -> None:
        """:param bad_heaps: the frames whose heap as a whole does not check: each body of theirs
        has to, by itself.
        """
        self._buffer = buffer
        self._count = len(rows)
        self._sizes_of_bad: dict[int, int] = {}
        self.problems: dict[int, str] = {}
        self.rows: Ints = np.flatnonzero(IS_FULL[rows.byte(TYPE)])
        offsets, lengths = rows.half(DATA_OFF)[self.rows], rows.half(DATA_LEN)[self.rows]
        self.starts: Ints = rows.of_frame(run.heap_at)[self.rows] + offsets
        self.lengths: Ints = lengths
        self._drop(offsets + lengths > rows.of_frame(run.heap_len)[self.rows], _OUTSIDE)
        if len(bad_heaps):
            self._check(run, rows, bad_heaps)
        self._skip_extensions(rows)

    def _drop(self, bad: Mask, why: str) -> None:
        if bad.any():
            self.problems.update(dict.fromkeys(self.rows[bad].tolist(), why))
            good = ~bad
            self.rows, self.starts = self.rows[good], self.starts[good]
            self.lengths = self.lengths[good]

    def _check(self, run: Run, rows: Rows, bad_heaps: Ints) -> None:
        is_bad = np.zeros(len(run.offset), bool)
        is_bad[bad_heaps] = True
        doubtful = np.flatnonzero(rows.of_frame(is_bad)[self.rows])
        bad = np.zeros(len(self.rows), bool)
        crcs = rows.half(DATA_CRC)[self.rows]
        for at in doubtful.tolist():
            start, length = int(self.starts[at]), int(self.lengths[at])
            bad[at] = zlib.crc32(self._buffer[start : start + length]) != int(crcs[at])
        plain = bad & (rows.byte(FLAGS)[self.rows] & np.uint8(Flag.EXT) == 0)
        sizes = zip(self.rows[plain].tolist(), self.lengths[plain].tolist(), strict=True)
        self._sizes_of_bad = dict(sizes)
        self._drop(bad, _CHECKSUM)

    def _skip_extensions(self, rows: Rows) -> None:
        extended = np.flatnonzero(rows.byte(FLAGS)[self.rows] & np.uint8(Flag.EXT))
        if not len(extended):
            return
        octets = np.frombuffer(self._buffer, np.uint8)
        starts, lengths = self.starts[extended], self.lengths[extended]
        is_long = lengths >= 2
        low = octets.take(np.where(is_long, starts, 0)).astype(np.int64)
        high = octets.take(np.where(is_long, starts + 1, 0)).astype(np.int64)
        skipped = np.where(is_long, 2 + low + (high << 8), 2)
        self.starts[extended] += skipped
        self.lengths[extended] -= skipped
        self._drop(self.lengths < 0, _EXTENSIONS)

    def sizes(self) -> Any:
        """The length of each row's body; null where it has none, or where nothing says it."""
        values, none = np.zeros(self._count, np.int64), np.ones(self._count, bool)
        values[self.rows] = self.lengths
        none[self.rows] = False
        for row, size in self._sizes_of_bad.items():
            values[row], none[row] = size, False
        return pa.array(values, pa.int64(), mask=none)

    def array(self) -> Any:
        """Each row's body; null where it has none."""
        return Slices(self._buffer, self._count, self.rows, self.starts, self.lengths).array()
