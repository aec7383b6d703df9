"""The bytes of every reply."""

from __future__ import annotations

import pytest

from beanstalk_twisted.wire import replies
from beanstalk_twisted.wire.replies import Found, Inserted, Kicked, Reply, Reserved, Using, Watching

MAX_U64 = (1 << 64) - 1

WORDS = (
    (replies.DELETED, b"DELETED\r\n"),
    (replies.RELEASED, b"RELEASED\r\n"),
    (replies.BURIED, b"BURIED\r\n"),
    (replies.TOUCHED, b"TOUCHED\r\n"),
    (replies.KICKED_JOB, b"KICKED\r\n"),
    (replies.PAUSED, b"PAUSED\r\n"),
    (replies.NOT_FOUND, b"NOT_FOUND\r\n"),
    (replies.NOT_IGNORED, b"NOT_IGNORED\r\n"),
    (replies.TIMED_OUT, b"TIMED_OUT\r\n"),
    (replies.DEADLINE_SOON, b"DEADLINE_SOON\r\n"),
    (replies.DRAINING, b"DRAINING\r\n"),
    (replies.EXPECTED_CRLF, b"EXPECTED_CRLF\r\n"),
    (replies.JOB_TOO_BIG, b"JOB_TOO_BIG\r\n"),
    (replies.BAD_FORMAT, b"BAD_FORMAT\r\n"),
    (replies.UNKNOWN_COMMAND, b"UNKNOWN_COMMAND\r\n"),
    (replies.OUT_OF_MEMORY, b"OUT_OF_MEMORY\r\n"),
    (replies.INTERNAL_ERROR, b"INTERNAL_ERROR\r\n"),
)

OTHERS: tuple[tuple[Reply, bytes], ...] = (
    (Inserted(MAX_U64), b"INSERTED 18446744073709551615\r\n"),
    (Kicked(0), b"KICKED 0\r\n"),
    (Using(b"a-b"), b"USING a-b\r\n"),
    (Watching(3), b"WATCHING 3\r\n"),
    (Reserved(7, b"hello", 5), b"RESERVED 7 5\r\nhello\r\n"),
    (Found(7, b"hello", 5), b"FOUND 7 5\r\nhello\r\n"),
)


@pytest.mark.parametrize(("reply", "expected"), WORDS, ids=lambda value: None)
def test_a_word_is_sent_as_itself(reply: Reply, expected: bytes) -> None:
    assert reply.encode() == expected


@pytest.mark.parametrize(("reply", "expected"), OTHERS, ids=lambda value: None)
def test_a_reply_with_values_names_them_behind_its_word(reply: Reply, expected: bytes) -> None:
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
