"""Messages as bytes, and writes in parts."""

from __future__ import annotations

import itertools
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanstalk_twisted.binlog.batches import Batch
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import SegmentHeader
from beanstalk_twisted.replication.stream.interface import MAX_MESSAGE_BYTES
from beanstalk_twisted.replication.stream.messages import (
    BEGINS,
    HEADER,
    PART_BYTES,
    Assembler,
    FillMark,
    Kind,
    Malformed,
    Note,
    Part,
    Term,
    Write,
    decode,
    encode_note,
    encode_write,
    is_stale,
    may_fence,
    write_of,
)

T0 = 1_700_000_000_000_000_000

NUMBERS = st.integers(0, (1 << 64) - 1)
WRITES = st.builds(
    Write, NUMBERS, st.integers(0, 1 << 40), st.binary(max_size=64), NUMBERS, NUMBERS,
    st.booleans(), st.booleans(),
)  # fmt: skip


def a_write(content: bytes, offset: int = 4096, segment: int = 7) -> Write:
    return Write(segment, offset, content, 41, 1_700_000_000_000_000_000, False, False)


def parts_of(write: Write) -> list[Part]:
    found = [decode(payload) for payload in encode_write(write)]
    parts = [each for each in found if isinstance(each, Part)]
    assert len(parts) == len(found)
    return parts


def with_checksum(head: bytes, content: bytes = b"") -> bytes:
    """A message whose checksum is right, whatever its header says."""
    return head + struct.pack("<I", zlib.crc32(content, zlib.crc32(head))) + content


def test_the_header_is_as_the_page_says() -> None:
    payload = next(encode_write(Write(2, 3, b"abc", 4, 5, True, False)))
    fields = (2, 3, 4, 5)
    head = b"BTR1" + bytes([1, 1, 0, 0]) + b"".join(each.to_bytes(8, "little") for each in fields)
    assert payload == with_checksum(head, b"abc")
    assert HEADER.size == 44
    assert PART_BYTES == 524_244


@given(WRITES)
def test_a_write_is_read_as_it_was_sent(write: Write) -> None:
    [part] = parts_of(write)
    assert part == Part(write, continues=False, has_more=False)
    assert Assembler().add(part) == write


@given(
    st.sampled_from([kind for kind in Kind if kind != Kind.WRITE]), NUMBERS, NUMBERS, st.binary()
)
def test_a_note_is_read_as_it_was_sent(kind: Kind, lsn: int, time_ns: int, text: bytes) -> None:
    assert decode(encode_note(kind, lsn, time_ns, text)) == Note(kind, lsn, time_ns, text)


