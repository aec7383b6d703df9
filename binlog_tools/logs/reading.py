"""Going through a log from end to end, damaged or not, in the memory of a segment or two."""

import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from beanstalk_twisted.binlog.reading.segment import Hole, has_content, walk
from beanstalk_twisted.binlog.reading.survey import NamedHeader, under_their_numbers
from beanstalk_twisted.binlog.records.others import TUBE_ID, TYPE, NotUnderstood, Seal, TubeDef
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import (
    REHOMED,
    SEAL_HEAD,
    HeaderProblem,
    SegmentHeader,
)
from beanstalk_twisted.binlog.segments.frames import Buffer, Frame
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
        return walk(self.buffer, self.header, self.end)


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
        with suppress(FileNotFoundError):
            found[seq] = (name, source.header(name))
    return under_their_numbers(found)


def _is_outside(
    seq: int, header: SegmentHeader, successor: SegmentHeader | None, bounds: Bounds
) -> bool:
    if seq < bounds.first_seq or header.first_lsn > bounds.last_lsn:
        return True
    if successor is None:
        return False
    return successor.first_lsn <= bounds.first_lsn or successor.created_ns < bounds.since_ns


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
    if not opened.header.flags & REHOMED:
        return {}
    found = (piece for piece in opened.pieces() if isinstance(piece, Frame))
    return {n: name for frame in found for n, name in tubes_named(opened.buffer, frame)}
