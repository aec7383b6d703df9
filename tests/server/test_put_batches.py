"""`put-batch` and `put-at` on a connection: in pieces, with others, and wrong in every way."""

from __future__ import annotations

import pytest

from beanstalk_twisted.server.incoming import IncomingJobs
from beanstalk_twisted.testing import Beanstalk
from beanstalk_twisted.testing.memory_server import STARTED_S, MemoryServer
from beanstalk_twisted.wire.grammar import MAX_BATCH_JOBS
from beanstalk_twisted.wire.tags import MAX_BATCH_BYTES
from tests.binlog.memory import MemoryDirectory
from tests.rules.memory import Scarce
from tests.server.conversing import CUT, LOGGED, broken_off, check_conversation, check_lost, connect

LIMIT = 20
"""The largest body."""


def job(body: bytes = b"x", line: bytes = b"0 0 60 %d") -> bytes:
    return (line % len(body) if b"%d" in line else line) + b"\r\n" + body + b"\r\n"


def batch(*jobs: bytes) -> bytes:
    return b"put-batch %d\r\n" % len(jobs) + b"".join(jobs)


def inserted(first: int, count: int) -> bytes:
    ids = range(first, first + count)
    return b"INSERTED_BATCH %d\r\n" % count + b"".join(b"INSERTED %d\r\n" % each for each in ids)


GOOD = job()
COMMANDS = job(b"delete 1\r\nput 0 0 1 0")
"""A body that looks like commands, and is too big."""

CONVERSATIONS = {
    "a batch between other commands": (
        b"put 0 0 1 1\r\na\r\n" + batch(GOOD, GOOD) + b"list-tube-used\r\nput 0 0 1 1\r\nb\r\n",
        b"INSERTED 1\r\n" + inserted(2, 2) + b"USING default\r\nINSERTED 4\r\n",
    ),
    "one job, no body, the largest body, CR LF in a body": (
        batch(GOOD) + batch(job(b""), job(b"y" * LIMIT), job(b"a\r\nb")),
        inserted(1, 1) + inserted(2, 3),
    ),
    "a body above the limit": (
        batch(GOOD, COMMANDS, GOOD) + b"list-tube-used\r\n",
        b"JOB_TOO_BIG\r\nUSING default\r\n",
    ),
    "a body of another size": (
        batch(GOOD, b"0 0 60 2\r\nabcd", GOOD) + b"list-tube-used\r\n",
        b"EXPECTED_CRLF\r\nUSING default\r\n",
    ),
    "a number out of range": (
        batch(GOOD, job(b"put 0 0 1 0", b"0 4294967296 60 %d"), GOOD) + b"put 0 0 1 0\r\n\r\n",
        b"BAD_FORMAT\r\nINSERTED 1\r\n",
    ),
    "junk behind the size, and a word before it": (
        batch(job(b"kick 1", b"0 0 60 %d junk")) + batch(job(b"kick 1", b"x 0 60 %d")),
        b"BAD_FORMAT\r\nBAD_FORMAT\r\n",
    ),
    "the first error counts": (
        batch(job(b"a", b"0 x 60 %d"), COMMANDS, b"0 0 60 2\r\nabcd")
        + batch(COMMANDS, job(b"a", b"0 x 60 %d"))
        + batch(b"0 0 60 2\r\nabcd", COMMANDS)
        + batch(job(b"a" * 21, b"0 0 60 %d junk")),
        b"BAD_FORMAT\r\nJOB_TOO_BIG\r\nEXPECTED_CRLF\r\nJOB_TOO_BIG\r\n",
    ),
    "no jobs, and as many as there may be": (
        b"put-batch 0\r\n" + batch(*[GOOD] * MAX_BATCH_JOBS),
        b"BAD_FORMAT\r\n" + inserted(1, MAX_BATCH_JOBS),
    ),
    "a moment that is past, and one to come": (
        b"put-at 0 0 60 1\r\na\r\nput-at 0 %d 60 1\r\nb\r\npeek-ready\r\npeek-delayed\r\n"
        % (STARTED_S + 5),
        b"INSERTED 1\r\nINSERTED 2\r\nFOUND 1 1\r\na\r\nFOUND 2 1\r\nb\r\n",
    ),
    "wrong jobs for a moment": (
        b"put-at 0 9999999999 60 6\r\nkick 1\r\nput-at 0 0 60 6 junk\r\nkick 1\r\n"
        b"put-at x 0 60 6\r\nkick 1\r\nput-at 0 -1 60 6\r\nkick 1\r\nput-at 0 0 60 21\r\n"
        b"delete 1\r\ndelete 1\r\nx\r\nput-at 0 0 60 2\r\nabcdlist-tube-used\r\n",
        b"BAD_FORMAT\r\n" * 4 + b"JOB_TOO_BIG\r\nEXPECTED_CRLF\r\nUSING default\r\n",
    ),
    "while it drains": (
        b"drain\r\n" + batch(GOOD) + b"put-at 0 0 1 1\r\na\r\n" + batch(COMMANDS) + b"undrain\r\n",
        b"DRAINING\r\nDRAINING\r\nDRAINING\r\nJOB_TOO_BIG\r\nNOT_DRAINING\r\n",
    ),
}  # fmt: skip

