"""Reading one segment: its frames in order, and how they end."""

import pytest

from beanstalk_twisted.binlog.reading.segment import (
    NO_FRAME,
    NO_SEAL,
    Ending,
    file_content_end,
    walk_to_hole,
)
from beanstalk_twisted.binlog.records.others import Counters, Record, Seal, Start
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import MADE_BY_TOOL, REHOMED, SEGMENT_HEADER_BYTES
from beanstalk_twisted.binlog.segments.frames import Frame
from tests.binlog.memory import MemoryDirectory
from tests.binlog.scribe import SALT, T0, delete, flipped, header, put

HEADER = header()
PARTS = [
    frames.encode([put(1)], base_lsn=1, durable_lsn=0, time_ns=T0, salt=SALT),
    frames.encode([put(2), put(3)], base_lsn=2, durable_lsn=1, time_ns=T0, salt=SALT),
    frames.encode([], base_lsn=4, durable_lsn=3, time_ns=T0, salt=SALT),
    frames.encode([delete(1)], base_lsn=4, durable_lsn=3, time_ns=T0, salt=SALT),
]
WHOLE = HEADER.encode() + b"".join(PARTS)
STARTS = [SEGMENT_HEADER_BYTES + len(b"".join(PARTS[:n])) for n in range(5)]
NEXT_LSN = [1, 2, 4, 4, 5]


def read(buffer: bytes, end: int | None = None) -> tuple[list[Frame], Ending]:
    *found, ending = walk_to_hole(buffer, HEADER, end)
    assert isinstance(ending, Ending)
    return [frame for frame in found if isinstance(frame, Frame)], ending


def test_a_whole_segment_has_all_its_frames_and_a_regular_end() -> None:
    found, ending = read(WHOLE)
    assert [frame.offset for frame in found] == STARTS[:4]
    assert ending == Ending(len(WHOLE), 5, "", 0)


@pytest.mark.parametrize("zeros", [0, 8, 4096])
def test_the_newest_segment_has_a_frame_since_it_has_a_name(zeros: int) -> None:
    found = read(HEADER.encode() + bytes(zeros))
    assert found == ([], Ending(SEGMENT_HEADER_BYTES, 1, NO_FRAME, 1))


def test_a_successor_may_have_taken_over_all_frames() -> None:
    found = read(WHOLE, end=SEGMENT_HEADER_BYTES)
    assert found == ([], Ending(SEGMENT_HEADER_BYTES, 1, "", 0))


def test_every_prefix_has_the_frames_that_are_whole_and_no_other() -> None:
    for length in range(SEGMENT_HEADER_BYTES, len(WHOLE)):
        found, ending = read(WHOLE[:length])
        whole = sum(start <= length for start in STARTS[1:])
        assert [frame.offset for frame in found] == STARTS[:whole]
        assert (ending.offset, ending.next_lsn) == (STARTS[whole], NEXT_LSN[whole])
        assert bool(ending.problem) == (length != STARTS[whole] or not whole), length


@pytest.mark.parametrize("zeros", [1, 63, 64, 4096, (1 << 20) + 5])
def test_zeros_behind_the_frames_are_a_regular_end(zeros: int) -> None:
    found, ending = read(WHOLE + bytes(zeros))
    assert len(found) == 4
    assert ending == Ending(len(WHOLE), 5, "", 0)


@pytest.mark.parametrize("zeros", [0, 8, 64, 1 << 20])
def test_anything_else_behind_them_is_a_problem(zeros: int) -> None:
    found, ending = read(WHOLE + bytes(zeros) + b"\1")
    assert len(found) == 4
    assert ending.offset == len(WHOLE)
    assert ending.problem


def test_what_lies_behind_the_end_that_the_successor_names_is_not_looked_at() -> None:
    found, ending = read(WHOLE + b"garbage", end=len(WHOLE))
    assert (len(found), ending.problem) == (4, "")
    found, ending = read(WHOLE, end=STARTS[2])
    assert (len(found), ending) == (2, Ending(STARTS[2], 4, "", 0))


@pytest.mark.parametrize("short", [1, 64, 144])
def test_a_segment_shorter_than_its_successor_says_has_a_problem(short: int) -> None:
    _, ending = read(WHOLE, end=len(WHOLE) + short)
    assert ending.problem == f"the segment ends here, {short} bytes short"
    _, ending = read(WHOLE[:-short], end=len(WHOLE))
    assert ending.problem


def test_an_end_inside_a_frame_is_a_problem() -> None:
    _, ending = read(WHOLE, end=STARTS[2] - 8)
    assert (ending.offset, ending.problem) == (STARTS[1], "a frame begins but is not complete")


def test_frames_behind_damage_bear_witness_to_what_was_durable() -> None:
    damaged = flipped(WHOLE, STARTS[1] + 70)
    found, ending = read(damaged)
    assert len(found) == 1
    assert ending.offset == STARTS[1]
    assert ending.next_lsn == 2
    assert ending.witness_lsn == 3
    assert "records" in ending.problem


