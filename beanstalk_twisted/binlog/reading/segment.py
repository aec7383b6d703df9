"""Reading one segment: its header, its frames in order, and where and how they end."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.files import Files
from beanstalk_twisted.binlog.reading.searching import proven_lsn, resynchronise
from beanstalk_twisted.binlog.records.others import TYPE, Seal
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import (
    MADE_BY_TOOL,
    REHOMED,
    SEGMENT_HEADER_BYTES,
    TRAILER_BYTES,
    TRAILER_MAGIC,
    SegmentHeader,
)
from beanstalk_twisted.binlog.segments.frames import Buffer, Damage, Frame, Incomplete

_ZEROS: Final = memoryview(bytes(1 << 20))

NO_FRAME: Final = "no frame follows the header, and a segment gets its name with its first frame"
NO_SEAL: Final = "a tool has made this segment, and it does not end with the seal that it had then"


class Hole(NamedTuple):
    """Bytes of a segment that are not the frames they should be.

    :ivar first_lsn: of the records that should be there.
    :ivar next_lsn: of the first one after it, None if none can be read.
    :ivar frame: the header that still stands at ``offset``, if it does: then only the payload is
        wrong.
    """

    offset: int
    end: int
    first_lsn: int
    next_lsn: int | None
    why: str
    frame: Frame | None = None


class Ending(NamedTuple):
    """How a segment's frames end.

    :ivar offset: where the last good frame ends.
    :ivar next_lsn: the first LSN that was not read.
    :ivar problem: what stands at ``offset`` instead of a frame; empty at a regular end.
    :ivar witness_lsn: up to where all was durable, by what follows the problem; 0 if nothing says
        so.
    """

    offset: int
    next_lsn: int
    problem: str
    witness_lsn: int


def walk(buffer: Buffer, header: SegmentHeader, end: int | None) -> Iterator[Frame | Hole]:
    """Yield every good frame, all checksums checked, and the holes between them.

    :param end: where the successor says that the data end; None for the newest segment.
    """
    limit = len(buffer) if end is None else min(end, len(buffer))
    at, lsn = SEGMENT_HEADER_BYTES, header.first_lsn
    while at < limit:
        for frame in frames.in_order(buffer, at, limit, header.salt, lsn):
            yield frame
            at, lsn = frame.end, frame.next_lsn
        hole = hole_at(buffer, header, at, limit, lsn)
        if hole is None:
            break
        yield hole
        if hole.next_lsn is None:
            return
        at, lsn = hole.end, hole.next_lsn
    if end is not None and at < end:
        yield Hole(at, end, lsn, None, _too_short(at, end))


def walk_to_hole(
    buffer: Buffer, header: SegmentHeader, end: int | None = None, leaves_bodies: bool = False
) -> Iterator[Frame | Ending]:
    """Yield the good frames up to the first hole, as a server reads them, then one `Ending`.

    :param leaves_bodies: see `frames.decode`.
    """
    last: Frame | None = None
    at, lsn = SEGMENT_HEADER_BYTES, header.first_lsn
    limit = len(buffer) if end is None else min(end, len(buffer))
    for last in frames.in_order(buffer, at, limit, header.salt, lsn, leaves_bodies):
        yield last
        at, lsn = last.end, last.next_lsn
    problem = ""
    if continues(buffer, at, limit):
        problem = no_frame(frames.decode(buffer, at, limit, header.salt), lsn)
    if end is None:
        # Of the newest segment the last good frame says what follows.
        if last is None:
            problem = problem or NO_FRAME
        elif is_sealed(buffer, header, last):
            problem = ""
        elif header.flags & MADE_BY_TOOL:
            problem = problem or NO_SEAL
    elif not problem and at != end:
        problem = _too_short(at, end)
    witness = proven_lsn(buffer, header, at, limit, lsn) if problem else 0
    yield Ending(at, lsn, problem, witness)


def _too_short(at: int, end: int) -> str:
    return f"the segment ends here, {end - at} bytes short"


def hole_at(buffer: Buffer, header: SegmentHeader, at: int, limit: int, lsn: int) -> Hole | None:
    """None if the data end at ``at``.  Every segment has a first frame, so they do not end before
    it.
    """
    if not continues(buffer, at, limit):
        is_begun = at != SEGMENT_HEADER_BYTES or lsn != header.first_lsn
        return None if is_begun else Hole(at, limit, lsn, None, NO_FRAME)
    found = frames.decode(buffer, at, limit, header.salt)
    why = no_frame(found, lsn)
    if isinstance(found, Frame):
        if found.base_lsn > lsn:
            return Hole(at, at, lsn, found.base_lsn, why)
        return Hole(at, found.end, lsn, lsn, why)
    standing = frames.decode_header(buffer, at, limit, header.salt)
    if isinstance(standing, Frame) and standing.base_lsn == lsn and standing.end <= limit:
        return Hole(at, standing.end, lsn, standing.next_lsn, why, standing)
    later = resynchronise(buffer, at + 8, limit, header.salt, above_lsn=lsn - 1)
    following = next(later, None)
    if following is None:
        return Hole(at, content_end(buffer[:limit], at), lsn, None, why)
    return Hole(at, following.offset, lsn, following.base_lsn, why)


def is_sealed(buffer: Buffer, header: SegmentHeader, last: Frame) -> bool:
    """Whether a frame is certainly the last one of its segment, its last record a SEAL.  One that
    was re-homed says nothing, if it was not durable when it was framed.
    """
    if not last.n_rec or frames.raw_record(buffer, last, last.n_rec - 1)[TYPE] != Seal.kind:
        return False
    return not header.flags & REHOMED or last.durable_lsn >= last.next_lsn - 1


def no_frame(found: Frame | Damage | Incomplete, lsn: int) -> str:
    """Why what was found is not the frame with ``lsn``."""
    if isinstance(found, Frame):
        return f"a frame with LSN {found.base_lsn} stands where LSN {lsn} belongs"
    return found.why if isinstance(found, Damage) else "a frame begins but is not complete"


def continues(buffer: Buffer, at: int, limit: int) -> bool:
    """Whether something follows that should be a frame: neither zeros nor a trailer alone."""
    return has_content(buffer, at, limit) and not is_trailer(buffer, at, limit)


def is_trailer(buffer: Buffer, at: int, limit: int) -> bool:
    return limit - at == TRAILER_BYTES and bytes(buffer[limit - 8 : limit]) == TRAILER_MAGIC


def has_content(buffer: Buffer, at: int, limit: int) -> bool:
    view = memoryview(buffer)
    for start in range(at, limit, len(_ZEROS)):
        part = view[start : min(start + len(_ZEROS), limit)]
        if part != _ZEROS[: len(part)]:
            return True
    return False


def content_end(buffer: Buffer, at: int) -> int:
    """Where the zeros at the end of a segment begin, ``at`` or behind it."""
    return at + len(bytes(memoryview(buffer)[at:]).rstrip(b"\0"))


def file_content_end(directory: Files, name: str, at: int, size: int) -> int:
    """`content_end` in a file of ``size`` bytes, of which little is in memory at a time."""
    while size > at:
        start = max(at, size - len(_ZEROS))
        end = content_end(directory.read(name, start, size), 0)
        if end:
            return start + end
        size = start
    return at
