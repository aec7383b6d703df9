"""The bodies, the tags and the names of tubes that records refer to, of many records at once.

Each is a place in the segment; its bytes are copied once, by Arrow.
"""

import zlib
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from beanstalk_twisted.binlog.records.jobs import FULL, KEY, Flag
from beanstalk_twisted.binlog.records.others import TubeDef, TubePolicy
from beanstalk_twisted.binlog.segments.format import SegmentHeader
from beanstalk_twisted.binlog.tags import MAX_METADATA_BYTES, MAX_NAME_BYTES
from binlog_tools.console.wording import text_of
from binlog_tools.spark.segments.framing import (
    DATA_CRC,
    DATA_LEN,
    DATA_OFF,
    FLAGS,
    TUBE_ID,
    TYPE,
    Ints,
    Mask,
    Rows,
    Run,
    Slices,
    rows_of,
)
from binlog_tools.spark.segments.wanted import Stretch

IS_FULL: Final = np.isin(np.arange(256), [int(kind) for kind in FULL])
"""By type: whether a record of it carries the body."""

_OUTSIDE: Final = "its body lies outside its frame"
_EXTENSIONS: Final = "its extensions are longer than the data that they stand in"
_CHECKSUM: Final = "the checksum of its body is wrong"


class Bodies:
    """The bodies of some rows, without extensions; ``problems``: rows that have none, and why."""

    def __init__(self, buffer: memoryview, run: Run, rows: Rows, bad_heaps: Ints) -> None:
        """Take the bodies; each of a frame in ``bad_heaps`` has to check by itself."""
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


UNIQUE, CONCURRENCY, GROUP, AFTER, DEAD, ORIGIN, METADATA = range(1, 8)
"""The tags of docs/binlog-format.md, "Extensions of a job"."""

_FIXED: Final = {UNIQUE: 4, CONCURRENCY: 4, GROUP: 0, AFTER: 0, DEAD: 9, ORIGIN: 0, METADATA: 0}
"""Bytes of each before its name, or what is written in place of one."""

_MOST: Final = np.array([0, *[MAX_NAME_BYTES] * ORIGIN, MAX_METADATA_BYTES])
"""Bytes of each such name."""

_BAD_DATA: Final = "the checksum of its data is wrong"
_DATA_OUTSIDE: Final = "its data lie outside its frame"
_BROKEN: Final = "its extensions cannot be understood"

_NO_ROWS: Final = np.zeros(0, np.int64)


class Extension(NamedTuple):
    """The rows that have an extension, ascending, and where it stands in the segment."""

    rows: Ints
    starts: Ints
    lengths: Ints


_NONE: Final = Extension(_NO_ROWS, _NO_ROWS, _NO_ROWS)


