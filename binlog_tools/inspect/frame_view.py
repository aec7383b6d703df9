"""One frame, byte by byte, with what each field says."""

import struct
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.records.decoding import DATA_LEN
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import (
    FRAME_HEADER_BYTES,
    RECORD,
    RECORD_BYTES,
    SEGMENT_HEADER_BYTES,
)
from beanstalk_twisted.binlog.segments.frames import Buffer, Frame
from binlog_tools.inspect.checking import is_data_good
from binlog_tools.inspect.dumping import RawRecord
from binlog_tools.logs.reading import OpenSegment
from binlog_tools.logs.selection import type_name

BYTES_PER_LINE: Final = 16
MAX_HEAP_BYTES: Final = 4096
"""Bytes of bodies that are shown: some screens."""

_Layout = Mapping[str, str]
_HEADER: Final[_Layout] = {
    "magic": "8s", "hdr_crc": "I", "rec_crc": "I", "frame_len": "I", "n_rec": "I", "base_lsn": "Q",
    "durable_lsn": "Q", "time_ns": "q", "seg_salt": "I", "heap_len": "I", "heap_crc": "I",
    "rec_size": "H", "flags": "B", "codec": "B",
}  # fmt: skip
_RECORD: Final[_Layout] = dict(zip(RawRecord._fields, "BBBBIQqqIIIIIIIIIIII", strict=True))
"""The fields of a frame's header and of a record, one behind the other, as `struct` has them."""


class Place(NamedTuple):
    """
    What is at an offset.

    :ivar has_frame: whether a frame begins there, or should.
    :ivar is_good: whether it can be read.
    :ivar what: in words, and where the next frame begins.
    """

    has_frame: bool
    is_good: bool
    what: str


def place_of(opened: OpenSegment, offset: int) -> Place:
    if not 0 <= offset < len(opened.buffer):
        return Place(False, False, f"the file has {len(opened.buffer)} bytes")
    end, what = SEGMENT_HEADER_BYTES, "no frame: the segment's header"
    for piece in opened.pieces():
        if piece.offset == offset:
            why = "" if isinstance(piece, Frame) else f"{piece.why}; {_next_of(opened, piece.end)}"
            return Place(True, isinstance(piece, Frame), why)
        if piece.offset > offset:
            return Place(False, False, f"{what}; {_next_of(opened, offset)}")
        end = piece.end
        kind = "the frame" if isinstance(piece, Frame) else "the damaged place"
        what = f"no frame begins here: this is within {kind} from {piece.offset} to {end}"
    if offset >= end:
        what = f"no frame: the last one ends at {end}"
    return Place(False, False, f"{what}; {_next_of(opened, offset)}")


def _next_of(opened: OpenSegment, offset: int) -> str:
    starts = (p.offset for p in opened.pieces() if isinstance(p, Frame) and p.offset >= offset)
    following = next(starts, None)
    return "no frame follows" if following is None else f"the next frame begins at {following}"


def view_of(opened: OpenSegment, offset: int) -> Iterator[str]:
    """The lines that show the frame at ``offset``, or what stands there instead."""
    buffer = opened.buffer
    if not 0 <= offset <= len(buffer) - FRAME_HEADER_BYTES:
        yield f"{opened.name}: no frame fits at offset {offset}: the file has {len(buffer)} bytes"
        return
    verdict = frames.decode(buffer, offset, len(buffer), opened.header.salt)
    standing = frames.decode_header(buffer, offset, len(buffer), opened.header.salt)
    yield f"{opened.name}: offset {offset}: {_said(verdict)}"
    yield ""
    yield from _fields(buffer, offset, _HEADER, "frame header")
    if not isinstance(standing, Frame):
        return
    yield from _payload(buffer, standing)


def _said(found: "Frame | frames.Damage | frames.Incomplete") -> str:
    if isinstance(found, Frame):
        return f"a good frame, LSN {found.base_lsn} to {found.next_lsn - 1}, ends at {found.end}"
    if isinstance(found, frames.Damage):
        return found.why
    return "no complete frame"


def _payload(buffer: Buffer, frame: Frame) -> Iterator[str]:
    end = min(frame.end, len(buffer))
    for index in range(frame.n_rec):
        at = frame.records_at + index * frame.rec_size
        if at + RECORD_BYTES > end:
            return
        title = f"record {index}, LSN {frame.base_lsn + index}, {type_name(buffer[at])}"
        yield from _fields(buffer, at, _RECORD, title)
        yield from _check(buffer, frame, at)
    shown = min(frame.heap_len, MAX_HEAP_BYTES, max(0, end - frame.heap_at))
    yield f"heap, {frame.heap_len} bytes" + (f", {shown} shown" * (shown < frame.heap_len))
    yield from hex_lines(buffer, frame.heap_at, frame.heap_at + shown)


def _check(buffer: Buffer, frame: Frame, at: int) -> Iterator[str]:
    raw = RECORD.unpack_from(buffer, at)
    if raw[DATA_LEN] and not is_data_good(buffer, frame, raw):
        yield "  !! the data of this record are not those it was written with"
        yield ""


def _fields(buffer: Buffer, at: int, fields: _Layout, title: str) -> Iterator[str]:
    yield f"{title}, at {at} ({at:#x})"
    for name, kind in fields.items():
        raw = bytes(buffer[at : at + struct.calcsize("<" + kind)])
        (value,) = struct.unpack("<" + kind, raw)
        said = "" if isinstance(value, bytes) else value
        yield f"  {at:08x}  {raw.hex():<16}  {name:<12} {said}".rstrip()
        at += len(raw)
    yield ""


def hex_lines(buffer: Buffer, start: int, end: int) -> Iterator[str]:
    for at in range(start, end, BYTES_PER_LINE):
        raw = bytes(buffer[at : min(at + BYTES_PER_LINE, end)])
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in raw)
        yield f"  {at:08x}  {raw.hex(' '):<47}  {text}"
