"""
One connection's commands and replies, without a connection.  That it says what the plain path says
is in tests/server/test_chunks.py.
"""

from __future__ import annotations

from typing import Any, cast

import pytest

from beanstalk_twisted.jobs.changes import Ledger
from beanstalk_twisted.jobs.reservations import Answer
from beanstalk_twisted.jobs.workqueue import WorkQueue
from beanstalk_twisted.server.commands import COUNTERS
from beanstalk_twisted.server.pipeline import (
    ALL,
    LEFT,
    MAX_GATHERED_BYTES,
    MAX_JOINED_BYTES,
    MIN_SHARE_NS,
    STOPPED,
    TURN_NS,
    Common,
    Pipeline,
)
from beanstalk_twisted.wire.replies import INTERNAL_ERROR, Found, Reserved

LARGEST = 100
"""The largest body."""

LATE_NS = 10**9


class Place:
    """
    A queue, one connection's pipeline, and what it says.

    :ivar now_ns: what the clock says; each look at it takes ``step_ns``.
    :ivar sent: what was sent, in order, and ``pieces`` how; ``delivered`` what others heard.
    :ivar refusals: lines of commands that have failed and changed nothing.
    """

    def __init__(self, step_ns: int = 0) -> None:
        self.now_ns = 0
        self.step_ns = step_ns
        self.sent: list[bytes] = []
        self.pieces: list[list[bytes]] = []
        self.delivered: list[bytes] = []
        self.refusals: list[bytes] = []
        self.queue = WorkQueue(cast(Any, None), COUNTERS, LARGEST)
        self.common = Common(self.queue, self.look, self.deliver, self.refused)
        self.pipeline = Pipeline(self.common, self.queue.connect(), self, self)

    def refused(self, line: bytes) -> Answer:
        """
        What only looks has failed.
        """
        self.refusals.append(line)
        return Answer(INTERNAL_ERROR, 0)

    def look(self) -> int:
        """
        The time.
        """
        self.now_ns += self.step_ns
        return self.now_ns

    def deliver(self) -> None:
        """
        Others hear what the queue has for them.
        """
        self.delivered += [answer.reply.encode() for _, answer in self.queue.outbox]
        self.queue.outbox.clear()

    def write(self, pieces: list[bytes]) -> None:
        """
        See `Outlet.write`.
        """
        self.pieces.append(pieces)
        self.sent.append(b"".join(pieces))

    def hold(self, pieces: list[bytes]) -> None:
        """
        See `Holder.hold`.
        """
        self.pipeline.held.append((self.pipeline.lsn, pieces))

    def carry_out(self, data: bytes, ends_ns: int = LATE_NS) -> int:
        """
        Carry out, and send what there is to say.
        """
        try:
            return self.pipeline.carry_out(data, self.now_ns, ends_ns)
        finally:
            self.pipeline.send()


def test_what_has_wholly_come_is_carried_out_and_answered_as_one() -> None:
    place = Place()
    data = b"use a\r\nput 0 0 1 1\r\nx\r\nwatch a\r\nreserve\r\ntouch 1\r\ndelete 1\r\n"
    assert place.carry_out(data) == ALL
    assert place.pipeline.at == len(data)
    assert place.sent == [
        b"USING a\r\nINSERTED 1\r\nWATCHING 2\r\nRESERVED 1 1\r\nx\r\nTOUCHED\r\nDELETED\r\n"
    ]
    assert place.queue.tally.commands == {
        "cmd-use": 1, "cmd-put": 1, "cmd-watch": 1, "cmd-reserve": 1, "cmd-touch": 1,
        "cmd-delete": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    "rest",
    [
        b"quit\r\n", b"reserve", b"x" * 300,
        b"put 0 0 1 5\r\nabcd", b"put 0 0 1 5\r\nabcde\r", b"put 0 0 1 1 junk\r\nx\r\n",
        b"put 0 0 1 %d\r\n%s\r\n" % (LARGEST + 1, bytes(LARGEST + 1)),
    ],
)  # fmt: skip
def test_what_is_not_so_plain_is_left_and_nothing_of_it_is_done(rest: bytes) -> None:
    place = Place()
    assert place.carry_out(b"use a\r\n" + rest) == LEFT
    assert place.pipeline.at == len(b"use a\r\n")
    assert place.sent == [b"USING a\r\n"]
    assert place.queue.tally.commands == {"cmd-use": 1}
    assert place.queue.state.next_job_id == 1


