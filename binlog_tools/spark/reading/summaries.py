"""One row a segment: what is in it, and whether it can be read.  The view ``segments`` of the
source.
"""

from collections import Counter
from typing import Final

import numpy as np

from beanstalk_twisted.binlog.reading.segment import Hole
from beanstalk_twisted.binlog.records.others import Seal
from binlog_tools.logs.stored import type_name
from binlog_tools.spark.definitions.columns import Column
from binlog_tools.spark.segments.framing import Run, Stretch, Verify, bad_heaps, runs
from binlog_tools.spark.segments.producing import Place
from binlog_tools.spark.segments.rows import TYPE, Rows

SEGMENT_COLUMNS: Final = (
    Column("server", "string", "as in the events"),
    Column("incarnation", "int", "as in the events"),
    Column("segment", "bigint", "sequence number"),
    Column("path", "string", "where it was read; null: segments that are missing"),
    Column("sealed", "boolean", "ended in order, with a seal"),
    Column("first_lsn", "bigint", "of its first record"),
    Column("last_lsn", "bigint", "of its last record; null: none can be read"),
    Column("first_logged", "timestamp", "`logged` of its first frame"),
    Column("last_logged", "timestamp", "`logged` of its last frame"),
    Column("frames", "bigint", "readable frames"),
    Column("records", "bigint", "records in them"),
    Column("events", "map<string,bigint>", "number of each type"),
    Column("bytes", "bigint", "header and frames"),
    Column("damages", "bigint", "unreadable places, and frames with spoilt bodies"),
    Column("damaged_bytes", "bigint", "their size"),
    Column("problem", "string", "the first of them, in words; null: none"),
)  # fmt: skip

SEGMENT_BY_NAME: Final = {column.name: column for column in SEGMENT_COLUMNS}

Row = dict[str, object]


def summary(buffer: memoryview, place: Place, stretch: Stretch, verify: Verify) -> Row:
    """The row of a segment.  Damage is in it, and no error: to find it is what the view is for."""
    counting = _Counting(buffer, place)
    for piece in runs(buffer, place.header, stretch, verify):
        if isinstance(piece, Hole):
            counting.add_damage(piece.offset, piece.why, piece.end - piece.offset)
            continue
        counting.add(piece)
        if verify == "frames":
            for frame in bad_heaps(buffer, piece).tolist():
                what = "the checksum of its bodies is wrong"
                counting.add_damage(int(piece.offset[frame]), what, int(piece.heap_len[frame]))
    return counting.row(stretch)


class _Counting:
    def __init__(self, buffer: memoryview, place: Place) -> None:
        self._buffer = buffer
        self._place = place
        self._types: Counter[int] = Counter()
        self._frames = self._damages = self._damaged_bytes = 0
        self._problem: str | None = None
        self._logged_ns: list[int] = []
        self._last_lsn: int | None = None
        self._last_type = 0

    def add_damage(self, offset: int, why: str, size: int) -> None:
        self._damages += 1
        self._damaged_bytes += size
        self._problem = self._problem or f"{self._place.path}: frame at byte {offset}: {why}"

    def add(self, run: Run) -> None:
        types = Rows(self._buffer, run).byte(TYPE)
        counts = np.bincount(types, minlength=256)
        self._types.update({kind: int(counts[kind]) for kind in np.flatnonzero(counts).tolist()})
        self._frames += len(run.offset)
        self._logged_ns = [*self._logged_ns[:1], int(run.time_ns[0]), int(run.time_ns[-1])]
        self._last_lsn = run.next_lsn - 1
        self._last_type = int(types[-1]) if len(types) else self._last_type

    def row(self, stretch: Stretch) -> Row:
        header = self._place.header
        first, last = (self._logged_ns[at] // 1000 if self._logged_ns else None for at in (0, -1))
        counts = {type_name(kind): count for kind, count in sorted(self._types.items())}
        return {
            "server": self._place.server, "incarnation": header.incarnation,
            "segment": header.seq, "path": self._place.path,
            "sealed": self._last_type == Seal.kind, "first_lsn": header.first_lsn,
            "last_lsn": self._last_lsn, "first_logged": first, "last_logged": last,
            "frames": self._frames, "records": self._types.total(),
            "events": list(counts.items()), "bytes": stretch.end, "damages": self._damages,
            "damaged_bytes": self._damaged_bytes, "problem": self._problem,
        }  # fmt: skip
