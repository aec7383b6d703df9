"""The frames of a segment, many at once: their headers as columns, their checksums checked.

A window of the file is searched for the magic of frames; those found are believed as far as each
begins where the one before it ends, with the LSN that follows.  Where that breaks,
`reading.hole_at` says what is wrong: so there is one rule of what damage is.
"""

import zlib
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from beanstalk_twisted.binlog.reading.segment import Hole, hole_at
from beanstalk_twisted.binlog.segments.format import (
    FRAME_HEADER_BYTES,
    FRAME_MAGIC,
    MAX_FRAME_BYTES,
    MAX_FRAME_RECORDS,
    RECORD_BYTES,
    SegmentHeader,
)
from binlog_tools.spark.definitions.errors import SourceError

MAX_NUMBER: Final = 1 << 63
"""Spark's integers are signed: what they cannot say is refused."""

WINDOW_BYTES: Final = 8 << 20
"""What is searched at once: with its rows and bodies the memory of a task, some 60 MB."""

Verify: TypeAlias = Literal["frames", "headers", "none"]
"""Which checksums are checked: all, those of frame headers, none."""

VERIFY: Final[tuple[Verify, ...]] = get_args(Verify)

Ints: TypeAlias = npt.NDArray[np.int64]
Words: TypeAlias = npt.NDArray[np.uint64]

_MAGIC: Final = np.frombuffer(FRAME_MAGIC, "<u8")[0]
_LOW: Final = np.uint64(0xFFFF_FFFF)
_HIGH: Final = np.uint64(32)


class Stretch(NamedTuple):
    """Bytes of a segment, from one frame to another.

    :ivar start: where a frame begins, ``end`` where the last one ends.
    :ivar first_lsn: of the frame at ``start``.
    """

    start: int
    end: int
    first_lsn: int


class Run(NamedTuple):
    """Frames that follow each other; each column has a number for each of them.  ``end`` and
    ``next_lsn`` are those behind the last one.
    """

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
    """All frames of a stretch, in order, and what is between them.  Checksums of heaps are not
    looked at: see `bad_heaps`.

    :param buffer: the segment from its start.
    :return: runs of at most a window, or of one frame.
    """
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
    """The frames that begin in a window at the start of a stretch, as far as their headers agree;
    none if there is no good one.
    """
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
    """Which of the places follow each other, from the first one on: a body may hold the magic
    too.
    """
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
    """Whether there is no damage in a stretch.

    :param with_bodies: whether that in bodies counts, which only ``verify="frames"`` finds.
    """
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
