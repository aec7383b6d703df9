"""Ports that speak the first protocol: each command with each of its replies, the same jobs as
everybody else's, and what the wire, the clock, the disk and a crash do to them.
"""

from __future__ import annotations

import pytest

from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.wire import yaml
from tests.binlog.memory import MemoryDirectory
from tests.held_io import HeldIo, finish
from tests.server.connections.test_protocol import SMALL_LIMIT
from tests.server.conversing import LOGGED, check_conversation, connect
from tests.storage.test_full_disk import SPACE_BYTES, Bounded

EMPTY_STATS = (
    b"---\ncurrent-jobs-ready: 0\ncurrent-jobs-reserved: 0\ncurrent-jobs-buried: 0\ncmd-put: 0\n"
    b"cmd-peek: 0\ncmd-reserve: 0\ncmd-delete: 0\ncmd-release: 0\ncmd-bury: 0\ncmd-kick: 0\n"
    b"cmd-stats: 1\njob-timeouts: 0\ncurrent-connections: 1\ncurrent-workers: 0\n"
    b"current-producers: 0\n"
)
JOB_STATS = b"---\nid: 1\nstate: ready\nage: 0\ntime-left: 0\ntimeouts: 0\n"

CONVERSATIONS: dict[str, tuple[bytes, bytes]] = {
    "put": (
        b"put 5 2\r\nhi\r\nput 4294967295 0\r\n\r\npeek 1\r\npeek 2\r\n",
        b"INSERTED\r\nINSERTED\r\nFOUND 1 5 2\r\nhi\r\nFOUND 2 4294967295 0\r\n\r\n",
    ),
    "a put of a body at the limit and one past it, which looks like commands": (
        b"put 0 20\r\n" + b"x" * 20 + b"\r\nput 0 21\r\ndelete 1\r\ndelete 1\r\n.\r\npeek 1\r\n",
        b"INSERTED\r\nNOT_INSERTED\r\nFOUND 1 0 20\r\n" + b"x" * 20 + b"\r\n",
    ),
    "a put with CR LF and NUL in its body": (
        b"put 0 10\r\na\r\nb\0\r\n\r\n\r\r\npeek 1\r\n",
        b"INSERTED\r\nFOUND 1 0 10\r\na\r\nb\0\r\n\r\n\r\r\n",
    ),
    "a put whose body does not end where it should": (
        b"put 0 3\r\nabcdefput 0 3\r\nabcd\r\npeek 1\r\n",
        b"EXPECTED_CRLF\r\nUNKNOWN_COMMAND\r\nUNKNOWN_COMMAND\r\nNOT_FOUND\r\n",
    ),
    "a put of the modern protocol": (
        b"put 0 0 60 2\r\nhi\r\npeek\r\n",
        # The second field is the size: the rest of the line is wrong, and so is what follows.
        b"BAD_FORMAT\r\nUNKNOWN_COMMAND\r\nNOT_FOUND\r\n",
    ),
    "reserve": (
        b"put 5 2\r\nhi\r\nput 4 1\r\nx\r\nreserve\r\nreserve\r\n",
        b"INSERTED\r\nINSERTED\r\nRESERVED 2 4 1\r\nx\r\nRESERVED 1 5 2\r\nhi\r\n",
    ),
    "delete": (
        b"put 0 0\r\n\r\ndelete 1\r\ndelete 1\r\ndelete 9\r\n",
        b"INSERTED\r\nDELETED\r\nNOT_FOUND\r\nNOT_FOUND\r\n",
    ),
    "release": (
        b"put 5 2\r\nhi\r\nrelease 1 7\r\nreserve\r\nrelease 1 7\r\nrelease 1 7\r\nreserve\r\n",
        b"INSERTED\r\nNOT_FOUND\r\nRESERVED 1 5 2\r\nhi\r\nRELEASED\r\nNOT_FOUND\r\n"
        b"RESERVED 1 7 2\r\nhi\r\n",
    ),
    "bury, peek and kick": (
        b"put 5 2\r\nhi\r\nput 6 1\r\nx\r\nbury 1 7\r\npeek\r\nreserve\r\nreserve\r\nbury 1 7\r\n"
        b"bury 2 3\r\npeek\r\nkick 1\r\npeek\r\nkick 9\r\nkick 9\r\nkick 0\r\npeek\r\npeek 2\r\n",
        b"INSERTED\r\nINSERTED\r\nNOT_FOUND\r\nNOT_FOUND\r\nRESERVED 1 5 2\r\nhi\r\n"
        b"RESERVED 2 6 1\r\nx\r\nBURIED\r\nBURIED\r\nFOUND 1 7 2\r\nhi\r\nKICKED 1\r\n"
        b"FOUND 2 3 1\r\nx\r\nKICKED 1\r\nKICKED 0\r\nKICKED 0\r\nNOT_FOUND\r\n"
        b"FOUND 2 3 1\r\nx\r\n",
    ),
    "stats": (b"stats\r\n", b"OK %d\r\n%s\r\n" % (len(EMPTY_STATS), EMPTY_STATS)),
    "stats of a job": (
        b"put 5 2\r\nhi\r\nstats 1\r\nstats 2\r\n",
        b"INSERTED\r\nOK %d\r\n%s\r\nNOT_FOUND\r\n" % (len(JOB_STATS), JOB_STATS),
    ),
    "what is not of this dialect": (
        b"quit\r\nuse a\r\nwatch a\r\npeek-ready\r\nkick-job 1\r\ntouch 1\r\nstats-job 1\r\n\r\n"
        b"reserve-with-timeout 0\r\nfoo\r\nmove-job 1 a\r\nupdate-job 1 0 0 60\r\n"
        b"kick-dead a 1\r\nwait-job 1 0\r\ncapabilities\r\ncancel-reserve\r\n"
        b"put 0 0 idp:a\r\n\r\nput 0 0\r\n\r\n",
        b"UNKNOWN_COMMAND\r\n" * 16 + b"BAD_FORMAT\r\nUNKNOWN_COMMAND\r\nINSERTED\r\n",
    ),
    "wrong arguments": (
        b"put 0 x\r\nput 1\r\nreserve 1\r\ndelete\r\nrelease 1\r\nbury 1\r\npeek x\r\nkick x\r\n"
        b"stats x\r\ndelete \0\r\nput 0 0\r\n\r\n",
        b"BAD_FORMAT\r\n" * 10 + b"INSERTED\r\n",
    ),
    "long lines": (
        b"peek 1" + b" " * 300 + b"\r\n" + b"x" * 222 + b"\r\n" + b"x" * 223 + b"\r\npeek\r\n",
        b"BAD_FORMAT\r\nUNKNOWN_COMMAND\r\nBAD_FORMAT\r\nNOT_FOUND\r\n",
    ),
}


