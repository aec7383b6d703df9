"""Traces at the end of a sound log that may be of a loss, or of a crash at the wrong moment:
docs/binlog-format.md, "What is no proof".
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.directory import LOCKS
from beanstalk_twisted.binlog.reading.segment import is_sealed
from beanstalk_twisted.binlog.reading.survey import Segment, Survey
from beanstalk_twisted.binlog.segments.format import (
    FRAME_HEADER_BYTES,
    RECORD_BYTES,
    SEGMENT_HEADER_BYTES,
    TRAILER_BYTES,
    SegmentHeader,
    decode_segment_header,
    parse_segment_name,
    segment_name,
)

SEAL_BYTES: Final = FRAME_HEADER_BYTES + RECORD_BYTES + TRAILER_BYTES
"""After the newest frame a server always keeps more than this free: the seal takes it."""

LOCK: Final = LOCKS[0]
"""Lies where a server has run: a copy of the segments alone has none that is preallocated."""

PAGE_BYTES: Final = 4096
"""Segments are allocated in whole pages; cut to its length, one file in 512 has whole pages too."""


class LossWarning(NamedTuple):
    """A trace of what may have been a loss.

    :ivar name: of the newest segment, or of a preallocated one if there is none.
    :ivar what: what is seen there, and what it may be; follows ``name``.
    """

    name: str
    what: str
    advice: str

    def __str__(self) -> str:
        return f"{self.name} {self.what}; {self.advice}"


def loss_warnings(survey: Survey) -> Iterator[LossWarning]:
    """Warn of a log that a server starts on; never of an archive."""
    if survey.problems or not survey.is_whole:
        return
    ahead = [name for name in survey.dead if parse_segment_name(name) is None]
    if not survey.segments and ahead and not any(_begins(survey, name, 1) for name in ahead):
        what = (
            "is of an earlier start, and no segment is here: they are lost, or that start was "
            "killed at its very beginning"
        )
        yield LossWarning(
            ahead[0], what, "look for files named as segments are before jobs are put"
        )
    for newest in survey.segments[-1:]:
        if survey.small.is_clean or _is_sealed(survey, newest):
            yield from _of_an_end(survey, newest, ahead)
        else:
            yield from _of_the_space(survey, newest, ahead)


def _of_the_space(survey: Survey, newest: Segment, ahead: list[str]) -> Iterator[LossWarning]:
    """What is written has space behind it that was allocated ahead."""
    torn = survey.torn
    end = torn.end if torn else newest.ending.offset
    if newest.size - end < SEAL_BYTES:
        what = (
            f"ends at offset {newest.size}, behind LSN {newest.ending.next_lsn - 1}, without the "
            f"space that is allocated ahead: it was cut off there, or cut for "
            f"{_following(newest)}, which is lost; or the file system allocates nothing ahead"
        )
        yield LossWarning(newest.name, what, _look_for(newest))
    elif newest.size % PAGE_BYTES and not ahead and LOCK in survey.names:
        what = (
            f"has zeros from offset {end} on, and a length as after an ordered stop: what it ended "
            f"with may have been overwritten"
        )
        yield LossWarning(newest.name, what, "compare it with a back-up")


def _of_an_end(survey: Survey, newest: Segment, ahead: list[str]) -> Iterator[LossWarning]:
    """It ends in order, or as one does that another follows."""
    if any(_begins(survey, name, newest.header.seq + 1) for name in ahead):
        return
    if not survey.small.is_clean:
        what = (
            "ends as a segment does that another one follows, which is not here: it is lost, or "
            "the last server was killed at that very moment"
        )
        yield LossWarning(newest.name, what, _look_for(newest))
    elif ahead:
        what = (
            f"ends as after an ordered stop, and {ahead[0]} is of a later start: the segment of "
            f"that one is lost, or it was killed at its very beginning"
        )
        yield LossWarning(newest.name, what, _look_for(newest))


def _following(newest: Segment) -> str:
    return segment_name(newest.header.seq + 1)


def _look_for(newest: Segment) -> str:
    return f"look for {_following(newest)} before jobs are put into this log"


def _is_sealed(survey: Survey, newest: Segment) -> bool:
    at = newest.frame_offsets[-1]
    buffer = survey.read(newest, at, newest.ending.offset)
    return is_sealed(buffer, newest.header, newest.frame(buffer, 0))


def _begins(survey: Survey, name: str, seq: int) -> bool:
    """Whether that segment was being made, so that it had no name yet."""
    try:
        raw = bytes(survey.directory.read(name, 0, SEGMENT_HEADER_BYTES))
    except FileNotFoundError:
        # A server that runs has made it a segment meanwhile.
        return True
    header = decode_segment_header(raw)
    return isinstance(header, SegmentHeader) and header.seq == seq
