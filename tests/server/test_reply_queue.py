"""Replies leave in order, and none before what it tells of is durable."""

from __future__ import annotations

import pytest

from beanstalk_twisted.replication.stream.interface import HeldLease
from beanstalk_twisted.server.reply_queue import (
    MAX_GATHERED_BYTES,
    MAX_JOINED_BYTES,
    Durability,
    ReplyQueue,
)


class Place:
    """One connection's replies, its output and its connection."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.pieces: list[list[bytes]] = []
        self.told: list[str] = []
        self.fails = False
        self.durability = Durability()
        self.replies = ReplyQueue(self.durability, self, self)

    def say(self, text: bytes, lsn: int) -> None:
        self.replies.add(text, lsn)
        self.replies.send()

    def write(self, pieces: list[bytes]) -> None:
        if self.fails:
            raise MemoryError
        self.pieces.append(pieces)
        self.sent.append(b"".join(pieces))

    def replies_held(self) -> None:
        self.told.append("held")

    def replies_released(self) -> None:
        self.told.append("released")

    def break_off(self) -> None:
        self.told.append("break off")
        self.replies.forget()


@pytest.mark.parametrize("is_lost", [False, True])
def test_large_replies_that_wait_for_the_disk_count_as_bodies_on_their_way(is_lost: bool) -> None:
    place = Place()
    room = place.durability.room
    place.replies.add(b"INSERTED 1\r\n", 1)
    place.replies.send()
    assert room.taken_bytes == 0
    pieces = [b"RESERVED 1 32768\r\n", bytes(2 * MAX_JOINED_BYTES), b"\r\n"]
    place.replies.add_pieces(pieces, 2)
    assert room.taken_bytes == sum(map(len, pieces))
    place.durability.advance(1)
    assert room.taken_bytes == sum(map(len, pieces))
    if is_lost:
        place.replies.forget()
    else:
        place.durability.advance(2)
    assert room.taken_bytes == 0


@pytest.mark.parametrize("is_held", [False, True])
def test_a_reply_in_pieces_is_sent_as_they_are_behind_what_was_said_before(is_held: bool) -> None:
    place = Place()
    body = b"x" * MAX_JOINED_BYTES
    place.replies.add(b"A", 0)
    assert place.replies.add_pieces([b"B", body, b"C", body, b"D"], 5 * is_held)
    if is_held:
        assert place.sent == [b"A"]
        assert place.replies.held_bytes == 3 + 2 * len(body)
        place.durability.advance(5)
    assert b"".join(place.sent) == b"AB%bC%bD" % (body, body)
    assert [piece for piece in place.pieces[-1] if piece is body] == [body, body]
    place.say(b"E", 0)
    assert place.sent[-1] == b"E"


def test_replies_leave_as_soon_as_they_are_so_many_bytes_and_not_before() -> None:
    place = Place()
    assert not place.replies.add(bytes(MAX_GATHERED_BYTES - 1), 0)
    assert place.sent == []
    assert place.replies.add(b"x", 0)
    assert place.sent == [bytes(MAX_GATHERED_BYTES - 1) + b"x"]
    assert not place.replies.add(b"y", 0)


def test_replies_are_held_from_the_first_on_that_the_disk_does_not_have() -> None:
    place = Place()
    replies = place.replies
    place.durability.advance(4)
    replies.add(b"a", 4)
    assert replies.add(b"b", 5)
    replies.add(b"c", 0)
    replies.send()
    replies.add(b"d", 7)
    replies.send()
    assert place.sent == [b"a"]
    assert (replies.is_holding, replies.held_bytes) == (True, 3)
    place.durability.advance(4)
    assert place.sent == [b"a"]
    place.durability.advance(6)
    assert place.sent == [b"a", b"bc"]
    assert (replies.is_holding, replies.held_bytes) == (True, 1)
    place.durability.advance(7)
    assert place.sent == [b"a", b"bc", b"d"]
    assert (replies.is_holding, replies.held_bytes) == (False, 0)


def test_a_connection_is_told_when_replies_are_held_and_when_they_were_sent() -> None:
    place = Place()
    place.say(b"a", 1)
    assert (place.told, len(place.durability.holding)) == (["held"], 1)
    place.durability.advance(1)
    assert (place.told, len(place.durability.holding)) == (["held", "released"], 0)
    place.durability.advance(2)
    assert place.told == ["held", "released"]


def test_a_queue_that_holds_replies_anew_while_it_is_released_waits_once() -> None:
    class Eager(Place):
        def replies_released(self) -> None:
            super().replies_released()
            if len(self.told) < 3:
                self.replies.add(b"b", 2)
                self.replies.send()

    place = Eager()
    place.say(b"a", 1)
    place.durability.advance(1)
    assert (place.sent, len(place.durability.holding)) == ([b"a"], 1)
    place.durability.advance(2)
    assert (place.sent, len(place.durability.holding)) == ([b"a", b"b"], 0)


@pytest.mark.parametrize("is_held", [False, True])
def test_a_reply_that_cannot_be_sent_costs_its_connection_and_no_other(is_held: bool) -> None:
    durability = Durability()
    broken, sound = Place(), Place()
    for place in (broken, sound):
        place.replies = ReplyQueue(durability, place, place)
        place.replies.add(b"a", 1 if is_held else 0)
        place.fails = place is broken
        if is_held:
            place.replies.send()
    if is_held:
        durability.advance(1)
    else:
        with pytest.raises(MemoryError):
            broken.replies.send()
        broken.replies.break_off()
        sound.replies.send()
    assert broken.told[-1] == "break off"
    assert sound.sent == [b"a"]
    assert len(durability.holding) == 0


def test_nobody_hears_what_was_forgotten() -> None:
    place = Place()
    place.say(b"a", 1)
    place.replies.add(b"b", 1)
    place.replies.forget()
    place.durability.advance(1)
    place.say(b"c", 2)
    assert (place.sent, place.told, len(place.durability.holding)) == ([], ["held"], 0)


class Leased(Place):
    """A place where replies leave only while a lease holds."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ns = 0
        self.lease = HeldLease(10)
        self.durability.speak_while(self.lease, lambda: self.now_ns)