def test_a_witness_needs_only_its_header() -> None:
    damaged = flipped(flipped(WHOLE, STARTS[1] + 70), len(WHOLE) - 1)
    assert read(damaged)[1].witness_lsn == 3


def test_without_a_header_behind_damage_there_is_no_witness() -> None:
    assert read(flipped(WHOLE, STARTS[3] + 9))[1].witness_lsn == 0


@pytest.mark.parametrize("shift", [1, 3, 7, 13])
def test_a_frame_that_was_moved_proves_damage(shift: int) -> None:
    unconfirmed = STARTS[3]
    moved = WHOLE[:unconfirmed] + b"\xaa" * shift + WHOLE[unconfirmed:]
    assert read(moved)[1][1:] == (4, "no frame begins here", 4)


def test_a_frame_that_stands_where_frames_may_proves_nothing() -> None:
    """A crash may lose a sync mark, which is never synced, and not the frame behind it."""
    unconfirmed = STARTS[3]
    moved = WHOLE[:unconfirmed] + b"\xaa" * 64 + WHOLE[unconfirmed:]
    assert read(moved)[1][1:] == (4, "no frame begins here", 3)


def test_half_a_frame_that_was_moved_proves_nothing() -> None:
    moved = flipped(WHOLE[: STARTS[3]] + b"\xaa" + WHOLE[STARTS[3] :], STARTS[3] + 100)
    assert read(moved)[1].witness_lsn == 3


def test_a_copy_of_a_frame_in_a_body_was_not_moved() -> None:
    """Somebody has put a part of this very log as a job; then the power failed."""
    part = frames.encode([put(5)], base_lsn=5, durable_lsn=3, time_ns=T0, salt=SALT)
    around = frames.encode(
        [put(6, b"a" + part)], base_lsn=6, durable_lsn=3, time_ns=T0, salt=SALT
    )  # fmt: skip
    torn = WHOLE + bytes(len(part)) + around
    assert torn.index(part) % 8
    assert read(torn)[1].witness_lsn == 3
    assert read(torn[: len(WHOLE)] + b"z" + part)[1].witness_lsn == 5


@pytest.mark.parametrize("record", [Start(T0, 1, 1, 0), Counters(0, T0, {})])
def test_what_a_segment_begins_with_was_durable_when_it_got_its_name(record: Record) -> None:
    begun = [
        frames.encode([put(lsn), more], base_lsn=2 * lsn - 1, durable_lsn=0, time_ns=T0, salt=SALT)
        for lsn, more in ((1, put(9)), (2, put(9)), (3, record))
    ]
    whole = HEADER.encode() + b"".join(begun)
    assert read(flipped(whole, 4096 + len(begun[0]) + 70))[1][1:] == (
        3, "the checksum of its records is wrong", 6,
    )  # fmt: skip


def test_nothing_is_read_behind_a_seal() -> None:
    seal = frames.encode([Seal(T0, b"")], base_lsn=5, durable_lsn=4, time_ns=T0, salt=SALT)
    assert read(WHOLE + seal + b"garbage")[1] == Ending(len(WHOLE + seal), 6, "", 0)


def test_but_behind_one_that_was_re_homed() -> None:
    rehomed = header(flags=REHOMED)
    for durable_lsn, problem in ((0, "a frame begins but is not complete"), (1, "")):
        seal = frames.encode(
            [Seal(T0, b"")], base_lsn=1, durable_lsn=durable_lsn, time_ns=T0, salt=SALT
        )  # fmt: skip
        *_, ending = walk_to_hole(rehomed.encode() + seal + b"garbage", rehomed)
        assert isinstance(ending, Ending)
        assert ending.problem == problem


def test_what_a_tool_has_made_ends_with_a_seal() -> None:
    made = header(flags=MADE_BY_TOOL)
    *_, ending = walk_to_hole(made.encode() + WHOLE[SEGMENT_HEADER_BYTES:], made)
    assert ending == Ending(len(WHOLE), 5, NO_SEAL, 5)
    *_, ending = walk_to_hole(made.encode() + WHOLE[SEGMENT_HEADER_BYTES:], made, len(WHOLE))
    assert ending == Ending(len(WHOLE), 5, "", 0)


def test_a_frame_out_of_its_turn_is_a_problem() -> None:
    swapped = HEADER.encode() + PARTS[1] + PARTS[0]
    found, ending = read(swapped)
    assert found == []
    assert ending.problem == "a frame with LSN 2 stands where LSN 1 belongs"
    twice = HEADER.encode() + PARTS[0] + PARTS[0]
    assert read(twice)[1].problem == "a frame with LSN 1 stands where LSN 2 belongs"


@pytest.mark.parametrize("zeros", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 5 << 20])
@pytest.mark.parametrize("content", [b"", b"a", b"ab\0c" + bytes(3 << 19) + b"d"])
def test_content_of_a_file_ends_there_too(content: bytes, zeros: int) -> None:
    raw = b"before" + content + bytes(zeros)
    directory = MemoryDirectory({"a": raw})
    assert file_content_end(directory, "a", 6, len(raw)) == 6 + len(content)