LOST = {
    "no size": batch(GOOD, b"0 0 60\r\nkick 1\r\n"),
    "a size that is no number": batch(b"0 0 60 x\r\nkick 1\r\n"),
    "a size above 2**32": batch(b"0 0 60 4294967296\r\nkick 1\r\n"),
    "a line of 224 bytes and no end": batch(b"0 0 60 1" + b" " * 300 + b"\r\nkick 1\r\n"),
    "an empty line": batch(b"\r\nkick 1\r\n"),
    "another error before it": batch(COMMANDS, b"0 0 60 x\r\nkick 1\r\n"),
    "no count": b"put-batch\r\nkick 1\r\n",
    "a count that is no number": b"put-batch x\r\nkick 1\r\n",
    "too many jobs": b"put-batch %d\r\nkick 1\r\n" % (MAX_BATCH_JOBS + 1),
    "two counts": b"put-batch 1 2\r\nkick 1\r\n",
    "a long line": b"put-batch " + b"1" * 300 + b"\r\nkick 1\r\n",
    "put-at without a size": b"put-at 0 0 60\r\nkick 1\r\n",
    "put-at with a wrong size": b"put-at 0 0 60 -1\r\nkick 1\r\n",
    "a long put-at": b"put-at 0 " + b"0" * 300 + b" 60 1\r\nkick 1\r\n",
}


@LOGGED
@pytest.mark.parametrize("title", CONVERSATIONS)
def test_a_conversation_in_one_packet_and_byte_by_byte(title: str, is_logged: bool) -> None:
    check_conversation(*CONVERSATIONS[title], LIMIT, is_logged=is_logged)


@pytest.mark.parametrize("size", [7, 224, 225, 1000])
def test_many_jobs_in_pieces(size: int) -> None:
    server, client = connect(LIMIT)
    sent = batch(*[job(b"y" * (n % LIMIT)) for n in range(MAX_BATCH_JOBS)])
    heard = b"".join(client.ask(sent[at : at + size]) for at in range(0, len(sent), size))
    assert heard == inserted(1, MAX_BATCH_JOBS)
    jobs = server.service.queue.state.jobs
    bodies = [found.body for n in range(1, MAX_BATCH_JOBS + 1) if (found := jobs.look(n))]
    assert bodies == [b"y" * (n % LIMIT) for n in range(MAX_BATCH_JOBS)]


@CUT
@pytest.mark.parametrize("title", LOST)
def test_where_the_jobs_end_unknown_the_connection_does(title: str, is_cut: bool) -> None:
    reply = b"JOB_TOO_BIG\r\n" if "another" in title else b"BAD_FORMAT\r\n"
    check_lost(LOST[title], LIMIT, is_cut=is_cut, reply=reply)


