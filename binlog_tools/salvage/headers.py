"""What a segment's header said, from its frames: each carries the salt and its LSN."""

from collections.abc import Container, Iterator
from typing import NamedTuple

from beanstalk_twisted.binlog.reading.searching import frames_anywhere, salt_at
from beanstalk_twisted.binlog.segments.format import FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES
from beanstalk_twisted.binlog.segments.frames import Buffer, Frame
from binlog_tools.logs.reading import has_heap, has_records


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

    def fitting(at: int, salt: int | None) -> Iterator[Frame]:
        for frame in frames_anywhere(buffer, at, end, salt):
            is_below = below_lsn is None or frame.base_lsn < below_lsn or not frame.n_rec
            if is_below and frame.base_lsn >= from_lsn:
                yield frame

    while (frame := next(fitting(at, None), None)) is not None:
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
    first = min(fitting(0, salt), key=lambda frame: (frame.base_lsn, frame.offset))
    return Rebuilt(salt, first.base_lsn, first.offset == SEGMENT_HEADER_BYTES)


def _checked_bytes(buffer: Buffer, frame: Frame, end: int) -> int:
    """How many bytes of records and of bodies check."""
    records = (frame.heap_at - frame.records_at) * has_records(buffer, frame, end)
    return records + frame.heap_len * has_heap(buffer, frame, end)
