"""What stands behind the end of a segment: nothing that a record depends on."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from beanstalk_twisted.binlog.reading.segment import has_content
from beanstalk_twisted.binlog.records.decoding import TYPE, NotUnderstood
from beanstalk_twisted.binlog.records.others import Seal
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import SEAL_HEAD
from beanstalk_twisted.binlog.segments.frames import Buffer, Frame
from beanstalk_twisted.binlog.segments.framing import encode_trailer


class Remark(NamedTuple):
    """
    Bytes that are not what was written there.

    :ivar offset: where they begin, ``end`` where they or the file end.
    """

    offset: int
    end: int
    what: str


def remarks(buffer: Buffer, last: Frame | None, at: int) -> Iterator[Remark]:
    """
    What is not as it should be behind the last frame, which is the trailer of its seal, or nothing.

    :param at: where that frame ends, or the header if there is none.
    """
    try:
        trailer = _trailer(buffer, last) if last else b""
    except (NotUnderstood, struct.error):
        yield Remark(at, at, "the seal before it says nothing")
        return
    behind, end = bytes(buffer[at : at + len(trailer)]), at + len(trailer)
    if behind != trailer:
        what = "the trailer is not that of the segment's seal"
        if not has_content(behind, 0, len(behind)) or len(behind) < len(trailer):
            what = "the trailer is missing, or cut short"
        yield Remark(at, min(end, len(buffer)), what)
    elif len(buffer) > end:
        what = f"{len(buffer) - end} bytes stand behind the end of the segment"
        yield Remark(end, len(buffer), what)


def has_seal(buffer: Buffer, last: Frame) -> bool:
    """Whether the last record of a frame is a SEAL."""
    return bool(last.n_rec) and (frames.raw_record(buffer, last, last.n_rec - 1)[TYPE] == Seal.kind)


def _trailer(buffer: Buffer, last: Frame) -> bytes:
    """
    The trailer that stands behind a last frame; nothing if that holds no seal.

    :raise NotUnderstood, struct.error: what it holds is none that we write.
    """
    if not has_seal(buffer, last):
        return b""
    raw = frames.raw_record(buffer, last, last.n_rec - 1)
    _, n_index, n_rec, *_ = SEAL_HEAD.unpack_from(frames.data_of(buffer, last, raw))
    return encode_trailer(last.offset, last.next_lsn - 1, n_rec, n_index)
