"""The frames of a segment and their records, many at once.  Frames are believed as far as each
begins where the one before ends, with the next LSN; there `reading.hole_at` says what is wrong.
"""

import zlib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beanstalk_twisted.binlog.reading.segment import Hole, hole_at
from beanstalk_twisted.binlog.segments.format import (
    FRAME_HEADER_BYTES,
    FRAME_MAGIC,
    MAX_FRAME_BYTES,
    MAX_FRAME_RECORDS,
    RECORD_BYTES,
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
)
from binlog_tools.spark.errors import SourceError
from binlog_tools.spark.segments.wanted import MAX_NUMBER, Stretch, Verify

WINDOW_BYTES: Final = 8 << 20
"""What is searched at once: with its rows and bodies the memory of a task, some 60 MB."""

Ints: TypeAlias = npt.NDArray[np.int64]
Words: TypeAlias = npt.NDArray[np.uint64]
Mask: TypeAlias = npt.NDArray[np.bool_]

_MAGIC: Final = np.frombuffer(FRAME_MAGIC, "<u8")[0]
_LOW: Final = np.uint64(0xFFFF_FFFF)
_HIGH: Final = np.uint64(32)


class Run(NamedTuple):
    """Columns of frames that follow each other."""

    offset: Ints
    length: Ints
    n_rec: Ints
    base_lsn: Ints
    durable_lsn: Ints
    time_ns: Ints
    rec_size: Ints
    heap_len: Ints
    crcs: Words
    heap_crc: Words

    @property
    def end(self) -> int:
        return int(self.offset[-1] + self.length[-1])

    @property
    def next_lsn(self) -> int:
        return int(self.base_lsn[-1] + self.n_rec[-1])

    @property
    def records_at(self) -> Ints:
        return self.offset + FRAME_HEADER_BYTES

    @property
    def heap_at(self) -> Ints:
        return self.records_at + self.n_rec * self.rec_size

    def part(self, first: int, last: int) -> "Run":
        return Run._make(column[first:last] for column in self)


