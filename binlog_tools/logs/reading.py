"""Going through a log from end to end, damaged or not, in the memory of a segment or two."""

import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.reading.searching import resynchronise
from beanstalk_twisted.binlog.reading.segment import (
    NO_FRAME,
    content_end,
    continues,
    has_content,
    no_frame,
)
from beanstalk_twisted.binlog.reading.survey import NamedHeader, under_their_numbers
from beanstalk_twisted.binlog.records.others import (
    DATA_CRC,
    TUBE_ID,
    TYPE,
    NotUnderstood,
    Raw,
    Seal,
    TubeDef,
)
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import (
    RECORD,
    RECORD_BYTES,
    REHOMED,
    SEAL_HEAD,
    SEGMENT_HEADER_BYTES,
    U32,
    HeaderProblem,
    SegmentHeader,
)
from beanstalk_twisted.binlog.segments.frames import Buffer, Damage, Frame, Incomplete
from beanstalk_twisted.binlog.segments.framing import encode_trailer
from binlog_tools.logs.sources import Source


class Remark(NamedTuple):
    """Bytes that are not what was written there."""

    offset: int
    end: int
    what: str


def remarks(buffer: Buffer, last: Frame | None, at: int) -> Iterator[Remark]:
    """What is not as it should be behind the last frame, which is the trailer of its seal, or
    nothing.

    :param at: where that frame ends, or the header if there is none.
    """
    try:
        trailer = _trailer(buffer, last) if last else b""
    except (NotUnderstood, struct.error):
        yield Remark(at, at, "the seal before it says nothing")
        return
    behind, end = bytes(buffer[at : at + len(trailer)]), at + len(trailer)
    if behind != trailer:
        what = "the trailer is not that of the segment's seal"
        if not has_content(behind, 0, len(behind)) or len(behind) < len(trailer):
            what = "the trailer is missing, or cut short"
        yield Remark(at, min(end, len(buffer)), what)
    elif len(buffer) > end:
        what = f"{len(buffer) - end} bytes stand behind the end of the segment"
        yield Remark(end, len(buffer), what)


def has_seal(buffer: Buffer, last: Frame) -> bool:
    return bool(last.n_rec) and (frames.raw_record(buffer, last, last.n_rec - 1)[TYPE] == Seal.kind)


def _trailer(buffer: Buffer, last: Frame) -> bytes:
    """:raise NotUnderstood, struct.error: what a seal holds is none that we write."""
    if not has_seal(buffer, last):
        return b""
    raw = frames.raw_record(buffer, last, last.n_rec - 1)
    _, n_index, n_rec, *_ = SEAL_HEAD.unpack_from(frames.data_of(buffer, last, raw))
    return encode_trailer(last.offset, last.next_lsn - 1, n_rec, n_index)


_REC_CRC_AT: Final = 12
_HEAP_CRC_AT: Final = 56
"""Where in a frame's header the checksums of its records and of its heap stand."""


class Hole(NamedTuple):
    """Bytes of a segment that are not the frames they should be.

    :ivar first_lsn: of the records that should be there.
    :ivar next_lsn: of the first one behind it, None if none can be read.
    :ivar frame: the header that still stands at ``offset``, if it does: then only the payload is
        wrong.
    """

    offset: int
    end: int
    first_lsn: int
    next_lsn: int | None
    why: str
    frame: Frame | None = None


class OpenSegment(NamedTuple):
    """:ivar end: where its successor says that its frames end; None if there is none."""

    source: Source
    name: str
    seq: int
    header: SegmentHeader
    buffer: Buffer
    end: int | None

    @property
    def path(self) -> str:
        return self.source.path_of(self.name)

    def pieces(self) -> Iterator[Frame | Hole]:
        return pieces(self.buffer, self.header, self.end)

    def tube_names(self) -> Iterator[tuple[int, bytes]]:
        for frame in self.pieces():
            if isinstance(frame, Frame):
                yield from tubes_named(self.buffer, frame)


class Broken(NamedTuple):
    source: Source
    name: str
    seq: int
    problem: HeaderProblem


class Bounds(NamedTuple):
    first_lsn: int = 0
    last_lsn: int = 1 << 64
    since_ns: int = -(1 << 63)
    first_seq: int = 0


EVERYTHING = Bounds()


def segments(source: Source, bounds: Bounds = EVERYTHING) -> Iterator[OpenSegment | Broken]:
    """Each segment, oldest first.  Drop one before iterating further: each is mapped.

    A segment that a server deletes meanwhile is left out.
    """
    headers = _headers(source)
    for seq, (name, header) in headers.items():
        if isinstance(header, HeaderProblem):
            yield Broken(source, name, seq, header)
            continue
        successor = headers.get(seq + 1, (None, None))[1]
        following = successor if isinstance(successor, SegmentHeader) else None
        if _is_outside(seq, header, following, bounds):
            continue
        try:
            buffer = source.read(name)
        except FileNotFoundError:
            continue
        yield OpenSegment(
            source, name, seq, header, buffer, following.prev_end if following else None
        )


