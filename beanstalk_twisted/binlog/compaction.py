"""Compaction policy, and the live records of a segment.  Oldest segment first, always: a DELETE
never lies before the PUT it ends, so a deleted job can never come back.
"""

from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.binlog.errors import Damaged
from beanstalk_twisted.binlog.records.jobs import HOMED
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    decode_segment_header,
    segment_name,
)
from beanstalk_twisted.binlog.segments.frames import Buffer, Damage, Frame
from beanstalk_twisted.binlog.segments.seals import ReadPart

SLICE_BYTES: Final = 256 << 10
"""Bytes of a segment that are read and checked at once: about a millisecond."""

SHORT_FACTOR: Final = 1.25
"""Times what is alive that a log may be on a full disk: each living byte is written five times."""

MIN_FACTOR: Final = 1.25
MAX_FACTOR: Final = 100.0
"""Nearer to 1 each living byte is written over and over; 100 is as good as never."""


class Pressure(NamedTuple):
    """How large a log is: bytes of all segments, of the full records of living jobs, and of a full
    segment; the number of finished segments; whether the disk is full.
    """

    total: int
    live: int
    segment: int
    segments: int = 0
    is_short: bool = False


class Policy(NamedTuple):
    """How large a log may become, and how fast it is made smaller.

    :ivar factor: times what is alive; 2 writes each living byte about once more in its life, and 3
        about half as often.
    :ivar spare_segments: so many segments beside that, so that a small log is left alone: one being
        written, and one to choose from.
    :ivar pace_ms: from one slice to the next, unless the log grows faster than it is compacted; 5
        leaves clients at least two thirds of the server's time.
    :ivar spare_files: so many segments beside those that would be full: starts leave small ones,
        and so does an archive's age; each start opens them all.
    """

    factor: float = 2.0
    spare_segments: int = 2
    pace_ms: int = 5
    spare_files: int = 100

    def should_compact(self, pressure: Pressure) -> bool:
        if pressure.is_short:
            return pressure.total > SHORT_FACTOR * pressure.live + pressure.segment
        most_files = self.spare_files + self.factor * pressure.live / pressure.segment
        is_large = pressure.total > self._limit(pressure, self.factor)
        return pressure.segments > most_files or is_large

    def is_urgent(self, pressure: Pressure) -> bool:
        """Whether compaction falls behind: it then no longer paces itself."""
        return pressure.total > self._limit(pressure, self.factor * 1.5)

    def may_be_bytes(self, pressure: Pressure) -> int:
        """How large the log may be before it is compacted, its number of files left aside."""
        return int(self._limit(pressure, self.factor))

    def _limit(self, pressure: Pressure, factor: float) -> float:
        return factor * pressure.live + self.spare_segments * pressure.segment


def full_records(directory: Directory, seq: int, end: int) -> Iterator[list[int]]:
    """The ids of the jobs whose full records, or remembered keys, are in a segment, slice by slice,
    all checksums checked but those of bodies of jobs without tags, which readers check.

    :param end: where its frames end.
    :raise Damaged: it cannot all be read.
    """
    name = segment_name(seq)
    header = decode_segment_header(bytes(directory.read(name, 0, SEGMENT_HEADER_BYTES)))
    if not isinstance(header, SegmentHeader):
        raise _damaged(directory, name, 0, header.why)
    at, lsn = SEGMENT_HEADER_BYTES, header.first_lsn
    while at < end:
        part = part_of(partial(directory.read, name), at, SLICE_BYTES, end, header.salt)
        ids, read = list[int](), 0
        for frame in frames.in_order(part, 0, len(part), header.salt, lsn, leaves_bodies=True):
            ids += [job_id for kind, job_id in frames.kinds_and_ids(part, frame) if kind in HOMED]
            read, lsn = frame.end, frame.next_lsn
        if not read:
            found = frames.decode(part, 0, len(part), header.salt, leaves_bodies=True)
            why = found.why if isinstance(found, Damage) else f"no whole frame with LSN {lsn}"
            raise _damaged(directory, name, at, why)
        at += read
        yield ids


def part_of(read: ReadPart, at: int, size: int, end: int, salt: int) -> Buffer:
    """Read ``size`` bytes of a segment from ``at`` on, or one frame if that is larger."""
    part = read(at, min(at + size, end))
    first = frames.decode_header(part, 0, len(part), salt)
    if isinstance(first, Frame) and first.end > len(part):
        return read(at, min(at + first.end, end))
    return part


def _damaged(directory: Directory, name: str, offset: int, why: str) -> Damaged:
    return Damaged(
        f"{directory.path}/{name}: offset {offset}: {why}. The segment is kept, and the log is "
        f"not compacted any more; jobs whose bodies are sound are served on. "
        f"Run 'binlog-inspect check {directory.path}'."
    )