def numbers(answer: bytes) -> dict[str, str]:
    return dict(yaml.read_mapping(answer.partition(b"\r\n")[2].removesuffix(b"\r\n")))


EACH = pytest.mark.parametrize("title", CONVERSATIONS)


@LOGGED
@EACH
def test_a_conversation_in_one_packet_and_byte_by_byte(title: str, is_logged: bool) -> None:
    check_conversation(*CONVERSATIONS[title], SMALL_LIMIT, is_logged=is_logged, dialect="v1")


def test_both_dialects_count_in_the_same_counters() -> None:
    server = MemoryServer()
    old, modern = server.connect("v1"), server.connect()
    old.ask(b"put 0 1\r\nx\r\nreserve\r\nrelease 1 0\r\nreserve\r\nbury 1 0\r\npeek\r\npeek 1\r\n"
            b"kick 1\r\nstats 1\r\nput 0 99999\r\n" + b"x" * 100_001 + b"\r\n")  # fmt: skip
    modern.ask(b"put 0 0 9 1\r\nx\r\nreserve\r\ndelete 1\r\npeek 9\r\nkick 1\r\n")
    stats, theirs = numbers(old.ask(b"stats\r\n")), numbers(modern.ask(b"stats\r\n"))
    assert list(stats.items()) == [
        ("current-jobs-ready", "1"), ("current-jobs-reserved", "0"), ("current-jobs-buried", "0"),
        ("cmd-put", "3"), ("cmd-peek", "3"), ("cmd-reserve", "3"), ("cmd-delete", "1"),
        ("cmd-release", "1"), ("cmd-bury", "1"), ("cmd-kick", "2"), ("cmd-stats", "2"),
        ("job-timeouts", "0"), ("current-connections", "2"), ("current-workers", "2"),
        ("current-producers", "2"),
    ]  # fmt: skip
    assert theirs["cmd-stats"] == "3"
    del stats["cmd-stats"]
    assert {key: theirs[key] for key in stats} == stats


def test_a_reserve_waits_for_ever_and_so_does_what_is_behind_it() -> None:
    server = MemoryServer()
    old = server.connect("v1")
    old.ask(b"reserve\r\nput 0 1\r\nx\r\npeek 1\r\n")
    server.advance(1_000_000)
    assert old.take() == b""
    server.connect().ask(b"put 5 0 9 1\r\ny\r\n")
    assert old.take() == b"RESERVED 1 5 1\r\ny\r\nINSERTED\r\nFOUND 1 5 1\r\ny\r\n"


