"""
What a segment's header said, from its frames: each carries the salt and its LSN.
"""

import zlib
from collections.abc import Container
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.format import FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES, U32
from beanstalk_twisted.binlog.frames import Buffer, Frame
from beanstalk_twisted.binlog.searching import frames_anywhere, salt_at

_REC_CRC_AT: Final = 12
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
    at = 0
    while (frame := _next(buffer, at, end, from_lsn, below_lsn)) is not None:
        salt = salt_at(buffer, frame.offset)
        size = _checked_bytes(buffer, frame, end)
        if salt not in others:
            sizes[salt] = sizes.get(salt, 0) + FRAME_HEADER_BYTES + size
        # A header alone may have come from elsewhere.
        at = frame.end if size or not frame.n_rec else frame.offset + 1
    if not sizes:
        return None
    salt = max(sizes, key=lambda each: sizes[each])
    # All of them, also those that stand within another one that was put in the wrong place.
    fitting = (
        frame
        for frame in frames_anywhere(buffer, 0, end, salt)
        if frame.base_lsn >= from_lsn and _is_below(frame, below_lsn)
    )
    first = min(fitting, key=lambda frame: (frame.base_lsn, frame.offset))
    return Rebuilt(salt, first.base_lsn, first.offset == SEGMENT_HEADER_BYTES)


def _next(buffer: Buffer, at: int, end: int, from_lsn: int, below_lsn: int | None) -> Frame | None:
    """
    The next frame from ``at`` on, whatever its salt.
    """
    fitting = (
        frame
        for frame in frames_anywhere(buffer, at, end, None)
        if frame.base_lsn >= from_lsn and _is_below(frame, below_lsn)
    )
    return next(fitting, None)


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
