"""Where a stream goes on: its position, found again in a log as it now is.

A segment may begin below the position, if its first frames are those that were not known durable
before a crash: then the position is found in it by its LSN.
"""

from typing import NamedTuple

import numpy as np

from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import FRAME_HEADER_BYTES, SegmentHeader
from beanstalk_twisted.binlog.segments.frames import Frame
from binlog_tools.spark.definitions.errors import SourceError
from binlog_tools.spark.following.logs import Log
from binlog_tools.spark.following.positions import Position
from binlog_tools.spark.reading.increments import header_mark
from binlog_tools.spark.segments.framing import Run


class Lost(NamedTuple):
    """Records that are in no segment any more.

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
        return (
            f"store {self.store}: segment {self.before.seq} (LSN {self.before.lsn} to "
            f"{self.after.lsn - 1}) was removed before this query had read it"
        )

    def error(self) -> SourceError:
        return SourceError(
            "BINLOG_TRIMMED",
            f"{self.what}; name the server's archive with .option('archive', DIR) if it has one; "
            f"else go on without these records, and with a damage row in their place, with "
            f".option('failOnDataLoss', 'false')",
        )


def refuse_other_segment(log: Log, at: Position, mark: int | None) -> None:
    """:param mark: `header_mark` of the segment in which the position was, if it is known.
    :raise SourceError: that is now another segment.
    """
    if mark is not None and at.seq in log.numbers and header_mark(log.header(at.seq)) != mark:
        raise _differs(log, f"segment {at.seq} is another one", at)


def refuse_other_history(log: Log, at: Position) -> None:
    """:raise SourceError: this is not the log in which the position was."""
    frontier = log.frontier()
    if log.numbers[-1] < at.seq:
        raise _differs(log, f"its newest segment is {log.numbers[-1]}", at)
    if frontier.seq == at.seq and frontier.lsn < at.lsn:
        raise _differs(log, f"that has {frontier.lsn - 1} for its last one", at)
    if frontier.lsn >= at.lsn:
        locate(log, at)
    # Else it was written once more after a crash, and is not known durable yet.


def locate(log: Log, at: Position) -> Position | Lost:
    """:raise SourceError: this is another history than the one in which the position was."""
    numbers = [seq for seq in log.numbers if seq >= at.seq]
    if not numbers:
        raise _differs(log, f"its newest segment is {log.numbers[-1]}", at)
    seq = numbers[0]
    if log.header(seq).first_lsn > at.lsn:
        if seq == at.seq:
            raise _differs(log, f"segment {seq} begins with {log.header(seq).first_lsn}", at)
        return _lost(log, at, seq)
    for later in numbers[1:]:
        if log.header(later).first_lsn > at.lsn:
            break
        seq = later
    if seq == at.seq:
        return _in_place(log, at)
    if log.header(seq).first_lsn == at.lsn:
        return log.beginning(seq)
    return find(log, seq, at.lsn)


def find(log: Log, seq: int, lsn: int) -> Position:
    """:raise SourceError: no frame of the segment begins with this LSN."""
    for run in log.frames(log.beginning(seq)):
        if isinstance(run, Run):
            places = np.flatnonzero((run.base_lsn == lsn) & (run.n_rec > 0))
            if len(places):
                return Position(seq, int(run.offset[places[0]]), lsn)
            if run.next_lsn == lsn:
                return Position(seq, run.end, lsn)
    raise _differs(log, f"in segment {seq} no frame begins with it", Position(seq, 0, lsn))


def _lost(log: Log, at: Position, seq: int) -> Lost:
    path = log.paths(seq)[0]
    return Lost(log.store, at, log.beginning(seq), path, log.header(seq))


def _in_place(log: Log, at: Position) -> Position | Lost:
    later = [seq for seq in log.numbers if seq > at.seq]
    if later and later[0] > at.seq + 1 and at.offset >= log.end(at.seq):
        return _lost(log, at._replace(seq=at.seq + 1), later[0])
    _prove(log, at)
    return at


def _prove(log: Log, at: Position) -> None:
    following = log.following(at.seq)
    if following is not None and at.offset >= following.prev_end:
        return
    with log.open(at.seq) as file:
        raw = file.read(at.offset, at.offset + FRAME_HEADER_BYTES)
    found = frames.decode_header(raw, 0, len(raw), log.header(at.seq).salt)
    if isinstance(found, Frame) and found.base_lsn != at.lsn:
        raise _differs(log, f"LSN {found.base_lsn} stands there", at)


def _differs(log: Log, what: str, at: Position) -> SourceError:
    return SourceError(
        "BINLOG_HISTORIES_DIFFER",
        f"store {log.store}: this query has read up to LSN {at.lsn - 1}, to byte {at.offset} "
        f"of segment {at.seq}, but {what}: the log was restored from an older copy, or its "
        f"directory exchanged; begin anew with another checkpoint",
    )