def test_all_bodies_together_have_a_limit() -> None:
    _, client = connect(1 << 24)
    half = job(b"x" * (MAX_BATCH_BYTES // 2))
    assert client.ask(batch(half, half)) == inserted(1, 2)
    assert client.ask(batch(half, half, job(b""), GOOD) + b"list-tube-used\r\n") == (
        b"JOB_TOO_BIG\r\nUSING default\r\n"
    )
    assert client.ask(batch(job(b"x" * (MAX_BATCH_BYTES + 1)))) == b"JOB_TOO_BIG\r\n"


@pytest.mark.parametrize("sent", [batch(GOOD, GOOD)[:-3], b"put-at 0 0 60 5\r\nab"])
def test_who_hangs_up_in_the_middle_puts_nothing(sent: bytes) -> None:
    for server in broken_off(sent, LIMIT):
        assert not len(server.service.queue.state.jobs)


def test_others_are_served_while_a_batch_comes() -> None:
    server, client = connect(LIMIT)
    other, worker = server.connect(), server.connect()
    worker.ask(b"reserve\r\n")
    sent = batch(GOOD, job(b"second"))
    client.send(sent[:-1])
    assert worker.take() == b""
    assert other.ask(b"put 0 0 60 1\r\no\r\n") == b"INSERTED 1\r\n"
    assert worker.take() == b"RESERVED 1 1\r\no\r\n"
    assert client.ask(sent[-1:]) == inserted(2, 2)


@pytest.mark.parametrize("body", [b"", b"y" * 300])
def test_a_batch_that_is_many_segments_long_is_taken(body: bytes) -> None:
    directory = MemoryDirectory()
    server = MemoryServer(directory=directory, segment_bytes=8192)
    client = server.connect()
    for first in (1, 1 + MAX_BATCH_JOBS):
        client.send(batch(*[job(body)] * MAX_BATCH_JOBS))
        server.advance()
        assert client.take() == inserted(first, MAX_BATCH_JOBS)
    server.kill_and_restart()
    assert len(server.service.queue.state.jobs) == 2 * MAX_BATCH_JOBS


class Spent(Scarce):
    """Memory that has so many bytes in all."""

    def takes_all(self, size: int, growth: int) -> bool:
        self._most_bytes -= size
        return self._most_bytes >= 0


def test_a_batch_for_which_there_is_no_memory_is_read_and_dropped() -> None:
    server, client = connect(LIMIT)
    server.service.queue.memory = Spent(40)
    sent = batch(*[job(b"y" * 15)] * 4)
    client.send(sent[:-5])
    incoming = client.protocol.connection._incoming
    assert isinstance(incoming, IncomingJobs)
    assert not incoming.jobs, "nothing of it is kept"
    assert client.ask(sent[-5:] + b"list-tube-used\r\n") == b"OUT_OF_MEMORY\r\nUSING default\r\n"


def test_what_is_skipped_takes_no_memory() -> None:
    server, client = connect(LIMIT)
    server.service.queue.memory = Scarce(-1)
    client.send(batch(job(b"y", b"x 0 0 %d"), GOOD)[:-3] + b"")
    incoming = client.protocol.connection._incoming
    assert isinstance(incoming, IncomingJobs) and not incoming.jobs
    assert client.ask(b"x\r\n") == b"BAD_FORMAT\r\n"


def test_the_double_answers_both_as_planted(beanstalk: Beanstalk) -> None:
    beanstalk.answer_next("put-batch", "OUT_OF_MEMORY")
    beanstalk.answer_next("put-at", "DRAINING")
    with beanstalk.connect() as client:
        assert client.ask(batch(GOOD)) == b"OUT_OF_MEMORY\r\n"
        assert client.ask(b"put-at 3 0 60 1\r\nz\r\n") == b"DRAINING\r\n"
        assert client.ask(batch(GOOD)) == inserted(1, 1)
