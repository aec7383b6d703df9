"""Records into frames and back: whole, byte by byte, with bytes behind, and from hostile hands."""

import struct
import zlib
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beanstalk_twisted.binlog.reading.searching import resynchronise
from beanstalk_twisted.binlog.records.jobs import JobImage, Kind
from beanstalk_twisted.binlog.records.others import (
    DATA_LEN,
    JOB_ID,
    CleanStop,
    Counters,
    NotUnderstood,
    Record,
    Seal,
    decode_record,
)
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import (
    FRAME_HEADER_BYTES,
    FRAME_MAGIC,
    FRAME_TARGET_BYTES,
    MAX_FRAME_BYTES,
    MAX_FRAME_RECORDS,
    RECORD,
    RECORD_BYTES,
)
from beanstalk_twisted.binlog.segments.frames import (
    PIECEWISE_BYTES,
    Damage,
    EncodedRecords,
    Frame,
    Incomplete,
)
from beanstalk_twisted.binlog.tags import Tags
from tests.binlog import independent_reader
from tests.binlog.scribe import DEFAULT_TUBE, SALT, T0, delete, encoded, flipped, image, put
from tests.binlog.segments.test_format import U32
from tests.binlog.test_records import any_record
from tests.sampling import share

CASES: dict[str, Sequence[Record]] = {
    "a sync mark": [],
    "a put": [DEFAULT_TUBE, put()],
    "an empty body": [put(body=b"")],
    "bodies of every padding": [put(n, b"x" * n) for n in range(9)],
    "records without data": [image(kind) for kind in (Kind.RESERVE, Kind.BURY, Kind.KICK)],
    "bodies with a magic in them": [put(1, FRAME_MAGIC), put(2, bytes(7) + FRAME_MAGIC * 2)],
    "a body of zeros": [put(body=bytes(64))],
    "the small ones": [Counters(0, T0, {"cmd-put": 3}), Seal(T0, b""), CleanStop(T0)],
    "a job's whole life": [put(), image(Kind.RESERVE), image(Kind.BURY), delete()],
}


def encode(records: Sequence[Record], base_lsn: int = 5, salt: int = SALT) -> bytes:
    return frames.encode(records, base_lsn=base_lsn, durable_lsn=4, time_ns=T0, salt=salt)


def decode(buffer: bytes, at: int = 0) -> Frame | Incomplete | Damage:
    return frames.decode(buffer, at, len(buffer), SALT)


def whole(raw: bytes) -> Frame:
    frame = decode(raw)
    assert isinstance(frame, Frame)
    return frame


def records_of(buffer: bytes, frame: Frame) -> list[Record]:
    raws = frames.raw_records(buffer, frame)
    return [decode_record(raw, frames.data_of(buffer, frame, raw)) for raw in raws]


every_case = pytest.mark.parametrize("records", CASES.values(), ids=CASES.keys())


@every_case
def test_both_readers_read_a_whole_frame(records: Sequence[Record]) -> None:
    raw = encode(records)
    frame = whole(raw)
    assert (frame.offset, frame.end, frame.n_rec) == (0, len(raw), len(records))
    assert (frame.base_lsn, frame.next_lsn, frame.durable_lsn) == (5, 5 + len(records), 4)
    assert frame.time_ns == T0
    assert records_of(raw, frame) == list(records)
    assert len(raw) % 8 == 0
    seen = independent_reader.read_frame(raw, 0, SALT)
    assert seen is not None
    assert (seen["base_lsn"], seen["durable_lsn"], seen["time_ns"]) == (5, 4, T0)
    assert [r["data"] for r in seen["records"]] == [r.data for r in records]
    assert [r["type"] for r in seen["records"]] == [int(r.kind) for r in records]


@every_case
def test_every_prefix_of_a_frame_is_incomplete(records: Sequence[Record]) -> None:
    raw = encode(records)
    for length in range(len(raw)):
        assert decode(raw[:length]) == Incomplete(0), length