def _headers(source: Source) -> dict[int, NamedHeader]:
    found: dict[int, NamedHeader] = {}
    for seq, name in source.segment_names().items():
        try:
            found[seq] = (name, source.header(name))
        except FileNotFoundError:
            continue
    return under_their_numbers(found)


def _is_outside(
    seq: int, header: SegmentHeader, successor: SegmentHeader | None, bounds: Bounds
) -> bool:
    if seq < bounds.first_seq or header.first_lsn > bounds.last_lsn:
        return True
    if successor is None:
        return False
    return successor.first_lsn <= bounds.first_lsn or successor.created_ns < bounds.since_ns


def pieces(buffer: Buffer, header: SegmentHeader, end: int | None) -> Iterator[Frame | Hole]:
    """:param end: where the successor says that the data end; None for the newest segment."""
    limit = len(buffer) if end is None else min(end, len(buffer))
    at, lsn = SEGMENT_HEADER_BYTES, header.first_lsn
    while at < limit:
        for frame in frames.in_order(buffer, at, limit, header.salt, lsn):
            yield frame
            at, lsn = frame.end, frame.next_lsn
        hole = hole_at(buffer, header, at, limit, lsn)
        if hole is None:
            break
        yield hole
        if hole.next_lsn is None:
            return
        at, lsn = hole.end, hole.next_lsn
    if end is not None and at < end:
        yield Hole(at, end, lsn, None, f"the segment ends here, {end - at} bytes short")


def hole_at(buffer: Buffer, header: SegmentHeader, at: int, limit: int, lsn: int) -> Hole | None:
    """None if the data end at ``at``.  Every segment has a first frame, so they do not end before
    it.
    """
    if not continues(buffer, at, limit):
        is_begun = at != SEGMENT_HEADER_BYTES or lsn != header.first_lsn
        return None if is_begun else Hole(at, limit, lsn, None, NO_FRAME)
    return _hole(buffer, header, at, limit, lsn, frames.decode(buffer, at, limit, header.salt))


def _hole(
    buffer: Buffer, header: SegmentHeader, at: int, limit: int, lsn: int,
    found: Frame | Damage | Incomplete,
) -> Hole:  # fmt: skip
    why = no_frame(found, lsn)
    if isinstance(found, Frame):
        if found.base_lsn > lsn:
            return Hole(at, at, lsn, found.base_lsn, why)
        return Hole(at, found.end, lsn, lsn, why)
    standing = frames.decode_header(buffer, at, limit, header.salt)
    if isinstance(standing, Frame) and standing.base_lsn == lsn and standing.end <= limit:
        return Hole(at, standing.end, lsn, standing.next_lsn, why, standing)
    behind = resynchronise(buffer, at + 8, limit, header.salt, above_lsn=lsn - 1)
    following = next(behind, None)
    if following is None:
        return Hole(at, content_end(buffer[:limit], at), lsn, None, why)
    return Hole(at, following.offset, lsn, following.base_lsn, why)


def raw_records(buffer: Buffer, frame: Frame) -> Iterator[Raw]:
    """`frames.raw_records`, in one sweep where that is possible."""
    if frame.rec_size == RECORD_BYTES:
        return RECORD.iter_unpack(memoryview(buffer)[frame.records_at : frame.heap_at])
    return frames.raw_records(buffer, frame)


def tubes_named(buffer: Buffer, frame: Frame) -> Iterator[tuple[int, bytes]]:
    for index, (kind, _) in enumerate(frames.kinds_and_ids(buffer, frame)):
        if kind == TubeDef.kind:
            raw = frames.raw_record(buffer, frame, index)
            try:
                yield raw[TUBE_ID], frames.data_of(buffer, frame, raw)
            except NotUnderstood:
                continue


def names_ahead(opened: OpenSegment) -> Mapping[int, bytes]:
    """Tube names that a segment with re-homed records may say only behind their first use."""
    return dict(opened.tube_names()) if opened.header.flags & REHOMED else {}


def has_records(buffer: Buffer, frame: Frame, limit: int) -> bool:
    return _checks(buffer, frame.records_at, frame.heap_at, limit, frame.offset + _REC_CRC_AT)


def has_data(buffer: Buffer, frame: Frame, raw: Raw) -> bool:
    """Return True if a record's data lie in its frame and have the checksum that it names."""
    try:
        return zlib.crc32(frames.data_of(buffer, frame, raw)) == raw[DATA_CRC]
    except NotUnderstood:
        return False


def has_heap(buffer: Buffer, frame: Frame, limit: int) -> bool:
    end = frame.heap_at + frame.heap_len
    return _checks(buffer, frame.heap_at, end, limit, frame.offset + _HEAP_CRC_AT)


def _checks(buffer: Buffer, start: int, end: int, limit: int, crc_at: int) -> bool:
    crc = U32.unpack_from(buffer, crc_at)[0]
    return end <= limit and zlib.crc32(memoryview(buffer)[start:end]) == crc
