"""Frames at any byte of a segment, and what they prove."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanstalk_twisted.binlog.reading.searching import WINDOW_BYTES, frames_anywhere, proven_lsn
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import FRAME_MAGIC, MADE_BY_TOOL, SEGMENT_HEADER_BYTES
from tests.binlog.scribe import SALT, T0, header, put

AT = SEGMENT_HEADER_BYTES + 1000
"""Somewhere behind frames that can be read."""


def frame(base_lsn: int = 5, durable_lsn: int = 3, salt: int = SALT) -> bytes:
    return frames.encode(
        [put(1)], base_lsn=base_lsn, durable_lsn=durable_lsn, time_ns=T0, salt=salt
    )  # fmt: skip


@pytest.mark.parametrize("shift", range(9))
def test_frames_are_found_at_every_byte(shift: int) -> None:
    buffer = bytes(shift) + frame() + b"\xff" * shift + frame(6)
    found = [(each.offset, each.base_lsn) for each in frames_anywhere(buffer, 0, len(buffer), SALT)]
    assert found == [(shift, 5), (2 * shift + len(frame()), 6)]


@pytest.mark.parametrize("gap", [-70, -64, -8, -1, 0, 1])
def test_a_frame_across_the_edge_of_a_window_is_found_once(gap: int) -> None:
    buffer = bytes(WINDOW_BYTES + gap) + frame()
    found = list(frames_anywhere(buffer, 0, len(buffer), SALT))
    assert [each.offset for each in found] == [WINDOW_BYTES + gap]


def test_frames_of_another_segment_do_not_count_unless_all_do() -> None:
    buffer = frame(salt=SALT + 1) + frame(6)
    assert [each.base_lsn for each in frames_anywhere(buffer, 0, len(buffer), SALT)] == [6]
    assert [each.base_lsn for each in frames_anywhere(buffer, 0, len(buffer), None)] == [5, 6]


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=4))
def test_arbitrary_bytes_prove_nothing(noise: bytes, places: list[int]) -> None:
    buffer = bytearray(AT) + bytearray(noise)
    for place in places:
        buffer[AT + place : AT + place] = FRAME_MAGIC
    assert proven_lsn(bytes(buffer), header(), AT, len(buffer), 9) == 0


@given(st.integers(0, 40), st.integers(5, 9), st.integers(0, 9))
def test_a_watermark_proves_wherever_it_stands(shift: int, base_lsn: int, durable_lsn: int) -> None:
    buffer = bytes(AT + shift) + frame(base_lsn, durable_lsn)
    moved = 5 if shift % 8 else 0
    assert proven_lsn(buffer, header(), AT, len(buffer), 5) == max(durable_lsn, moved)


def test_an_older_frame_that_was_moved_proves_only_what_it_says() -> None:
    """A body may hold a copy of it."""
    buffer = bytes(AT + 3) + frame(4, 2)
    assert proven_lsn(buffer, header(), AT, len(buffer), 5) == 2


def test_the_first_frame_and_the_work_of_a_tool_were_there() -> None:
    first = bytes(SEGMENT_HEADER_BYTES)
    assert proven_lsn(first, header(), SEGMENT_HEADER_BYTES, len(first), 5) == 5
    assert proven_lsn(first, header(flags=MADE_BY_TOOL), AT, AT, 5) == 5
    assert proven_lsn(first, header(), AT, AT, 5) == 0
