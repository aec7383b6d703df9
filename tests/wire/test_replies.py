"""The bytes of every reply."""

from __future__ import annotations

import pytest

from beanstalk_twisted.wire import replies
from beanstalk_twisted.wire.replies import Found, Inserted, Kicked, Reply, Reserved, Using, Watching

MAX_U64 = (1 << 64) - 1


WORDS = (
    "DELETED", "RELEASED", "BURIED", "TOUCHED", "PAUSED", "NOT_FOUND", "NOT_IGNORED", "TIMED_OUT",
    "DEADLINE_SOON", "DRAINING", "EXPECTED_CRLF", "JOB_TOO_BIG", "BAD_FORMAT", "UNKNOWN_COMMAND",
    "OUT_OF_MEMORY", "INTERNAL_ERROR",
)  # fmt: skip
SENT: tuple[tuple[Reply, bytes], ...] = (
    *[(getattr(replies, word), word.encode() + b"\r\n") for word in WORDS],
    (replies.KICKED_JOB, b"KICKED\r\n"),
    (Inserted(MAX_U64), b"INSERTED 18446744073709551615\r\n"),
    (Kicked(0), b"KICKED 0\r\n"),
    (Using(b"a-b"), b"USING a-b\r\n"),
    (Watching(3), b"WATCHING 3\r\n"),
    (Reserved(7, b"hello", 5), b"RESERVED 7 5\r\nhello\r\n"),
    (Found(7, b"hello", 5), b"FOUND 7 5\r\nhello\r\n"),
)


@pytest.mark.parametrize(("reply", "expected"), SENT, ids=lambda value: None)
def test_a_reply_is_sent_so(reply: Reply, expected: bytes) -> None:
    assert reply.encode() == expected


@pytest.mark.parametrize("body", [b"", b"\r\n", b"\0\xff", b"%d\r\nOK 3"])
def test_a_body_is_sent_as_it_is_whatever_it_holds(body: bytes) -> None:
    expected = b" 1 " + str(len(body)).encode() + b"\r\n" + body + b"\r\n"
    assert Reserved(1, body, 0).encode() == b"RESERVED" + expected
    assert Found(1, body, 0).encode() == b"FOUND" + expected


def test_the_length_of_a_document_leaves_out_its_last_line_end() -> None:
    assert replies.names([b"default"]).encode() == b"OK 14\r\n---\n- default\n\r\n"
    pairs = [("name", '"default"')]
    assert replies.mapping(pairs).encode() == b'OK 20\r\n---\nname: "default"\n\r\n'