@every_case
def test_every_prefix_followed_by_zeros_is_never_another_frame(records: Sequence[Record]) -> None:
    raw = encode(records)
    for length in range(len(raw)):
        found = decode(raw[:length].ljust(len(raw) + 64, b"\0"))
        # A frame may end in zeros: then no byte of it is missing.
        is_whole = not any(raw[length:])
        assert isinstance(found, Frame) == is_whole, length


@every_case
def test_bytes_behind_and_before_a_frame_are_left_alone(records: Sequence[Record]) -> None:
    raw = encode(records)
    for before, behind in [(b"", b"\xff" * 9), (bytes(64), raw), (b"\xff" * 8, b"\0")]:
        buffer = before + raw + behind
        frame = decode(buffer, len(before))
        assert isinstance(frame, Frame)
        assert (frame.offset, frame.end) == (len(before), len(before) + len(raw))
        assert records_of(buffer, frame) == list(records)


@every_case
def test_a_bit_flipped_anywhere_is_seen_but_in_the_padding(records: Sequence[Record]) -> None:
    raw = encode(records)
    whole = decode(raw)
    assert isinstance(whole, Frame)
    for offset in range(whole.heap_at + whole.heap_len):
        for bit in range(8):
            assert isinstance(decode(flipped(raw, offset, bit)), Damage), (offset, bit)


@settings(deadline=None, max_examples=share(100, 3))
@given(st.lists(any_record, max_size=8), st.integers(1, 1 << 63))
def test_any_records_read_back(records: list[Record], base_lsn: int) -> None:
    raw = encode(records, base_lsn)
    frame = whole(raw)
    assert frame.base_lsn == base_lsn
    assert records_of(raw, frame) == records


@given(st.binary(max_size=300), st.booleans())
def test_arbitrary_bytes_are_no_frame_and_raise_nothing(raw: bytes, with_magic: bool) -> None:
    found = decode(FRAME_MAGIC + raw if with_magic else raw)
    assert isinstance(found, Incomplete | Damage)


@given(st.binary(min_size=52, max_size=52), st.binary(max_size=100))
def test_arbitrary_headers_with_a_right_checksum_raise_nothing(rest: bytes, tail: bytes) -> None:
    rest = rest[:36] + struct.pack("<I", SALT) + rest[40:]
    raw = FRAME_MAGIC + struct.pack("<I", zlib.crc32(rest)) + rest + tail
    assert isinstance(decode(raw), Frame | Incomplete | Damage)


def hostile(**changes: int) -> bytes:
    """A put whose header says something else, with the header's checksum right."""
    raw = bytearray(encode([put()]))
    for name, value in changes.items():
        offset, kind = independent_reader.FRAME[name]
        struct.pack_into("<" + kind, raw, offset, value)
    struct.pack_into("<I", raw, 8, zlib.crc32(raw[12:64]))
    return bytes(raw)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"frame_len": 0}, "lengths"),
        ({"frame_len": 8}, "lengths"),
        ({"frame_len": U32}, "lengths"),
        ({"n_rec": 0}, "lengths"),
        ({"n_rec": 2}, "lengths"),
        ({"n_rec": U32}, "lengths"),
        ({"heap_len": U32}, "lengths"),
        ({"rec_size": 0}, "lengths"),
        ({"rec_size": 79, "heap_len": 6}, "lengths"),
        ({"rec_size": 0xFFFF}, "lengths"),
        ({"codec": 1}, "unknown way"),
        ({"seg_salt": SALT + 1}, "another segment"),
        ({"rec_crc": 0}, "records"),
        ({"heap_crc": 0}, "bodies"),
    ],
)
def test_lengths_that_contradict_each_other_are_damage(changes: dict[str, int], why: str) -> None:
    found = decode(hostile(**changes))
    assert isinstance(found, Damage)
    assert why in found.why


def padded(length: int) -> int:
    return length + -length % 8