@pytest.mark.parametrize(
    ("length", "lengths"),
    [
        (0, [0]),
        (PART_BYTES, [PART_BYTES]),
        (PART_BYTES + 1, [PART_BYTES, 1]),
        (2 * PART_BYTES, [PART_BYTES, PART_BYTES]),
    ],
)
@pytest.mark.parametrize(("begins", "seals"), list(itertools.product([False, True], repeat=2)))
def test_a_write_has_as_few_parts_as_hold_it(
    length: int, lengths: list[int], begins: bool, seals: bool
) -> None:
    content = bytes(range(256)) * (length // 256) + bytes(length % 256)
    write = a_write(content)._replace(begins=begins, seals=seals)
    payloads = list(encode_write(write))
    assert [len(each) - HEADER.size for each in payloads] == lengths
    assert max(map(len, payloads)) <= MAX_MESSAGE_BYTES
    assembler = Assembler()
    *none, whole = [assembler.add(part) for part in parts_of(write)]
    assert none == [None] * (len(lengths) - 1)
    assert whole == write


def test_a_batch_of_the_log_is_one_write() -> None:
    batch = Batch(3, 100, (b"ab", b"", b"c"), 9, None, seals=True, commits=False)
    assert write_of(batch, 5) == Write(3, 100, b"abc", 9, 5, False, True)
    assert write_of(batch, 5).end == 103


@pytest.mark.parametrize("at", range(HEADER.size + 3))
def test_damage_at_any_byte_is_found(at: int) -> None:
    for payload in (next(encode_write(a_write(b"xyz"))), encode_note(Kind.HEARTBEAT, 1, 2, b"xyz")):
        for bit in range(8):
            damaged = bytearray(payload)
            damaged[at] ^= 1 << bit
            assert isinstance(decode(bytes(damaged)), Malformed)
        assert isinstance(decode(payload[:at]), Malformed)


@given(st.binary(max_size=100))
def test_hostile_bytes_are_malformed(payload: bytes) -> None:
    assert isinstance(decode(payload), Malformed)
    assert isinstance(decode(b"BTR1" + payload), Malformed)


@pytest.mark.parametrize(
    ("kind", "flags", "zero"),
    [(0, 0, 0), (6, 0, 0), (255, 0, 0), (1, 16, 0), (1, 128, 0), (1, 0, 1), (2, BEGINS, 0)],
)
def test_what_this_version_does_not_know_may_be_of_a_later_one(
    kind: int, flags: int, zero: int
) -> None:
    found = decode(with_checksum(struct.pack("<4sBBHQQQQ", b"BTR1", kind, flags, zero, 1, 2, 3, 4)))
    assert isinstance(found, Malformed)
    assert found.is_newer
    assert str(kind) in found.why


@pytest.mark.parametrize(("magic", "is_newer"), [(b"BTR2", True), (b"XTR1", False)])
def test_another_magic_is_a_later_version_or_something_else(magic: bytes, is_newer: bool) -> None:
    found = decode(magic + bytes(HEADER.size))
    assert isinstance(found, Malformed)
    assert found.is_newer == is_newer
    assert repr(magic) in found.why


@pytest.mark.parametrize("missing", range(3))
def test_parts_of_which_one_is_missing_are_no_write(missing: int) -> None:
    assembler = Assembler()
    parts = parts_of(a_write(bytes(2 * PART_BYTES + 1)))
    found = [assembler.add(part) for at, part in enumerate(parts) if at != missing]
    assert found == [None, None]
    # Nor do they disturb what follows.
    after = a_write(b"after")
    assert assembler.add(Part(after, continues=False, has_more=False)) == after


FIRST, LAST = parts_of(a_write(bytes(PART_BYTES + 1)))


@pytest.mark.parametrize(
    "other",
    [
        LAST.write._replace(segment=8),
        LAST.write._replace(offset=4096),
        LAST.write._replace(last_lsn=42),
        LAST.write._replace(time_ns=1),
        LAST.write._replace(begins=True),
        LAST.write._replace(seals=True),
    ],
    ids=["segment", "offset", "LSN", "time", "begins", "seals"],
)
def test_a_part_of_another_write_does_not_go_on(other: Write) -> None:
    assembler = Assembler()
    assert assembler.add(FIRST) is None
    assert assembler.add(LAST._replace(write=other)) is None
    assert assembler.add(LAST) == a_write(bytes(PART_BYTES + 1)), "it is passed over"


TERM = Term(3, 7, 42, 1)


def a_frame(salt: int) -> bytes:
    return frames.encode([], base_lsn=43, durable_lsn=42, time_ns=T0, salt=salt)


def a_beginning(incarnation: int, segment: int = 7, size: int = 8, salt: int = 1) -> Write:
    header = SegmentHeader(segment, 42, T0, 0, 0, 1, bytes(16), salt, 0, incarnation, "test")
    return Write(segment, 0, header.encode() + bytes(size), 42, T0, True, False)


def a_part(write: Write) -> Part:
    return Part(write, continues=False, has_more=False)


@pytest.mark.parametrize(
    ("found", "stale"),
    [
        (a_part(a_write(b"x", segment=6)), True),
        (Part(a_write(b"x", segment=6), continues=True, has_more=True), True),
        (a_part(a_write(b"x", segment=7)), False),
        (a_part(a_write(a_frame(1), segment=7)), False),
        (a_part(a_write(a_frame(2), segment=7)), True),
        (a_part(a_write(a_frame(2), segment=8)), False),
        (Part(a_write(a_frame(2), segment=7), continues=True, has_more=False), False),
        (a_part(a_write(b"x", segment=8)), False),
        (a_part(a_beginning(2)), True),
        (a_part(a_beginning(2, segment=8)), True),
        (a_part(a_beginning(3)), False),
        (a_part(a_beginning(4, segment=8)), False),
        (Note(Kind.HEARTBEAT, 40, 0, b""), True),
        (Note(Kind.HANDED_OVER, 40, 0, b""), True),
        (Note(Kind.HANDED_OVER, 41, 0, b""), False),
        (Note(Kind.FILL_BEGINS, 40, 0, b""), False),
        (Malformed("of somebody else"), False),
    ],
)
def test_what_is_of_an_earlier_term_is_stale(found: Part | Note | Malformed, stale: bool) -> None:
    assert is_stale(found, TERM) is stale
    assert Assembler(TERM).passes_over(found) is stale
    assert not Assembler().passes_over(found)


def test_a_segment_that_takes_the_place_of_the_first_one_of_a_term_has_another_salt() -> None:
    assembler = Assembler()
    assembler.add(a_part(a_beginning(3)))
    assembler.add(a_part(a_beginning(3, salt=2)))
    assert assembler.term == TERM._replace(salt=2)
    assert assembler.add(a_part(a_write(a_frame(2)))) is not None
    assert assembler.add(a_part(a_write(a_frame(1)))) is None
    assembler.add(a_part(a_beginning(3, segment=8, salt=3)))
    assembler.add(a_part(a_beginning(2, salt=4)))
    assert assembler.term == TERM._replace(salt=2)


@pytest.mark.parametrize(
    ("found", "fences"),
    [
        (a_part(a_beginning(4, segment=8)), True),
        (Part(a_beginning(4, segment=8), continues=True, has_more=False), False),
        (a_part(a_write(b"x", segment=8)), False),
        (Note(Kind.FILL_BEGINS, 0, 0, b""), True),
        (Note(Kind.FILL_ENDS, 0, 0, b""), True),
        (Note(Kind.HEARTBEAT, 99, 0, b""), False),
        (Note(Kind.HANDED_OVER, 99, 0, b""), False),
        (Malformed("of somebody else"), False),
        (Malformed("of a later version", is_newer=True), True),
    ],
)
def test_what_may_be_the_first_message_of_another_server(
    found: Part | Note | Malformed, fences: bool
) -> None:
    assert may_fence(found) is fences


def test_stale_parts_are_passed_over_from_the_first_message_of_a_term_on() -> None:
    late = a_part(a_write(b"late", segment=6))
    begun, *rest = parts_of(a_beginning(3, size=2 * PART_BYTES))
    assembler = Assembler()
    assert assembler.add(late) == late.write
    assert [assembler.add(part) for part in (begun, late, *rest[:-1], late)][1:] == [None] * 3
    assert assembler.add(rest[-1]) == a_beginning(3, size=2 * PART_BYTES)


def test_writes_that_come_before_their_turn_leave_the_parts_of_another_alone() -> None:
    parts = parts_of(a_write(bytes(2 * PART_BYTES + 1)))
    behind = a_part(a_write(b"behind", offset=4096 + 2 * PART_BYTES + 1))
    more = parts_of(a_write(bytes(PART_BYTES + 1), offset=1 << 22))
    assembler = Assembler()
    early = [assembler.add(part) for part in (parts[0], parts[2], behind, *more)]
    assert early == [None, None, behind.write, None, None]
    again = [assembler.add(part) for part in (*parts[1:], behind, *more)]
    assert again == [
        None, a_write(bytes(2 * PART_BYTES + 1)), behind.write, None,
        a_write(bytes(PART_BYTES + 1), offset=1 << 22),
    ]  # fmt: skip


def test_a_term_that_begins_ends_the_parts_of_the_one_before() -> None:
    assembler = Assembler()
    assembler.add(FIRST)
    assembler.add(a_part(a_beginning(1, segment=8)))
    assert not assembler.is_midway
    assert assembler.add(LAST) is None


def test_a_part_that_comes_twice_ends_its_write() -> None:
    assembler = Assembler()
    first, last = parts_of(a_write(bytes(PART_BYTES + 1)))
    assert [assembler.add(part) for part in (first, first, last)][-1] is not None
    assert [assembler.add(part) for part in (last, first, last, last)][2:] == [
        a_write(bytes(PART_BYTES + 1)), None,
    ]  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=20))
