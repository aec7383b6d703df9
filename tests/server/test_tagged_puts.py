"""Puts with tags on a connection: in pieces, with others, on long lines, and wrong in every way."""

from __future__ import annotations

import pytest

from beanstalk_twisted.rules.puts import PLENTY
from beanstalk_twisted.server.incoming import IncomingJobs
from beanstalk_twisted.testing import Beanstalk
from beanstalk_twisted.wire.commands import MAX_LINE_BYTES
from beanstalk_twisted.wire.dialects import MODERN
from beanstalk_twisted.wire.tags import MAX_TAGGED_LINE_BYTES, PutTags
from tests.server.conversing import CUT, LOGGED, broken_off, check_conversation, check_lost, connect

LIMIT = 30
"""The largest body."""

PUT, PUT_AT, JOB = b"put 0 0 60 ", b"put-at 0 0 60 ", b"0 0 60 "
EMPTY = JOB + b"0\r\n\r\n"
EVIL = b"delete 1\r\nput 0 0 1 0\r\n"
"""A body that looks like commands."""


def put(tags: bytes, body: bytes = b"x", start: bytes = PUT) -> bytes:
    return start + b"%d %s\r\n%s\r\n" % (len(body), tags, body)


def batch(*jobs: bytes) -> bytes:
    return b"put-batch %d\r\n" % len(jobs) + b"".join(jobs)


def long(size: int, start: bytes = PUT, tag: bytes = b"aft:g", body: bytes = b"x") -> bytes:
    before, behind = start + b"%d con:a" % len(body), tag + b"\r\n"
    return before + b" " * (size - len(before) - len(behind)) + behind + body + b"\r\n"


USED = b"list-tube-used\r\n"
SAID = b"USING default\r\n"
MOST = MAX_TAGGED_LINE_BYTES

