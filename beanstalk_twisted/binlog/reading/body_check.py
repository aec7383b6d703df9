"""
Looking at the bodies of a segment whose frames and records were found sound before, and at those
again: a `Survey` that leaves bodies has not looked at all of it.

Nothing is mapped here: a page that the disk cannot read would end the process.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.binlog.errors import Damaged
from beanstalk_twisted.binlog.reading.survey import Segment
from beanstalk_twisted.binlog.records.decoding import DATA_LEN, DATA_OFF, JOB_ID, TYPE
from beanstalk_twisted.binlog.records.jobs import FULL
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import SEGMENT_HEADER_BYTES
from beanstalk_twisted.binlog.segments.frames import Damage, Frame

CHECK_BYTES: Final = 1 << 20
"""Bytes that are read and checked at once, or one frame if that is larger: a millisecond."""


class BadHeap(NamedTuple):
    """
    A frame whose heap is damaged.

    :ivar offset: where the frame begins.
    :ivar jobs: those whose bodies are damaged, each with the LSN of its full record; none if the
        damage is elsewhere.
    """

    offset: int
    jobs: list[tuple[int, int]]


class Slice(NamedTuple):
    """
    What was looked at.

    :ivar size: bytes.
    :ivar bad: the frames in it that are damaged.
    """

    size: int
    bad: list[BadHeap]


def check_bodies(directory: Directory, segment: Segment) -> Iterator[Slice]:
    """
    Check all frames of a segment, slice by slice.

    :raise Damaged: what was found sound before, no longer is.
    :raise OSError: the disk cannot read it.
    """
    at, end = SEGMENT_HEADER_BYTES, segment.ending.offset
    while at < end:
        part = _part(directory, segment, at, min(at + CHECK_BYTES, end))
        bad, size = [], 0
        while size < len(part):
            frame = frames.decode_header(part, size, len(part), segment.header.salt)
            if isinstance(frame, Damage):
                raise _damaged(directory, segment, at + size, frame.why)
            if not isinstance(frame, Frame) or frame.end > len(part):
                break
            if not frames.has_sound_records(part, frame):
                why = "the checksum of its records is wrong"
                raise _damaged(directory, segment, at + size, why)
            if not frames.has_sound_heap(part, frame):
                bad.append(BadHeap(at + size, _bad_bodies(part, frame)))
            size = frame.end
        if not size:
            raise _damaged(directory, segment, at, "the segment ends here")
        yield Slice(size, bad)
        at += size


def _part(directory: Directory, segment: Segment, start: int, end: int) -> bytes:
    """A part of a segment, longer if its first frame is."""
    part = directory.copy_part(segment.name, start, end)
    first = frames.decode_header(part, 0, len(part), segment.header.salt)
    if isinstance(first, Frame) and first.end > len(part):
        return directory.copy_part(segment.name, start, start + first.end)
    return part


def _bad_bodies(part: bytes, frame: Frame) -> list[tuple[int, int]]:
    heap, jobs = frames.heap(part, frame), []
    for index, raw in enumerate(frames.raw_records(part, frame)):
        data = bytes(heap[raw[DATA_OFF] : raw[DATA_OFF] + raw[DATA_LEN]])
        if raw[TYPE] in FULL and not frames.has_sound_data(raw, data):
            jobs.append((raw[JOB_ID], frame.base_lsn + index))
    return jobs


def _damaged(directory: Directory, segment: Segment, offset: int, why: str) -> Damaged:
    return Damaged(
        f"{directory.path}/{segment.name}: offset {offset}: {why}. "
        f"Run 'binlog-inspect check {directory.path}'."
    )
