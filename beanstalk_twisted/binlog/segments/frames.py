"""Records into frames and back.  A frame counts as a whole or not at all: a reader has three
answers and no policy, `Frame`, `Incomplete` and `Damage`.
"""

import sys
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from beanstalk_twisted.binlog.records.jobs import NO_DATA, Flag
from beanstalk_twisted.binlog.records.others import (
    DATA_CRC,
    DATA_LEN,
    DATA_OFF,
    FLAGS,
    JOB_KINDS,
    TYPE,
    NotUnderstood,
    Raw,
    Record,
    TubeDef,
)
from beanstalk_twisted.binlog.segments.format import (
    ALIGN_BYTES,
    FRAME_CHECKED,
    FRAME_HEADER,
    FRAME_HEADER_BYTES,
    FRAME_MAGIC,
    FRAME_TARGET_BYTES,
    KIND_AND_ID,
    MAX_FRAME_BYTES,
    MAX_FRAME_RECORDS,
    RECORD,
    RECORD_BYTES,
    U32,
)

Buffer = bytes | bytearray | memoryview

Piece = tuple[bytes, bytes]
"""A record, or several without data, and its data."""

_ZERO_MAGIC = bytes(len(FRAME_MAGIC))
_PADDING: Final = tuple([bytes(size) for size in range(ALIGN_BYTES)])
_ID_AT: Final = 1
_REC_CRC_AT: Final = 12
_HEAP_CRC_AT: Final = 56
_FLAGS_AT: Final = 2
_KINDS_OF_JOBS: Final = bytes(sorted(JOB_KINDS))
_WITHOUT_TAGS: Final = bytes(flags for flags in range(256) if not flags & Flag.EXT)
_LONGS: Final = RECORD_BYTES // 8

MAX_LSN: Final = (1 << 63) - 1
"""More records than a log can have."""

CAN_CUT_COLUMNS: Final = sys.byteorder == "little"
"""Memoryviews know the byte order of the machine only; a log's is little-endian."""

PIECEWISE_BYTES: Final = 256 << 10
"""A heap of this size is not joined before its frame is: to copy 15 MiB once takes 20 ms."""

OTHER_SEGMENT: Final = "it belongs to another segment"
"""Why a frame is damage whose salt is not that of the segment."""


class Frame(NamedTuple):
    """A frame whose checksums hold, and where it, its record array and its heap start."""

    offset: int
    end: int
    base_lsn: int
    n_rec: int
    durable_lsn: int
    time_ns: int
    rec_size: int
    records_at: int
    heap_at: int
    heap_len: int
    flags: int

    @property
    def next_lsn(self) -> int:
        return self.base_lsn + self.n_rec


class Incomplete(NamedTuple):
    """No frame yet: the buffer ends inside it, or zeros follow."""

    offset: int


class Damage(NamedTuple):
    """No frame: the bytes at ``offset`` cannot be right."""

    offset: int
    why: str


class EncodedRecords:
    """The records of a batch as bytes, cut into the frames that they will have.

    A frame ends before it would pass `FRAME_TARGET_BYTES`; a larger record has a frame of its own.

    :ivar frames: their records, in order.
    :ivar newest: those of the last frame, ``newest_bytes`` their size; as if it were full before
        there is one.
    :ivar heap_bytes: of the data in that.
    :ivar names: of the tubes that the records define.
    """

    __slots__ = ("_full_bytes", "frames", "heap_bytes", "names", "newest", "newest_bytes")

    def __init__(self) -> None:
        self.frames: list[list[Piece]] = []
        self.newest: list[Piece] = []
        self.newest_bytes, self._full_bytes = FRAME_TARGET_BYTES, -FRAME_TARGET_BYTES
        self.heap_bytes = 0
        self.names: dict[int, bytes] = {}

    @property
    def size(self) -> int:
        """Bytes of the records, data included."""
        return self._full_bytes + self.newest_bytes

    def has_room(self, size: int) -> bool:
        """Whether this many bytes fit into the newest frame."""
        return self.newest_bytes + size <= FRAME_TARGET_BYTES

    def begin_frame(self) -> None:
        newest: list[Piece] = []
        self.frames.append(newest)
        self._full_bytes += self.newest_bytes
        self.newest, self.newest_bytes, self.heap_bytes = newest, 0, 0

    def append(self, record: Record) -> None:
        self.append_whole((record,))

    def append_whole(self, records: Sequence[Record]) -> None:
        """Append records that one frame has to hold: all, or none."""
        size = sum_bytes(records)
        if self.newest_bytes and not self.has_room(size):
            self.begin_frame()
        pieces: list[Piece] = []
        heap_bytes = self.heap_bytes
        for record in records:
            data = record.data
            place = (heap_bytes, len(data), zlib.crc32(data)) if data else NO_DATA
            pieces.append((record.encode(place), data))
            heap_bytes += len(data)
            if isinstance(record, TubeDef):
                # Should this be done again, nothing is different.
                self.names[record.tube_id] = record.name
        newest_bytes = self.newest_bytes + size
        self.newest.extend(pieces)
        self.newest_bytes, self.heap_bytes = newest_bytes, heap_bytes


