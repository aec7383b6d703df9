"""
What a segment's header said, from its frames: each carries the salt and its LSN.
"""

import zlib
from collections.abc import Container
from typing import Final, NamedTuple

from beanstalk_twisted.binlog import frames
from beanstalk_twisted.binlog.format import (
    ALIGN_BYTES,
    FRAME_HEADER_BYTES,
    FRAME_MAGIC,
    SEGMENT_HEADER_BYTES,
    U32,
)
from beanstalk_twisted.binlog.frames import Buffer, Frame

WINDOW_BYTES: Final = 1 << 20
"""How much is copied at once to search it."""

_REC_CRC_AT: Final = 12
_SALT_AT: Final = 48
_HEAP_CRC_AT: Final = 56


class Rebuilt(NamedTuple):
    """
    A header that was derived.

    :ivar first_lsn: the lowest LSN that can be read; ``is_exact`` if it stands where a segment
        begins.
    """

    salt: int
    first_lsn: int
    is_exact: bool


def rebuild(
    buffer: Buffer, end: int, from_lsn: int, below_lsn: int | None, others: Container[int]
) -> Rebuilt | None:
    """
    Find the salt that most of a segment's bytes carry, in frames whose headers check, and of what
    they hold by what checks as well.

    A body may hold frames of its own, but then it stands within one that is larger; LSNs that do
    not fit between the neighbours are not of this segment either.

    :param from_lsn: no LSN of this segment is lower.
    :param below_lsn: all are lower; None in the newest segment.
    :param others: the salts of other segments.
    :return: None when there is no frame.
    """
    sizes: dict[int, int] = {}
    at = SEGMENT_HEADER_BYTES
    while (frame := _next(buffer, at, end, from_lsn, below_lsn)) is not None:
        salt = U32.unpack_from(buffer, frame.offset + _SALT_AT)[0]
        size = _checked_bytes(buffer, frame, end)
        if salt not in others:
            sizes[salt] = sizes.get(salt, 0) + FRAME_HEADER_BYTES + size
        # A header alone may have come from elsewhere.
        at = frame.end if size or not frame.n_rec else frame.offset + ALIGN_BYTES
    if not sizes:
        return None
    salt = max(sizes, key=lambda each: sizes[each])
    # All of them, also those that stand within another one that was put in the wrong place.
    fitting = (
        frame
        for frame in frames.resynchronise(buffer, SEGMENT_HEADER_BYTES, end, salt, from_lsn - 1)
        if _is_below(frame, below_lsn)
    )
    first = min(fitting, key=lambda frame: (frame.base_lsn, frame.offset))
    return Rebuilt(salt, first.base_lsn, first.offset == SEGMENT_HEADER_BYTES)


def _next(buffer: Buffer, at: int, end: int, from_lsn: int, below_lsn: int | None) -> Frame | None:
    """
    The next frame from ``at`` on, whatever its salt.
    """
    view = memoryview(buffer)
    while at + FRAME_HEADER_BYTES <= end:
        chunk = bytes(view[at : min(end, at + WINDOW_BYTES + len(FRAME_MAGIC) - 1)])
        found = chunk.find(FRAME_MAGIC)
        while found >= 0:
            frame = _frame(buffer, at + found, end)
            if frame and frame.base_lsn >= from_lsn and _is_below(frame, below_lsn):
                return frame
            found = chunk.find(FRAME_MAGIC, found + 1)
        at += WINDOW_BYTES
    return None


def _frame(buffer: Buffer, at: int, end: int) -> Frame | None:
    if at % ALIGN_BYTES or at + FRAME_HEADER_BYTES > end:
        return None
    frame = frames.decode_header(buffer, at, end, U32.unpack_from(buffer, at + _SALT_AT)[0])
    return frame if isinstance(frame, Frame) else None


def _checked_bytes(buffer: Buffer, frame: Frame, end: int) -> int:
    """
    How many bytes of records and of bodies check.
    """
    view = memoryview(buffer)
    size = 0
    for start, until, crc_at in (
        (frame.records_at, frame.heap_at, _REC_CRC_AT),
        (frame.heap_at, frame.heap_at + frame.heap_len, _HEAP_CRC_AT),
    ):
        crc = U32.unpack_from(buffer, frame.offset + crc_at)[0]
        if until <= end and zlib.crc32(view[start:until]) == crc:
            size += until - start
    return size


def _is_below(frame: Frame, below_lsn: int | None) -> bool:
    return below_lsn is None or frame.base_lsn < below_lsn or not frame.n_rec