def test_without_a_lease_replies_are_held_whatever_they_tell_of() -> None:
    place = Leased()
    place.say(b"a", 0)
    place.durability.advance(5)
    place.say(b"b", 5)
    assert (place.sent, place.told, place.replies.held_bytes) == ([], ["held", "held"], 2)
    place.lease.accepted(0)
    place.durability.advance(5)
    assert b"".join(place.sent) == b"ab"
    assert place.durability.holding == []


def test_the_lease_is_asked_at_the_moment_of_each_sending_and_release() -> None:
    place = Leased()
    place.lease.accepted(0)
    place.say(b"a", 0)
    place.say(b"b", 3)
    place.now_ns = 9_000_000_000
    place.durability.advance(3)
    place.say(b"c", 0)
    assert place.sent == [b"a"]
    place.now_ns -= 1
    place.durability.advance(3)
    assert place.sent == [b"a", b"bc"]


def test_after_the_end_of_the_lease_nothing_leaves_any_more() -> None:
    place = Leased()
    place.lease.accepted(0)
    place.lease.end()
    place.lease.accepted(1)
    place.say(b"a", 0)
    place.durability.advance(9)
    assert place.sent == []


def test_what_needs_no_lease_leaves_without_one_behind_what_was_sent() -> None:
    place = Leased()
    assert place.replies.add_without_lease(b"a")
    assert place.sent == [b"a"]
    place.replies.add(b"b", 0)
    place.replies.add_without_lease(b"c")
    place.replies.send()
    assert place.sent == [b"a"]
    place.lease.accepted(0)
    place.durability.advance(0)
    assert b"".join(place.sent) == b"abc"


def test_nothing_leaves_a_server_that_is_fenced() -> None:
    place = Leased()
    place.durability.advance(-1)
    place.replies.add_without_lease(b"a")
    place.replies.send()
    assert place.sent == []