def sum_bytes(records: Sequence[Record]) -> int:
    """The bytes of records, data included."""
    return sum([RECORD_BYTES + record.data_bytes for record in records])


def encode(
    records: Sequence[Record], base_lsn: int, durable_lsn: int | None, time_ns: int, salt: int
) -> bytes:
    """One frame; no records make a sync mark.  The caller keeps within the limits."""
    encoded = EncodedRecords()
    encoded.append_whole(records)
    array, heap = join(encoded.newest)
    n_rec = len(array) // RECORD_BYTES
    return assemble(array, heap, n_rec, base_lsn, durable_lsn, time_ns, salt)


def join(pieces: Sequence[Piece]) -> tuple[bytes, Sequence[bytes]]:
    """Return the record array of a frame and its heap, which if it is large stays in pieces."""
    if len(pieces) == 1:
        # A lone client's.
        return pieces[0][0], (pieces[0][1],)
    records, heap = zip(*pieces, strict=True) if pieces else ((), ())
    is_small = sum(map(len, heap)) < PIECEWISE_BYTES
    return b"".join(records), (b"".join(heap),) if is_small else heap


def assemble(
    array: Buffer, heap: Sequence[Buffer], n_rec: int, base_lsn: int, durable_lsn: int | None,
    time_ns: int, salt: int, rec_size: int = RECORD_BYTES, flags: int = 0,
) -> bytes:  # fmt: skip
    """A frame around a record array and a heap, in pieces, that are already bytes.

    :param durable_lsn: None for the LSN of the last record.
    """
    if durable_lsn is None:
        durable_lsn = base_lsn + n_rec - 1
    heap_len = heap_crc = 0
    for piece in heap:
        heap_len += len(piece)
        heap_crc = zlib.crc32(piece, heap_crc)
    unpadded = FRAME_HEADER_BYTES + len(array) + heap_len
    padding = -unpadded % ALIGN_BYTES
    checked = FRAME_CHECKED.pack(
        zlib.crc32(array), unpadded + padding, n_rec, base_lsn, durable_lsn, time_ns, salt,
        heap_len, heap_crc, rec_size, flags, 0,
    )  # fmt: skip
    hdr_crc = zlib.crc32(checked).to_bytes(4, "little")
    return b"".join((FRAME_MAGIC, hdr_crc, checked, array, *heap, _PADDING[padding]))


def decode(
    buffer: Buffer, at: int, end: int, salt: int, leaves_bodies: bool = False
) -> Frame | Incomplete | Damage:
    """Read the frame that starts at ``at``.

    :param buffer: a segment from its start.
    :param end: where its data end at the latest, ``at <= end <= len(buffer)``.
    :param salt: the segment's.
    :param leaves_bodies: whether bodies of jobs without tags may be damaged.  A heap that
        `holds_bodies_only` is not looked at.
    :return: `Incomplete` when the bytes end inside the frame or its magic is still zero; `Damage`
        when magic, lengths or a checksum cannot be right.  Never raises for bad bytes.
    """
    frame = decode_header(buffer, at, end, salt)
    if not isinstance(frame, Frame):
        return frame
    if frame.end > end:
        return Incomplete(at)
    if not has_sound_records(buffer, frame):
        return Damage(at, "the checksum of its records is wrong")
    if leaves_bodies and holds_bodies_only(buffer, frame):
        return frame
    if has_sound_heap(buffer, frame) or (leaves_bodies and has_sound_others(buffer, frame)):
        return frame
    return Damage(at, "the checksum of its bodies is wrong")


def has_sound_records(buffer: Buffer, frame: Frame) -> bool:
    records = memoryview(buffer)[frame.records_at : frame.heap_at]
    return zlib.crc32(records) == int(U32.unpack_from(buffer, frame.offset + _REC_CRC_AT)[0])


