"""One store as it was when its segments were listed: what is where, and how far it is durable.

A frame may be read when the watermark of another one says that it is durable.  What is above the
watermark may be withdrawn when the server starts after a crash, and its LSNs given to other bytes.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from beanstalk_twisted.binlog.reading.segment import Hole
from beanstalk_twisted.binlog.records.others import CleanStop
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import SEGMENT_HEADER_BYTES, SegmentHeader
from beanstalk_twisted.binlog.segments.frames import Frame
from beanstalk_twisted.binlog.segments.seals import read_seal
from binlog_tools.spark.files.opening import LogFile, open_file
from binlog_tools.spark.following.positions import Position
from binlog_tools.spark.following.stores import Segments
from binlog_tools.spark.segments.durable import durable_frames
from binlog_tools.spark.segments.framing import Run, Stretch, runs

WINDOW_BYTES: Final = 1 << 20
"""What is looked at once where a batch is to end: it may end soon."""

READ_BYTES: Final = 1 << 18
"""What is read at once of a segment that is being written: a few new frames, else zeros."""


class Durable(NamedTuple):
    """How far a segment that is being written was durable at an earlier look.

    :ivar salt: of the segment, which tells it from any other.
    """

    salt: int
    at: Position


class Log:
    """One store, as it was when its segments were listed.

    :ivar numbers: of its segments, ascending.
    :ivar known: how far it was found durable, by an earlier look or this one: what is before that
        need not be read again.
    """

    def __init__(self, segments: Segments, known: Durable | None = None) -> None:
        self.store = segments.store
        self.known = known
        self._segments = segments
        self.paths = segments.paths
        self.numbers = segments.numbers
        self._headers: dict[int, SegmentHeader] = {}
        self._frontier: Position | None = None

    def first(self) -> Position:
        return self.beginning(self.numbers[0])

    def beginning(self, seq: int) -> Position:
        return Position(seq, SEGMENT_HEADER_BYTES, self.header(seq).first_lsn)

    def header(self, seq: int) -> SegmentHeader:
        if seq not in self._headers:
            self._headers[seq] = self._segments.header(seq)
        return self._headers[seq]

    def following(self, seq: int) -> SegmentHeader | None:
        return self.header(seq + 1) if seq + 1 in self.numbers else None

    def frames(self, at: Position) -> Iterator[Run | Hole]:
        end = self.end(at.seq)
        if end <= at.offset:
            return
        with self.open(at.seq) as file:
            buffer = file.view(min(end, file.size), at.offset, end)
        stretch = Stretch(at.offset, end, at.lsn)
        yield from runs(buffer, self.header(at.seq), stretch, "headers", WINDOW_BYTES)

    def open(self, seq: int) -> LogFile:
        """A segment, from where it still is.

        :raise FileNotFoundError: it has gone since it was listed; look again.
        """
        for path in self.paths(seq):
            try:
                return open_file(path)
            except FileNotFoundError:
                continue
        raise FileNotFoundError(seq)

    def frontier(self) -> Position:
        """Behind the last frame that is durable."""
        if self._frontier is None:
            self._frontier = self.measured(self.numbers[-1])
        return self._frontier

    def measured(self, seq: int) -> Position:
        """How far a segment without a successor may be read."""
        header = self.header(seq)
        is_finished = seq in self._segments.archived or seq < self.numbers[-1]
        with self.open(seq) as file:
            seal = read_seal(file.read, file.size, header)
            if seal is not None and (is_finished or CleanStop.kind in seal.content.types):
                return Position(seq, seal.end, seal.next_lsn)
            start = self.beginning(seq)
            if self.known is not None and self.known.salt == header.salt:
                start = max(start, self.known.at)
            at = _durable_end(file, header, start, is_finished)
        if seq == self.numbers[-1]:
            self.known = Durable(header.salt, at)
        return at

    def end(self, seq: int) -> int:
        following = self.following(seq)
        if following is not None:
            return following.prev_end
        return self.frontier().offset if seq == self.numbers[-1] else self.measured(seq).offset

    def at_time(self, since_ns: int) -> Position:
        """The first frame that was built at this time or later; the frontier if there is none
        yet.
        """
        before = bisect_right(self.numbers, since_ns, key=lambda seq: self.header(seq).created_ns)
        at = self.beginning(self.numbers[max(0, before - 1)])
        for piece in self.frames(at):
            if isinstance(piece, Run) and piece.time_ns[-1] >= since_ns:
                first = int(np.argmax(piece.time_ns >= since_ns))
                return Position(at.seq, int(piece.offset[first]), int(piece.base_lsn[first]))
        later = [seq for seq in self.numbers if seq > at.seq]
        return self.beginning(later[0]) if later else self.frontier()

    def at_lsn(self, lsn: int) -> Position:
        """The frame with this LSN; the beginning or the frontier if it lies outside."""
        first, last = self.first(), self.frontier()
        if lsn <= first.lsn:
            return first
        if lsn >= last.lsn:
            return last
        before = bisect_right(self.numbers, lsn, key=lambda seq: self.header(seq).first_lsn)
        at = self.beginning(self.numbers[before - 1])
        for piece in self.frames(at):
            if isinstance(piece, Run) and piece.next_lsn > lsn:
                which = int(np.searchsorted(piece.base_lsn + piece.n_rec, lsn, "right"))
                return Position(at.seq, int(piece.offset[which]), int(piece.base_lsn[which]))
        return at


def _durable_end(
    file: LogFile, header: SegmentHeader, start: Position, is_finished: bool
) -> Position:
    """How far a segment is durable, of which no successor says it.

    :param start: durable.
    :param is_finished: the file will not change any more: all of it is.
    """
    watermark, at, want = start.lsn - 1, start, READ_BYTES
    seen: list[Run] = []
    while True:
        chunk, base = file.read(at.offset, at.offset + want), at.offset
        whole = Stretch(0, len(chunk), at.lsn)
        for piece in runs(memoryview(chunk), header, whole, "headers"):
            if isinstance(piece, Run):
                watermark = max(watermark, int(piece.durable_lsn.max()))
                seen.append(piece._replace(offset=piece.offset + base))
                at = Position(at.seq, base + piece.end, piece.next_lsn)
        if at.offset == base:
            found = frames.decode_header(chunk, 0, len(chunk), header.salt)
            if not isinstance(found, Frame) or found.end <= want or len(chunk) < want:
                break
            want = found.end
    if is_finished:
        watermark = at.lsn - 1
    durable = durable_frames(seen, watermark)
    return start if durable is None else Position(at.seq, durable.end, durable.next_lsn)
