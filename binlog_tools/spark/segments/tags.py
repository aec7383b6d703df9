"""What jobs carry beside their bodies, of many records at once: keys, groups, where they come from.

Records without extensions cost a look at their flags.  Of the others each extension is a place in
the segment; its bytes are copied once, by Arrow.
"""

import zlib
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from beanstalk_twisted.binlog.records.jobs import KEY, Flag
from beanstalk_twisted.binlog.records.others import TubePolicy
from beanstalk_twisted.binlog.tags import MAX_METADATA_BYTES, MAX_NAME_BYTES
from binlog_tools.console.wording import text_of
from binlog_tools.spark.segments.bodies import IS_FULL
from binlog_tools.spark.segments.framing import Ints, Run
from binlog_tools.spark.segments.rows import DATA_CRC, DATA_LEN, DATA_OFF, FLAGS, TYPE, Mask, Rows
from binlog_tools.spark.segments.slices import Slices

UNIQUE, CONCURRENCY, GROUP, AFTER, DEAD, ORIGIN, METADATA = range(1, 8)
"""The tags of docs/binlog-format.md, "Extensions of a job"."""

_FIXED: Final = {UNIQUE: 4, CONCURRENCY: 4, GROUP: 0, AFTER: 0, DEAD: 9, ORIGIN: 0, METADATA: 0}
"""Bytes of each before its name, or what is written in place of one."""

_MOST: Final = np.array([0, *[MAX_NAME_BYTES] * ORIGIN, MAX_METADATA_BYTES])
"""Bytes of each such name."""

_LONG: Final = "its extensions are longer than the data that they stand in"
_BROKEN: Final = "its extensions cannot be understood"
_CHECKSUM: Final = "the checksum of its data is wrong"
_OUTSIDE: Final = "its data lie outside its frame"

_NO_ROWS: Final = np.zeros(0, np.int64)


class Extension(NamedTuple):
    """The rows that have an extension, ascending, and where it stands in the segment."""

    rows: Ints
    starts: Ints
    lengths: Ints


_NONE: Final = Extension(_NO_ROWS, _NO_ROWS, _NO_ROWS)


class TagColumns:
    """The tags of some rows.

    :ivar problems: rows whose tags cannot be given, and why.
    """

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
        found = self._only(found, inside, _OUTSIDE)
        return self._only(found, self._sound(found, rows), _CHECKSUM) if checks else found

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
        """Find the extensions of all rows, the first ones of each, then the second ones, and so
        on.
        """
        data = self._only(data, data.lengths >= 2, _LONG)
        at = data.starts + 2
        ends = at + self._number(data.starts, 2)
        whole = ends <= data.starts + data.lengths
        open_ = self._only(Extension(data.rows, at, ends), whole, _LONG)
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
        """:param open_: rows, where their next extension begins, and where their extensions end.
        :return: the tag and the length of each, and whether they can be right.
        """
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
        """A number in an extension.

        :param at: where in it, ``size`` bytes.
        :return: of each row, and which rows have one.
        """
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