CONVERSATIONS = {
    "between other commands": (
        b"put 0 0 1 1\r\na\r\n" + put(b"idp:a:60 con:b:2") + USED + put(b"grp:g  aft:h")
        + b"put 0 0 1 1\r\nb\r\n",
        b"INSERTED 1\r\nINSERTED 2\r\n" + SAID + b"INSERTED 3\r\nINSERTED 4\r\n",
    ),
    "for a moment, and in a batch beside one without": (
        put(b"idp:a", start=PUT_AT) + batch(put(b"grp:g", start=JOB), JOB + b"1\r\nx\r\n"),
        b"INSERTED 1\r\nINSERTED_BATCH 2\r\nINSERTED 2\r\nINSERTED 3\r\n",
    ),
    "no body, the largest, CR LF in a body": (
        put(b"idp:a", b"") + put(b"idp:b", b"y" * LIMIT) + put(b"idp:c", b"a\r\nb"),
        b"INSERTED 1\r\nINSERTED 2\r\nINSERTED 3\r\n",
    ),
    "a wrong tag": (
        put(b"idp:", EVIL) + put(b"idp:a idp:a", EVIL) + put(b"aft:g grp:g", EVIL)
        + put(b"idp:a junk", EVIL) + put(b"idp:a ", EVIL) + put(b"idp:a\0", EVIL)
        + put(b"con:a:0", EVIL, PUT_AT) + batch(put(b"con:a:0", EVIL, JOB), put(b"", EVIL, JOB))
        + USED,
        b"BAD_FORMAT\r\n" * 8 + SAID,
    ),
    "a wrong number before a tag": (
        put(b"idp:a", EVIL, b"put x 0 60 ") + put(b"idp:a", EVIL, b"put 0 4294967296 60 ")
        + put(b"idp:a", EVIL, b"put-at 0 x 60 ") + USED,
        b"BAD_FORMAT\r\n" * 3 + SAID,
    ),
    "a body above the limit, or of another size": (
        put(b"idp:a", EVIL * 2) + put(b"idp:a", EVIL * 2, PUT_AT) + PUT + b"2 idp:a\r\nabcd"
        + USED + batch(put(b"idp:", EVIL * 2, JOB))
        + batch(put(b"idp:", b"x", JOB), JOB + b"0\r\n\r\n"),
        b"JOB_TOO_BIG\r\nJOB_TOO_BIG\r\nEXPECTED_CRLF\r\n" + SAID
        + b"JOB_TOO_BIG\r\nBAD_FORMAT\r\n",
    ),
    "other junk is beanstalkd's: what follows are commands": (
        put(b"junk idp:a", b"kick 1") + put(b"idp", b"kick 1") + put(b"xyz:a", b"kick 1"),
        b"BAD_FORMAT\r\nKICKED 0\r\n" * 3,
    ),
    "lines of every length about 224 bytes": (
        b"".join(long(MAX_LINE_BYTES + more) for more in (-1, 0, 1, 2)) + USED,
        b"".join(b"INSERTED %d\r\n" % job_id for job_id in range(1, 5)) + SAID,
    ),
    "the longest line, and one of a byte more": (
        long(MOST) + long(MOST + 1, body=EVIL)
        + long(MOST, PUT_AT) + long(MOST + 1, PUT_AT, body=EVIL)
        + batch(long(MOST, JOB), long(MOST, JOB)) + batch(long(MOST + 1, JOB, body=EVIL))
        + batch(long(MOST + 1, JOB), JOB + b"1\r\nx\r\n") + USED,
        b"INSERTED 1\r\nBAD_FORMAT\r\nINSERTED 2\r\nBAD_FORMAT\r\n"
        b"INSERTED_BATCH 2\r\nINSERTED 3\r\nINSERTED 4\r\nBAD_FORMAT\r\nBAD_FORMAT\r\n" + SAID,
    ),
    "a line that is right as far as it is kept": (
        long(MOST + 9, tag=b"aft:" + b"g" * 99, body=EVIL)
        + long(MOST + 9, PUT_AT, tag=b"aft:" + b"g" * 99, body=EVIL)
        + batch(long(MOST + 9, JOB, tag=b"aft:" + b"g" * 99, body=EVIL)) + USED,
        b"BAD_FORMAT\r\n" * 3 + SAID,
    ),
    "much longer lines": (
        b"".join(long(5000, start, body=EVIL) for start in (PUT, PUT_AT))
        + batch(long(5000, JOB, body=EVIL), long(3 * MOST + 1, JOB)) + USED,
        b"BAD_FORMAT\r\n" * 3 + SAID,
    ),
    "long lines that are wrong": (
        long(300, tag=b"con:a", body=EVIL) + long(MOST, tag=b"grp:a\r\r", body=EVIL)
        + long(300, b"put x 0 60 ", body=EVIL) + batch(long(300, JOB, tag=b"con:", body=EVIL))
        + USED,
        b"BAD_FORMAT\r\n" * 4 + SAID,
    ),
    "a long line whose body is too big, or of another size": (
        long(300, body=EVIL * 2) + long(300)[:-3] + b"abc" + USED,
        b"JOB_TOO_BIG\r\nEXPECTED_CRLF\r\n" + SAID,
    ),
    "CRs where a long line is cut": (
        long(MOST + 1, tag=b"\r" * 900, body=EVIL) + long(MOST + 900, tag=b"\r" * 900, body=EVIL)
        + batch(long(MOST + 900, JOB, tag=b"\r" * 1600))
        + batch(long(MOST + 1, JOB, tag=b"\r" * 1000))
        + batch(long(MAX_LINE_BYTES + 1, JOB, tag=b"\r" * 150)) + USED,
        b"BAD_FORMAT\r\n" * 5 + SAID,
    ),
    "a tag that begins behind 224 bytes is none": (
        PUT + b"6" + b" " * 300 + b"idp:a\r\nkick 1\r\n" + USED,
        b"BAD_FORMAT\r\nKICKED 0\r\n" + SAID,
    ),
    "while it drains": (
        b"drain\r\n" + put(b"idp:a") + put(b"idp:", EVIL) + long(300),
        b"DRAINING\r\nDRAINING\r\nBAD_FORMAT\r\nDRAINING\r\n",
    ),
}  # fmt: skip

LOST = {
    "a size that is no number": b"put 0 0 60 x idp:a\r\nkick 1\r\n",
    "a size above 2**32": b"put 0 0 60 4294967296 idp:a\r\nkick 1\r\n",
    "put-at with such a size": b"put-at 0 0 60 x idp:a\r\nkick 1\r\n",
    "a long line with such a size": b"put 0 0 60 x idp:a" + b" " * 300 + b"\r\nkick 1\r\n",
    "one that is too long": b"put 0 0 60 x idp:a" + b" " * 3000 + b"\r\nkick 1\r\n",
    "in a batch": batch(b"0 0 60 x idp:a\r\nkick 1\r\n"),
    "in a batch, on a long line": batch(b"0 0 60 x idp:a" + b" " * 300 + b"\r\nkick 1\r\n"),
    "in a batch, on one that is too long": batch(b"0 0 60 x grp:" + b"a" * 3000 + b"\r\nkick 1"),
    "put-at whose tag begins behind 224 bytes": PUT_AT + b"6" + b" " * 300 + b"idp:a\r\nkick 1\r\n",
    "a batch's, likewise": batch(JOB + b"6" + b" " * 300 + b"idp:a\r\nkick 1\r\n"),
}  # fmt: skip


