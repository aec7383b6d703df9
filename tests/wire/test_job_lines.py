"""The lines of jobs: what they say, and what is known of wrong ones."""

from __future__ import annotations

import pytest

from beanstalk_twisted.wire.dialects import MODERN
from beanstalk_twisted.wire.grammar import MAX_BATCH_JOBS, ParseError
from beanstalk_twisted.wire.replies import BAD_FORMAT, InsertedBatch, InsertedDuplicate
from beanstalk_twisted.wire.tags import JobLine, PutTags, parse_count, parse_job_line

LINES = {
    b"1 2 3 4": JobLine(4, (1, 2, 3), False),
    b"0 0 0 0": JobLine(0, (0, 0, 1), False),
    b"  1  2 3 4": JobLine(4, (1, 2, 3), False),
    b"4294967295 4294967295 4294967295 4294967295": JobLine(2**32 - 1, (2**32 - 1,) * 3, False),
    b"1 2 3 4 junk": JobLine(4, (1, 2, 3), True),
    b"1 2 3 4 ": JobLine(4, (1, 2, 3), True),
    b"4294967296 2 3 4": JobLine(4, None, False),
    b"1 4294967296 3 4": JobLine(4, None, False),
    b"1 2 4294967296 4 5": JobLine(4, None, True),
    b"1 -2 3 4": JobLine(4, None, False),
    b"a b c 4": JobLine(4, None, False),
    b"a b c 4 5": JobLine(4, None, False),
    b"1 2 3 4294967296": JobLine(None, (1, 2, 3), False),
    b"1 2 3 -4": JobLine(None, None, False),
    b"a 2 3 4x": JobLine(None, None, False),
    b"1 2 3": JobLine(None, None, False),
    b"": JobLine(None, None, False),
    b"put 1 2 3 4": JobLine(3, None, False),
    b"1 2 3 4 idp:a": JobLine(4, (1, 2, 3), False, PutTags(unique_key=b"a")),
    b"1 2 3 4  aft:b  con:c:2": JobLine(4, (1, 2, 3), False, PutTags(b"", 0, b"c", 2, b"", b"b")),
    b"1 2 3 4 idp:a ": JobLine(4, (1, 2, 3), True),
    b"1 2 3 4 idp:": JobLine(4, (1, 2, 3), True),
    b"1 2 3 4idp:a": JobLine(4, (1, 2, 3), True),
    b"1 2 3 4 idp:a junk": JobLine(4, (1, 2, 3), True),
    b"x 2 3 4 idp:a": JobLine(4, None, False),
    b"4294967296 2 3 4 idp:a": JobLine(4, None, True),
}


@pytest.mark.parametrize("line", LINES)
def test_a_line_says_this(line: bytes) -> None:
    assert parse_job_line(line) == LINES[line]


@pytest.mark.parametrize(
    ("rest", "count"),
    [(b"0", 0), (b"1001", 1001), (b" 7 ", 7), (b"4294967296", None), (b"-1", None), (b"", None),
     (b"1 2", None), (b"x", None), (b"1 idp:k", 1), (b"1 idp:", 1), (b"2 idp:k grp:g", 2),
     (b"1 idp:k x", None), (b"idp:k", None), (b"1 id", None)],
)  # fmt: skip
def test_a_count_is_known_or_not(rest: bytes, count: int | None) -> None:
    assert parse_count(rest) == count


@pytest.mark.parametrize("count", [1, MAX_BATCH_JOBS])
def test_a_batch_has_so_many_jobs(count: int) -> None:
    row, args, has_rest = MODERN.parse(b"put-batch %d" % count)
    assert (row.name, args, has_rest) == ("put-batch", (count, None), False)


@pytest.mark.parametrize("count", [0, MAX_BATCH_JOBS + 1])
def test_a_batch_has_no_fewer_and_no_more_jobs(count: int) -> None:
    with pytest.raises(ParseError) as caught:
        MODERN.parse(b"put-batch %d" % count)
    assert caught.value.reply is BAD_FORMAT


def test_a_wrong_line_is_known_as_one_that_jobs_follow() -> None:
    for line in (b"put-at", b"put-at x", b"put-batch", b"put-batch \0"):
        row = MODERN.with_jobs(line)
        assert row is not None and row.has_jobs and row.takes_job
    for line in (b"put 1 2 3 4", b"put-atx 1", b"put", b"", b"stats"):
        assert MODERN.with_jobs(line) is None


def test_the_reply_to_a_batch_has_a_line_for_each_job() -> None:
    reply = InsertedBatch(range(9, 12))
    assert reply.encode() == b"INSERTED_BATCH 3\r\nINSERTED 9\r\nINSERTED 10\r\nINSERTED 11\r\n"
    assert reply == InsertedBatch([9, 10, 11]) != InsertedBatch(range(9, 11))


def test_the_reply_to_a_batch_says_which_jobs_were_there_already() -> None:
    reply = InsertedBatch([9, 2, 10, 9], [None, b"READY", None, b"DELETED"])
    assert reply.encode() == (
        b"INSERTED_BATCH 4\r\n"
        b"INSERTED 9\r\nINSERTED 2 READY\r\nINSERTED 10\r\nINSERTED 9 DELETED\r\n"
    )
    assert reply != InsertedBatch([9, 2, 10, 9])


def test_the_reply_to_a_duplicate_has_its_state() -> None:
    reply = InsertedDuplicate(7, b"BURIED")
    assert reply.encode() == b"INSERTED 7 BURIED\r\n"
    assert reply == InsertedDuplicate(7, b"BURIED") != InsertedDuplicate(7, b"READY")