def test_a_frame_may_be_larger_than_the_limit_only_for_one_record() -> None:
    heap_len = MAX_FRAME_BYTES - FRAME_HEADER_BYTES - RECORD_BYTES
    for extra in (0, 8):
        frame_len = MAX_FRAME_BYTES + extra
        lone = hostile(frame_len=frame_len, heap_len=heap_len + extra)
        assert decode(lone) == Incomplete(0), "it is only not all there"
    two = heap_len - RECORD_BYTES
    assert decode(hostile(n_rec=2, frame_len=MAX_FRAME_BYTES, heap_len=two)) == Incomplete(0)
    too_large = hostile(n_rec=2, frame_len=MAX_FRAME_BYTES + 8, heap_len=two + 8)
    assert isinstance(decode(too_large), Damage)


@pytest.mark.parametrize(("extra", "kind"), [(0, Incomplete), (1, Damage)])
def test_a_frame_has_no_more_records_than_it_may(extra: int, kind: type) -> None:
    n_rec = MAX_FRAME_RECORDS + extra
    frame_len = padded(FRAME_HEADER_BYTES + n_rec * RECORD_BYTES)
    assert isinstance(decode(hostile(n_rec=n_rec, frame_len=frame_len, heap_len=0)), kind)


def test_records_with_columns_of_a_newer_version_are_read() -> None:
    records = [put(1, b"one"), put(2, b"two")]
    old = encode(records)
    array = b"".join(old[64 + i * 80 : 144 + i * 80] + b"\xee" * 16 for i in range(2))
    raw = frames.assemble(
        array, (b"onetwo",), n_rec=2, base_lsn=5, durable_lsn=4, time_ns=T0, salt=SALT, rec_size=96
    )
    frame = whole(raw)
    assert records_of(raw, frame) == records
    assert list(frames.kinds_and_ids(raw, frame)) == [(1, 1), (1, 2)]


@pytest.mark.parametrize("size", [PIECEWISE_BYTES - 1, PIECEWISE_BYTES])
def test_a_large_heap_reads_back_in_one_piece_or_many(size: int) -> None:
    records = [put(1, b"a" * 1000), delete(7), put(2, b"b" * (size - 1001)), put(3, b"c")]
    raw = frames.encode(records, base_lsn=5, durable_lsn=4, time_ns=T0, salt=SALT)
    seen = independent_reader.read_frame(raw, 0, SALT)
    assert seen is not None and seen["heap_len"] == size
    assert [record["data"] for record in seen["records"]] == [each.data for each in records]
    frame = decode(raw)
    assert isinstance(frame, Frame) and frame.end == len(raw)


def test_data_outside_its_frame_is_not_read() -> None:
    raw = encode([put()])
    frame = whole(raw)
    fields = list(frames.raw_record(raw, frame, 0))
    for offset, length in [(0, 6), (1, 5), (5, 1), (U32, U32)]:
        fields[16:18] = offset, length
        with pytest.raises(NotUnderstood, match="outside"):
            frames.data_of(raw, frame, tuple(fields))
    fields[16:18] = 5, 0
    assert frames.data_of(raw, frame, tuple(fields)) == b""


# Cutting a batch into frames.


