"""`move-job`, `update-job` and `kick-dead` on a connection: in pieces, with others, wrong in every
way, and when the power goes.
"""

from __future__ import annotations

import pytest

from beanstalk_twisted.binlog.records.jobs import Reason
from beanstalk_twisted.storage.clock import NS
from beanstalk_twisted.testing.memory_server import STARTED_S
from tests.server.conversing import CUT, LOGGED, broken_off, check_conversation, check_lost, connect
from tests.storage.test_full_disk import Bounded

LIMIT = 30
"""The largest body."""

EVIL = b"delete 1\r\nput 0 0 1 0\r\n"
"""A body that looks like commands."""

PUT = b"put 0 0 60 1\r\nx\r\n"
USED, SAID = b"list-tube-used\r\n", b"USING default\r\n"


def update(body: bytes, line: bytes = b"1 0 0 60 %d") -> bytes:
    return b"update-job " + line % len(body) + b"\r\n" + body + b"\r\n"


CONVERSATIONS = {
    "between other commands": (
        PUT + update(b"yz") + b"peek 1\r\n" + b"update-job 1 5 0 60\r\npeek 1\r\nmove-job 1 a\r\n"
        b"use a\r\npeek-ready\r\nmove-job 1 a\r\nkick-dead a 3\r\n",
        b"INSERTED 1\r\nUPDATED\r\nFOUND 1 2\r\nyz\r\nUPDATED\r\nFOUND 1 2\r\nyz\r\nMOVED\r\n"
        b"USING a\r\nFOUND 1 2\r\nyz\r\nMOVED\r\nKICKED 0\r\n",
    ),
    "no body, the largest, CR LF in a body": (
        PUT + b"".join(update(body) + b"peek 1\r\n" for body in (b"", b"y" * LIMIT, b"a\r\nb")),
        b"INSERTED 1\r\n" + b"".join(
            b"UPDATED\r\nFOUND 1 %d\r\n%s\r\n" % (len(body), body)
            for body in (b"", b"y" * LIMIT, b"a\r\nb")
        ),
    ),
    "a job that is not there": (
        update(EVIL) + b"update-job 1 0 0 60\r\nmove-job 1 a\r\n" + USED,
        b"NOT_FOUND\r\n" * 3 + SAID,
    ),
    "a wrong number before the size": (
        PUT + update(EVIL, b"x 0 0 60 %d") + update(EVIL, b"1 4294967296 0 60 %d")
        + update(EVIL, b"1 0 -1 60 %d") + update(EVIL, b"18446744073709551616 0 0 60 %d")
        + update(EVIL, b"1 0 0 x %d") + b"peek 1\r\n",
        b"INSERTED 1\r\n" + b"BAD_FORMAT\r\n" * 5 + b"FOUND 1 1\r\nx\r\n",
    ),
    "something behind the size": (
        PUT + update(EVIL, b"1 0 0 60 %d junk") + update(EVIL, b"1 0 0 60 %d ")
        + update(EVIL, b"1 0 0 60 %dx") + update(EVIL, b"1 0 0 60 %d idp:a") + USED,
        b"INSERTED 1\r\n" + b"BAD_FORMAT\r\n" * 4 + SAID,
    ),
    "wrong without a size": (
        PUT + b"update-job\r\nupdate-job 1\r\nupdate-job 1 0 0\r\nupdate-job 1 0 0 x\r\n"
        b"update-job 1 0 0 60 \r\nupdate-job 1 0 0 60x\r\nupdate-job -1 0 0 60\r\n" + USED,
        b"INSERTED 1\r\n" + b"BAD_FORMAT\r\n" * 7 + SAID,
    ),
    "a body above the limit, or of another size": (
        PUT + update(EVIL * 2) + b"update-job 1 0 0 60 2\r\nabcd" + update(EVIL * 2, b"9 0 0 1 %d")
        + b"peek 1\r\n",
        b"INSERTED 1\r\nJOB_TOO_BIG\r\nEXPECTED_CRLF\r\nJOB_TOO_BIG\r\nFOUND 1 1\r\nx\r\n",
    ),
    "wrong moves and kicks": (
        PUT + b"move-job\r\nmove-job 1\r\nmove-job 1 -a\r\nmove-job 1  a\r\nmove-job 1 a b\r\n"
        b"move-job x a\r\nmove-job 1a\r\nmove-job 1 " + b"a" * 201 + b"\r\nkick-dead a\r\n"
        b"kick-dead a x\r\nkick-dead a -1\r\nkick-dead a 1 2\r\nkick-dead a 4294967296\r\n"
        b"kick-dead -a 1\r\n" + USED,
        b"INSERTED 1\r\n" + b"BAD_FORMAT\r\n" * 14 + SAID,
    ),
    "while it drains": (
        PUT + b"drain\r\n" + update(b"y") + b"move-job 1 a\r\n",
        b"INSERTED 1\r\nDRAINING\r\nUPDATED\r\nMOVED\r\n",
    ),
}  # fmt: skip