@pytest.mark.parametrize("seconds", [0, 118.9, 119, 119.9])
def test_a_reserve_that_begins_at_any_time_before_a_ttr_ends_gets_that_job_again(
    seconds: float,
) -> None:
    server = MemoryServer()
    old = server.connect("v1")
    old.ask(b"put 3 1\r\nx\r\nreserve\r\n")
    server.advance(seconds)
    assert old.ask(b"reserve\r\n") == b""
    server.advance(119.999 - seconds)
    assert old.take() == b""
    server.advance(0.002)
    assert old.take() == b"RESERVED 1 3 1\r\nx\r\n"
    assert numbers(old.ask(b"stats 1\r\n"))["timeouts"] == "1"


def test_the_shortest_ttr_is_a_second_and_is_waited_out() -> None:
    server = MemoryServer()
    old, modern = server.connect("v1"), server.connect()
    modern.ask(b"put 3 0 1 1\r\nx\r\n")
    old.ask(b"reserve\r\nreserve\r\n")
    for timeouts in range(1, 4):
        server.advance(1)
        assert old.take() == b"RESERVED 1 3 1\r\nx\r\n"
        old.ask(b"reserve\r\n")
        shown = numbers(modern.ask(b"stats-job 1\r\n"))
        assert (shown["timeouts"], shown["ttr"]) == (str(timeouts), "1")


@LOGGED
@pytest.mark.parametrize("is_cut", [False, True])
def test_a_half_closed_connection_with_a_reserve_that_waits_is_closed_without_a_word(
    is_cut: bool, is_logged: bool
) -> None:
    server, old = connect(SMALL_LIMIT, is_logged=is_logged, dialect="v1")
    assert old.ask(b"put 3 1\r\nx\r\nreserve\r\n") == b"INSERTED\r\nRESERVED 1 3 1\r\nx\r\n"
    if is_cut:
        old.send(b"reserve\r\nput 0 1\r\ny\r\n")
    else:
        old.transport.unsent += b"reserve\r\nput 0 1\r\ny\r\n"
    old.half_close()
    server.advance()
    assert old.take() == b""
    assert old.is_closed
    # What was behind the reserve was not carried out, and the job is ready again.
    assert server.connect().ask(b"peek 2\r\npeek-ready\r\n") == b"NOT_FOUND\r\nFOUND 1 1\r\nx\r\n"
    assert server.service.queue.tally.waiting == 0


def test_what_was_answered_before_that_reserve_is_still_sent_when_the_disk_has_it() -> None:
    io = HeldIo()
    server = MemoryServer(directory=MemoryDirectory(), io=lambda: io)
    finish(server, io)
    old = server.connect("v1")
    old.send(b"put 3 1\r\nx\r\ndelete 1\r\nreserve\r\n")
    old.half_close()
    server.advance()
    assert old.take() == b"" and not old.is_closed
    finish(server, io)
    assert old.take() == b"INSERTED\r\nDELETED\r\n"
    assert old.is_closed


def test_a_reply_to_an_old_put_waits_for_the_disk_and_so_do_all_behind_it() -> None:
    io = HeldIo()
    server = MemoryServer(directory=MemoryDirectory(), io=lambda: io)
    finish(server, io)
    old, other = server.connect("v1"), server.connect("v1")
    assert old.ask(b"put 3 1\r\nx\r\npeek-ready\r\nput 0 99999\r\n" + b"x" * 100_001) == b""
    assert other.ask(b"peek\r\n") in (b"", b"NOT_FOUND\r\n")
    finish(server, io)
    assert old.take() == b"INSERTED\r\nUNKNOWN_COMMAND\r\nNOT_INSERTED\r\n"


def test_a_full_disk_inserts_nothing_and_goes_on_until_there_is_room() -> None:
    bounded = Bounded(SPACE_BYTES)
    bounded.fill()
    old = bounded.server.connect("v1")
    body = b"x" * 500
    put = b"put 5 500\r\n" + body + b"\r\n"
    assert bounded.ask(put, old) == b"NOT_INSERTED\r\n"
    assert bounded.ask(b"peek\r\n", old) == b"NOT_FOUND\r\n"
    bounded.check()
    bounded.delete_all()
    assert bounded.ask(put, old) == b"INSERTED\r\n"


def test_a_put_that_waits_for_room_is_answered_when_there_is_some() -> None:
    io = HeldIo()
    server = MemoryServer(directory=MemoryDirectory(), io=lambda: io, segment_bytes=8192)
    finish(server, io)
    old = server.connect("v1")
    body = b"x" * 5000
    old.ask((b"put 5 5000\r\n%s\r\n" % body) * 8)
    assert old.protocol.connection.session.is_busy
    finish(server, io)
    server.advance()
    finish(server, io)
    assert old.take() == b"INSERTED\r\n" * 8
