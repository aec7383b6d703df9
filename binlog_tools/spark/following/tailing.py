"""Going forward in a log that is being written, never beyond what is durable."""

from collections.abc import Iterator

import numpy as np

from beanstalk_twisted.binlog.segments.format import REHOMED, SegmentHeader
from binlog_tools.logs.reading import Hole
from binlog_tools.spark.following.locating import Lost, find, locate
from binlog_tools.spark.following.logs import Log
from binlog_tools.spark.following.positions import Position
from binlog_tools.spark.reading.planning import Share
from binlog_tools.spark.segments.framing import Run, Stretch
from binlog_tools.spark.segments.producing import Place


class _Limits:
    """How much more may be taken.  One frame with records may be, however large it is."""

    def __init__(self, most_bytes: int, most_rows: int) -> None:
        self._bytes = most_bytes
        self._rows = most_rows
        self._has_taken = False

    def take(self, run: Run, to_lsn: int) -> int:
        """:return: how many frames of a run."""
        lengths, rows = np.cumsum(run.length), np.cumsum(run.n_rec)
        within = int(np.searchsorted(run.base_lsn + run.n_rec, to_lsn, "right"))
        fits = (lengths <= self._bytes) & (rows <= self._rows)
        count = min(int(fits.sum()), within)
        if count == 0 and within and not self._has_taken:
            count = 1
        if count:
            self._has_taken = self._has_taken or bool(rows[count - 1])
            self._bytes -= int(lengths[count - 1])
            self._rows -= int(rows[count - 1])
        return count

    def take_rest(self, at: Position, following: SegmentHeader) -> bool:
        """All that is left of a segment, unseen, if that is within the limits."""
        size, rows = following.prev_end - at.offset, following.first_lsn - at.lsn
        if size > self._bytes or rows > self._rows:
            return False
        self._has_taken = self._has_taken or rows > 0
        self._bytes -= max(0, size)
        self._rows -= rows
        return True


def advance(log: Log, at: Position, to: Position, most_bytes: int, most_rows: int) -> Position:
    """
    Go on by so much at most, but by one frame at least if there is one.

    :param at: where a frame is, as `locate` has found it.
    :param to: not beyond this LSN.
    """
    limits = _Limits(most_bytes, most_rows)
    while at.lsn < to.lsn:
        rest = log.following(at.seq)
        if rest is not None and rest.first_lsn <= to.lsn and limits.take_rest(at, rest):
            at = log.beginning(at.seq + 1)
            continue
        for piece in log.frames(at):
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
        following = log.following(at.seq)
        if following is None:
            return at
        at = log.beginning(at.seq + 1)
    return at


def parts(log: Log, start: Position, end: Position) -> Iterator[Share | Lost]:
    at = start
    while at.lsn < end.lsn:
        place = locate(log, at)
        if isinstance(place, Lost):
            yield place
            at = place.after
            continue
        following = log.following(place.seq)
        if following is not None and following.first_lsn < end.lsn:
            stop, at = following.prev_end, log.beginning(place.seq + 1)
        elif following is None and place.seq < log.numbers[-1] and end.seq > place.seq:
            at = log.measured(place.seq)
            stop = at.offset
        else:
            stop, at = _stop(log, place, end, following), end
        if stop > place.offset:
            yield _part(log, place, stop)


def _stop(log: Log, place: Position, end: Position, following: SegmentHeader | None) -> int:
    if end.seq != place.seq:
        return find(log, place.seq, end.lsn).offset
    return end.offset if following is None else min(end.offset, following.prev_end)


def _part(log: Log, place: Position, stop: int) -> Share:
    header = log.header(place.seq)
    # A re-homed one may say the names of its tubes further on, but in its first batch.  Not to the
    # end of the file: that is cut off when the segment is sealed.
    size = max(stop, log.end(place.seq)) if header.flags & REHOMED else stop
    path, *elsewhere = log.paths(place.seq)
    return Share(
        Place(path, header, log.store), Stretch(place.offset, stop, place.lsn), size,
        elsewhere=tuple(elsewhere),
    )  # fmt: skip