LOST = {
    "a size that is no number": b"update-job 1 0 0 60 x\r\nkick 1\r\n",
    "a size above 2**32": b"update-job 1 0 0 60 4294967296\r\nkick 1\r\n",
    "a size below 0": b"update-job 1 0 0 60 -1\r\nkick 1\r\n",
    "a long line": b"update-job 1 0 0 60 6" + b" " * 300 + b"\r\nkick 1\r\n",
}


@LOGGED
@pytest.mark.parametrize("title", CONVERSATIONS)
def test_a_conversation_in_one_packet_and_byte_by_byte(title: str, is_logged: bool) -> None:
    check_conversation(*CONVERSATIONS[title], LIMIT, is_logged=is_logged)


@CUT
@pytest.mark.parametrize("title", LOST)
def test_where_the_body_ends_unknown_the_connection_does(title: str, is_cut: bool) -> None:
    check_lost(LOST[title], LIMIT, is_cut=is_cut)


def test_who_hangs_up_in_the_middle_changes_nothing() -> None:
    for server in broken_off(update(b"yz")[:-1], LIMIT, before=PUT):
        assert server.connect().ask(b"peek 1\r\n") == b"FOUND 1 1\r\nx\r\n"


def test_what_is_pipelined_behind_a_large_kick_waits_for_it() -> None:
    server, client = connect(LIMIT)
    queue = server.service.queue
    for job_id in range(1, 302):
        client.ask(PUT)
        job = queue.state.jobs.get(job_id)
        assert job is not None
        assert queue.moves.dead_letter(job, Reason.MAX_RESERVES, STARTED_S * NS)
    client.send(b"kick-dead default 999\r\n" + USED)
    for _ in range(9):
        server.advance()
    assert client.take() == b"KICKED 301\r\n" + SAID


def test_on_a_full_disk_jobs_cannot_be_changed_and_can_be_deleted() -> None:
    bounded = Bounded()
    bounded.fill()
    job_id = max(bounded.promised)
    line = b"update-job %d 0 0 60 500\r\n" % job_id + b"y" * 500 + b"\r\n"
    assert bounded.ask(line) == b"OUT_OF_MEMORY\r\n"
    assert bounded.ask(b"update-job %d 0 0 60\r\n" % job_id) == b"OUT_OF_MEMORY\r\n"
    assert bounded.ask(b"move-job %d a\r\n" % job_id) == b"OUT_OF_MEMORY\r\n"
    assert b"pri: 5\n" in bounded.ask(b"stats-job %d\r\n" % job_id)
    while len(bounded.promised) > 3:
        bounded.delete(min(bounded.promised))
    assert bounded.ask(line) == b"UPDATED\r\n"
    assert bounded.ask(b"move-job %d a\r\n" % job_id) == b"MOVED\r\n"
