"""One connection's commands, without a connection.  That it says what its oracle says is in
tests/server/test_one_path.py.
"""

from __future__ import annotations

from typing import Any, cast

import pytest

from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.rules.changes import JobLog
from beanstalk_twisted.rules.reservations import Answer
from beanstalk_twisted.rules.workqueue import WorkQueue
from beanstalk_twisted.server.execution_context import MIN_SHARE_NS, TURN_NS, ExecutionContext
from beanstalk_twisted.server.executor import ALL, LEFT, STOPPED, Executor
from beanstalk_twisted.server.incoming import Incoming, IncomingJobs
from beanstalk_twisted.server.reply_queue import (
    MAX_GATHERED_BYTES,
    MAX_JOINED_BYTES,
    ReplyQueue,
)
from beanstalk_twisted.storage.clock import LogClock
from beanstalk_twisted.wire import v1
from beanstalk_twisted.wire.commands import COUNTERS
from beanstalk_twisted.wire.dialects import MODERN, Dialect, Parsed
from beanstalk_twisted.wire.extensions import MAX_BATCH_LINE_BYTES
from beanstalk_twisted.wire.replies import (
    BAD_FORMAT,
    INTERNAL_ERROR,
    NOT_FOUND,
    OUT_OF_MEMORY,
    TIMED_OUT,
    UNKNOWN_COMMAND,
    DeletedBatch,
    Found,
    Inserted,
    Reply,
    Reserved,
)
from tests.rules.memory import Scarce

LARGEST = 100
"""The largest body."""

LATE_NS = 10**9


class Place:
    """A queue, one connection's executor, and what it says."""

    def __init__(self, step_ns: int = 0, dialect: Dialect = MODERN) -> None:
        # The clock looks once before it is asked.
        self.now_ns = -step_ns
        self.step_ns = step_ns
        self.sent: list[bytes] = []
        self.pieces: list[bytes] = []
        self.delivered: list[bytes] = []
        self.failures: list[tuple[bytes, bool]] = []
        self.queue = WorkQueue(cast(Any, None), COUNTERS, LARGEST)
        clock = LogClock(lambda: self.now_ns, self.look)
        self.context = ExecutionContext(self.queue, clock, self.failed)
        self.context.deliver = self.deliver
        self.session = self.queue.connect()
        self.replies = ReplyQueue(self.context.durability, self, cast(Any, None))
        self.executor = Executor(self.context, dialect, self.session, self.replies)

    def failed(self, line: bytes, has_only_looked: bool) -> Answer:
        self.failures.append((line, has_only_looked))
        return INTERNAL_ERROR, 0

    def look(self) -> int:
        self.now_ns += self.step_ns
        return self.now_ns

    def counted(self) -> dict[str, int]:
        return {key: count for key, count in self.queue.tally.commands.items() if count}

    def deliver(self) -> None:
        self.delivered += [reply.encode() for _, (reply, _) in self.queue.outbox]
        self.queue.outbox.clear()

    def write(self, pieces: list[bytes]) -> None:
        self.pieces = pieces
        self.sent.append(b"".join(pieces))

    def execute(self, data: bytes, ends_ns: int = LATE_NS) -> int:
        try:
            return self.executor.execute(data, self.now_ns, ends_ns)
        finally:
            self.replies.send()

    def begin(self, line: bytes) -> IncomingJobs:
        return self.executor.begin(line, self.now_ns)

    def finish(self, incoming: Incoming) -> bytes:
        self.executor.finish(incoming, self.now_ns)
        self.replies.send()
        return self.sent.pop()


def test_a_large_body_is_sent_from_where_it_lies_after_what_was_said_before() -> None:
    for size in (MAX_JOINED_BYTES - 1, MAX_JOINED_BYTES):
        place, reply = Place(), Found(1, bytes(size), 0)
        place.replies.add(b"a\r\n", 0)
        place.executor.answer((reply, 0))
        place.replies.send()
        assert place.sent == [b"a\r\n" + reply.encode()]
        assert any(piece is reply.body for piece in place.pieces) is (size == MAX_JOINED_BYTES)