class TagColumns:
    """The tags of some rows; ``problems``: rows whose tags cannot be given, and why."""

    def __init__(self, buffer: memoryview, run: Run, rows: Rows, checks: bool) -> None:
        """:param checks: whether the checksums of their data are looked at."""
        self._octets = np.frombuffer(buffer, np.uint8)
        self._buffer = buffer
        self._count = len(rows)
        self.problems: dict[int, str] = {}
        self._found: dict[int, Extension] = {}
        types = rows.byte(TYPE)
        extended = (rows.byte(FLAGS) & np.uint8(Flag.EXT)).astype(bool)
        if extended.any():
            extended &= IS_FULL[types]
            self._take_apart(self._data(run, rows, np.flatnonzero(extended), checks))
        self._keys = self._whole_data(run, rows, types == KEY, checks)
        self._policies = self._whole_data(run, rows, types == TubePolicy.kind, checks)

    def _whole_data(self, run: Run, rows: Rows, mask: Mask, checks: bool) -> Extension:
        if not mask.any():
            return _NONE
        return self._data(run, rows, np.flatnonzero(mask), checks)

    def _data(self, run: Run, rows: Rows, chosen: Ints, checks: bool) -> Extension:
        """Where the data of these rows are."""
        offsets, lengths = rows.half(DATA_OFF)[chosen], rows.half(DATA_LEN)[chosen]
        starts: Ints = rows.of_frame(run.heap_at)[chosen] + offsets
        found = Extension(chosen, starts, lengths)
        inside = offsets + lengths <= rows.of_frame(run.heap_len)[chosen]
        found = self._only(found, inside, _DATA_OUTSIDE)
        return self._only(found, self._sound(found, rows), _BAD_DATA) if checks else found

    def _sound(self, found: Extension, rows: Rows) -> Mask:
        ends = found.starts + found.lengths
        places = zip(found.starts.tolist(), ends.tolist(), strict=True)
        crcs = [zlib.crc32(self._buffer[start:end]) for start, end in places]
        sound: Mask = np.array(crcs, np.int64) == rows.half(DATA_CRC)[found.rows]
        return sound

    def _only(self, found: Extension, good: Mask, why: str) -> Extension:
        if good.all():
            return found
        self.problems.update(dict.fromkeys(found.rows[~good].tolist(), why))
        return Extension(*(column[good] for column in found))

    def _take_apart(self, data: Extension) -> None:
        """Find the extensions of all rows: the first ones of each, then the second ones, …"""
        data = self._only(data, data.lengths >= 2, _EXTENSIONS)
        at = data.starts + 2
        ends = at + self._number(data.starts, 2)
        whole = ends <= data.starts + data.lengths
        open_ = self._only(Extension(data.rows, at, ends), whole, _EXTENSIONS)
        open_ = Extension(*(column[open_.starts < open_.lengths] for column in open_))
        last = np.zeros(len(open_.rows), np.int64)
        parts: dict[int, list[Extension]] = {}
        while len(open_.rows):
            tags, lengths, good = self._next(open_, last)
            kept = self._only(open_, good, _BROKEN)
            tags, lengths = tags[good], lengths[good]
            for tag in np.unique(tags).tolist():
                of_tag = tags == tag
                place = (kept.rows[of_tag], kept.starts[of_tag] + 4, lengths[of_tag])
                parts.setdefault(tag, []).append(Extension(*place))
            at = kept.starts + 4 + lengths
            goes_on = at < kept.lengths
            open_ = Extension(kept.rows[goes_on], at[goes_on], kept.lengths[goes_on])
            last = tags[goes_on]
        self._found = {tag: self._joined(found) for tag, found in parts.items()}

    def _next(self, open_: Extension, last: Ints) -> tuple[Ints, Ints, Mask]:
        """Return the tag and length of each next extension, and whether they can be right."""
        _, at, ends = open_
        has_head = at + 4 <= ends
        at = np.where(has_head, at, 0)
        tags, lengths = self._number(at, 1), self._number(at + 2, 2)
        known = np.where(tags <= METADATA, tags, 0)
        names = lengths - np.array([0, *_FIXED.values()])[known]
        good = has_head & (tags > last) & (tags <= METADATA) & (at + 4 + lengths <= ends)
        return tags, lengths, good & (names >= 1) & (names <= _MOST[known])

    def _joined(self, parts: list[Extension]) -> Extension:
        """The places of one tag, but for rows with a problem; ascending."""
        rows, starts, lengths = (np.concatenate(column) for column in zip(*parts, strict=True))
        good = ~np.isin(rows, list(self.problems)) if self.problems else np.ones(len(rows), bool)
        order = np.argsort(rows[good], kind="stable")
        return Extension(*(column[good][order] for column in (rows, starts, lengths)))

    def _number(self, at: Ints, size: int) -> Ints:
        """Numbers of so many bytes, little-endian."""
        total: Ints = np.zeros(len(at), np.int64)
        for byte in range(size):
            total |= self._octets.take(at + byte).astype(np.int64) << (8 * byte)
        return total

    # The columns.

    def names(self, tag: int) -> Any:
        """The names that an extension has, as text; for the keys those that are remembered too."""
        rows, starts, lengths = self._found.get(tag, _NONE)
        fixed = _FIXED[tag]
        found = Extension(rows, starts + fixed, lengths - fixed)
        if tag == UNIQUE and len(self._keys.rows):
            columns = (np.concatenate(pair) for pair in zip(found, self._keys, strict=True))
            found = Extension(*columns)
            found = Extension(*(column[np.argsort(found.rows)] for column in found))
        return self._texts(found)

    def policies(self) -> Any:
        """What POLICY records say, JSON."""
        return self._texts(self._policies)

    def numbers(self, tag: int, at: int, size: int) -> tuple[Ints, Mask]:
        """Return of each row a number of an extension, and which rows have one."""
        values, valid = np.zeros(self._count, np.int64), np.zeros(self._count, bool)
        rows, starts, _ = self._found.get(tag, _NONE)
        values[rows], valid[rows] = self._number(starts + at, size), True
        return values, valid

    def _texts(self, found: Extension) -> Any:
        if not len(found.rows):
            return pa.nulls(self._count, pa.string())
        raw = Slices(self._buffer, self._count, *found).array()
        try:
            return raw.cast(pa.string())
        except pa.ArrowInvalid:
            texts = [None if each is None else text_of(each) for each in raw.to_pylist()]
            return pa.array(texts, pa.string())


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

    def ids_of(self, texts: Collection[str]) -> list[int]:
        return [tube_id for tube_id, name in self._names.items() if text_of(name) in texts]

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
    """Return the names that some frames say, and whose own checksum holds."""
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
