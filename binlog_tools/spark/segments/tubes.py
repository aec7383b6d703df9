"""The names of the tubes of a segment, and looking many of them up at once."""

import zlib
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from beanstalk_twisted.binlog.records.others import TubeDef
from beanstalk_twisted.binlog.segments.format import SegmentHeader
from binlog_tools.console.wording import text_of
from binlog_tools.spark.segments.framing import Ints, Run, Stretch
from binlog_tools.spark.segments.rows import (
    DATA_CRC,
    DATA_LEN,
    DATA_OFF,
    TUBE_ID,
    TYPE,
    Rows,
    rows_of,
)

TABLE_IDS: Final = 1 << 20
"""Ids that lie this close together are looked up in a table of 4 MB; others by bisection."""

NO_TUBE: Final = -1


class TubeNames:
    """What the tubes of one segment are called."""

    def __init__(self, names: Mapping[int, bytes]) -> None:
        self._names = dict(names)
        self._settle()

    def learn(self, names: Mapping[int, bytes]) -> None:
        if not names.items() <= self._names.items():
            self._names.update(names)
            self._settle()

    def _settle(self) -> None:
        self._ids = np.array(sorted(self._names), np.int64)
        self.texts: Any = pa.array(
            [text_of(self._names[tube_id]) for tube_id in self._ids.tolist()], pa.string()
        )
        self._first = int(self._ids[0]) if len(self._ids) else 0
        span = int(self._ids[-1]) - self._first + 1 if len(self._ids) else 0
        self._table = np.full(span, NO_TUBE, np.int32) if span <= TABLE_IDS else None
        if self._table is not None:
            self._table[self._ids - self._first] = np.arange(len(self._ids), dtype=np.int32)

    def find(self, tube_ids: Ints) -> Ints:
        """Where the names are in `texts`; `NO_TUBE` if nothing says them."""
        if not len(self._ids):
            return np.full(len(tube_ids), NO_TUBE, np.int64)
        if self._table is not None:
            at = tube_ids - self._first
            outside = (at < 0) | (at >= len(self._table))
            found = self._table.take(at, mode="clip").astype(np.int64)
        else:
            found = np.minimum(np.searchsorted(self._ids, tube_ids), len(self._ids) - 1)
            outside = self._ids[found] != tube_ids
        found[outside] = NO_TUBE
        return found


def tubes_named(buffer: memoryview, run: Run, rows: Rows) -> dict[int, bytes]:
    """The names that some frames say, and whose own checksum holds.

    :param rows: all records of the run.
    """
    places = np.flatnonzero(rows.byte(TYPE) == TubeDef.kind)
    if not len(places):
        return {}
    fields = (rows.half(TUBE_ID), rows.of_frame(run.heap_at), rows.of_frame(run.heap_len),
              rows.half(DATA_OFF), rows.half(DATA_LEN), rows.half(DATA_CRC))  # fmt: skip
    names = {}
    columns = (column[places].tolist() for column in fields)
    for tube_id, heap_at, heap_len, offset, length, crc in zip(*columns, strict=True):
        name = bytes(buffer[heap_at + offset : heap_at + offset + length])
        if offset + length <= heap_len and zlib.crc32(name) == crc:
            names[tube_id] = name
    return names


def tubes_of(buffer: memoryview, header: SegmentHeader, stretch: Stretch) -> dict[int, bytes]:
    """The names that a stretch of a segment says, as far as it is intact."""
    names = {}
    for run, rows in rows_of(buffer, header, stretch):
        names.update(tubes_named(buffer, run, rows))
    return names
