"""What was asked, and which reply belongs to what; no clock, no socket."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanstalk_twisted.client.commands import specs
from beanstalk_twisted.client.commands.specs import PUT, SPECS, CommandSpec
from beanstalk_twisted.client.core.exchange import (
    PIECE_BYTES,
    Exchange,
    Impossible,
    Outbox,
    ReplyReader,
    Request,
    cost,
)
from beanstalk_twisted.wire import replies
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
    ("put", Inserted(7), Reply(b"INSERTED", 7, b"")),
    ("put", replies.DRAINING, Reply(b"DRAINING", None, b"")),
    ("reserve", Reserved(7, BODY, 0), Reply(b"RESERVED", 7, BODY)),
    ("peek", Found(1 << 60, b"", 0), Reply(b"FOUND", 1 << 60, b"")),
    ("stats", Document(b"---\n"), Reply(b"OK", None, b"---\n")),
    ("use", Using(b"a.b"), Reply(b"USING", "a.b", b"")),
    ("kick", Kicked(0), Reply(b"KICKED", 0, b"")),
    ("kick-job", replies.KICKED_JOB, Reply(b"KICKED", None, b"")),
    ("bury", replies.BURIED, Reply(b"BURIED", None, b"")),
    ("watch", replies.Watching(3), Reply(b"WATCHING", 3, b"")),
    (
        "put-batch",
        replies.InsertedBatch([9, 10], [None, None]),
        Reply(b"INSERTED_BATCH", 2, b"", (Reply(b"INSERTED", 9, b""), Reply(b"INSERTED", 10, b""))),
    ),
    (
        "reserve-batch",
        replies.ReservedBatch([Reserved(7, BODY, 0), Reserved(8, b"", 0)]),
        Reply(b"RESERVED_BATCH", 2, b"", (Reply(b"RESERVED", 7, BODY), Reply(b"RESERVED", 8, b""))),
    ),
    ("reserve-batch", replies.ReservedBatch([]), Reply(b"RESERVED_BATCH", 0, b"")),
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
    read: list[Reply | Impossible] = []
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
    reply = reader.next(SPECS[name].replies)
    assert isinstance(reply, Impossible)
    assert reply.why


def test_a_line_has_a_limit() -> None:
    longest = b"x" * (MAX_REPLY_LINE_BYTES - 2)
    for line, why in ((longest + b"\r\n", "not an answer"), (longest + b"xx", "a line longer")):
        reader = ReplyReader()
        reader.feed(line)
        reply = reader.next(SPECS["put"].replies)
        assert isinstance(reply, Impossible) and why in reply.why
    reader = ReplyReader()
    reader.feed(longest + b"\r")
    assert reader.next(SPECS["put"].replies) is None


def test_a_body_has_a_limit() -> None:
    for size, kind in ((MAX_BODY_BYTES, type(None)), (MAX_BODY_BYTES + 1, Impossible)):
        reader = ReplyReader()
        reader.feed(b"RESERVED 1 %d\r\n" % size)
        assert isinstance(reader.next(SPECS["reserve"].replies), kind)


def asked(exchange: Exchange[Request], spec: CommandSpec, *args: object) -> Request:
    request = Request(spec, args)
    if exchange.ask(request):
        request.is_begun = request.is_sent = True
    return request


def test_the_tubes_are_those_that_the_server_has_confirmed() -> None:
    exchange: Exchange[Request] = Exchange()
    for spec, tube in ((specs.USE, b"a"), (specs.WATCH, b"a"), (specs.IGNORE, b"default"),
                       (specs.IGNORE, b"a"), (specs.USE, b"b")):  # fmt: skip
        asked(exchange, spec, tube)
    list(exchange.receive(b"USING a\r\nWATCHING 2\r\nWATCHING 1\r\nNOT_IGNORED\r\n"))
    assert (exchange.tubes.used, list(exchange.tubes.watched)) == (b"a", [b"a"])


def test_a_reserve_takes_the_place_of_a_forgotten_one_only_once() -> None:
    exchange: Exchange[Request] = Exchange()
    first = asked(exchange, specs.RESERVE)
    exchange.forget(first)
    second, third = Request(specs.RESERVE, ()), Request(specs.RESERVE, ())
    assert [exchange.ask(second), exchange.ask(third)] == [False, True]
    assert list(exchange.unanswered) == [second, third]


def test_a_forgotten_reserve_that_was_answered_has_no_place_to_take() -> None:
    exchange: Exchange[Request] = Exchange()
    first = asked(exchange, specs.RESERVE)
    exchange.forget(first)
    list(exchange.receive(b"DEADLINE_SOON\r\n"))
    assert exchange.ask(Request(specs.RESERVE, ()))


JOB = b"RESERVED 7 1\r\nx\r\n"


@pytest.mark.parametrize("first", [(specs.RESERVE,), (specs.RESERVE_WITH_TIMEOUT, 9)])
@pytest.mark.parametrize("second", [(specs.RESERVE,), (specs.RESERVE_WITH_TIMEOUT, 5)])
def test_a_job_for_a_forgotten_reserve_is_the_next_ones_that_waits(
    first: tuple[Any, ...], second: tuple[Any, ...]
) -> None:
    exchange: Exchange[Request] = Exchange()
    forgotten, other = asked(exchange, *first), asked(exchange, KICK, 1)
    wanted = asked(exchange, *second)
    exchange.forget(forgotten)
    ((served, reply),) = exchange.receive(JOB)
    assert served is wanted and reply.value == 7
    assert list(exchange.reserved) == [7]
    assert list(exchange.unanswered) == [other, forgotten]
    # The place of the one that was served is nobody's; what it asks for has not changed.
    assert (forgotten.spec, forgotten.args) == (second[0], second[1:])
    # So a reserve takes it, if that is what waits in the server.
    assert exchange.ask(Request(specs.RESERVE, ())) is (second[0] is not specs.RESERVE)


def test_a_reserve_of_other_tubes_is_not_given_a_forgotten_ones_job() -> None:
    exchange: Exchange[Request] = Exchange()
    forgotten = asked(exchange, specs.RESERVE)
    asked(exchange, specs.WATCH, b"a")
    asked(exchange, specs.RESERVE)
    exchange.forget(forgotten)
    ((served, _),) = exchange.receive(JOB)
    assert served is forgotten and list(exchange.reserved) == []


def test_nor_is_one_that_was_not_sent_or_is_forgotten_too() -> None:
    exchange: Exchange[Request] = Exchange()
    first, second = (asked(exchange, specs.RESERVE) for _ in range(2))
    third = Request(specs.RESERVE_WITH_TIMEOUT, (0,))
    exchange.ask(third)
    exchange.forget(first)
    exchange.forget(second)
    ((served, _),) = exchange.receive(JOB)
    assert served is first


def put(size: int) -> Request:
    return Request(PUT, (0, 0, 1, size), b"x" * size)


@given(st.lists(st.sampled_from([0, 1, 100, 60_000, PIECE_BYTES, 200_000]), max_size=12))
def test_all_leave_in_order_and_in_pieces_of_a_bounded_size(sizes: list[int]) -> None:
    outbox: Outbox[Request] = Outbox()
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
    outbox: Outbox[Request] = Outbox()
    first, second, third = put(1), put(2), put(3)
    for request in (first, second, third):
        outbox.add(request)
    outbox.drop(second)
    outbox.drop(second)
    assert outbox.piece() == first.encode() + third.encode()
    assert outbox.bytes == 0
