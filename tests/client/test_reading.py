"""Bytes into replies: this one, not yet, or cannot be right."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanstalk_twisted.client.commands import extension_specs, specs
from beanstalk_twisted.client.commands.specs import MAX_BODY_BYTES, Reply
from beanstalk_twisted.client.exchange import Impossible, ReplyReader
from beanstalk_twisted.wire import extensions, replies
from beanstalk_twisted.wire.replies import (
    MAX_REPLY_LINE_BYTES,
    Document,
    Found,
    Inserted,
    Kicked,
    Reserved,
    Using,
)

SPECS = specs.SPECS | extension_specs.SPECS
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
        extensions.InsertedBatch([9, 10], [None, None]),
        Reply(b"INSERTED_BATCH", 2, b"", (Reply(b"INSERTED", 9, b""), Reply(b"INSERTED", 10, b""))),
    ),
    (
        "reserve-batch",
        extensions.ReservedBatch([Reserved(7, BODY, 0), Reserved(8, b"", 0)]),
        Reply(b"RESERVED_BATCH", 2, b"", (Reply(b"RESERVED", 7, BODY), Reply(b"RESERVED", 8, b""))),
    ),
    ("reserve-batch", extensions.ReservedBatch([]), Reply(b"RESERVED_BATCH", 0, b"")),
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
    for line, why in ((longest + b"\r\n", "not an answer"), (longest + b"xx", "no line")):
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


def test_a_large_body_in_small_pieces_is_put_together_once() -> None:
    body = bytes(range(256)) * 4096
    reader = ReplyReader()
    stream = Reserved(1, body, 0).encode() + Inserted(2).encode()
    for start in range(0, len(stream), 1000):
        reader.feed(stream[start : start + 1000])
        reply = reader.next(SPECS["reserve"].replies)
        if reply is not None:
            break
    assert reply == Reply(b"RESERVED", 1, body)
    reader.feed(stream[start + 1000 :])
    assert reader.next(SPECS["put"].replies) == Reply(b"INSERTED", 2, b"")
