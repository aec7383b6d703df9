"""
When to compact, and what a segment holds that may have to move.

Compaction takes the oldest segment, states its living jobs again at the end of the log (COPY), says
durably that the segment is dead (TRIM), and deletes it.  Oldest first, always: a DELETE never lies
before the PUT it ends, so a deleted job can never come back.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from beanstalk_twisted.binlog import frames
from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.binlog.errors import Damaged
from beanstalk_twisted.binlog.format import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    decode_segment_header,
    segment_name,
)
from beanstalk_twisted.binlog.records import FULL
from beanstalk_twisted.binlog.segment import Ending, walk

SLICE_BYTES: Final = 256 << 10
"""Bytes of a segment that are read and checked at once: about a millisecond."""


class Pressure(NamedTuple):
    """
    How large a log is.

    :ivar total: bytes of all its segments.
    :ivar live: bytes of the full records of its living jobs.
    :ivar segment: bytes of a full segment.
    :ivar segments: how many are finished.
    """

    total: int
    live: int
    segment: int
    segments: int = 0


class Policy(NamedTuple):
    """
    How large a log may become.

    :ivar factor: times what is alive; 2 writes each living byte about once more in its life.
    :ivar spare_segments: so many segments beside that, so that a small log is left alone.
    :ivar spare_files: so many segments beside those that would be full: starts leave small ones,
        and so does an archive's age; each start opens them all.
    """

    factor: float = 2.0
    spare_segments: int = 2
    spare_files: int = 100

    def should_compact(self, pressure: Pressure) -> bool:
        """
        Whether the oldest segment is to be freed.
        """
        most_files = self.spare_files + self.factor * pressure.live / pressure.segment
        return pressure.segments > most_files or self._over(pressure, self.factor)

    def is_urgent(self, pressure: Pressure) -> bool:
        """
        Whether compaction falls behind: it then no longer paces itself.
        """
        return self._over(pressure, self.factor * 1.5)

    def _over(self, pressure: Pressure, factor: float) -> bool:
        return pressure.total > factor * pressure.live + self.spare_segments * pressure.segment


def full_records(directory: Directory, seq: int, end: int) -> Iterator[list[int]]:
    """
    The ids of the jobs whose full records are in a segment, a slice at a time, all checksums
    checked.

    :param end: where its frames end.
    :raise Damaged: it cannot all be read.
    """
    name = segment_name(seq)
    buffer = directory.read(name)
    header = decode_segment_header(bytes(buffer[:SEGMENT_HEADER_BYTES]))
    if not isinstance(header, SegmentHeader):
        raise _damaged(directory, name, 0, header.why)
    ids: list[int] = []
    pause_at = SEGMENT_HEADER_BYTES + SLICE_BYTES
    for found in walk(buffer, header, end):
        if isinstance(found, Ending):
            if found.problem:
                raise _damaged(directory, name, found.offset, found.problem)
            break
        ids += [job_id for kind, job_id in frames.kinds_and_ids(buffer, found) if kind in FULL]
        if found.end >= pause_at:
            pause_at = found.end + SLICE_BYTES
            yield ids
            ids = []
    yield ids


def _damaged(directory: Directory, name: str, offset: int, why: str) -> Damaged:
    return Damaged(
        f"{directory.path}/{name}: offset {offset}: {why}. The segment is kept, and the log is "
        f"not compacted any more; its jobs are in memory and go on being served. "
        f"Run 'binlog-inspect check {directory.path}'."
    )