def has_sound_heap(buffer: Buffer, frame: Frame) -> bool:
    expected = int(U32.unpack_from(buffer, frame.offset + _HEAP_CRC_AT)[0])
    return zlib.crc32(heap(buffer, frame)) == expected


def has_data(buffer: Buffer, frame: Frame, raw: Raw) -> bool:
    """Return True if a record's data lie in its frame and have the checksum that it names."""
    try:
        return zlib.crc32(data_of(buffer, frame, raw)) == raw[DATA_CRC]
    except NotUnderstood:
        return False


def has_sound_data(raw: Raw, data: bytes) -> bool:
    """Whether the checksum of a record's data holds; where there are none, none is looked at."""
    return not data or zlib.crc32(data) == raw[DATA_CRC]


def holds_bodies_only(buffer: Buffer, frame: Frame) -> bool:
    """Whether the heap of a frame, whose records are sound, has nothing but bodies of jobs: nothing
    that is needed before a body is asked for.  False where columns cannot be cut.
    """
    if frame.rec_size != RECORD_BYTES or not CAN_CUT_COLUMNS:
        return False
    array = memoryview(buffer)[frame.records_at : frame.heap_at]
    return not (
        bytes(array[::RECORD_BYTES]).translate(None, _KINDS_OF_JOBS)
        or bytes(array[_FLAGS_AT::RECORD_BYTES]).translate(None, _WITHOUT_TAGS)
    )


def has_sound_others(buffer: Buffer, frame: Frame) -> bool:
    """Whether in a damaged heap all is sound but bodies of jobs without tags."""
    data = heap(buffer, frame)
    return all(
        (raw[TYPE] in JOB_KINDS and not raw[FLAGS] & Flag.EXT)
        or zlib.crc32(data[raw[DATA_OFF] : raw[DATA_OFF] + raw[DATA_LEN]]) == raw[DATA_CRC]
        for raw in raw_records(buffer, frame)
    )  # fmt: skip


def in_order(
    buffer: Buffer, at: int, end: int, salt: int, lsn: int, leaves_bodies: bool = False
) -> Iterator[Frame]:
    """The frames from ``at`` on, up to the first place where none has the LSN that follows.

    :param lsn: the first frame's; the other parameters are those of `decode`.
    """
    while at < end:
        frame = decode(buffer, at, end, salt, leaves_bodies)
        if not isinstance(frame, Frame) or frame.base_lsn != lsn:
            return
        yield frame
        at, lsn = frame.end, frame.next_lsn


def decode_header(buffer: Buffer, at: int, end: int, salt: int) -> Frame | Incomplete | Damage:
    """Read a frame's header and believe it without looking at the payload; see `decode`."""
    if end - at < FRAME_HEADER_BYTES:
        return Incomplete(at)
    fields = FRAME_HEADER.unpack_from(buffer, at)
    (magic, hdr_crc, _, frame_len, n_rec, _, _, _, seg_salt, heap_len, _, rec_size, _,
     codec) = fields  # fmt: skip
    if magic != FRAME_MAGIC:
        return Incomplete(at) if magic == _ZERO_MAGIC else Damage(at, "no frame begins here")
    if zlib.crc32(memoryview(buffer)[at + 12 : at + FRAME_HEADER_BYTES]) != hdr_crc:
        return Damage(at, "the checksum of its header is wrong")
    if seg_salt != salt:
        return Damage(at, OTHER_SEGMENT)
    why = _impossible(frame_len, n_rec, rec_size, heap_len, codec)
    if why:
        return Damage(at, why)
    return _frame(at, fields)


def is_of_another(buffer: Buffer, at: int, end: int, salt: int) -> bool:
    """Whether a frame begins there that belongs to another segment than that with this salt."""
    found = decode_header(buffer, at, end, salt)
    return isinstance(found, Damage) and found.why == OTHER_SEGMENT


def known(buffer: Buffer, at: int) -> Frame:
    """The frame at a place where one was found before; it is not checked again."""
    return _frame(at, FRAME_HEADER.unpack_from(buffer, at))


def _frame(at: int, fields: tuple[Any, ...]) -> Frame:
    (_, _, _, frame_len, n_rec, base_lsn, durable_lsn, time_ns, _, heap_len, _, rec_size, flags,
     _) = fields  # fmt: skip
    records_at = at + FRAME_HEADER_BYTES
    return Frame(
        at, at + frame_len, base_lsn, n_rec, durable_lsn, time_ns, rec_size, records_at,
        records_at + n_rec * rec_size, heap_len, flags,
    )  # fmt: skip


