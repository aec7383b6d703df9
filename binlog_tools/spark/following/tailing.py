"""
Going forward in a log that is being written, never beyond what is durable.

A frame may be read when the watermark of another one says that it is durable: then it will be there
for ever, with this LSN.  What is above the watermark may be withdrawn when the server starts after
a crash, and its LSNs given to other bytes; and the rest of the file is zeros.

Where a segment ends, its successor says.  A successor may begin below the position, if its first
frames are those that were not known durable before a crash: then the position is found in it anew,
by its LSN.
"""

import mmap
import os
from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple

import numpy as np

from beanstalk_twisted.binlog import frames
from beanstalk_twisted.binlog.format import (
    FRAME_HEADER_BYTES,
    REHOMED,
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
)
from beanstalk_twisted.binlog.frames import Frame
from beanstalk_twisted.binlog.records import CleanStop
from binlog_tools.reading import Hole
from binlog_tools.spark.errors import SourceError
from binlog_tools.spark.following.admission import Limits
from binlog_tools.spark.following.frontier import Durable, durable_end
from binlog_tools.spark.following.positions import Position
from binlog_tools.spark.following.stores import Segments
from binlog_tools.spark.segments.footers import read_footer
from binlog_tools.spark.segments.framing import Run, Stretch, runs

WINDOW_BYTES: Final = 1 << 20
"""What is looked at once where a batch is to end: it may end soon."""


class Lost(NamedTuple):
    """
    Records that are in no segment any more.

    :ivar after: where what is still there begins.
    :ivar path: of the segment that does, with its header.
    """

    store: str
    before: Position
    after: Position
    path: str
    header: SegmentHeader

    @property
    def what(self) -> str:
        """
        Which ones, in words.
        """
        return (
            f"store {self.store}: segment {self.before.seq} (LSN {self.before.lsn} to "
            f"{self.after.lsn - 1}) was removed before this query had read it"
        )

    def error(self) -> SourceError:
        """
        And what to do.
        """
        return SourceError(
            "BINLOG_TRIMMED",
            f"{self.what}; name the server's archive with .option('archive', DIR) if it has one; "
            f"else go on without these records, and with a damage row in their place, with "
            f".option('failOnDataLoss', 'false')",
        )


class Part(NamedTuple):
    """
    A stretch of a segment.

    :ivar paths: where the file is, or may be.
    :ivar size: how much of the file may be mapped.
    """

    paths: tuple[str, ...]
    header: SegmentHeader
    stretch: Stretch
    size: int


