"""How far each segment may be read: its successor says it; else its seal, even where a manifest
tells of it; else, while a server writes it, the watermark.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.archive_manifest import Entry
from beanstalk_twisted.binlog.records.others import CleanStop
from beanstalk_twisted.binlog.segments.format import (
    SEGMENT_HEADER_BYTES,
    TRAILER_BYTES,
    SegmentHeader,
)
from beanstalk_twisted.binlog.segments.seals import FoundSeal, SealIndex, read_seal
from binlog_tools.spark.files import BadRange, open_file
from binlog_tools.spark.segments.wanted import Stretch

LOOKS_AT_ONCE: Final = 16
"""Files that are looked at at the same time: on network storage each takes milliseconds."""

Key = tuple[bytes, int]
"""What identifies a segment: its store and its number in it."""

Durables = dict[int, tuple[int, int]]
"""By the salt of a segment, up to which byte and LSN it was durable at an earlier look."""


class Candidate(NamedTuple):
    """A file that is a segment.

    :ivar path: or its URL.
    :ivar is_archived: it is complete, and never changes.
    :ivar is_in_use: it lies in the directory of a server, and is the newest one there.
    :ivar copies: other files that are the same segment.
    :ivar known: what the manifest beside it says; then it was not opened.
    """

    path: str
    header: SegmentHeader
    size: int
    is_archived: bool
    is_in_use: bool
    copies: tuple[str, ...] = ()
    known: Entry | None = None


class Segment(NamedTuple):
    """A segment, and what of it may be read.

    :ivar size: how much of the file may be mapped: what follows may be cut off.
    :ivar next_lsn: the LSN after it, None if nothing says that.
    :ivar logged_ns: when its first and last frames were built; None if nothing says that.
    :ivar seal: what its seal says, if it has one that holds, and was read.
    :ivar copies: other files that are this segment.
    :ivar names_tubes: whether ``seal`` has the names of all of its tubes.
    """

    path: str
    header: SegmentHeader
    size: int
    stretch: Stretch
    next_lsn: int | None
    logged_ns: tuple[int, int] | None
    seal: SealIndex | None
    copies: tuple[str, ...] = ()
    names_tubes: bool = True

    @property
    def key(self) -> Key:
        return self.header.store_uuid, self.header.seq


def measured(
    chosen: Mapping[Key, Candidate], with_live: bool, seals_from: int = 0,
    durable: Durables | None = None,
) -> list[Segment]:  # fmt: skip
    """How far each segment may be read; those are left out of which nothing may.

    :param with_live: whether those that are being written are read, as far as they are durable.
    :param seals_from: smaller segments whose end is known without their seal are measured without.
    :param durable: of a stream: looked up and updated, so that nothing is looked at twice.
    """

    def measure(key: Key) -> Segment | None:
        each, after = chosen[key], chosen.get(_next(key))
        try:
            header = after.header if after else None
            return _measure(each, header, with_live, seals_from, durable)
        except FileNotFoundError:
            return None
        except BadRange:
            # All of it, so that whoever reads it tells what is wrong.
            return _segment(each, *(_up_to(after.header) if after else (each.size, None)))

    found: dict[Key, Segment | None] = {}
    for key, each in chosen.items():
        after = chosen.get(_next(key))
        # A manifest alone is never believed: records behind a wrong end would be missed.
        known = each.known if after is not None else None
        found[key] = _as_known(each, known, after.header) if known and after else None
    opened = [key for key, segment in found.items() if segment is None]
    with ThreadPoolExecutor(LOOKS_AT_ONCE) as pool:
        found.update(zip(opened, pool.map(measure, opened), strict=True))
    return [segment for segment in found.values() if segment is not None]


def _next(key: Key) -> Key:
    store, seq = key
    return store, seq + 1


def _as_known(each: Candidate, known: Entry, after: SegmentHeader) -> Segment:
    """Up to where its successor says, the rest from what a manifest says."""
    found = _segment(each, *_up_to(after))
    if found.stretch.end != known.end:
        return found
    return found._replace(seal=known.seal, logged_ns=known.logged_ns, names_tubes=known.names_tubes)


def _up_to(after: SegmentHeader) -> tuple[int, int]:
    return after.prev_end, after.first_lsn


def _measure(
    each: Candidate, after: SegmentHeader | None, with_live: bool, seals_from: int,
    durable: Durables | None,
) -> Segment | None:  # fmt: skip
    if after is not None and each.size < seals_from:
        return _segment(each, *_up_to(after))
    with open_file(each.path, each.size) as file:
        seal = read_seal(file.read, each.size, each.header)
    if after is not None:
        is_right = seal is not None and seal.end == after.prev_end
        return _segment(each, *_up_to(after), seal if is_right else None)
    if seal is not None and (not each.is_in_use or _is_ended(each, seal)):
        return _segment(each, seal.end, seal.next_lsn, seal)
    if each.is_archived:
        return _segment(each, _without_trailer(each), None)
    if durable is not None and each.is_in_use:
        return _measure_growing(each, durable)
    return _measure_unfinished(each) if with_live else None


def _is_ended(each: Candidate, seal: FoundSeal) -> bool:
    """Whether a server has ended in order with this segment.  A power loss meanwhile may leave a
    seal, and not all that stands before it.
    """
    from binlog_tools.spark.segments.framing import is_intact

    if CleanStop.kind not in seal.content.types or not seal.content.indexed:
        return False
    last = seal.content.indexed[-1]
    with open_file(each.path, each.size) as file:
        buffer = file.view(each.size, last.offset, seal.end)
    stretch = Stretch(last.offset, seal.end, last.base_lsn)
    return is_intact(buffer, each.header, stretch, "frames", with_bodies=False)


def _segment(
    each: Candidate, end: int, next_lsn: int | None, seal: FoundSeal | None = None
) -> Segment:
    logged = None
    content = seal.content if seal is not None else None
    if seal is not None and seal.content.indexed:
        logged = seal.content.indexed[0].time_ns, seal.sealed_ns
    stretch = Stretch(SEGMENT_HEADER_BYTES, end, each.header.first_lsn)
    size = min(each.size, end)
    return Segment(each.path, each.header, size, stretch, next_lsn, logged, content, each.copies)


def _without_trailer(each: Candidate) -> int:
    """Where the frames of an archived segment end whose seal cannot be understood."""
    with open_file(each.path, each.size) as file:
        end = file.read(max(0, each.size - TRAILER_BYTES), each.size)
    return each.size - TRAILER_BYTES if end.endswith(b"TQLEND\r\n") else each.size


def _measure_unfinished(each: Candidate) -> Segment | None:
    """A segment that a server may be writing, or was writing when it crashed."""
    from binlog_tools.spark.segments.durable import durable_part

    with open_file(each.path, each.size) as file:
        buffer = memoryview(file.snapshot())
    whole = Stretch(SEGMENT_HEADER_BYTES, _without_trailer(each), each.header.first_lsn)
    is_complete = not each.is_in_use
    found = durable_part(buffer, each.header, whole, is_complete)
    if found.end == SEGMENT_HEADER_BYTES:
        return None
    stretch = Stretch(SEGMENT_HEADER_BYTES, found.end, each.header.first_lsn)
    logged = (found.first_ns, found.last_ns)
    is_whole = found.last_ns and found.end <= len(buffer)
    size = min(found.end, len(buffer))
    return Segment(
        each.path, each.header, size, stretch, found.next_lsn if is_whole else None,
        logged if is_whole else None, None,
    )  # fmt: skip


def _measure_growing(each: Candidate, durable: Durables) -> Segment:
    """The newest segment of a log that a stream follows, from where it was durable before."""
    from binlog_tools.spark.segments.durable import durable_end

    header = each.header
    before = durable.get(header.salt, (SEGMENT_HEADER_BYTES, header.first_lsn))
    with open_file(each.path, each.size) as file:
        end, next_lsn = durable_end(file.read, header, *before)
    durable[header.salt] = end, next_lsn
    stretch = Stretch(SEGMENT_HEADER_BYTES, end, header.first_lsn)
    return Segment(each.path, header, end, stretch, next_lsn, None, None, each.copies)
