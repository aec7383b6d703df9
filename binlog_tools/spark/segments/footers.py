"""
What the seal of a finished segment says of it; docs/binlog-format.md, "Seal and trailer".
"""

import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import numpy as np

from beanstalk_twisted.binlog import frames
from beanstalk_twisted.binlog.format import (
    SEAL_HEAD,
    SEGMENT_HEADER_BYTES,
    TRAILER,
    TRAILER_BYTES,
    TRAILER_MAGIC,
    SegmentHeader,
)
from beanstalk_twisted.binlog.frames import Frame
from beanstalk_twisted.binlog.records import NotUnderstood, Seal

VERSION: Final = 1
"""Of the index; what others say is not used."""


ReadPart = Callable[[int, int], bytes]
"""Gives the bytes of a file from one offset to another, or to its end."""


class Indexed(NamedTuple):
    offset: int
    base_lsn: int
    time_ns: int


class Footer(NamedTuple):
    """
    What a seal says.

    :ivar end: where the frame of the seal ends; ``next_lsn``, the LSN behind the segment.
    :ivar sealed_ns: when that frame was built: no frame of the segment is younger.
    :ivar jobs: smallest and largest job id; ``times_ns``, likewise of the times of jobs' records;
        both (0, 0) if there are none.
    :ivar indexed: some of the frames, the first one among them.
    :ivar types: how many records there are of each type, the seal not counted.
    """

    end: int
    next_lsn: int
    sealed_ns: int
    jobs: tuple[int, int]
    times_ns: tuple[int, int]
    indexed: tuple[Indexed, ...]
    types: Mapping[int, int]
    tubes: Mapping[int, bytes]


def read_footer(read: ReadPart, size: int, header: SegmentHeader) -> Footer | None:
    """
    :param size: of the file.
    :return: None if there is no seal that can be understood; it only speeds readers up.
    """
    if size < SEGMENT_HEADER_BYTES + TRAILER_BYTES:
        return None
    end = size - TRAILER_BYTES
    trailer = read(end, size)
    if len(trailer) < TRAILER_BYTES:
        return None
    seal_at, _, _, _, crc, magic = TRAILER.unpack(trailer)
    if magic != TRAILER_MAGIC or zlib.crc32(trailer[:28]) != crc:
        return None
    if not SEGMENT_HEADER_BYTES <= seal_at < end:
        return None
    raw = read(seal_at, end)
    frame = frames.decode(raw, 0, len(raw), header.salt)
    if not isinstance(frame, Frame) or not frame.n_rec or frame.end != len(raw):
        return None
    record = frames.raw_record(raw, frame, frame.n_rec - 1)
    try:
        if record[0] != Seal.kind:
            return None
        return _parsed(frames.data_of(raw, frame, record), end, frame)
    except (NotUnderstood, struct.error, ValueError):
        return None


def _parsed(data: bytes, end: int, frame: Frame) -> Footer | None:
    (version, n_index, _, low_job, high_job, low_ns, high_ns, n_types, n_tubes
     ) = SEAL_HEAD.unpack_from(data)  # fmt: skip
    if version != VERSION:
        return None
    at = SEAL_HEAD.size
    lsns = np.frombuffer(data, "<u8", n_index, at).tolist()
    times = np.frombuffer(data, "<i8", n_index, at + 8 * n_index).tolist()
    offsets = np.frombuffer(data, "<u4", n_index, at + 16 * n_index).tolist()
    at += 20 * n_index
    types = struct.unpack_from(f"<{2 * n_types}I", data, at)
    tubes = _tubes(data, at + 8 * n_types, n_tubes)
    indexed = (Indexed(8 * offset, lsn, time_ns) for offset, lsn, time_ns in
               zip(offsets, lsns, times, strict=True))  # fmt: skip
    return Footer(
        end, frame.next_lsn, frame.time_ns, (low_job, high_job), (low_ns, high_ns),
        tuple(indexed), dict(zip(types[::2], types[1::2], strict=True)), tubes,
    )  # fmt: skip


def _tubes(data: bytes, at: int, count: int) -> dict[int, bytes]:
    tubes = {}
    for _ in range(count):
        tube_id, length = struct.unpack_from("<IH", data, at)
        tubes[tube_id] = data[at + 6 : at + 6 + length]
        at += 6 + length
    return tubes