@pytest.mark.one_in(5)
@LOGGED
@pytest.mark.parametrize("title", CONVERSATIONS)
def test_a_conversation_in_one_packet_and_byte_by_byte(title: str, is_logged: bool) -> None:
    check_conversation(*CONVERSATIONS[title], LIMIT, is_logged=is_logged)


@CUT
@pytest.mark.parametrize("title", LOST)
def test_where_the_body_ends_unknown_the_connection_does(title: str, is_cut: bool) -> None:
    check_lost(LOST[title], LIMIT, is_cut=is_cut)


@pytest.mark.parametrize(
    ("sent", "count"),
    [
        (put(b"idp:a") + put(b"con:b"), 2),
        (long(300) + long(MOST), 2),
        (put(b"idp:a", b"y" * (LIMIT + 1)) + long(300, body=b"y" * (LIMIT + 1)), 2),
        (put(b"idp:a idp:a") + put(b"idp:a", start=b"put x 0 60 ") + long(MOST + 1), 0),
        (put(b"idp:a", start=PUT_AT) + long(300, PUT_AT) + batch(put(b"idp:a", start=JOB)), 0),
    ],
)
def test_a_put_that_is_right_is_counted_once(sent: bytes, count: int) -> None:
    _, client = connect(LIMIT)
    client.send(sent)
    assert b"cmd-put: %d\n" % count in client.ask(b"stats\r\n")


@pytest.mark.parametrize("sent", [put(b"idp:a")[:-1], long(300)[:250], long(300)[:-2]])
def test_who_hangs_up_in_the_middle_puts_nothing(sent: bytes) -> None:
    for server in broken_off(sent, LIMIT):
        assert not len(server.service.queue.state.jobs)


@pytest.mark.parametrize("start", [PUT, PUT_AT, JOB])
def test_all_that_a_line_says_is_collected(start: bytes) -> None:
    tags = PutTags(b"a", 60, b"b", 2, b"g", b"h")
    text = b"idp:a:60 con:b:2" + b" " * 250 + b"grp:g aft:h"
    job, line = start + b"1 " + text, b"put-batch 3"
    if start is not JOB:
        line, job = job, b""
    parsed = MODERN.parse(line)
    comes = b"x\r\n" if start is not JOB else EMPTY + job + b"\r\nx\r\n" + EMPTY
    for at in range(len(comes)):
        incoming = IncomingJobs(line, parsed[0], parsed, PLENTY, max_job_bytes=LIMIT, now_ns=7)
        assert incoming.receive(comes[:at]) is None
        assert incoming.receive(comes[at:] + b"more") == b"more"
        assert incoming.refusal is None
        others = [(0, 0, 60, None, b"")] if start is JOB else []
        assert incoming.jobs == [*others, (0, 0, 60, tags, b"x"), *others]


def test_the_double_records_tags_and_plants_answers(beanstalk: Beanstalk) -> None:
    beanstalk.answer_next("put", "OUT_OF_MEMORY")
    with beanstalk.connect() as client:
        assert client.ask(put(b"con:b  idp:a:5", b"z")) == b"OUT_OF_MEMORY\r\n"
        assert client.ask(long(300)) == b"INSERTED 1\r\n"
        client.ask(put(b"grp:g", start=PUT_AT))
        client.ask(put(b"idp:"))
        client.ask(long(MOST + 1))
    first, second, third, wrong, too_long = beanstalk.commands
    assert (first.name, first.tube, first.body, first.word) == (
        "put",
        "default",
        b"z",
        "OUT_OF_MEMORY",
    )
    assert first.args == {"pri": 0, "delay": 0, "ttr": 60, "bytes": 1, "tags": "idp:a:5 con:b"}
    assert (second.name, second.args["tags"], second.job_id) == ("put", "con:a aft:g", 1)
    assert (third.name, third.args["tags"], third.job_id) == ("put-at", "grp:g", 2)
    assert (wrong.name, wrong.line, wrong.word) == ("", b"put 0 0 60 1 idp:", "BAD_FORMAT")
    assert (too_long.line, too_long.word) == (long(MOST + 1)[:MOST], "BAD_FORMAT")