def _impossible(frame_len: int, n_rec: int, rec_size: int, heap_len: int, codec: int) -> str:
    unpadded = FRAME_HEADER_BYTES + n_rec * rec_size + heap_len
    if rec_size < RECORD_BYTES or frame_len != unpadded + -unpadded % ALIGN_BYTES:
        return "its lengths contradict each other"
    if n_rec > MAX_FRAME_RECORDS or (frame_len > MAX_FRAME_BYTES and n_rec != 1):
        return "it is larger than a frame may be"
    return f"its heap is compressed in an unknown way ({codec})" if codec else ""


def raw_records(buffer: Buffer, frame: Frame) -> Iterator[Raw]:
    if frame.rec_size == RECORD_BYTES:
        return RECORD.iter_unpack(memoryview(buffer)[frame.records_at : frame.heap_at])
    return (raw_record(buffer, frame, index) for index in range(frame.n_rec))


def raw_record(buffer: Buffer, frame: Frame, index: int) -> Raw:
    return RECORD.unpack_from(buffer, frame.records_at + index * frame.rec_size)


def record_bytes(buffer: Buffer, frame: Frame, index: int) -> bytes:
    """One record of a frame as it stands there, `RECORD_BYTES`: half of what its fields take."""
    at = frame.records_at + index * frame.rec_size
    return bytes(buffer[at : at + RECORD_BYTES])


def kinds_and_ids(buffer: Buffer, frame: Frame) -> Iterator[tuple[int, int]]:
    """Type and job id of each record of a frame, in LSN order: what most of a replay looks at."""
    array = memoryview(buffer)[frame.records_at : frame.heap_at]
    if frame.rec_size == RECORD_BYTES:
        return KIND_AND_ID.iter_unpack(array)
    return (KIND_AND_ID.unpack_from(array, at) for at in range(0, len(array), frame.rec_size))


def ids_if_all(buffer: Buffer, frame: Frame, kinds: bytes) -> list[int] | None:
    """The job ids of a frame all of whose records are of these kinds; None of any other frame, and
    where columns cannot be cut.  A fifth of the time of `kinds_and_ids`.
    """
    if frame.rec_size != RECORD_BYTES or not CAN_CUT_COLUMNS:
        return None
    array = memoryview(buffer)[frame.records_at : frame.heap_at]
    if bytes(array[::RECORD_BYTES]).translate(None, kinds):
        return None
    return array.cast("Q")[_ID_AT::_LONGS].tolist()


def record_arrays(buffer: Buffer, frame: Frame, indexes: Sequence[int]) -> list[memoryview]:
    """Some records of a frame, `RECORD_BYTES` each, in as few pieces as can be."""
    array = memoryview(buffer)[frame.records_at : frame.heap_at]
    size = frame.rec_size
    if len(indexes) == frame.n_rec and size == RECORD_BYTES:
        return [array]
    return [array[size * at : size * at + RECORD_BYTES] for at in indexes]


def lsns(frame: Frame, indexes: Sequence[int]) -> Sequence[int]:
    """:return: the LSNs of some records; 0 for each if no log can have them."""
    if frame.next_lsn > MAX_LSN:
        return [0] * len(indexes)
    base_lsn = frame.base_lsn
    if isinstance(indexes, range):
        return range(base_lsn + indexes.start, base_lsn + indexes.stop, indexes.step)
    return list(map(base_lsn.__add__, indexes))


def heap(buffer: Buffer, frame: Frame) -> memoryview:
    return memoryview(buffer)[frame.heap_at : frame.heap_at + frame.heap_len]


def whole_record(buffer: Buffer, frame: Frame, index: int) -> tuple[Raw, bytes]:
    """The fields of one record of a frame, and its data; see `data_of`."""
    raw = RECORD.unpack_from(buffer, frame.records_at + index * frame.rec_size)
    return raw, data_of(buffer, frame, raw)


def data_of(buffer: Buffer, frame: Frame, raw: Raw) -> bytes:
    """A record's data.  NotUnderstood if it points outside its frame's heap."""
    offset, length = raw[DATA_OFF], raw[DATA_LEN]
    if offset + length > frame.heap_len:
        raise NotUnderstood("a record's data lie outside its frame")
    at = frame.heap_at + offset
    return bytes(buffer[at : at + length])