def words_of(buffer: memoryview) -> Words:
    return np.frombuffer(buffer, "<u8", count=len(buffer) // 8)


def runs(
    buffer: memoryview, header: SegmentHeader, stretch: Stretch, verify: Verify = "frames",
    window_bytes: int = WINDOW_BYTES,
) -> Iterator[Run | Hole]:  # fmt: skip
    """Yield all frames of a stretch, in order, and what is between them, without checking heaps."""
    limit = min(stretch.end, len(buffer))
    words = words_of(buffer[:limit])
    at, lsn = stretch.start, stretch.first_lsn
    while at < limit:
        if lsn >= MAX_NUMBER:
            raise SourceError("BINLOG_NUMBER_TOO_LARGE", f"LSN {lsn} is 2**63 or more")
        run = _run_at(buffer, words, header.salt, Stretch(at, limit, lsn), window_bytes)
        good = _good_frames(buffer, run, verify)
        if good:
            run = run.part(0, good)
            yield run
            at, lsn = run.end, run.next_lsn
            continue
        hole = hole_at(buffer, header, at, limit, lsn)
        if hole is None:
            break
        yield hole
        if hole.next_lsn is None:
            return
        at, lsn = hole.end, hole.next_lsn
    if at < stretch.end:
        short = f"the data end here, {stretch.end - at} bytes short"
        yield Hole(at, stretch.end, lsn, None, short)


def _run_at(
    buffer: memoryview, words: Words, salt: int, stretch: Stretch, window_bytes: int
) -> Run:
    """Return the good frames that begin in a window at the start of a stretch."""
    stop = min(stretch.end - FRAME_HEADER_BYTES, stretch.start + window_bytes)
    first = stretch.start // 8
    found = np.flatnonzero(words[first : stop // 8 + 1] == _MAGIC) + first
    if not len(found) or found[0] != first:
        found = found[:0]
    run = _columns(words, found)
    chain = _chain(run)
    if len(chain) < len(found):
        run = _columns(words, found[chain])
    expected = stretch.first_lsn + np.cumsum(run.n_rec) - run.n_rec
    fits = run.offset + run.length <= stretch.end
    is_sound = _is_sound(words, run, salt) & (run.base_lsn == expected) & fits
    good = int(np.argmin(is_sound)) if not is_sound.all() else len(is_sound)
    return run.part(0, good)


def _columns(words: Words, found: Ints) -> Run:
    crcs, lengths, sizes, codes = (words[found + at] for at in (1, 2, 6, 7))
    base_lsn, durable_lsn, time_ns = (words[found + at].view(np.int64) for at in (3, 4, 5))
    return Run(
        found * 8, (lengths & _LOW).astype(np.int64), (lengths >> _HIGH).astype(np.int64),
        base_lsn, durable_lsn, time_ns, (codes >> _HIGH & np.uint64(0xFFFF)).astype(np.int64),
        (sizes >> _HIGH).astype(np.int64), crcs, codes & _LOW,
    )  # fmt: skip


def _chain(run: Run) -> Ints:
    """The places that follow each other, from the first one on: a body may hold the magic too."""
    ends = run.offset + run.length
    if (ends[:-1] == run.offset[1:]).all():
        return np.arange(len(ends))
    following = np.searchsorted(run.offset, ends)
    chain, at = [0], int(following[0])
    while chain[-1] < at < len(ends) and run.offset[at] == ends[chain[-1]]:
        chain.append(at)
        at = int(following[at])
    return np.array(chain)


def _is_sound(words: Words, run: Run, salt: int) -> npt.NDArray[np.bool_]:
    """Whether the fields of each header can be right: `frames.decode_header`, for all at once."""
    at = run.offset // 8
    unpadded = FRAME_HEADER_BYTES + run.n_rec * run.rec_size + run.heap_len
    is_bounded = (run.length <= MAX_FRAME_BYTES) | (run.n_rec == 1)
    sound: npt.NDArray[np.bool_] = (
        ((words[at + 6] & _LOW) == salt)
        & (run.rec_size >= RECORD_BYTES)
        & (run.length == unpadded + -unpadded % 8)
        & (run.n_rec <= MAX_FRAME_RECORDS)
        & is_bounded
        & ((words[at + 7] >> np.uint64(56)) == 0)
    )
    return sound


def _good_frames(buffer: memoryview, run: Run, verify: Verify) -> int:
    if verify == "none" or not len(run.offset):
        return len(run.offset)
    crc32 = zlib.crc32
    heads = [crc32(buffer[at + 12 : at + 64]) for at in run.offset.tolist()]
    good = np.array(heads, np.uint64) == (run.crcs & _LOW)
    if verify == "frames":
        places = zip(run.records_at.tolist(), run.heap_at.tolist(), strict=True)
        records = [crc32(buffer[start:end]) for start, end in places]
        good &= np.array(records, np.uint64) == (run.crcs >> _HIGH)
    return int(np.argmin(good)) if not good.all() else len(good)


def bad_heaps(buffer: memoryview, run: Run) -> Ints:
    """The frames of a run whose heap is not the one that was written."""
    starts, ends = run.heap_at, run.heap_at + run.heap_len
    places = zip(starts.tolist(), ends.tolist(), strict=True)
    crcs = np.array([zlib.crc32(buffer[start:end]) for start, end in places], np.uint64)
    return np.flatnonzero(crcs != run.heap_crc)


def is_intact(
    buffer: memoryview, header: SegmentHeader, stretch: Stretch, verify: Verify, with_bodies: bool
) -> bool:
    """Return True if there is no damage in a stretch; with bodies if ``verify`` is "frames"."""
    checks_heaps = with_bodies and verify == "frames"
    return not any(
        isinstance(piece, Hole) or (checks_heaps and len(bad_heaps(buffer, piece)))
        for piece in runs(buffer, header, stretch, verify)
    )


def parts(run: Run, most_rows: int) -> Iterator[Run]:
    """A run in runs of so many records at most, or of one frame."""
    ends = np.cumsum(run.n_rec)
    first, frames = 0, len(ends)
    while first < frames:
        before = int(ends[first - 1]) if first else 0
        last = int(np.searchsorted(ends, before + most_rows, "right"))
        last = min(max(last, first + 1), frames)
        yield run.part(first, last)
        first = last


WORDS: Final = RECORD_BYTES // 8
"""A record is ten numbers of 8 bytes; docs/binlog-format.md, "Record"."""

# Where the fields of a record stand: which word, and in it which half or byte.
TYPE, STATE, FLAGS, REASON = ((0, byte) for byte in range(4))
PRIORITY: Final = (0, 1)
JOB_ID, TS_NS, DEADLINE_NS = 1, 2, 3
DELAY_S, TTR_S = (4, 0), (4, 1)
TUBE_ID, RESERVES = (5, 0), (5, 1)
TIMEOUTS, RELEASES = (6, 0), (6, 1)
BURIES, KICKS = (7, 0), (7, 1)
DATA_OFF, DATA_LEN = (8, 0), (8, 1)
DATA_CRC, AUX = (9, 0), (9, 1)


class Rows:
    """The records of a run, in LSN order; some of them after `keep`."""

    def __init__(self, buffer: memoryview, run: Run) -> None:
        self._run = run
        self._words = words_of(buffer)
        self._kept: Ints | None = None
        self._gathered: dict[int, Words] = {}
        if (run.rec_size == RECORD_BYTES).all():
            self._at = _places(run)
        else:
            self._words = _compact(buffer, run)
            self._at = np.arange(0, len(self._words), WORDS)

    def __len__(self) -> int:
        return len(self._at)

    def keep(self, mask: Mask) -> None:
        if mask.all():
            return
        self._kept = np.flatnonzero(mask) if self._kept is None else self._kept[mask]
        self._at = self._at[mask]
        self._gathered = {word: values[mask] for word, values in self._gathered.items()}

    def word(self, number: int) -> Words:
        if number not in self._gathered:
            self._gathered[number] = self._words[number:].take(self._at)
        return self._gathered[number]

    def byte(self, place: tuple[int, int]) -> npt.NDArray[np.uint8]:
        """A field of one byte."""
        word, byte = place
        return self.word(word).view(np.uint8)[byte::8]

    def half(self, place: tuple[int, int]) -> Ints:
        """A field of four bytes, not signed."""
        word, half = place
        return self.word(word).view(np.uint32)[half::2].astype(np.int64)

    def whole(self, word: int) -> Ints:
        """A field of eight bytes, signed."""
        return self.word(word).view(np.int64)

    def of_frame(self, column: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """What is said of frames, for each record."""
        repeated = np.repeat(column, self._run.n_rec)
        return repeated if self._kept is None else repeated[self._kept]

    def lsn(self) -> Ints:
        first = int(self._run.base_lsn[0])
        if self._kept is None:
            return np.arange(first, first + len(self))
        return self._kept + first


def _places(run: Run) -> Ints:
    before = np.cumsum(run.n_rec) - run.n_rec
    starts = np.repeat(run.records_at // 8 - before * WORDS, run.n_rec)
    return starts + np.arange(0, len(starts) * WORDS, WORDS)


def _compact(buffer: memoryview, run: Run) -> Words:
    """The first 80 bytes of each record, of frames whose records are longer, or of many sizes."""
    copy = np.empty((int(run.n_rec.sum()), RECORD_BYTES), np.uint8)
    at = 0
    for start, count, size in zip(run.records_at, run.n_rec, run.rec_size, strict=True):
        shape, strides = (int(count), RECORD_BYTES), (int(size), 1)
        copy[at : at + count] = np.ndarray(shape, np.uint8, buffer, int(start), strides)
        at += count
    return copy.reshape(-1).view("<u8")


def rows_of(
    buffer: memoryview, header: SegmentHeader, stretch: Stretch
) -> Iterator[tuple[Run, Rows]]:
    """The records of a stretch, run by run, as far as it is intact by the headers of its frames."""
    for run in runs(buffer, header, stretch, "headers"):
        if isinstance(run, Run):
            yield run, Rows(buffer, run)


def lsns_of(buffer: memoryview, header: SegmentHeader, kind: int) -> tuple[int, ...]:
    lsns: list[int] = []
    stretch = Stretch(SEGMENT_HEADER_BYTES, len(buffer), header.first_lsn)
    for _, rows in rows_of(buffer, header, stretch):
        lsns += rows.lsn()[rows.byte(TYPE) == kind].tolist()
    return tuple(lsns)


class Slices(NamedTuple):
    """Pieces of a segment for some of ``total`` rows, ascending."""

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
        """Return a piece, what is between it and the next one, and so on, over the segment."""
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
