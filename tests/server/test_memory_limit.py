"""How much memory jobs may take, and what happens beyond."""

from __future__ import annotations

from typing import Any

import pytest

from beanstalk_twisted.jobs.figures import (
    HOT_JOB_BYTES,
    KEY_BYTES,
    RESTING_JOB_BYTES,
    TUBE_BYTES,
    WAITERS_BYTES,
    WATCH_BYTES,
    data_memory_bytes,
)
from beanstalk_twisted.server.settings import Limits
from beanstalk_twisted.storage.repeats import TELL_S
from beanstalk_twisted.testing.memory_server import Client, MemoryServer
from beanstalk_twisted.wire.commands import MAX_LINE_BYTES
from tests.binlog.memory import MemoryDirectory

REFUSED = b"OUT_OF_MEMORY\r\n"

EMPTY = TUBE_BYTES
"""What an empty server counts: the tube `default`."""


def limited(most_bytes: int, *, is_logged: bool = False) -> tuple[MemoryServer, Client]:
    """Start a server whose jobs may take so much, and make a connection."""
    directory = MemoryDirectory() if is_logged else None
    server = MemoryServer(directory=directory, max_job_bytes=1 << 20, is_started=False)
    server.settings = server.settings._replace(limits=Limits(memory_bytes=most_bytes))
    server.start()
    return server, server.connect()


def put(size: int, words: bytes = b"put 0 0 60") -> bytes:
    return b"%b %d\r\n%b\r\n" % (words, size, bytes(size))


