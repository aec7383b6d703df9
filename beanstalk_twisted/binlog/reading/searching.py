"""Frames at any byte of a segment, and what they prove about the bytes before them:
docs/binlog-format.md, "Torn or damaged".
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from beanstalk_twisted.binlog.records.others import Counters, Start
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import (
    ALIGN_BYTES,
    FRAME_HEADER_BYTES,
    FRAME_MAGIC,
    MADE_BY_TOOL,
    SEGMENT_HEADER_BYTES,
    U32,
    SegmentHeader,
)
from beanstalk_twisted.binlog.segments.frames import Buffer, Frame

WINDOW_BYTES: Final = 1 << 20
"""How much is copied at once to search it."""

_SALT_AT: Final = 48

_AT_THE_BEGINNING: Final = frozenset({int(Start.kind), int(Counters.kind)})
"""Types of records that a segment has only in what was durable before it got its name."""


def frames_anywhere(buffer: Buffer, at: int, end: int, salt: int | None) -> Iterator[Frame]:
    """Every place from ``at`` on where a frame's header checks; payloads are not looked at.  Bytes
    that were put in or taken out move frames from multiples of eight to anywhere.

    :param salt: the segment's; None for frames of any.
    """
    for place in _places(buffer, at, end, salt):
        frame = frames.decode_header(buffer, place, end, salt_at(buffer, place))
        if isinstance(frame, Frame):
            yield frame


def resynchronise(buffer: Buffer, at: int, end: int, salt: int, above_lsn: int) -> Iterator[Frame]:
    """Those of them where a server would write one, with ``base_lsn > above_lsn``; see
    "Resynchronising" in docs/binlog-format.md.
    """
    for frame in frames_anywhere(buffer, at, end, salt):
        if frame.offset % ALIGN_BYTES == 0 and frame.base_lsn > above_lsn:
            yield frame


def salt_at(buffer: Buffer, at: int) -> int:
    """The salt that a frame's header at ``at`` carries."""
    return int(U32.unpack_from(buffer, at + _SALT_AT)[0])


def _places(buffer: Buffer, at: int, end: int, salt: int | None) -> Iterator[int]:
    """Where headers may begin that end before ``end``: at a magic, and the salt in its place.
    Bodies full of magics do not have the salt, and cost no more than other bytes.
    """
    view = memoryview(buffer)
    between = b".{%d}" % (FRAME_HEADER_BYTES - len(FRAME_MAGIC))
    if salt is not None:
        behind = FRAME_HEADER_BYTES - _SALT_AT - U32.size
        own = re.escape(U32.pack(salt))
        between = b".{%d}%b.{%d}" % (_SALT_AT - len(FRAME_MAGIC), own, behind)
    wanted = re.compile(re.escape(FRAME_MAGIC) + between, re.DOTALL)
    while at + FRAME_HEADER_BYTES <= end:
        chunk = bytes(view[at : min(end, at + WINDOW_BYTES + FRAME_HEADER_BYTES - 1)])
        found = wanted.search(chunk)
        while found is not None:
            yield at + found.start()
            found = wanted.search(chunk, found.start() + 1)
        at += WINDOW_BYTES


def proven_lsn(buffer: Buffer, header: SegmentHeader, at: int, end: int, lsn: int) -> int:
    """The highest LSN that was durable for certain, by what stands from ``at`` on, where a segment
    cannot be read any further; ``lsn`` or more is damage, 0 proves nothing.

    :param at: where the frame of ``lsn`` should stand.
    """
    found = list(frames_anywhere(buffer, at, end, header.salt))
    durable_lsn = max((frame.durable_lsn for frame in found), default=0)
    if at == SEGMENT_HEADER_BYTES or header.flags & MADE_BY_TOOL:
        # Its first frame, or all of it, was durable before it had a name.
        durable_lsn = max(durable_lsn, lsn)
    if durable_lsn < lsn:
        later = [frame.offset for frame in found if frame.base_lsn >= lsn]
        decoded = (frames.decode(buffer, at, end, salt_at(buffer, at)) for at in later)
        whole = [frame for frame in decoded if isinstance(frame, Frame)]
        durable_lsn = max([durable_lsn, *_beginnings(buffer, whole)])
        if any(_displaced(whole, found)):
            durable_lsn = max(durable_lsn, lsn)
    return durable_lsn


def _beginnings(buffer: Buffer, whole: Iterable[Frame]) -> Iterator[int]:
    """The LSNs of records that only what a segment begins with holds."""
    for frame in whole:
        for index, (kind, _) in enumerate(frames.kinds_and_ids(buffer, frame)):
            if kind in _AT_THE_BEGINNING:
                yield frame.base_lsn + index


def _displaced(whole: Iterable[Frame], found: Iterable[Frame]) -> Iterator[Frame]:
    """Frames where none was ever written.  A copy in a body is of an older frame than the one that
    it stands in; ``found`` are all that may hold copies.
    """
    for frame in whole:
        if frame.offset % ALIGN_BYTES and not any(
            other.offset < frame.offset < other.end and other.base_lsn > frame.base_lsn
            for other in found
        ):
            yield frame