def test_a_body_of_the_largest_size_is_taken() -> None:
    place = Place()
    assert place.carry_out(b"put 0 0 1 %d\r\n%s\r\n" % (LARGEST, bytes(LARGEST))) == ALL
    assert place.sent == [b"INSERTED 1\r\n"]


def test_a_body_without_its_end_is_refused_and_uses_up_an_id() -> None:
    place = Place()
    assert place.carry_out(b"put 0 0 1 1\r\nxyzput 0 0 1 1\r\nx\r\n") == ALL
    assert place.sent == [b"EXPECTED_CRLF\r\nINSERTED 2\r\n"]


def test_wrong_lines_are_answered_where_they_stand_and_count_as_in_the_plain_path() -> None:
    place = Place()
    data = b"use a\r\nfoo\r\n\r\ndelete x\r\nput 0 0 1\r\npause-tube -a 1\r\na\0b\r\nuse b\r\n"
    assert place.carry_out(data) == ALL
    assert place.sent == [
        b"USING a\r\nUNKNOWN_COMMAND\r\nUNKNOWN_COMMAND\r\n"
        + b"BAD_FORMAT\r\n" * 4
        + b"USING b\r\n"
    ]
    assert place.queue.tally.commands == {"cmd-use": 2, "cmd-pause-tube": 1}


def test_a_large_body_is_sent_from_where_it_lies_behind_what_was_said_before() -> None:
    place = Place()
    for size in (MAX_JOINED_BYTES - 1, MAX_JOINED_BYTES):
        reply = Found(1, bytes(size), 0)
        place.pieces.clear()
        place.pipeline.add(b"a\r\n", 0)
        place.pipeline.add_job(reply, 0)
        place.pipeline.send()
        (pieces,) = place.pieces
        assert b"".join(pieces) == b"a\r\n" + reply.encode()
        assert any(piece is reply.body for piece in pieces) is (size == MAX_JOINED_BYTES)


def test_a_large_body_waits_for_the_disk_from_where_it_lies_too() -> None:
    place = Place()
    reply = Reserved(1, bytes(MAX_JOINED_BYTES), 0)
    place.pipeline.add(b"a\r\n", 0)
    place.pipeline.add_job(reply, 5)
    assert place.sent == [b"a\r\n"]
    ((lsn, pieces),) = place.pipeline.held
    assert (lsn, b"".join(pieces)) == (5, reply.encode())