LINES = {
    "put": b"put 0 0 60",
    "delayed": b"put 0 5 60",
    "put-at": b"put-at 0 1 60",
    "put-batch": b"put-batch 1\r\n0 0 60",
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
@pytest.mark.parametrize("is_cut", [False, True], ids=["one packet", "in pieces"])
def test_a_job_is_taken_up_to_the_limit_and_refused_one_byte_past_it(
    line: bytes, is_cut: bool
) -> None:
    for past in (0, 1):
        server, client = limited(EMPTY + HOT_JOB_BYTES + 5000 - past)
        sent = put(5000, line)
        if is_cut:
            client.send(sent[:3000])
        heard = client.ask(sent[3000:] if is_cut else sent)
        assert heard.startswith(REFUSED if past else b"INSERTED"), (line, past)
        assert len(server.service.queue.state.jobs) == 1 - past


def test_a_batch_is_taken_as_a_whole_up_to_the_limit() -> None:
    one = HOT_JOB_BYTES + 1000
    sent = b"put-batch 10\r\n" + put(1000, b"0 0 60") * 10
    assert limited(EMPTY + 10 * one)[1].ask(sent).startswith(b"INSERTED")
    assert limited(EMPTY + 10 * one - 1)[1].ask(sent) == REFUSED


FULL = [
    (b"reserve\r\n", b"RESERVED 1 4000"),
    (b"release 1 7 0\r\n", b"RELEASED"),
    (b"reserve-job 1\r\n", b"RESERVED 1 4000"),
    (b"touch 1\r\n", b"TOUCHED"),
    (b"bury 1 3\r\n", b"BURIED"),
    (b"kick 5\r\n", b"KICKED 1"),
    (b"move-job 1 elsewhere\r\n", b"MOVED"),
    (b"move-job 1 default\r\n", b"MOVED"),
    (b"update-job 1 2 0 60\r\n", b"UPDATED"),
    (b"pause-tube default 0\r\n", b"PAUSED"),
    (b"watch another\r\n", b"WATCHING 2"),
    (b"peek-ready\r\n", b"FOUND 1 4000"),
    (b"stats\r\n", b"OK "),
    (b"put 0 0 60 1\r\nx\r\n", b"OUT_OF_MEMORY"),
    (b"delete 1\r\n", b"DELETED"),
    (b"put 0 0 60 1\r\nx\r\n", b"INSERTED"),
]


@pytest.mark.parametrize("is_logged", [False, True], ids=["in memory", "logged"])
def test_nothing_but_what_adds_to_it_is_refused_where_jobs_take_all_they_may(
    is_logged: bool,
) -> None:
    server, client = limited(EMPTY + HOT_JOB_BYTES + 4000, is_logged=is_logged)
    for sent, reply in [(put(4000), b"INSERTED 1"), *FULL]:
        client.send(sent)
        server.advance(1)
        assert client.take().startswith(reply), sent


def test_a_new_body_needs_room_beside_the_old_one_while_it_comes() -> None:
    def update(size: int) -> bytes:
        return put(size, b"update-job 1 0 0 60")

    server, client = limited(EMPTY + HOT_JOB_BYTES + 1000 + 3002)
    assert client.ask(put(1000)) == b"INSERTED 1\r\n"
    assert client.ask(b"reserve\r\n").startswith(b"RESERVED")
    assert client.ask(update(3001)) == REFUSED
    assert client.ask(update(3000)) == b"UPDATED\r\n"
    assert server.service.memory.used_bytes == EMPTY + HOT_JOB_BYTES + 3000
    assert client.ask(update(1000)) == b"UPDATED\r\n"
    assert server.service.memory.used_bytes == EMPTY + HOT_JOB_BYTES + 1000


def test_what_is_counted_of_each_job_is_gone_with_it() -> None:
    server, client = limited(1 << 20)
    used = server.service.memory.used_bytes
    assert used == EMPTY
    client.ask(put(70))
    assert server.service.memory.used_bytes == EMPTY + RESTING_JOB_BYTES + 70
    client.ask(b"reserve\r\n")
    assert server.service.memory.used_bytes == EMPTY + HOT_JOB_BYTES + 70
    tags = b" idp:key con:other grp:third"
    client.ask(b"put 0 0 60 5%b\r\nhello\r\n" % tags)
    assert server.service.memory.used_bytes > EMPTY + 2 * HOT_JOB_BYTES + 75 + len(tags)
    client.ask(b"delete 1\r\ndelete 2\r\n")
    assert server.service.memory.used_bytes == EMPTY


def recounted(server: MemoryServer) -> int:
    state = server.service.queue.state
    total = TUBE_BYTES * len(state.tubes) + KEY_BYTES * state.unique.remembered
    for tube in state.tubes.in_order:
        total += 0 if tube.waiters is None else WAITERS_BYTES
    for session in state.sessions.values():
        total += WATCH_BYTES * (len(session.watching) - 1)
    for page in state.jobs.pages():
        for facts in state.jobs.facts(page):
            if facts.job is None:
                total += RESTING_JOB_BYTES + facts.body_bytes
            else:
                total += HOT_JOB_BYTES + data_memory_bytes(facts.job.body_bytes, facts.job.tags)
    return total


def test_what_is_counted_is_what_is_there_after_all_that_may_happen_and_after_a_restart() -> None:
    server, client = limited(0, is_logged=True)
    sent = [
        put(100) * 70 + put(50, b"put 1 5 60") * 3,
        b"put-batch 2\r\n" + put(10, b"0 0 60") * 2,
        b"put 0 0 60 5 idp:a:3600\r\nhello\r\nput 0 0 60 5 grp:g con:c:2\r\nhello\r\n",
        b"reserve\r\nreserve\r\nreserve-batch 5\r\n",
        b"bury 1 0\r\nrelease 2 0 9\r\nmove-job 3 elsewhere\r\nkick 3\r\n",
        put(300, b"update-job 4 0 0 60") + b"update-job 5 0 0 60\r\n",
        b"delete 6\r\ndelete 76\r\ndelete 76\r\ndelete 77\r\ndelete-batch 10 11 12\r\n",
    ]
    for each in sent:
        client.send(each)
        server.advance(1)
        assert server.service.memory.used_bytes == recounted(server)
    assert server.service.queue.state.unique.remembered
    server.kill_and_restart()
    assert server.service.memory.used_bytes == recounted(server) > 60 * (RESTING_JOB_BYTES + 100)
    client = server.connect()
    client.send(b"flush-tube default all\r\nflush-tube elsewhere all\r\n")
    server.advance(1)
    assert len(server.service.queue.state.jobs) == 0
    assert server.service.memory.used_bytes == recounted(server) == TUBE_BYTES


def test_tubes_count() -> None:
    server, client = limited(EMPTY + HOT_JOB_BYTES + TUBE_BYTES + WATCH_BYTES)
    client.ask(b"watch a\r\nwatch b\r\n")
    assert client.ask(put(0)) == REFUSED
    client.ask(b"ignore b\r\n")
    assert client.ask(put(0)).startswith(b"INSERTED")
    used = EMPTY + TUBE_BYTES + WATCH_BYTES + RESTING_JOB_BYTES
    assert server.service.memory.used_bytes == used


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_a_body_counts_while_it_comes_and_no_longer(line: bytes) -> None:
    server, client = limited(1 << 20)
    sent = put(5000, line)
    client.send(sent[:4000])
    part = server.service.memory.used_bytes - EMPTY
    assert 4000 - MAX_LINE_BYTES < part < 4000
    client.hang_up()
    server.advance()
    assert server.service.memory.used_bytes == EMPTY
    client = server.connect()
    client.send(sent[:4000])
    assert client.ask(sent[4000:]).startswith(b"INSERTED")
    assert server.service.memory.incoming_bytes == 0


def test_bodies_that_come_slowly_on_many_connections_are_bounded_together() -> None:
    server, client = limited(EMPTY + 100_000)
    clients = [server.connect() for _ in range(20)]
    for each in clients:
        each.send(put(20_000)[:19_000])
    assert 0 < server.service.memory.incoming_bytes <= 100_000
    for each in clients:
        each.send(put(20_000)[19_000:])
    answers = [each.take() for each in clients]
    assert 0 < sum(each.startswith(b"INSERTED") for each in answers) <= 4
    assert server.service.memory.incoming_bytes == 0
    assert client.ask(b"list-tube-used\r\n") == b"USING default\r\n"


def test_it_is_told_when_jobs_take_all_they_may_and_when_they_did_not_for_a_minute(
    told: Any,
) -> None:
    server, client = limited(EMPTY + HOT_JOB_BYTES + 3000)
    client.ask(put(3000) * 5)
    used = EMPTY + RESTING_JOB_BYTES + 3000
    assert told("memory-full") == [
        f"jobs take {used} bytes of memory, and --max-memory is {EMPTY + HOT_JOB_BYTES + 3000}: "
        "new jobs are refused (OUT_OF_MEMORY) until some are deleted; all else goes on, and "
        "nothing was lost."
    ]
    assert "as much memory as they may" in server.service.why_not_ready()
    client.ask(b"delete 1\r\n")
    assert server.service.why_not_ready() == ""
    client.ask(put(3000))
    server.advance(TELL_S)
    (line,) = told("memory-room")
    assert "new jobs are taken" in line


def test_a_server_starts_with_more_than_jobs_may_take_and_says_so(told: Any) -> None:
    server, client = limited(1 << 20, is_logged=True)
    client.send(put(5000) * 10)
    server.advance(1)
    assert client.take().count(b"INSERTED") == 10
    server.settings = server.settings._replace(limits=Limits(memory_bytes=EMPTY + 30_000))
    server.kill_and_restart()
    assert len(told("memory-full")) == 1
    assert "as much memory" in server.service.why_not_ready()
    client = server.connect()
    client.send(put(1) + b"delete 1\r\ndelete 2\r\ndelete 3\r\ndelete 4\r\n" + put(1))
    server.advance(1)
    assert client.take() == REFUSED + b"DELETED\r\n" * 4 + REFUSED
    client.send(b"delete 5\r\n" + put(1))
    server.advance(1)
    assert client.take().startswith(b"DELETED\r\nINSERTED")