HALF = put(1, b"x" * (FRAME_TARGET_BYTES // 2 - RECORD_BYTES))
MORE = put(1, b"x" * (FRAME_TARGET_BYTES // 2 - RECORD_BYTES + 1))
LARGE = put(1, b"x" * (FRAME_TARGET_BYTES - RECORD_BYTES + 1))
# A frame's size is the nearer bound for all real records than their number.
PER_FRAME = FRAME_TARGET_BYTES // RECORD_BYTES
assert PER_FRAME < MAX_FRAME_RECORDS


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([], []),
        ([HALF, HALF], [2]),
        ([HALF, MORE], [1, 1]),
        ([HALF, HALF, HALF], [2, 1]),
        ([LARGE], [1]),
        ([put(), LARGE, put()], [1, 1, 1]),
        ([delete()] * (PER_FRAME + 1), [PER_FRAME, 1]),
    ],
    ids=["nothing", "full", "a byte more", "three halves", "large", "large in between", "small"],
)
def test_a_frame_ends_before_it_passes_its_size(records: list[Record], expected: list[int]) -> None:
    assert lengths(encoded(*records)) == expected


def lengths(records: EncodedRecords) -> list[int]:
    """How many records each frame has."""
    return [len(pieces) for pieces in records.frames]


def test_what_is_to_stay_whole_is_not_cut() -> None:
    records = encoded(put(0, b"x" * 400_000))
    for count in (4, 1, 1, 1, 1):
        records.append_whole([put(n, b"x" * 400_000) for n in range(count)])
    assert lengths(records) == [1, 4, 2, 2]
    records = encoded(delete(), delete())
    records.append_whole([delete()] * MAX_FRAME_RECORDS)
    records.append(delete())
    assert lengths(records) == [2, MAX_FRAME_RECORDS, 1]


@given(st.lists(st.integers(0, FRAME_TARGET_BYTES * 2), max_size=8))
def test_splitting_loses_no_record_and_keeps_the_order(lengths: list[int]) -> None:
    block = bytes(FRAME_TARGET_BYTES * 2)
    records = encoded(*[put(n, block[:length]) for n, length in enumerate(lengths, start=1)])
    rows = [RECORD.unpack(record) for pieces in records.frames for record, _ in pieces]
    assert [(row[JOB_ID], row[DATA_LEN]) for row in rows] == [*enumerate(lengths, start=1)]
    for pieces in records.frames:
        size = sum(len(record) + len(data) for record, data in pieces)
        assert size <= FRAME_TARGET_BYTES or len(pieces) == 1


# Finding frames behind damage.


def test_only_places_on_the_grid_count() -> None:
    for shift in range(8):
        buffer = bytes(shift) + encode([put()])
        found = list(resynchronise(buffer, 0, len(buffer), SALT, above_lsn=0))
        assert len(found) == (shift == 0)


def test_frames_at_or_below_the_last_good_record_do_not_count() -> None:
    raw = encode([put()], base_lsn=5)
    for above, count in [(4, 1), (5, 0), (6, 0)]:
        assert len(list(resynchronise(raw, 0, len(raw), SALT, above))) == count


# Bodies that are left to somebody else.

LEFT_HEAPS: list[tuple[list[Record], bool]] = [
    ([put(1, b"one"), delete(1), image(Kind.COPY, 2, body=b"two")], True),
    ([delete(1)], True),
    ([], True),
    ([DEFAULT_TUBE, put(1, b"one")], False),
    ([put(1, b"one", tags=Tags(group=b"g")), put(2, b"two")], False),
]


@pytest.mark.parametrize(("records", "is_so"), LEFT_HEAPS)
def test_a_heap_has_nothing_but_bodies_if_nothing_else_is_needed_of_it(
    records: list[Record], is_so: bool
) -> None:
    raw = encode(records)
    frame = whole(raw)
    assert frames.holds_bodies_only(raw, frame) is is_so


@pytest.mark.parametrize(("records", "is_so"), LEFT_HEAPS)
def test_of_the_heap_only_bodies_may_be_damaged_if_they_are_left(
    records: list[Record], is_so: bool
) -> None:
    """Each byte of the heap and of the records, flipped."""
    raw = encode(records)
    frame = whole(raw)
    data = [(each.data, isinstance(each, JobImage) and each.tags is None) for each in records]
    may_be_damaged = [is_body for bytes_, is_body in data for _ in bytes_]
    for at, is_body in enumerate(may_be_damaged, start=frame.heap_at):
        spoilt = flipped(raw, at)
        assert isinstance(decode(spoilt), Damage)
        assert isinstance(frames.decode(spoilt, 0, len(raw), SALT, True), Frame) is is_body
    for at in range(frame.records_at, frame.heap_at):
        assert isinstance(frames.decode(flipped(raw, at), 0, len(raw), SALT, True), Damage)
