"""What bodies on their way to clients may take of memory."""

from __future__ import annotations

import pytest

from beanstalk_twisted.jobs.body_room import OWN_BYTES, SHARE, BodyRoom

MEMORY_BYTES = 64 << 20


@pytest.fixture
def room() -> BodyRoom:
    """Room that a limit on memory leaves."""
    made = BodyRoom()
    made.limit(MEMORY_BYTES, lambda: 0)
    return made


def test_a_quarter_of_what_jobs_may_take_is_for_bodies_on_their_way(room: BodyRoom) -> None:
    assert room.left_bytes == MEMORY_BYTES // SHARE == 16 << 20
    room.taken_bytes = 5
    assert room.left_bytes == (16 << 20) - 5
    room.over_bytes = lambda: 7
    assert room.left_bytes == (16 << 20) - 12
    assert room.is_short


def test_a_body_that_is_part_of_what_a_connection_costs_never_waits(room: BodyRoom) -> None:
    room.taken_bytes = 1 << 40
    assert room.takes(OWN_BYTES)
    assert not room.takes(OWN_BYTES + 1)


def test_a_large_body_waits_until_there_is_room_or_nothing_else_is_on_its_way(
    room: BodyRoom,
) -> None:
    assert room.takes(MEMORY_BYTES)
    room.taken_bytes = 1
    assert not room.takes(MEMORY_BYTES)
    assert room.takes((16 << 20) - 1)
    assert not room.takes(16 << 20)


def test_a_batch_takes_half_of_what_is_left_and_not_what_others_were_promised(
    room: BodyRoom,
) -> None:
    assert room.batch_bytes == 8 << 20
    room.promised_bytes = 8 << 20
    assert room.batch_bytes == 4 << 20
    room.taken_bytes = 8 << 20
    assert room.batch_bytes == OWN_BYTES


def test_without_a_limit_there_is_always_room() -> None:
    room = BodyRoom()
    room.taken_bytes = 1 << 50
    assert room.takes(1 << 50)
    assert not room.is_short