class Log:
    """
    One store, as it was when its segments were listed.
    """

    def __init__(self, segments: Segments, known: Durable | None = None) -> None:
        """
        :param known: from an earlier look: no need to read again what is before that.
        """
        self.store = segments.store
        self.known = known
        self._segments = segments
        self._numbers = segments.numbers
        self._headers: dict[int, SegmentHeader] = {}
        self._frontier: Position | None = None

    def first(self) -> Position:
        """
        Where it begins.
        """
        return self._beginning(self._numbers[0])

    def _beginning(self, seq: int) -> Position:
        return Position(seq, SEGMENT_HEADER_BYTES, self._header(seq).first_lsn)

    def _header(self, seq: int) -> SegmentHeader:
        """
        :raise FileNotFoundError: the file has gone since it was listed; look again.
        """
        if seq not in self._headers:
            header = self._segments.header(seq)
            if header is None:
                raise FileNotFoundError(seq)
            self._headers[seq] = header
        return self._headers[seq]

    def _following(self, seq: int) -> SegmentHeader | None:
        """
        The successor of a segment.
        """
        return self._header(seq + 1) if seq + 1 in set(self._numbers) else None

    # Where to go on.

    def refuse_other_history(self, at: Position) -> None:
        """
        :raise SourceError: this is not the log in which the position was.
        """
        frontier = self.frontier()
        if self._numbers[-1] < at.seq:
            raise self._differs(f"its newest segment is {self._numbers[-1]}", at)
        if frontier.seq == at.seq and frontier.lsn < at.lsn:
            raise self._differs(f"that has {frontier.lsn - 1} for its last one", at)
        if frontier.lsn >= at.lsn:
            self.locate(at)
        # Else it was written once more after a crash, and is not known durable yet.

    def locate(self, at: Position) -> Position | Lost:
        """
        Where the frame with this LSN is now.

        :raise SourceError: this is another history than the one in which the position was.
        """
        numbers = [seq for seq in self._numbers if seq >= at.seq]
        if not numbers:
            raise self._differs(f"its newest segment is {self._numbers[-1]}", at)
        seq = numbers[0]
        if self._header(seq).first_lsn > at.lsn:
            if seq == at.seq:
                raise self._differs(f"segment {seq} begins with {self._header(seq).first_lsn}", at)
            return self._lost(at, seq)
        for later in numbers[1:]:
            if self._header(later).first_lsn > at.lsn:
                break
            seq = later
        if seq == at.seq:
            return self._in_place(at)
        if self._header(seq).first_lsn == at.lsn:
            return self._beginning(seq)
        return self._find(seq, at.lsn)

    def _lost(self, at: Position, seq: int) -> Lost:
        path = self._segments.paths(seq)[0]
        return Lost(self.store, at, self._beginning(seq), path, self._header(seq))

    def _in_place(self, at: Position) -> Position | Lost:
        """
        A position whose segment is the one it says.
        """
        later = [seq for seq in self._numbers if seq > at.seq]
        if later and later[0] > at.seq + 1 and at.offset >= self._end(at.seq):
            return self._lost(at._replace(seq=at.seq + 1), later[0])
        self._prove(at)
        return at

    def _prove(self, at: Position) -> None:
        """
        The frame at a position has its LSN, if there is one yet.
        """
        following = self._following(at.seq)
        if following is not None and at.offset >= following.prev_end:
            return
        with self._open(at.seq) as file:
            raw = os.pread(file.fileno(), FRAME_HEADER_BYTES, at.offset)
        found = frames.decode_header(raw, 0, len(raw), self._header(at.seq).salt)
        if isinstance(found, Frame) and found.base_lsn != at.lsn:
            raise self._differs(f"LSN {found.base_lsn} stands there", at)

    def _find(self, seq: int, lsn: int) -> Position:
        """
        A frame in a segment by its LSN.
        """
        for run in self._frames(self._beginning(seq)):
            if isinstance(run, Run):
                places = np.flatnonzero((run.base_lsn == lsn) & (run.n_rec > 0))
                if len(places):
                    return Position(seq, int(run.offset[places[0]]), lsn)
                if run.next_lsn == lsn:
                    return Position(seq, run.end, lsn)
        raise self._differs(f"in segment {seq} no frame begins with it", Position(seq, 0, lsn))

    def _differs(self, what: str, at: Position) -> SourceError:
        return SourceError(
            "BINLOG_HISTORIES_DIFFER",
            f"store {self.store}: this query has read up to LSN {at.lsn - 1}, to byte {at.offset} "
            f"of segment {at.seq}, but {what}: the log was restored from an older copy, or its "
            f"directory exchanged; begin anew with another checkpoint",
        )

    # How far it is durable.

    def frontier(self) -> Position:
        """
        Behind the last frame that is durable.
        """
        if self._frontier is None:
            self._frontier = self._measured(self._numbers[-1])
        return self._frontier

    def _measured(self, seq: int) -> Position:
        """
        How far a segment without a successor may be read.
        """
        header = self._header(seq)
        is_finished = seq in self._segments.archived or seq < self._numbers[-1]
        with self._open(seq) as file:
            size = os.fstat(file.fileno()).st_size
            footer = read_footer(file.fileno(), size, header)
            if footer is not None and (is_finished or CleanStop.kind in footer.types):
                return Position(seq, footer.end, footer.next_lsn)
            start = self._beginning(seq)
            if self.known is not None and self.known.salt == header.salt:
                start = max(start, self.known.at)
            at = durable_end(file.fileno(), header, start, is_finished)
        if seq == self._numbers[-1]:
            self.known = Durable(header.salt, at)
        return at

    def _end(self, seq: int) -> int:
        following = self._following(seq)
        if following is not None:
            return following.prev_end
        return self.frontier().offset if seq == self._numbers[-1] else self._measured(seq).offset

    # Going forward.

    def advance(self, at: Position, to: Position, most_bytes: int, most_rows: int) -> Position:
        """
        Go on by so much at most, but by one frame at least if there is one.

        :param at: where a frame is, as `locate` has found it.
        :param to: not beyond this LSN.
        """
        limits = Limits(most_bytes, most_rows)
        while at.lsn < to.lsn:
            for piece in self._frames(at):
                if isinstance(piece, Hole):
                    # What is wrong is told by whoever reads it.
                    at = Position(at.seq, piece.end, piece.next_lsn or at.lsn)
                    continue
                count = limits.take(piece, to.lsn)
                if count:
                    taken = piece.part(0, count)
                    at = Position(at.seq, taken.end, taken.next_lsn)
                if count < len(piece.offset):
                    return at
            following = self._following(at.seq)
            if following is None:
                return at
            at = self._beginning(at.seq + 1)
        return at

    def _frames(self, at: Position) -> Iterator[Run | Hole]:
        """
        All frames of a segment from a position on.
        """
        end = self._end(at.seq)
        if end <= at.offset:
            return
        with self._open(at.seq) as file:
            size = min(end, os.fstat(file.fileno()).st_size)
            buffer = memoryview(mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ))
        stretch = Stretch(at.offset, end, at.lsn)
        yield from runs(buffer, self._header(at.seq), stretch, "headers", WINDOW_BYTES)

    def parts(self, start: Position, end: Position) -> Iterator[Part | Lost]:
        """
        What lies between two positions.
        """
        at = start
        while at.lsn < end.lsn:
            place = self.locate(at)
            if isinstance(place, Lost):
                yield place
                at = place.after
                continue
            following = self._following(place.seq)
            if following is not None and following.first_lsn < end.lsn:
                stop, at = following.prev_end, self._beginning(place.seq + 1)
            elif following is None and place.seq < self._numbers[-1] and end.seq > place.seq:
                at = self._measured(place.seq)
                stop = at.offset
            else:
                stop, at = self._stop(place, end, following), end
            if stop > place.offset:
                yield self._part(place, stop)

    def _stop(self, place: Position, end: Position, following: SegmentHeader | None) -> int:
        """
        Where a position lies in a segment.
        """
        if end.seq != place.seq:
            return self._find(place.seq, end.lsn).offset
        return end.offset if following is None else min(end.offset, following.prev_end)

    def _part(self, place: Position, stop: int) -> Part:
        header, paths = self._header(place.seq), tuple(self._segments.paths(place.seq))
        # A re-homed one may say the names of its tubes further on, but in its first batch.  Not to
        # the end of the file: that is cut off when the segment is sealed.
        size = max(stop, self._end(place.seq)) if header.flags & REHOMED else stop
        return Part(paths, header, Stretch(place.offset, stop, place.lsn), size)

    def _open(self, seq: int) -> BinaryIO:
        for path in self._segments.paths(seq):
            try:
                return open(path, "rb")
            except FileNotFoundError:
                continue
        raise FileNotFoundError(seq)

    def at_time(self, since_ns: int) -> Position:
        """
        The first frame that was built at this time or later; the frontier if there is none yet.
        """
        numbers = [seq for seq in self._numbers if self._header(seq).created_ns <= since_ns]
        at = self._beginning(max(numbers, default=self._numbers[0]))
        for piece in self._frames(at):
            if isinstance(piece, Run) and piece.time_ns[-1] >= since_ns:
                first = int(np.argmax(piece.time_ns >= since_ns))
                return Position(at.seq, int(piece.offset[first]), int(piece.base_lsn[first]))
        later = [seq for seq in self._numbers if seq > at.seq]
        return self._beginning(later[0]) if later else self.frontier()

    def at_lsn(self, lsn: int) -> Position:
        """
        The frame with this LSN; the beginning or the frontier if it lies outside.
        """
        first, last = self.first(), self.frontier()
        if lsn <= first.lsn:
            return first
        if lsn >= last.lsn:
            return last
        numbers = [seq for seq in self._numbers if self._header(seq).first_lsn <= lsn]
        at = self._beginning(numbers[-1])
        for piece in self._frames(at):
            if isinstance(piece, Run) and piece.next_lsn > lsn:
                which = int(np.searchsorted(piece.base_lsn + piece.n_rec, lsn, "right"))
                return Position(at.seq, int(piece.offset[which]), int(piece.base_lsn[which]))
        return at