class Onlooker:
    """An `Observer` that remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []
        self.planted: Answer | None = None

    def command_received(self, session: Session, line: bytes, parsed: Parsed | None) -> None:
        self.told.append(("received", line, None if parsed is None else parsed[1]))

    def plant(self, session: Session, parsed: Parsed, body: bytes | None) -> Answer | None:
        self.told.append(("about to", parsed[0].name, body))
        planted, self.planted = self.planted, None
        return planted

    def answered(self, session: Session, reply: Reply, encoded: bytes) -> None:
        self.told.append(("answered", reply, encoded))


def test_what_has_wholly_come_is_carried_out_and_answered_as_one() -> None:
    place = Place()
    data = b"use a\r\nput 0 0 1 1\r\nx\r\nwatch a\r\nreserve\r\ntouch 1\r\ndelete 1\r\n"
    assert place.execute(data) == ALL
    assert place.executor.at == len(data)
    assert place.sent == [
        b"USING a\r\nINSERTED 1\r\nWATCHING 2\r\nRESERVED 1 1\r\nx\r\nTOUCHED\r\nDELETED\r\n"
    ]
    assert place.counted() == {
        "cmd-use": 1, "cmd-put": 1, "cmd-watch": 1, "cmd-reserve": 1, "cmd-touch": 1,
        "cmd-delete": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    "rest",
    [
        b"reserve", b"x" * 300, b"put 0 0 1 5\r\nabcd", b"put 0 0 1 5\r\nabcde\r",
        b"put 0 0 1 %d\r\n%s\r\n" % (LARGEST + 1, bytes(LARGEST + 1)),
    ],
)  # fmt: skip
def test_what_has_not_wholly_come_is_left_and_nothing_of_it_is_done(rest: bytes) -> None:
    place = Place()
    assert place.execute(b"use a\r\n" + rest) == LEFT
    assert place.executor.at == len(b"use a\r\n")
    assert place.sent == [b"USING a\r\n"]
    assert place.counted() == {"cmd-use": 1}
    assert place.queue.state.next_job_id == 1


def test_wrong_lines_are_answered_where_they_stand_and_count_as_beanstalkd_counts_them() -> None:
    place = Place()
    data = b"use a\r\nfoo\r\n\r\ndelete x\r\nput 0 0 1\r\npause-tube -a 1\r\na\0b\r\nuse b\r\n"
    assert place.execute(data) == ALL
    assert place.sent == [
        b"USING a\r\nUNKNOWN_COMMAND\r\nUNKNOWN_COMMAND\r\n"
        + b"BAD_FORMAT\r\n" * 4
        + b"USING b\r\n"
    ]
    assert place.counted() == {"cmd-use": 2, "cmd-pause-tube": 1}


@pytest.mark.parametrize(
    ("connections", "share_ns"),
    [(1, TURN_NS), (2, TURN_NS // 2), (100, MIN_SHARE_NS), (101, MIN_SHARE_NS)],
)
def test_a_turn_is_divided_among_those_who_want_to_be_served(
    connections: int, share_ns: int
) -> None:
    place = Place()
    place.context.divide(connections)
    assert place.context.share_ns == share_ns


def test_others_hear_of_a_job_before_the_next_command_is_carried_out() -> None:
    place = Place()
    waiting = place.queue.connect()
    place.queue.reservations.reserve(waiting, 0)
    assert place.execute(b"put 0 0 1 1\r\nx\r\npeek-ready\r\n") == ALL
    assert place.delivered == [b"RESERVED 1 1\r\nx\r\n"]
    assert place.sent == [b"INSERTED 1\r\nNOT_FOUND\r\n"]


@pytest.mark.parametrize(("ends_ns", "done"), [(19, 2), (20, 3), (0, 1), (-1, 1)])
def test_no_command_is_begun_when_the_time_is_up_but_the_first(ends_ns: int, done: int) -> None:
    place = Place(step_ns=10)
    assert place.execute(b"use a\r\n" * 4, ends_ns) == STOPPED
    assert place.sent == [b"USING a\r\n" * done]
    assert place.executor.at == len(b"use a\r\n") * done


def test_after_a_fault_it_is_known_which_command_it_was_and_where_the_next_one_begins() -> None:
    place = Place()
    place.queue.keep_in(cast(JobLog, None))
    data = b"use a\r\nput 0 0 1 1\r\nx\r\n"
    with pytest.raises(AttributeError):
        place.execute(data + b"use b\r\n")
    assert (place.executor.line, place.executor.at) == (b"put 0 0 1 1", len(data))
    assert place.sent == [b"USING a\r\n"]


def test_it_is_to_be_seen_whether_to_go_on_when_replies_have_left() -> None:
    place = Place()
    place.execute(b"put 0 0 1 %d\r\n%s\r\n" % (LARGEST, bytes(LARGEST)))
    place.sent.clear()
    one = b"FOUND 1 %d\r\n%s\r\n" % (LARGEST, bytes(LARGEST))
    enough = -(-MAX_GATHERED_BYTES // len(one))
    assert place.execute(b"peek 1\r\n" * (enough + 1)) == STOPPED
    assert place.executor.at == enough * len(b"peek 1\r\n")
    assert place.sent == [one * enough]


def test_a_body_in_pieces_is_a_job_when_all_of_it_has_come() -> None:
    place = Place()
    incoming = place.begin(b"put 0 0 1 3")
    assert place.queue.state.next_job_id == 2
    assert [incoming.receive(piece) for piece in (b"a", b"bc", b"\r", b"\nuse")] == [
        None, None, None, b"use",
    ]  # fmt: skip
    assert place.finish(incoming) == b"INSERTED 1\r\n"
    assert place.execute(b"peek 1\r\n") == ALL
    assert place.sent == [b"FOUND 1 3\r\nabc\r\n"]


def test_a_body_that_is_one_byte_too_large_is_skipped_and_uses_up_no_id() -> None:
    place = Place()
    incoming = place.begin(b"put 0 0 1 %d" % (LARGEST + 1))
    assert incoming.receive(bytes(LARGEST + 3) + b"use") == b"use"
    assert place.finish(incoming) == b"JOB_TOO_BIG\r\n"
    assert place.queue.state.next_job_id == 1
    assert place.counted() == {"cmd-put": 1}


def test_a_body_for_which_there_is_no_memory_is_skipped() -> None:
    place = Place()

    place.queue.memory = Scarce(3)
    incoming = place.begin(b"put 0 0 1 6")
    assert [incoming.receive(piece) for piece in (b"ab", b"cde", b"f\r\nuse")] == [
        None, None, b"use",
    ]  # fmt: skip
    assert place.finish(incoming) == b"OUT_OF_MEMORY\r\n"


LONG = b"delete-batch " + b"1 " * 130 + b"2"


def long_line(size: int) -> bytes:
    """Give a line of so many bytes, its CR LF included, that asks for the deletion of two jobs."""
    return b"delete-batch 1" + b" " * (size - 17) + b"2\r\n"


def test_a_long_line_is_carried_out_however_it_is_cut() -> None:
    for first in (len(LONG), 230, 229, 224):
        place = Place()
        place.execute(b"put 0 0 1 1\r\nx\r\n" * 2)
        incoming = place.executor.begin_long_line(LONG[:224])
        sent = LONG + b"\r\nuse"
        assert incoming.receive(sent[:first]) is None
        *rests, last = [incoming.receive(sent[at : at + 1]) for at in range(first, len(sent) - 3)]
        assert (set(rests) <= {None}, last) == (True, b"")
        assert place.finish(incoming) == b"DELETED_BATCH 2 129\r\n"


@pytest.mark.parametrize("past", [0, 1, 2, 500])
@pytest.mark.parametrize("step", [21_000, 20_999, 20_998, 4096])
def test_a_long_line_has_a_limit_and_is_then_skipped_up_to_its_end(past: int, step: int) -> None:
    place = Place()
    place.execute(b"put 0 0 1 1\r\nx\r\n")
    sent = long_line(MAX_BATCH_LINE_BYTES + past) + b"use"
    incoming = place.executor.begin_long_line(sent[:224])
    rest = None
    at = 0
    while rest is None:
        rest = incoming.receive(sent[at : at + step])
        at += step
    assert rest + sent[at:] == b"use"
    refused = b"BAD_FORMAT\r\n"
    assert place.finish(incoming) == (refused if past else b"DELETED_BATCH 1 1\r\n")
    assert len(place.queue.state.jobs) == (1 if past else 0)


def test_an_observer_hears_of_long_lines() -> None:
    place = Place()
    place.context.observer = onlooker = Onlooker()
    lines = LONG, long_line(MAX_BATCH_LINE_BYTES + 1)[:-2], LONG + b" x"
    for line in lines:
        incoming = place.executor.begin_long_line(line[:224])
        assert incoming.receive(line + b"\r\n") == b""
        place.finish(incoming)
    reply = DeletedBatch(0, 131)
    assert onlooker.told == [
        ("received", LONG, ((1,) * 130 + (2,),)),
        ("about to", "delete-batch", None),
        ("answered", reply, reply.encode()),
        ("received", lines[1][:224], None),
        ("answered", BAD_FORMAT, BAD_FORMAT.encode()),
        ("received", lines[2], None),
        ("answered", BAD_FORMAT, BAD_FORMAT.encode()),
    ]


def test_what_an_observer_plants_is_answered_to_a_long_line_too() -> None:
    place = Place()
    place.execute(b"put 0 0 1 1\r\nx\r\n")
    place.context.observer = onlooker = Onlooker()
    onlooker.planted = (NOT_FOUND, 0)
    incoming = place.executor.begin_long_line(LONG[:224])
    incoming.receive(LONG + b"\r\n")
    assert place.finish(incoming) == b"NOT_FOUND\r\n"
    assert list(place.queue.state.jobs) == [1]


@pytest.mark.parametrize(
    ("data", "has_only_looked"), [(b"stats\r\n", True), (b"put 0 0 1 1\r\nx\r\n", False)]
)
def test_a_command_that_fails_is_answered_by_whether_it_only_looks(
    data: bytes, has_only_looked: bool
) -> None:
    place = Place()
    place.queue.keep_in(cast(JobLog, None))
    with pytest.raises((TypeError, AttributeError)):
        place.execute(data)
    place.executor.answer_failure()
    place.replies.send()
    assert place.failures == [(data.split(b"\r\n")[0], has_only_looked)]
    assert place.executor.line == b""
    assert place.sent == [b"INTERNAL_ERROR\r\n"]


def test_a_collected_put_that_fails_is_known_by_its_line() -> None:
    place = Place()
    incoming = place.begin(b"put 0 0 1 1")
    assert place.executor.line == b""
    incoming.receive(b"x\r\n")
    place.queue.keep_in(cast(JobLog, None))
    with pytest.raises(AttributeError):
        place.executor.finish(incoming, 0)
    assert place.executor.line == b"put 0 0 1 1"


def test_an_observer_hears_of_each_command_its_body_and_its_answer_in_order() -> None:
    place = Place()
    onlooker = place.context.observer = Onlooker()
    data = b"put 0 0 1 1\r\nx\r\nfoo\r\nreserve\r\nquit\r\n"
    assert place.execute(data) == STOPPED
    assert onlooker.told == [
        ("received", b"put 0 0 1 1", (0, 0, 1, 1)),
        ("about to", "put", b"x"),
        ("answered", Inserted(1), b"INSERTED 1\r\n"),
        ("received", b"foo", None),
        ("answered", UNKNOWN_COMMAND, b"UNKNOWN_COMMAND\r\n"),
        ("received", b"reserve", ()),
        ("about to", "reserve", None),
        ("answered", Reserved(1, b"x", 0), b"RESERVED 1 1\r\nx\r\n"),
        ("received", b"quit", ()),
    ]


def test_what_an_observer_plants_is_answered_instead() -> None:
    place = Place()
    onlooker = place.context.observer = Onlooker()
    onlooker.planted = (OUT_OF_MEMORY, 0)
    place.execute(b"put 0 0 1 1\r\nx\r\npeek-ready\r\n")
    assert place.sent == [b"OUT_OF_MEMORY\r\nNOT_FOUND\r\n"]
    incoming = place.begin(b"put 0 0 1 1")
    assert incoming.receive(b"y\r\n") == b""
    onlooker.planted = (NOT_FOUND, 0)
    assert place.finish(incoming) == b"NOT_FOUND\r\n"
    assert onlooker.told[-2:] == [
        ("about to", "put", b"y"), ("answered", NOT_FOUND, b"NOT_FOUND\r\n"),
    ]  # fmt: skip
    assert place.queue.tally.total_jobs == 0


def test_a_connection_whose_answer_has_no_words_is_over() -> None:
    place = Place(dialect=v1.DIALECT)
    onlooker = place.context.observer = Onlooker()
    assert place.execute(b"reserve\r\n") == STOPPED
    assert not place.executor.is_over
    assert place.executor.answer((TIMED_OUT, 0))
    assert place.executor.is_over
    assert onlooker.told[-1] == ("answered", TIMED_OUT, b"")
    assert place.sent == []