def test_only_whole_writes_come_out_whatever_parts_go_in(order: list[tuple[int, int]]) -> None:
    writes = [a_write(b"%03d" % at, offset=3 * at) for at in range(4)]
    thirds = [
        [
            Part(
                write._replace(content=write.content[at : at + 1], offset=write.offset + at),
                at > 0,
                at < 2,
            )
            for at in range(3)
        ]
        for write in writes
    ]
    assembler = Assembler()
    whole = []
    for at, (which, third) in enumerate(order):
        found = assembler.add(thirds[which][third])
        if found is not None:
            thirds_of_it = [each[1] for each in order[: at + 1] if each[0] == which]
            assert {0, 1, 2} <= set(thirds_of_it)
            assert found == writes[which]
            whole.append(found)
    assert set(whole) <= set(writes)


def test_a_stream_is_filled_until_a_segment_begins_behind_the_end_of_the_filling() -> None:
    mark = FillMark()
    mark.began()
    assert not mark.is_filling
    mark.note(Note(Kind.FILL_BEGINS, 77, 0, b""), 5, 0)
    mark.began()
    assert mark.is_filling and mark.last_lsn == 77
    mark.note(Note(Kind.HEARTBEAT, 80, 0, b""), 5, 40)
    mark.note(Note(Kind.FILL_ENDS, 76, 0, b""), 5, 76)
    assert mark.is_filling and mark.has_ended
    mark.began()
    assert not mark.is_filling
    mark.note(Note(Kind.FILL_BEGINS, 90, 0, b""), 5, 80)
    assert mark.is_filling and mark.last_lsn == 90


def test_an_end_of_a_filling_that_tells_of_more_than_has_come_was_displaced() -> None:
    mark = FillMark()
    mark.note(Note(Kind.FILL_BEGINS, 77, 0, b""), 5, 0)
    mark.note(Note(Kind.FILL_ENDS, 76, 0, b""), 9, 75)
    mark.began()
    assert mark.is_filling and not mark.has_ended
    mark.note(Note(Kind.FILL_ENDS, 76, 0, b""), 14, 76)
    mark.began()
    assert not mark.is_filling


def test_a_filling_says_with_which_segment_it_begins() -> None:
    mark = FillMark()
    assert mark.may_begin_with(7)
    said = decode(encode_note(Kind.FILL_BEGINS, 77, 0, b"", 3))
    assert isinstance(said, Note) and said.segment == 3
    mark.note(said, 5, 0)
    assert [seq for seq in range(9) if mark.may_begin_with(seq)] == [3]
    mark.note(Note(Kind.FILL_BEGINS, 77, 0, b""), 6, 0)
    assert mark.may_begin_with(7)
