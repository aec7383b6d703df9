"""The seal and the trailer of a finished segment: docs/binlog-format.md, "Seal and trailer"."""

import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.records.others import TYPE, NotUnderstood, Seal
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import (
    SEAL_HEAD,
    SEGMENT_HEADER_BYTES,
    TRAILER,
    TRAILER_BYTES,
    TRAILER_MAGIC,
    SegmentHeader,
)
from beanstalk_twisted.binlog.segments.frames import Buffer, Frame

VERSION: Final = 1
"""Of a seal's data; what others say is not used."""

ReadPart = Callable[[int, int], Buffer]
"""Gives the bytes of one file from an offset to another, or to where the file ends."""


class IndexedFrame(NamedTuple):
    """Where a frame begins, the LSN of its first record, and when it was built."""

    offset: int
    base_lsn: int
    time_ns: int


class SealIndex(NamedTuple):
    """The data of a SEAL record.

    :ivar jobs: smallest and largest job id; ``times_ns``, likewise of the times of jobs' records;
        both (0, 0) if there are none.
    :ivar indexed: some of the frames, the first one among them.
    :ivar types: how many records there are of each type.
    """

    records: int
    jobs: tuple[int, int]
    times_ns: tuple[int, int]
    indexed: tuple[IndexedFrame, ...]
    types: Mapping[int, int]
    tubes: Mapping[int, bytes]

    def encode(self) -> bytes:
        head = SEAL_HEAD.pack(
            VERSION, len(self.indexed), self.records, *self.jobs, *self.times_ns,
            len(self.types), len(self.tubes),
        )  # fmt: skip
        count = len(self.indexed)
        columns = (
            struct.pack(f"<{count}Q", *(each.base_lsn for each in self.indexed)),
            struct.pack(f"<{count}q", *(each.time_ns for each in self.indexed)),
            struct.pack(f"<{count}I", *(each.offset // 8 for each in self.indexed)),
        )
        types = (struct.pack("<II", kind, n) for kind, n in sorted(self.types.items()))
        tubes = (struct.pack("<IH", tube, len(name)) + name for tube, name in self.tubes.items())
        return b"".join([head, *columns, *types, *tubes])


class FoundSeal(NamedTuple):
    """A seal as it stands in a segment.

    :ivar end: where its frame ends, and the trailer begins.
    :ivar sealed_ns: when that frame was built: no frame of the segment is younger.
    """

    end: int
    next_lsn: int
    sealed_ns: int
    content: SealIndex


def read_seal(read: ReadPart, size: int, header: SegmentHeader) -> FoundSeal | None:
    """Read a seal from the end of a file of ``size`` bytes, in two short reads.

    :return: None if there is no seal that can be understood.
    :raise OSError: the file cannot be read.
    """
    end = size - TRAILER_BYTES
    if end < SEGMENT_HEADER_BYTES:
        return None
    seal_at = seal_offset(bytes(read(end, size)))
    if seal_at is None or not SEGMENT_HEADER_BYTES <= seal_at < end:
        return None
    raw = bytes(read(seal_at, end))
    frame = frames.decode(raw, 0, len(raw), header.salt)
    if not isinstance(frame, Frame) or not frame.n_rec or frame.end != len(raw):
        return None
    try:
        record, data = frames.whole_record(raw, frame, frame.n_rec - 1)
    except NotUnderstood:
        return None
    content = decode_seal(data) if record[TYPE] == Seal.kind else None
    return content and FoundSeal(end, frame.next_lsn, frame.time_ns, content)


def seal_offset(trailer: bytes) -> int | None:
    """Return where the frame of the seal begins, by the last 40 bytes of a file; None if these are
    no trailer.
    """
    if len(trailer) != TRAILER_BYTES:
        return None
    seal_at, _, _, _, crc, magic = TRAILER.unpack(trailer)
    is_trailer = magic == TRAILER_MAGIC and crc == zlib.crc32(trailer[:28])
    return int(seal_at) if is_trailer else None


def decode_seal(data: bytes) -> SealIndex | None:
    """:return: None if it is of another version, or ends too early; what follows is ignored."""
    try:
        return _decode(data)
    except struct.error:
        return None


def _decode(data: bytes) -> SealIndex | None:
    (version, n_index, records, low_job, high_job, low_ns, high_ns, n_types, n_tubes
     ) = SEAL_HEAD.unpack_from(data)  # fmt: skip
    if version != VERSION:
        return None
    at = SEAL_HEAD.size
    lsns = struct.unpack_from(f"<{n_index}Q", data, at)
    times = struct.unpack_from(f"<{n_index}q", data, at + 8 * n_index)
    offsets = struct.unpack_from(f"<{n_index}I", data, at + 16 * n_index)
    at += 20 * n_index
    types = struct.unpack_from(f"<{2 * n_types}I", data, at)
    tubes = _tubes(data, at + 8 * n_types, n_tubes)
    indexed = map(IndexedFrame, (8 * offset for offset in offsets), lsns, times)
    return SealIndex(
        records, (low_job, high_job), (low_ns, high_ns), tuple(indexed),
        dict(zip(types[::2], types[1::2], strict=True)), tubes,
    )  # fmt: skip


def _tubes(data: bytes, at: int, count: int) -> dict[int, bytes]:
    tubes = {}
    for _ in range(count):
        tube_id, length = struct.unpack_from("<IH", data, at)
        at += 6
        tubes[tube_id] = data[at : at + length]
        at += length
    if at > len(data):
        raise struct.error("it ends within the name of a tube")
    return tubes
