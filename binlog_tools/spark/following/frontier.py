"""
How far the newest segment of a log is durable, when only what has come since a place is looked at.

The bytes above the watermark are read anew each time: until they are durable they may change.
"""

import os
from typing import Final, NamedTuple

import numpy as np

from beanstalk_twisted.binlog import frames
from beanstalk_twisted.binlog.format import SegmentHeader
from beanstalk_twisted.binlog.frames import Frame
from binlog_tools.spark.following.positions import Position
from binlog_tools.spark.segments.framing import Ints, Run, Stretch, runs

READ_BYTES: Final = 1 << 18
"""What is read at once of a segment that is being written: most of the time a few frames are new,
and the rest is zeros."""


class Durable(NamedTuple):
    """
    How far a segment that is being written was durable at an earlier look.

    :ivar salt: of the segment, which tells it from any other.
    """

    salt: int
    at: Position


def durable_end(fd: int, header: SegmentHeader, start: Position, is_finished: bool) -> Position:
    """
    How far a segment is durable, of which no successor says it.

    :param start: durable.
    :param is_finished: the file will not change any more: all of it is.
    """
    watermark, at, want = start.lsn - 1, start, READ_BYTES
    seen: list[tuple[Ints, Ints]] = []
    while True:
        chunk, base = os.pread(fd, want, at.offset), at.offset
        whole = Stretch(0, len(chunk), at.lsn)
        for piece in runs(memoryview(chunk), header, whole, "headers"):
            if isinstance(piece, Run):
                watermark = max(watermark, int(piece.durable_lsn.max()))
                seen.append((piece.offset + piece.length + base, piece.base_lsn + piece.n_rec))
                at = Position(at.seq, base + piece.end, piece.next_lsn)
        if at.offset == base:
            found = frames.decode_header(chunk, 0, len(chunk), header.salt)
            if not isinstance(found, Frame) or found.end <= want or len(chunk) < want:
                break
            want = found.end
    if is_finished:
        watermark = at.lsn - 1
    for ends, lsns in reversed(seen):
        count = int(np.searchsorted(lsns, watermark + 1, "right"))
        if count:
            return Position(at.seq, int(ends[count - 1]), int(lsns[count - 1]))
    return start
