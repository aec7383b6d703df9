"""
Reading one segment: its header, its frames in order, and where and how they end.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from beanstalk_twisted.binlog import frames
from beanstalk_twisted.binlog.format import (
    SEGMENT_HEADER_BYTES,
    TRAILER_BYTES,
    TRAILER_MAGIC,
    SegmentHeader,
)
from beanstalk_twisted.binlog.frames import Buffer, Damage, Frame

_ZEROS: Final = memoryview(bytes(1 << 20))


class Ending(NamedTuple):
    """
    How a segment's frames end.

    :ivar offset: where the last good frame ends.
    :ivar next_lsn: the first LSN that was not read.
    :ivar problem: what stands at ``offset`` instead of a frame; empty at a regular end.
    :ivar witness_lsn: the highest watermark in any frame header behind the problem, 0 for none.
    """

    offset: int
    next_lsn: int
    problem: str
    witness_lsn: int


def walk(buffer: Buffer, header: SegmentHeader, end: int | None = None) -> Iterator[Frame | Ending]:
    """
    Every good frame in order, all checksums checked, then one `Ending`.

    :param end: where the successor says that the data end; None for the newest segment.
    """
    at, lsn, problem = SEGMENT_HEADER_BYTES, header.first_lsn, ""
    limit = len(buffer) if end is None else min(end, len(buffer))
    while at < limit:
        frame = frames.decode(buffer, at, limit, header.salt)
        if isinstance(frame, Frame) and frame.base_lsn == lsn:
            yield frame
            at, lsn = frame.end, frame.next_lsn
            continue
        problem = _problem(buffer, at, limit, frame, lsn)
        break
    if end is not None and not problem and at != end:
        problem = f"the segment ends here, {end - at} bytes short"
    witness = _witness(buffer, at, limit, header.salt, lsn) if problem else 0
    yield Ending(at, lsn, problem, witness)


def _problem(
    buffer: Buffer, at: int, limit: int, found: "Frame | Damage | frames.Incomplete", lsn: int
) -> str:
    if is_trailer(buffer, at, limit) or not has_content(buffer, at, limit):
        return ""
    if isinstance(found, Frame):
        return f"a frame with LSN {found.base_lsn} stands where LSN {lsn} belongs"
    if isinstance(found, Damage):
        return found.why
    return "a frame begins but is not complete"


def is_trailer(buffer: Buffer, at: int, limit: int) -> bool:
    """
    Whether a trailer, and nothing else, stands there.
    """
    return limit - at == TRAILER_BYTES and bytes(buffer[limit - 8 : limit]) == TRAILER_MAGIC


def has_content(buffer: Buffer, at: int, limit: int) -> bool:
    """
    Whether anything but zeros follows.
    """
    view = memoryview(buffer)
    for start in range(at, limit, len(_ZEROS)):
        part = view[start : min(start + len(_ZEROS), limit)]
        if part != _ZEROS[: len(part)]:
            return True
    return False


def content_end(buffer: Buffer, at: int) -> int:
    """
    Where the zeros at the end of a segment begin, ``at`` or behind it.
    """
    return at + len(bytes(memoryview(buffer)[at:]).rstrip(b"\0"))


def _witness(buffer: Buffer, at: int, limit: int, salt: int, lsn: int) -> int:
    found = frames.resynchronise(buffer, at, limit, salt, above_lsn=lsn - 1)
    return max((frame.durable_lsn for frame in found), default=0)
