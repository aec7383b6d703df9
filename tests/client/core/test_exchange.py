"""What was asked, and which reply belongs to what; no clock, no socket."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanstalk_twisted.client.commands import specs
from beanstalk_twisted.client.commands.specs import PUT, SPECS, CommandSpec
from beanstalk_twisted.client.core.dialogue import Dialogue
from beanstalk_twisted.client.core.exchange import PIECE_BYTES, Outbox, cost
from beanstalk_twisted.client.core.replies import Impossible, Reply, ReplyReader
from beanstalk_twisted.client.core.requests import Implicit, Request
from beanstalk_twisted.wire import forms, replies
from beanstalk_twisted.wire.forms import MAX_BODY_BYTES
from beanstalk_twisted.wire.replies import (
    MAX_REPLY_LINE_BYTES,
    Document,
    Found,
    Inserted,
    Kicked,
    Reserved,
    Using,
)

KICK = SPECS["kick"]
BODY = b"\r\nRESERVED 1 2\r\nab\r\n\x00"
CASES: list[tuple[str, replies.Reply, Reply]] = [
    ("put", Inserted(7), (forms.INSERTED, 7)),
    ("put", replies.DRAINING, (forms.DRAINING, None)),
    ("reserve", Reserved(7, BODY, 0), (forms.RESERVED, (7, BODY))),
    ("peek", Found(1 << 60, b"", 0), (forms.FOUND, (1 << 60, b""))),
    ("stats", Document(b"---\n"), (forms.DOCUMENT, (None, b"---\n"))),
    ("use", Using(b"a.b"), (forms.USING, "a.b")),
    ("kick", Kicked(0), (forms.KICKED, 0)),
    ("kick-job", replies.KICKED_JOB, (SPECS["kick-job"].replies[b"KICKED"], None)),
    ("bury", replies.BURIED, (forms.BURIED, None)),
    ("watch", replies.Watching(3), (forms.WATCHING, 3)),
    (
        "put-batch",
        replies.InsertedBatch([9, 10], [None, None]),
        (
            forms.INSERTED_BATCH,
            [(forms.INSERTED_OR_THERE, 9), (forms.INSERTED_OR_THERE, 10)],
        ),
    ),
    (
        "reserve-batch",
        replies.ReservedBatch([Reserved(7, BODY, 0), Reserved(8, b"", 0)]),
        (forms.RESERVED_BATCH, [(forms.RESERVED, (7, BODY)), (forms.RESERVED, (8, b""))]),
    ),
    ("reserve-batch", replies.ReservedBatch([]), (forms.RESERVED_BATCH, [])),
]


@pytest.mark.parametrize("at", range(len(CASES)))
def test_a_reply_split_at_every_byte_is_not_there_until_its_last(at: int) -> None:
    name, sent, expected = CASES[at]
    encoded = sent.encode()
    for cut in range(len(encoded)):
        reader = ReplyReader()
        reader.feed(encoded[:cut])
        assert reader.next(SPECS[name].replies) is None
        reader.feed(encoded[cut:])
        assert reader.next(SPECS[name].replies) == expected
        assert reader.is_empty


@given(st.lists(st.sampled_from(CASES), max_size=12), st.data())
def test_replies_in_pieces_of_any_size_come_out_whole_and_in_order(
    cases: list[tuple[str, replies.Reply, Reply]], data: st.DataObject
) -> None:
    stream = b"".join(sent.encode() for _, sent, _ in cases)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=20).map(sorted))
    reader = ReplyReader()
    read: list[Reply] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        reader.feed(stream[start:end])
        while len(read) < len(cases):
            reply = reader.next(SPECS[cases[len(read)][0]].replies)
            if reply is None:
                break
            read.append(reply)
    assert read == [expected for _, _, expected in cases]
    assert reader.is_empty


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("put", b"DELETED\r\n"), ("put", b"INSERTED\r\n"), ("put", b"INSERTED +1\r\n"),
        ("put", b"INSERTED 1_0\r\n"), ("put", b"INSERTED 1 \r\n"), ("put", b"INSERTED 1 2\r\n"),
        ("put", b"INSERTED 18446744073709551616\r\n"), ("put", b"\r\n"), ("put", b"inserted 1\r\n"),
        ("delete", b"DELETED 1\r\n"), ("kick", b"KICKED\r\n"),
        ("kick-job", b"KICKED 1\r\n"), ("use", b"USING a b\r\n"), ("use", b"USING \r\n"),
        ("reserve", b"RESERVED 1\r\n"), ("reserve", b"RESERVED 1 2 3\r\n"),
        ("reserve", b"RESERVED 1 2\r\nabcd"), ("stats", b"OK -1\r\n"),
        ("stats", b"HTTP/1.1 400 Bad Request\r\n"), ("put", b"OUT_OF_STORAGE\r\n"),
    ],
)  # fmt: skip
def test_what_cannot_be_an_answer_is_said_to_be_impossible(name: str, sent: bytes) -> None:
    reader = ReplyReader()
    reader.feed(sent)
    with pytest.raises(Impossible):
        reader.next(SPECS[name].replies)


def test_a_line_has_a_limit() -> None:
    longest = b"x" * (MAX_REPLY_LINE_BYTES - 2)
    for line, why in ((longest + b"\r\n", "not an answer"), (longest + b"xx", "a line longer")):
        reader = ReplyReader()
        reader.feed(line)
        with pytest.raises(Impossible, match=why):
            reader.next(SPECS["put"].replies)
    reader = ReplyReader()
    reader.feed(longest + b"\r")
    assert reader.next(SPECS["put"].replies) is None


def test_a_body_has_a_limit() -> None:
    reader = ReplyReader()
    reader.feed(b"RESERVED 1 %d\r\n" % MAX_BODY_BYTES)
    assert reader.next(SPECS["reserve"].replies) is None
    reader = ReplyReader()
    reader.feed(b"RESERVED 1 %d\r\n" % (MAX_BODY_BYTES + 1))
    with pytest.raises(Impossible):
        reader.next(SPECS["reserve"].replies)


class Asked(Request):
    """A request, and its result."""

    result: Any = None

    def succeed(self, result: Any) -> None:
        self.result = result


class Conversation(Dialogue):
    """A connection that sends into a list."""

    def __init__(self) -> None:
        super().__init__(self)
        self.sent: list[bytes] = []
        self.on("made")

    def write(self, data: bytes, is_alone: bool) -> None:
        self.sent.append(data)

    def begin_to_wait(self) -> None: ...

    def cut(self) -> None: ...

    def asked(self, spec: CommandSpec, *args: object) -> Asked:
        request = Asked(spec, args)
        self.submit(request)
        return request


def test_the_tubes_are_those_that_the_server_has_confirmed() -> None:
    said = Conversation()
    for spec, tube in ((specs.USE, b"a"), (specs.WATCH, b"a"), (specs.IGNORE, b"default"),
                       (specs.IGNORE, b"a"), (specs.USE, b"b")):  # fmt: skip
        request = Implicit(spec, (tube,))
        said.submit(request)
    said.receive(b"USING a\r\nWATCHING 2\r\nWATCHING 1\r\nNOT_IGNORED\r\n")
    tubes = said.exchange.tubes
    assert (tubes.used, list(tubes.watched)) == (b"a", [b"a"])


def test_a_reserve_takes_the_place_of_a_forgotten_one_only_once() -> None:
    said = Conversation()
    said.asked(specs.RESERVE).cancel()
    second, third = said.asked(specs.RESERVE), said.asked(specs.RESERVE)
    assert said.sent == [b"reserve\r\n"] * 2
    assert list(said.exchange.unanswered) == [second, third]


def test_a_forgotten_reserve_that_was_answered_has_no_place_to_take() -> None:
    said = Conversation()
    said.asked(specs.RESERVE).cancel()
    said.receive(b"DEADLINE_SOON\r\n")
    said.asked(specs.RESERVE)
    assert said.sent == [b"reserve\r\n"] * 2


JOB = b"RESERVED 7 1\r\nx\r\n"


@pytest.mark.parametrize("first", [(specs.RESERVE,), (specs.RESERVE_WITH_TIMEOUT, 9)])
@pytest.mark.parametrize("second", [(specs.RESERVE,), (specs.RESERVE_WITH_TIMEOUT, 5)])
def test_a_job_for_a_forgotten_reserve_is_the_next_ones_that_waits(
    first: tuple[Any, ...], second: tuple[Any, ...]
) -> None:
    said = Conversation()
    forgotten, other, wanted = said.asked(*first), said.asked(KICK, 1), said.asked(*second)
    forgotten.cancel()
    said.receive(JOB)
    assert wanted.result == (7, b"x") and forgotten.result is None
    assert list(said.exchange.reserved) == [7]
    assert list(said.exchange.unanswered) == [other, forgotten]
    # The place of the one that was served is nobody's; what it asks for has not changed.
    assert (forgotten.spec, forgotten.args) == (second[0], second[1:])
    # So a reserve takes it, if that is what waits in the server.
    said.asked(specs.RESERVE)
    assert len(said.sent) == (3 if second[0] is specs.RESERVE else 4)


def test_a_reserve_of_other_tubes_is_not_given_a_forgotten_ones_job() -> None:
    said = Conversation()
    forgotten, _, other = (
        said.asked(specs.RESERVE), said.asked(specs.WATCH, b"a"), said.asked(specs.RESERVE)
    )  # fmt: skip
    forgotten.cancel()
    said.receive(JOB)
    assert other.result is None and list(said.exchange.reserved) == []
    assert said.sent[-1] == b"stats-job 7\r\n"  # To give it back as it was.


def test_nor_is_one_that_was_not_sent_or_is_forgotten_too() -> None:
    said = Conversation()
    first, second = said.asked(specs.RESERVE), said.asked(specs.RESERVE)
    said.pause()
    third = said.asked(specs.RESERVE_WITH_TIMEOUT, 0)
    first.cancel()
    second.cancel()
    said.receive(JOB)
    assert third.result is None and list(said.exchange.reserved) == []


def put(size: int) -> Request:
    return Request(PUT, (0, 0, 1, size), b"x" * size)


@given(st.lists(st.sampled_from([0, 1, 100, 60_000, PIECE_BYTES, 200_000]), max_size=12))
def test_all_leave_in_order_and_in_pieces_of_a_bounded_size(sizes: list[int]) -> None:
    outbox: Outbox = Outbox()
    requests = [put(size) for size in sizes]
    for request in requests:
        outbox.add(request)
    assert outbox.bytes == sum(map(cost, requests))
    pieces = []
    while outbox:
        pieces.append(outbox.piece())
    assert b"".join(pieces) == b"".join(request.encode() for request in requests)
    assert all(0 < len(piece) <= PIECE_BYTES for piece in pieces)
    assert all(request.is_sent for request in requests)
    assert outbox.bytes == 0


def test_what_was_not_begun_can_be_taken_back() -> None:
    outbox: Outbox = Outbox()
    first, second, third = put(1), put(2), put(3)
    for request in (first, second, third):
        outbox.add(request)
    outbox.drop(second)
    outbox.drop(second)
    assert outbox.piece() == first.encode() + third.encode()
    assert outbox.bytes == 0
