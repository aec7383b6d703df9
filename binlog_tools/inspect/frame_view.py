"""
One frame, byte by byte, with what each field says.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from beanstalk_twisted.binlog import frames
from beanstalk_twisted.binlog.format import (
    FRAME_HEADER_BYTES,
    RECORD,
    RECORD_BYTES,
    SEGMENT_HEADER_BYTES,
)
from beanstalk_twisted.binlog.frames import Buffer, Frame
from beanstalk_twisted.binlog.records import DATA_LEN
from binlog_tools.inspect.checking import is_data_good
from binlog_tools.logs.reading import OpenSegment
from binlog_tools.logs.selection import type_name

BYTES_PER_LINE: Final = 16
MAX_HEAP_BYTES: Final = 4096
"""Bytes of bodies that are shown: some screens."""

_HEADER: Final = (
    ("magic", 0, "8s"), ("hdr_crc", 8, "I"), ("rec_crc", 12, "I"), ("frame_len", 16, "I"),
    ("n_rec", 20, "I"), ("base_lsn", 24, "Q"), ("durable_lsn", 32, "Q"), ("time_ns", 40, "q"),
    ("seg_salt", 48, "I"), ("heap_len", 52, "I"), ("heap_crc", 56, "I"), ("rec_size", 60, "H"),
    ("flags", 62, "B"), ("codec", 63, "B"),
)  # fmt: skip
_RECORD: Final = (
    ("type", 0, "B"), ("state", 1, "B"), ("flags", 2, "B"), ("reason", 3, "B"),
    ("priority", 4, "I"), ("job_id", 8, "Q"), ("ts_ns", 16, "q"), ("deadline_ns", 24, "q"),
    ("delay_s", 32, "I"), ("ttr_s", 36, "I"), ("tube_id", 40, "I"), ("reserves", 44, "I"),
    ("timeouts", 48, "I"), ("releases", 52, "I"), ("buries", 56, "I"), ("kicks", 60, "I"),
    ("data_off", 64, "I"), ("data_len", 68, "I"), ("data_crc", 72, "I"), ("aux", 76, "I"),
)  # fmt: skip


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
    """
    Whether a frame begins at ``offset``.
    """
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
    """
    The lines that show the frame at ``offset``, or what stands there instead.
    """
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


def _fields(
    buffer: Buffer, at: int, fields: "tuple[tuple[str, int, str], ...]", title: str
) -> Iterator[str]:
    yield f"{title}, at {at} ({at:#x})"
    for name, offset, kind in fields:
        size = struct.calcsize("<" + kind)
        raw = bytes(buffer[at + offset : at + offset + size])
        (value,) = struct.unpack("<" + kind, raw)
        said = "" if isinstance(value, bytes) else value
        yield f"  {at + offset:08x}  {raw.hex():<16}  {name:<12} {said}".rstrip()
    yield ""


def hex_lines(buffer: Buffer, start: int, end: int) -> Iterator[str]:
    """
    Bytes as a hex dump has them.
    """
    for at in range(start, end, BYTES_PER_LINE):
        raw = bytes(buffer[at : min(at + BYTES_PER_LINE, end)])
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in raw)
        yield f"  {at:08x}  {raw.hex(' '):<47}  {text}"
