"""
Where frames stand in bytes that may have been moved.

A server and ``check`` look for them at multiples of eight only, where they were written.  Bytes
that were put in or taken out move them anywhere, and there the checksum and the salt of a header
say as surely what it is.
"""

from collections.abc import Iterator
from typing import Final

from beanstalk_twisted.binlog import frames
from beanstalk_twisted.binlog.format import FRAME_HEADER_BYTES, FRAME_MAGIC, U32
from beanstalk_twisted.binlog.frames import Buffer, Frame

WINDOW_BYTES: Final = 1 << 20
"""How much is copied at once to search it."""

_SALT_AT: Final = 48


def frames_anywhere(buffer: Buffer, at: int, end: int, salt: int | None) -> Iterator[Frame]:
    """
    Every place from ``at`` on where a frame's header checks.  Payloads are not looked at.

    :param salt: the segment's; None for frames of any.
    """
    for place in _magics(buffer, at, end):
        of = salt_at(buffer, place) if salt is None else salt
        frame = frames.decode_header(buffer, place, end, of)
        if isinstance(frame, Frame):
            yield frame


def salt_at(buffer: Buffer, at: int) -> int:
    """
    The salt that a frame's header at ``at`` carries.
    """
    return int(U32.unpack_from(buffer, at + _SALT_AT)[0])


def _magics(buffer: Buffer, at: int, end: int) -> Iterator[int]:
    """
    Where headers may begin, so that they end before ``end``.
    """
    view = memoryview(buffer)
    while at + FRAME_HEADER_BYTES <= end:
        chunk = bytes(view[at : min(end, at + WINDOW_BYTES + len(FRAME_MAGIC) - 1)])
        found = chunk.find(FRAME_MAGIC)
        while found >= 0 and at + found + FRAME_HEADER_BYTES <= end:
            yield at + found
            found = chunk.find(FRAME_MAGIC, found + 1)
        at += WINDOW_BYTES
