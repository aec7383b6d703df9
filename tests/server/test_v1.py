"""Ports that speak the first protocol: each command with each of its replies, the same jobs as
everybody else's, and what the wire, the clock, the disk and a crash do to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.python.failure import Failure

from beanstalk_twisted.rules.timekeeping import SLICE_JOBS
from beanstalk_twisted.server.connections.protocol import MAX_HELD_BYTES
from beanstalk_twisted.testing.memory_server import OUTPUT_LIMIT_BYTES, Client, MemoryServer
from beanstalk_twisted.wire import yaml
from beanstalk_twisted.wire.layouts import Values
from tests.binlog.memory import MemoryDirectory
from tests.held_io import HeldIo
from tests.sampling import share
from tests.server.connections.test_protocol import SMALL_LIMIT, cut, everything
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
        b"reserve-with-timeout 0\r\nfoo\r\nput 0 0\r\n\r\n",
        b"UNKNOWN_COMMAND\r\n" * 10 + b"INSERTED\r\n",
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

LOGGED = pytest.mark.parametrize("is_logged", [False, True], ids=["in memory", "logged"])
EACH = pytest.mark.parametrize("title", CONVERSATIONS)


def replies_to(packets: Iterable[bytes], *, is_logged: bool = False) -> bytes:
    """Send packets to a new server, each in a turn of its own."""
    directory = MemoryDirectory() if is_logged else None
    server = MemoryServer(directory=directory, max_job_bytes=SMALL_LIMIT, segment_bytes=8192)
    client = server.connect("v1")
    return b"".join(client.ask(packet) for packet in packets)


def numbers(answer: bytes) -> dict[str, str]:
    """Read the answer to a `stats`."""
    return dict(yaml.read_mapping(answer.partition(b"\r\n")[2].removesuffix(b"\r\n")))


# Conversations, however they are cut.


@LOGGED
@EACH
def test_a_conversation_in_one_packet_has_these_replies(title: str, is_logged: bool) -> None:
    sent, replies = CONVERSATIONS[title]
    assert replies_to([sent], is_logged=is_logged) == replies


@LOGGED
@EACH
def test_a_conversation_byte_by_byte_has_the_same_replies(title: str, is_logged: bool) -> None:
    sent, replies = CONVERSATIONS[title]
    assert replies_to(cut(sent, range(1, len(sent))), is_logged=is_logged) == replies


@pytest.mark.one_in(5)
@EACH
def test_a_conversation_cut_anywhere_has_the_same_replies(title: str) -> None:
    sent, replies = CONVERSATIONS[title]
    for place in range(1, len(sent)):
        assert replies_to(cut(sent, [place])) == replies, place


@settings(deadline=None, max_examples=60)
@given(st.data(), st.lists(st.sampled_from(sorted(CONVERSATIONS)), min_size=1, max_size=5))
def test_conversations_in_any_packets_have_the_same_replies(
    drawn: st.DataObject, titles: list[str]
) -> None:
    sent = b"".join(CONVERSATIONS[title][0] for title in titles)
    places = drawn.draw(st.lists(st.integers(0, len(sent)), max_size=20))
    assert replies_to(cut(sent, places)) == replies_to([sent])


# The same jobs as everybody else's.


@LOGGED
def test_an_old_worker_does_the_job_of_a_modern_producer(is_logged: bool) -> None:
    server = MemoryServer(directory=MemoryDirectory() if is_logged else None)
    old, modern = server.connect("v1"), server.connect()
    assert old.ask(b"reserve\r\n") == b""
    assert modern.ask(b"put 9 0 30 2\r\nhi\r\n") == b"INSERTED 1\r\n"
    assert old.take() == b"RESERVED 1 9 2\r\nhi\r\n"
    assert numbers(modern.ask(b"stats-job 1\r\n"))["ttr"] == "30"
    assert modern.ask(b"delete 1\r\n") == b"NOT_FOUND\r\n"
    assert old.ask(b"delete 1\r\n") == b"DELETED\r\n"


@LOGGED
def test_a_modern_worker_does_the_job_of_an_old_producer(is_logged: bool) -> None:
    server = MemoryServer(directory=MemoryDirectory() if is_logged else None)
    old, modern = server.connect("v1"), server.connect()
    assert modern.ask(b"reserve-with-timeout 9\r\n") == b""
    assert old.ask(b"put 9 2\r\nhi\r\n") == b"INSERTED\r\n"
    assert modern.take() == b"RESERVED 1 2\r\nhi\r\n"
    assert old.ask(b"release 1 0\r\ndelete 1\r\n") == b"NOT_FOUND\r\nNOT_FOUND\r\n"
    assert modern.ask(b"delete 1\r\n") == b"DELETED\r\n"


def test_a_job_that_was_put_the_old_way_is_like_any_other() -> None:
    server = MemoryServer()
    server.connect("v1").ask(b"put 9 2\r\nhi\r\n")
    stats = numbers(server.connect().ask(b"stats-job 1\r\n"))
    shown = {key: stats[key] for key in ("tube", "state", "pri", "delay", "ttr")}
    assert shown == {"tube": "default", "state": "ready", "pri": "9", "delay": "0", "ttr": "120"}


def test_old_and_modern_workers_wait_in_one_line() -> None:
    server = MemoryServer()
    workers = [server.connect(dialect) for dialect in ("v1", "modern", "v1")]
    for worker in workers:
        worker.ask(b"reserve\r\n")
    server.connect().ask(b"".join(b"put %d 0 9 1\r\nx\r\n" % number for number in (3, 2, 1)))
    assert [worker.take() for worker in workers] == [
        b"RESERVED 1 3 1\r\nx\r\n", b"RESERVED 2 1\r\nx\r\n", b"RESERVED 3 1 1\r\nx\r\n",
    ]  # fmt: skip


def test_an_old_worker_sees_jobs_of_other_tubes_by_their_number_only() -> None:
    server = MemoryServer()
    old, modern = server.connect("v1"), server.connect()
    modern.ask(b"use a\r\nput 0 0 9 1\r\nx\r\nput 0 0 9 1\r\ny\r\nreserve-job 2\r\nbury 2 4\r\n")
    assert old.ask(b"peek 1\r\npeek 2\r\n") == b"FOUND 1 0 1\r\nx\r\nFOUND 2 4 1\r\ny\r\n"
    assert old.ask(b"peek\r\nkick 9\r\n") == b"NOT_FOUND\r\nKICKED 0\r\n"
    assert numbers(old.ask(b"stats 2\r\n"))["state"] == "buried"
    assert old.ask(b"delete 1\r\ndelete 2\r\n") == b"DELETED\r\nDELETED\r\n"
    assert old.ask(b"reserve\r\n") == b""


def test_a_delayed_job_says_so_and_when_it_comes() -> None:
    server = MemoryServer()
    old = server.connect("v1")
    server.connect().ask(b"put 0 10 9 1\r\nx\r\n")
    server.advance(4)
    stats = numbers(old.ask(b"stats 1\r\n"))
    assert stats == {
        "id": "1", "state": "delayed", "age": "4", "time-left": "6", "timeouts": "0",
    }  # fmt: skip


def test_a_paused_tube_gives_an_old_worker_nothing() -> None:
    server = MemoryServer()
    old = server.connect("v1")
    server.connect().ask(b"pause-tube default 5\r\n")
    assert old.ask(b"put 0 1\r\nx\r\nreserve\r\n") == b"INSERTED\r\n"
    server.advance(5)
    assert old.take() == b"RESERVED 1 0 1\r\nx\r\n"


def test_the_jobs_of_an_old_connection_that_ends_are_ready_again() -> None:
    server = MemoryServer()
    old, modern = server.connect("v1"), server.connect()
    old.ask(b"put 3 1\r\nx\r\nreserve\r\n")
    modern.ask(b"reserve\r\n")
    old.hang_up()
    server.advance()
    assert modern.take() == b"RESERVED 1 1\r\nx\r\n"


def test_an_old_job_whose_ttr_ends_is_ready_again() -> None:
    server = MemoryServer()
    old, modern = server.connect("v1"), server.connect()
    old.ask(b"put 3 1\r\nx\r\nreserve\r\n")
    assert numbers(old.ask(b"stats 1\r\n"))["time-left"] == "120"
    server.advance(119.999)
    assert modern.ask(b"reserve-with-timeout 0\r\n") == b"TIMED_OUT\r\n"
    server.advance(0.001)
    assert old.ask(b"release 1 0\r\n") == b"NOT_FOUND\r\n"
    assert numbers(old.ask(b"stats 1\r\n"))["timeouts"] == "1"
    assert numbers(old.ask(b"stats\r\n"))["job-timeouts"] == "1"
    assert modern.ask(b"reserve\r\n") == b"RESERVED 1 1\r\nx\r\n"


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


def test_old_connections_are_connections_to_the_limit_of_them() -> None:
    server = MemoryServer(is_started=False)
    server.settings = server.settings._replace(max_connections=2)
    server.start()
    server.connect("v1")
    server.connect()
    for factory in (server.service.factory, server.service.factory_v1):
        assert factory.buildProtocol(None) is None


# While a reserve waits.


def test_a_reserve_waits_for_ever_and_so_does_what_is_behind_it() -> None:
    server = MemoryServer()
    old = server.connect("v1")
    old.ask(b"reserve\r\nput 0 1\r\nx\r\npeek 1\r\n")
    server.advance(1_000_000)
    assert old.take() == b""
    server.connect().ask(b"put 5 0 9 1\r\ny\r\n")
    assert old.take() == b"RESERVED 1 5 1\r\ny\r\nINSERTED\r\nFOUND 1 5 1\r\ny\r\n"


def test_a_reserve_that_waits_when_a_ttr_is_about_to_end_goes_on_waiting() -> None:
    server = MemoryServer()
    old, modern = server.connect("v1"), server.connect()
    old.ask(b"put 3 1\r\nx\r\nreserve\r\nreserve\r\n")
    server.advance(119.999)
    assert old.take() == b""
    modern.ask(b"put 0 0 9 1\r\ny\r\n")
    assert old.take() == b"RESERVED 2 0 1\r\ny\r\n"


def test_a_modern_reserve_hears_of_the_same_moment() -> None:
    server = MemoryServer()
    modern = server.connect()
    modern.ask(b"put 3 0 120 1\r\nx\r\nreserve\r\nreserve\r\n")
    server.advance(118.999)
    assert modern.take() == b""
    server.advance(0.001)
    assert modern.take() == b"DEADLINE_SOON\r\n"


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


# The end of a connection.


def half_close_while_it_waits(client: Client) -> None:
    """Wait, then say that no more comes."""
    client.send(b"reserve\r\nput 0 1\r\ny\r\n")
    client.half_close()


def half_close_before_it_would_wait(client: Client) -> None:
    """All comes at once, the end too."""
    client.transport.unsent += b"reserve\r\nput 0 1\r\ny\r\n"
    client.half_close()


@LOGGED
@pytest.mark.parametrize("end", [half_close_while_it_waits, half_close_before_it_would_wait])
def test_a_half_closed_connection_with_a_reserve_that_waits_is_closed_without_a_word(
    end: Callable[[Client], None], is_logged: bool
) -> None:
    server = MemoryServer(directory=MemoryDirectory() if is_logged else None)
    old = server.connect("v1")
    assert old.ask(b"put 3 1\r\nx\r\nreserve\r\n") == b"INSERTED\r\nRESERVED 1 3 1\r\nx\r\n"
    end(old)
    server.advance()
    assert old.take() == b""
    assert old.is_closed
    # What was behind the reserve was not carried out, and the job is ready again.
    assert server.connect().ask(b"peek 2\r\npeek-ready\r\n") == b"NOT_FOUND\r\nFOUND 1 1\r\nx\r\n"
    assert server.service.queue.tally.waiting == 0


def test_what_was_answered_before_that_reserve_is_still_sent_when_the_disk_has_it() -> None:
    io = HeldIo()
    server = MemoryServer(directory=MemoryDirectory(), io=lambda: io, is_started=False)
    finish_start(server, io)
    old = server.connect("v1")
    old.send(b"put 3 1\r\nx\r\ndelete 1\r\nreserve\r\n")
    old.half_close()
    server.advance()
    assert old.take() == b"" and not old.is_closed
    finish(server, io)
    assert old.take() == b"INSERTED\r\nDELETED\r\n"
    assert old.is_closed


def test_a_half_closed_connection_gets_all_its_replies() -> None:
    server = MemoryServer()
    old = server.connect("v1")
    old.send(b"put 3 1\r\nx\r\nreserve\r\npeek\r\n")
    old.half_close()
    server.advance()
    assert old.take() == b"INSERTED\r\nRESERVED 1 3 1\r\nx\r\nNOT_FOUND\r\n"
    assert old.is_closed


# Bounds.


def finish_start(server: MemoryServer, io: HeldIo) -> None:
    """Start, and let the disk do what a start needs."""
    server.start()
    finish(server, io)


def finish(server: MemoryServer, io: HeldIo) -> None:
    """Let the disk do all that waits for it."""
    while io:
        io.step()
        server.advance()


def test_a_reply_to_an_old_put_waits_for_the_disk_and_so_do_all_behind_it() -> None:
    io = HeldIo()
    server = MemoryServer(directory=MemoryDirectory(), io=lambda: io, is_started=False)
    finish_start(server, io)
    old, other = server.connect("v1"), server.connect("v1")
    assert old.ask(b"put 3 1\r\nx\r\npeek-ready\r\nput 0 99999\r\n" + b"x" * 100_001) == b""
    assert other.ask(b"peek\r\n") in (b"", b"NOT_FOUND\r\n")
    finish(server, io)
    assert old.take() == b"INSERTED\r\nUNKNOWN_COMMAND\r\nNOT_INSERTED\r\n"


def test_an_old_connection_with_too_many_bytes_of_held_replies_is_parsed_no_further() -> None:
    io = HeldIo()
    server = MemoryServer(
        directory=MemoryDirectory(), io=lambda: io, segment_bytes=16 << 20, is_started=False
    )
    finish_start(server, io)
    old, body = server.connect("v1"), b"x" * 60_000
    old.ask(b"put 3 60000\r\n" + body + b"\r\n" + b"peek 1\r\n" * 50)
    found = b"FOUND 1 3 60000\r\n" + body + b"\r\n"
    assert server.service.queue.tally.commands["cmd-peek"] == MAX_HELD_BYTES // len(found) + 1
    output = b""
    while io or len(output) < 50 * len(found):
        finish(server, io)
        output += old.take()
        server.advance()
    assert output == b"INSERTED\r\n" + found * 50


def test_an_old_client_that_does_not_read_is_not_parsed_for_ever() -> None:
    server = MemoryServer()
    old = server.connect("v1")
    old.ask(b"put 0 60000\r\n" + b"x" * 60_000 + b"\r\n")
    peeks = share(1000)
    old.send(b"peek 1\r\n" * peeks)
    server.advance()
    assert len(old.transport.unread) <= 2 * (OUTPUT_LIMIT_BYTES + 60_000)
    assert server.service.queue.tally.commands["cmd-peek"] < 10
    assert everything(server, old, b"").count(b"FOUND 1 0 60000\r\n") == peeks


def test_thousands_of_commands_in_one_packet_are_answered_in_order() -> None:
    server = MemoryServer(directory=MemoryDirectory())
    old = server.connect("v1")
    ids = range(1, 3001)
    puts = b"".join(b"put %d 4\r\n%04d\r\n" % (number, number) for number in ids)
    assert everything(server, old, puts) == b"INSERTED\r\n" * len(ids)
    asked = b"".join(b"peek %d\r\n" % number for number in ids)
    found = b"".join(b"FOUND %d %d 4\r\n%04d\r\n" % (each, each, each) for each in ids)
    assert everything(server, old, asked) == found


def test_a_large_kick_is_answered_when_it_is_done() -> None:
    server = MemoryServer()
    old = server.connect("v1")
    count = SLICE_JOBS + 1
    old.ask(b"put 0 0\r\n\r\n" * count)
    old.ask(b"".join(b"reserve\r\nbury %d 0\r\n" % number for number in range(1, count + 1)))
    assert everything(server, old, b"kick 4294967295\r\npeek\r\n") == (
        b"KICKED %d\r\nNOT_FOUND\r\n" % count
    )


# What is refused.


def test_a_draining_server_inserts_nothing_and_goes_on() -> None:
    server = MemoryServer()
    old = server.connect("v1")
    old.ask(b"put 3 1\r\nx\r\n")
    server.service.drain()
    assert old.ask(b"put 0 1\r\ny\r\npeek 2\r\nreserve\r\n") == (
        b"NOT_INSERTED\r\nNOT_FOUND\r\nRESERVED 1 3 1\r\nx\r\n"
    )


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
    server = MemoryServer(
        directory=MemoryDirectory(), io=lambda: io, segment_bytes=8192, is_started=False
    )
    finish_start(server, io)
    old = server.connect("v1")
    body = b"x" * 5000
    old.ask((b"put 5 5000\r\n%s\r\n" % body) * 8)
    assert old.protocol.session.is_busy
    finish(server, io)
    server.advance()
    finish(server, io)
    assert old.take() == b"INSERTED\r\n" * 8


def test_a_fault_of_ours_is_an_internal_error_and_the_connection_goes_on(
    clean_reactor: list[Failure],
) -> None:
    server = MemoryServer()
    old = server.connect("v1")
    server.service.queue._facts = _fail
    assert old.ask(b"stats\r\nput 0 0\r\n\r\n") == b"INTERNAL_ERROR\r\nINSERTED\r\n"
    assert [failure.type for failure in clean_reactor] == [ValueError]
    clean_reactor.clear()


def _fail() -> Values:
    raise ValueError("a fault of ours")


# A crash.


def test_what_was_said_to_an_old_client_holds_after_a_kill() -> None:
    server = MemoryServer(directory=MemoryDirectory())
    old = server.connect("v1")
    assert old.ask(b"put 5 1\r\na\r\nput 6 1\r\nb\r\nput 7 1\r\nc\r\n") == b"INSERTED\r\n" * 3
    assert old.ask(b"reserve\r\nbury 1 9\r\nreserve\r\nrelease 2 8\r\ndelete 3\r\nreserve\r\n") == (
        b"RESERVED 1 5 1\r\na\r\nBURIED\r\nRESERVED 2 6 1\r\nb\r\nRELEASED\r\nDELETED\r\n"
        b"RESERVED 2 8 1\r\nb\r\n"
    )
    server.kill_and_restart()
    old = server.connect("v1")
    assert old.ask(b"peek\r\nstats 2\r\npeek 3\r\nput 0 1\r\nd\r\n").startswith(
        b"FOUND 1 9 1\r\na\r\nOK 55\r\n---\nid: 2\nstate: ready\n"
    )
    modern = server.connect()
    assert numbers(modern.ask(b"stats-job 2\r\n"))["ttr"] == "120"
    assert modern.ask(b"reserve\r\n") == b"RESERVED 4 1\r\nd\r\n"