@pytest.mark.parametrize(
    ("connections", "share_ns"),
    [(1, TURN_NS), (2, TURN_NS // 2), (100, MIN_SHARE_NS), (101, MIN_SHARE_NS)],
)
def test_a_turn_is_divided_among_those_who_want_to_be_served(
    connections: int, share_ns: int
) -> None:
    place = Place()
    place.common.divide(connections)
    assert place.common.share_ns == share_ns


def test_nothing_is_carried_out_behind_a_command_that_waits() -> None:
    place = Place()
    assert place.carry_out(b"reserve\r\nuse a\r\n") == STOPPED
    assert place.pipeline.at == len(b"reserve\r\n")
    assert place.sent == []


def test_others_hear_of_a_job_before_the_next_command_is_carried_out() -> None:
    place = Place()
    waiting = place.queue.connect()
    place.queue.reserve(waiting, 0)
    assert place.carry_out(b"put 0 0 1 1\r\nx\r\npeek-ready\r\n") == ALL
    assert place.delivered == [b"RESERVED 1 1\r\nx\r\n"]
    assert place.sent == [b"INSERTED 1\r\nNOT_FOUND\r\n"]


@pytest.mark.parametrize(("ends_ns", "done"), [(19, 2), (20, 3), (0, 1), (-1, 1)])
def test_no_command_is_begun_when_the_time_is_up_but_the_first(ends_ns: int, done: int) -> None:
    place = Place(step_ns=10)
    assert place.carry_out(b"use a\r\n" * 4, ends_ns) == STOPPED
    assert place.sent == [b"USING a\r\n" * done]
    assert place.pipeline.at == len(b"use a\r\n") * done


def test_each_command_has_its_own_time() -> None:
    place = Place(step_ns=10)
    place.carry_out(b"put 0 0 1 1\r\nx\r\n" * 2)
    jobs = [place.queue.state.jobs.look(job_id) for job_id in (1, 2)]
    assert [job.created_ns for job in jobs if job is not None] == [0, 10]


def test_after_a_fault_it_is_known_which_command_it_was_and_where_the_next_one_begins() -> None:
    place = Place()
    place.queue.keep_in(cast(Ledger, None))
    data = b"use a\r\nput 0 0 1 1\r\nx\r\n"
    with pytest.raises(AttributeError):
        place.carry_out(data + b"use b\r\n")
    assert (place.pipeline.line, place.pipeline.at) == (b"put 0 0 1 1", len(data))
    assert place.sent == [b"USING a\r\n"]


def test_replies_leave_as_soon_as_they_are_so_many_bytes_and_not_before() -> None:
    place = Place()
    assert not place.pipeline.add(bytes(MAX_GATHERED_BYTES - 1), 0)
    assert place.sent == []
    assert place.pipeline.add(b"x", 0)
    assert place.sent == [bytes(MAX_GATHERED_BYTES - 1) + b"x"]
    assert not place.pipeline.add(b"y", 0)


def test_it_is_to_be_seen_whether_to_go_on_when_replies_have_left() -> None:
    place = Place()
    place.carry_out(b"put 0 0 1 %d\r\n%s\r\n" % (LARGEST, bytes(LARGEST)))
    place.sent.clear()
    one = b"FOUND 1 %d\r\n%s\r\n" % (LARGEST, bytes(LARGEST))
    enough = -(-MAX_GATHERED_BYTES // len(one))
    assert place.carry_out(b"peek 1\r\n" * (enough + 1)) == STOPPED
    assert place.pipeline.at == enough * len(b"peek 1\r\n")
    assert place.sent == [one * enough]


def test_replies_are_held_from_the_first_on_that_the_disk_does_not_have() -> None:
    place = Place()
    pipeline = place.pipeline
    place.common.settled_lsn = 4
    pipeline.add(b"a", 4)
    assert pipeline.add(b"b", 5)
    pipeline.add(b"c", 0)
    pipeline.send()
    pipeline.add(b"d", 7)
    pipeline.send()
    assert place.sent == [b"a"]
    assert pipeline.held == [(5, [b"bc"]), (7, [b"d"])]
    assert pipeline.take_settled() == []
    place.common.settled_lsn = 6
    assert pipeline.take_settled() == [b"bc"]
    assert pipeline.held == [(7, [b"d"])]


def test_what_comes_behind_held_replies_is_held_too() -> None:
    place = Place()
    place.pipeline.add(b"a", 1)
    place.pipeline.send()
    place.common.settled_lsn = 1
    place.pipeline.add(b"b", 0)
    place.pipeline.send()
    assert place.sent == []
    assert place.pipeline.take_settled() == [b"a", b"b"]


def test_nobody_hears_what_was_forgotten() -> None:
    place = Place()
    place.pipeline.add(b"a", 1)
    place.pipeline.send()
    place.pipeline.add(b"b", 1)
    place.pipeline.forget()
    place.common.settled_lsn = 1
    place.pipeline.send()
    assert (place.sent, place.pipeline.take_settled()) == ([], [])
