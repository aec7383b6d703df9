"""How far a segment that is being written may be read: what is above the watermark may be withdrawn
when the server starts after a crash (docs/binlog-format.md, "Torn or damaged").
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

from beanstalk_twisted.binlog.reading.searching import proven_lsn
from beanstalk_twisted.binlog.reading.segment import Hole, content_end, is_sealed
from beanstalk_twisted.binlog.records.others import CleanStop
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import (
    MADE_BY_TOOL,
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
)
from beanstalk_twisted.binlog.segments.frames import Buffer, Frame
from binlog_tools.spark.segments.framing import Run, runs
from binlog_tools.spark.segments.wanted import Stretch

READ_BYTES: Final = 1 << 18
"""What is read at once of a segment that is being written: a few new frames, else zeros."""


class Durable(NamedTuple):
    """What of a stretch is durable, and when its first and last frames were built; 0: none."""

    end: int
    next_lsn: int
    first_ns: int
    last_ns: int


def durable_frames(seen: Sequence[Run], watermark: int) -> Run | None:
    """Of runs that follow each other, the durable frames of the last one that has any."""
    for run in reversed(seen):
        count = int(np.searchsorted(run.base_lsn + run.n_rec, watermark + 1, "right"))
        if count:
            return run.part(0, count)
    return None


class _Frontier:
    """The runs of a stretch as they become durable; those are forgotten behind which one is."""

    def __init__(self, stretch: Stretch) -> None:
        self.watermark = stretch.first_lsn - 1
        self._start = Durable(stretch.start, stretch.first_lsn, 0, 0)
        self._first_ns = 0
        self._seen: list[Run] = []

    def add(self, run: Run) -> None:
        self._first_ns = self._first_ns or int(run.time_ns[0])
        self._seen.append(run)
        self.rise(int(run.durable_lsn.max()))

    def rise(self, watermark: int) -> None:
        """All up to here is durable."""
        self.watermark = max(self.watermark, watermark)
        while len(self._seen) > 1 and self._seen[1].next_lsn - 1 <= self.watermark:
            del self._seen[0]

    def durable(self) -> Durable:
        run = durable_frames(self._seen, self.watermark)
        if run is None:
            return self._start
        return Durable(run.end, run.next_lsn, self._first_ns, int(run.time_ns[-1]))


def durable_part(
    buffer: memoryview, header: SegmentHeader, stretch: Stretch, is_complete: bool = False
) -> Durable:
    """Return what of a stretch at the end of a segment is durable, damage within it included.

    :param is_complete: all that was written is known to be durable, since there is a successor.
    """
    frontier, last, is_short = _Frontier(stretch), None, False
    for piece in runs(buffer, header, stretch, "headers"):
        if isinstance(piece, Run):
            last = piece
            frontier.add(piece)
        is_short = isinstance(piece, Hole)
        if isinstance(piece, Hole) and piece.next_lsn is None:
            at, lsn = _break(buffer, header, stretch, last, piece)
            frontier.rise(proven_lsn(buffer, header, at, stretch.end, lsn))
    if not (is_short or is_complete) and _lacks_an_end(buffer, header, stretch, last):
        is_short = True
        frontier.rise(stretch.first_lsn if last is None else last.next_lsn)
    if last is not None and (is_complete or _ends_in_order(buffer, header, last)):
        frontier.rise(last.next_lsn - 1)
    durable = frontier.durable()
    if not is_short:
        return durable
    rest = content_end(buffer[: stretch.end], durable.end)
    rest += -rest % 8
    if durable.next_lsn <= frontier.watermark:
        # Durable records are not there: whoever reads on from here has to find that out.
        return durable._replace(end=max(rest, durable.end + 8))
    return durable._replace(end=rest) if is_complete else durable


def _break(
    buffer: memoryview, header: SegmentHeader, stretch: Stretch, last: Run | None, hole: Hole
) -> tuple[int, int]:
    """Return where a hole begins, or the frame before it, if that is not sound."""
    if last is not None:
        at = int(last.offset[-1])
        if not isinstance(frames.decode(buffer, at, stretch.end, header.salt), Frame):
            return at, int(last.base_lsn[-1])
    return hole.offset, hole.first_lsn


def _lacks_an_end(
    buffer: memoryview, header: SegmentHeader, stretch: Stretch, last: Run | None
) -> bool:
    """Whether frames end before the first one, or without the seal of a tool, which cannot be."""
    if last is None:
        return stretch.start == SEGMENT_HEADER_BYTES
    frame = frames.known(buffer, int(last.offset[-1]))
    return bool(header.flags & MADE_BY_TOOL) and not is_sealed(buffer, header, frame)


def _ends_in_order(buffer: memoryview, header: SegmentHeader, run: Run) -> bool:
    """Whether the last record says that the server has ended: all before it is durable."""
    frame = frames.decode(buffer, int(run.offset[-1]), len(buffer), header.salt)
    if not isinstance(frame, Frame) or not frame.n_rec:
        return False
    return frames.raw_record(buffer, frame, frame.n_rec - 1)[0] == CleanStop.kind


def durable_end(
    read: Callable[[int, int], Buffer], header: SegmentHeader, end: int, next_lsn: int
) -> tuple[int, int]:
    """Return byte and LSN up to which a growing segment is durable, from where it was before."""
    watermark, at, lsn, want = next_lsn - 1, end, next_lsn, READ_BYTES
    seen: list[Run] = []
    while True:
        chunk = memoryview(read(at, at + want))
        before = at
        for piece in runs(chunk, header, Stretch(0, len(chunk), lsn), "headers"):
            if isinstance(piece, Run):
                watermark = max(watermark, int(piece.durable_lsn.max()))
                seen.append(piece._replace(offset=piece.offset + before))
                at, lsn = before + piece.end, piece.next_lsn
        if at == before:
            found = frames.decode_header(chunk, 0, len(chunk), header.salt)
            if not isinstance(found, Frame) or found.end <= want or len(chunk) < want:
                break
            want = found.end
    durable = durable_frames(seen, watermark)
    return (end, next_lsn) if durable is None else (durable.end, durable.next_lsn)
