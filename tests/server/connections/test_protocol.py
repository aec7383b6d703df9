"""The wire: lines and bodies however they are cut, the end of a connection in every state, and
bounds.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, cast

import pytest
from twisted.python.failure import Failure

from beanstalk_twisted.rules.changes import JobLog
from beanstalk_twisted.server.connections.connection import MAX_BUFFERED_BYTES, MAX_HELD_BYTES
from beanstalk_twisted.server.reply_queue import MAX_GATHERED_BYTES
from beanstalk_twisted.storage.group_commit import MAX_UNACKNOWLEDGED_BYTES
from beanstalk_twisted.testing.memory_server import (
    OUTPUT_LIMIT_BYTES,
    READ_BYTES,
    Client,
    MemoryServer,
)
from tests.binlog.memory import MemoryDirectory
from tests.held_io import HeldIo, finish
from tests.server.conversing import LOGGED, check_conversation, connect

SMALL_LIMIT = 20
"""The largest body in the conversations below."""

ENOUGH_FOR_ALL_BYTES = 2 * MAX_UNACKNOWLEDGED_BYTES
"""A segment in which no put has to wait for room, where a test is about other waits."""

LONGEST_LEGAL = b"pause-tube " + b"n" * 200 + b" 4294967295\r\n"

CONVERSATIONS: dict[str, tuple[bytes, bytes]] = {
    "short lines": (
        b"use a\r\nwatch b\r\nfoo\r\n\r\nlist-tube-used\r\n",
        b"USING a\r\nWATCHING 2\r\nUNKNOWN_COMMAND\r\nUNKNOWN_COMMAND\r\nUSING a\r\n",
    ),
    "CR LF and NUL inside a body": (
        b"put 0 0 1 10\r\na\r\nb\0\r\n\r\n\r\r\npeek 1\r\n",
        b"INSERTED 1\r\nFOUND 1 10\r\na\r\nb\0\r\n\r\n\r\r\n",
    ),
    "empty bodies": (
        b"put 0 0 1 0\r\n\r\nput 0 0 1 0\r\n\r\nreserve\r\n",
        b"INSERTED 1\r\nINSERTED 2\r\nRESERVED 1 0\r\n\r\n",
    ),
    "a body without its CR LF": (
        b"put 0 0 1 3\r\nabcdef\r\nput 0 0 1 3\r\nabcd\r\nstats\r\nlist-tube-used\r\n",
        b"EXPECTED_CRLF\r\nUNKNOWN_COMMAND\r\nEXPECTED_CRLF\r\nUNKNOWN_COMMAND\r\n"
        b"USING default\r\n",
    ),
    "a body at the limit": (
        b"put 0 0 1 20\r\n" + b"x" * 20 + b"\r\npeek 1\r\n",
        b"INSERTED 1\r\nFOUND 1 20\r\n" + b"x" * 20 + b"\r\n",
    ),
    "a body one past the limit, which looks like commands": (
        b"put 0 0 1 21\r\ndelete 9999\r\nlist-tub\r\nput 0 0 1 1\r\nx\r\n",
        b"JOB_TOO_BIG\r\nINSERTED 1\r\n",
    ),
    "too big a body without its CR LF, and junk on the line": (
        b"put 0 0 1 22 junk\r\n" + b"y" * 24 + b"put 0 0 1 1\r\nx\r\n",
        b"JOB_TOO_BIG\r\nINSERTED 1\r\n",
    ),
    "junk behind the size": (
        b"put 0 0 1 5 junk\r\nabcde\r\nlist-tube-used\r\n",
        b"BAD_FORMAT\r\nUNKNOWN_COMMAND\r\nUSING default\r\n",
    ),
    "a long line": (
        b"a" * 500 + b"\r\nput 0 0 1 1\r\nx\r\n",
        b"BAD_FORMAT\r\nINSERTED 1\r\n",
    ),
    "long lines with CRs, one behind the other": (
        b"b" * 223 + b"\r\r\n" + b"\r" * 300 + b"\n" + b"c\rd\n" * 60 + b"\r\nlist-tube-used\r\n",
        b"BAD_FORMAT\r\nBAD_FORMAT\r\nBAD_FORMAT\r\nUSING default\r\n",
    ),
    "the longest command": (
        b"use " + b"n" * 200 + b"\r\n" + LONGEST_LEGAL,
        b"USING " + b"n" * 200 + b"\r\nPAUSED\r\n",
    ),
    "NUL in a line": (
        b"\0\r\nstats\0\r\nsta\0ts\r\nlist-tube-used\r\n",
        b"BAD_FORMAT\r\nBAD_FORMAT\r\nBAD_FORMAT\r\nUSING default\r\n",
    ),
    "CR and LF that end nothing": (
        b"a\rb\r\nlist-tube-used\r\r\n\r\r\nuse x\n\r\nuse\nx\r\n\n\r\nlist-tube-used\r\n",
        b"UNKNOWN_COMMAND\r\nBAD_FORMAT\r\nUNKNOWN_COMMAND\r\nBAD_FORMAT\r\nUNKNOWN_COMMAND\r\n"
        b"UNKNOWN_COMMAND\r\nUSING default\r\n",
    ),
    "a job's life": (
        b"reserve-with-timeout 0\r\nput 5 0 60 2\r\nhi\r\nreserve\r\ntouch 1\r\nbury 1 7\r\n"
        b"kick 9\r\nreserve-job 1\r\nrelease 1 3 0\r\ndelete 1\r\ndelete 1\r\n",
        b"TIMED_OUT\r\nINSERTED 1\r\nRESERVED 1 2\r\nhi\r\nTOUCHED\r\nBURIED\r\n"
        b"KICKED 1\r\nRESERVED 1 2\r\nhi\r\nRELEASED\r\nDELETED\r\nNOT_FOUND\r\n",
    ),
}  # fmt: skip

QUITTING = b"put 0 0 1 1\r\nx\r\nquit now\r\nput 0 0 1 1\r\ny\r\n"

EACH = pytest.mark.parametrize("title", CONVERSATIONS)


def held() -> tuple[MemoryServer, HeldIo]:
    """Start a server with a log whose disk waits, and no put for room."""
    io = HeldIo()
    server = MemoryServer(
        directory=MemoryDirectory(), io=lambda: io, segment_bytes=ENOUGH_FOR_ALL_BYTES
    )
    return server, io


def replies_to(packets: Iterable[bytes], dialect: str = "modern") -> bytes:
    _, client = connect(SMALL_LIMIT, dialect=dialect)
    return b"".join(client.ask(packet) for packet in packets)


def cut(sent: bytes, places: Iterable[int]) -> list[bytes]:
    ends = [0, *sorted(places), len(sent)]
    return [sent[start:end] for start, end in pairwise(ends)]


@LOGGED
@EACH
def test_a_conversation_in_one_packet_and_byte_by_byte(title: str, is_logged: bool) -> None:
    check_conversation(*CONVERSATIONS[title], SMALL_LIMIT, is_logged=is_logged)


# Lines.


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("length", "reply"),
    [
        *[(length, b"UNKNOWN_COMMAND\r\n") for length in (2, 222, 223, 224)],
        *[(length, b"BAD_FORMAT\r\n") for length in (225, 226, 448, 449, 450)],
    ],
)
def test_a_line_is_too_long_from_225_bytes_on(length: int, reply: bytes) -> None:
    sent = b"x" * (length - 2) + b"\r\nlist-tube-used\r\n"
    for place in range(1, len(sent)):
        assert replies_to(cut(sent, [place])) == reply + b"USING default\r\n", place


def test_a_line_that_is_too_long_is_answered_only_when_it_ends() -> None:
    client = MemoryServer().connect()
    assert client.ask(b"x" * 100_000 + b"\r") == b""
    assert client.ask(b"x" * 100_000) == b""
    assert client.ask(b"\r\n") == b"BAD_FORMAT\r\n"


@LOGGED
def test_thousands_of_commands_in_one_packet_are_answered_in_order(is_logged: bool) -> None:
    server = MemoryServer(directory=MemoryDirectory() if is_logged else None)
    client = server.connect()
    ids = range(1, 5001)
    puts = b"".join(b"put 0 0 9 4\r\n%04d\r\n" % (number % 10_000) for number in ids)
    assert everything(server, client, puts) == b"".join(b"INSERTED %d\r\n" % each for each in ids)
    deletes = b"".join(b"delete %d\r\nlist-tube-used\r\n" % each for each in ids)
    assert everything(server, client, deletes) == b"DELETED\r\nUSING default\r\n" * len(ids)


def everything(server: MemoryServer, client: Client, request: bytes) -> bytes:
    output = part = client.ask(request)
    while part:
        server.advance()
        part = client.take()
        output += part
    return output


# Bodies.


def test_a_job_whose_body_is_incomplete_does_not_exist_yet() -> None:
    server = MemoryServer()
    putting, looking = server.connect(), server.connect()
    putting.ask(b"put 0 0 1 10\r\nhalf")
    for command in (b"peek 1", b"stats-job 1", b"delete 1", b"reserve-job 1", b"kick-job 1"):
        assert looking.ask(command + b"\r\n") == b"NOT_FOUND\r\n"


def test_a_disconnect_in_mid_body_drops_the_job_and_uses_up_its_id() -> None:
    server = MemoryServer()
    putting, looking = server.connect(), server.connect()
    putting.ask(b"put 0 0 1 10\r\nhalf")
    putting.hang_up()
    assert looking.ask(b"peek-ready\r\nput 0 0 1 0\r\n\r\n") == b"NOT_FOUND\r\nINSERTED 2\r\n"
    statistics = looking.ask(b"stats\r\n")
    assert b"cmd-put: 2\n" in statistics and b"total-jobs: 1\n" in statistics
    assert b"current-producers: 1\n" in statistics


# The end of a connection.

HALF_CLOSED = {
    "idle": (b"", b""),
    "in the middle of a line": (b"list-tube-used", b""),
    "in the middle of a body": (b"put 0 0 1 10\r\nhalf", b""),
    "while a reserve waits": (b"reserve\r\n", b"TIMED_OUT\r\n"),
    "with commands behind a reserve that waits": (
        b"reserve\r\nreserve-with-timeout 9\r\nput 0 0 1 1\r\nx\r\nreserve\r\nreserve\r\n",
        b"TIMED_OUT\r\nTIMED_OUT\r\nINSERTED 1\r\nRESERVED 1 1\r\nx\r\nDEADLINE_SOON\r\n",
    ),
}


@pytest.mark.parametrize("title", HALF_CLOSED)
def test_what_was_sent_before_a_half_close_is_answered_and_nothing_is_kept(title: str) -> None:
    sent, replies = HALF_CLOSED[title]
    server = MemoryServer()
    client, other = server.connect(), server.connect()
    client.send(sent)
    client.half_close()
    server.advance()
    assert (client.take(), client.is_closed) == (replies, True)
    assert b"current-waiting: 0\n" in other.ask(b"stats\r\n")
    found = b"RESERVED 1 1\r\nx\r\n" if b"INSERTED" in replies else b"NOT_FOUND\r\n"
    assert other.ask(b"reserve-job 1\r\n") == found


def test_replies_held_for_the_disk_still_come_after_a_half_close() -> None:
    server, io = held()
    client = server.connect()
    client.send(b"put 0 0 1 1\r\nx\r\nlist-tube-used\r\n")
    client.half_close()
    server.advance()
    assert (client.take(), client.is_closed) == (b"", False)
    io.step()
    server.advance()
    assert (client.take(), client.is_closed) == (b"INSERTED 1\r\nUSING default\r\n", True)


def test_all_replies_come_to_a_slow_reader_that_has_half_closed() -> None:
    server = MemoryServer()
    client = server.connect()
    client.send(b"list-tube-used\r\n" * 30_000)
    client.half_close()
    server.advance()
    assert not client.is_closed
    assert everything(server, client, b"") == b"USING default\r\n" * 30_000
    assert client.is_closed


def test_quit_closes_at_once_and_what_is_sent_behind_it_is_lost() -> None:
    server = MemoryServer()
    client, other = server.connect(), server.connect()
    assert client.ask(b"list-tube-used\r\nquit\r\nput 0 0 1 1\r\nx\r\n") == b"USING default\r\n"
    assert client.is_closed
    assert other.ask(b"peek 1\r\n") == b"NOT_FOUND\r\n"


def test_quit_is_the_same_in_whatever_packets_it_comes() -> None:
    for place in range(1, len(QUITTING)):
        assert replies_to(cut(QUITTING, [place])) == b"INSERTED 1\r\n", place


def test_quit_releases_jobs_at_once_and_only_then_come_the_replies_that_were_held() -> None:
    server, io = held()
    client, other = server.connect(), server.connect()
    client.send(b"put 0 0 60 1\r\nx\r\nreserve\r\nquit\r\nput 0 0 1 1\r\ny\r\n")
    server.advance()
    assert (client.take(), client.is_closed) == (b"", False)
    statistics = other.ask(b"stats\r\n")
    assert b"current-jobs-reserved: 0\n" in statistics
    assert b"current-connections: 1\n" in statistics
    finish(server, io)
    assert (client.take(), client.is_closed) == (b"INSERTED 1\r\nRESERVED 1 1\r\nx\r\n", True)
    other.send(b"reserve\r\npeek 2\r\n")
    finish(server, io)
    assert other.take() == b"RESERVED 1 1\r\nx\r\nNOT_FOUND\r\n"


def test_quit_behind_a_waiting_reserve_waits_too() -> None:
    server = MemoryServer()
    client, other = server.connect(), server.connect()
    client.ask(b"reserve\r\nquit\r\n")
    assert not client.is_closed
    other.ask(b"put 0 0 1 1\r\nx\r\n")
    server.advance()
    assert (client.take(), client.is_closed) == (b"RESERVED 1 1\r\nx\r\n", True)


def test_a_hang_up_while_replies_are_held_loses_only_the_replies() -> None:
    server, io = held()
    client, other = server.connect(), server.connect()
    client.send(b"put 0 0 1 1\r\nx\r\nput 0 0 1 1\r\ny\r\n")
    client.hang_up()
    other.send(b"peek 2\r\n")
    finish(server, io)
    assert (client.take(), other.take()) == (b"", b"FOUND 2 1\r\ny\r\n")


# Replies that wait for the disk.


def test_replies_keep_their_order_when_one_is_held_for_the_disk() -> None:
    server, io = held()
    client = server.connect()
    assert client.ask(b"list-tube-used\r\nput 0 0 1 1\r\nx\r\nuse a\r\nfoo\r\n") == (
        b"USING default\r\n"
    )
    io.step()
    assert client.take() == b"INSERTED 1\r\nUSING a\r\nUNKNOWN_COMMAND\r\n"


@pytest.mark.parametrize(
    ("change", "question", "reply"),
    [
        (b"put 0 0 9 1\r\nx\r\n", b"reserve\r\n", b"RESERVED 2 1\r\nx\r\n"),
        (b"put 0 0 9 1\r\nx\r\n", b"peek 2\r\n", b"FOUND 2 1\r\nx\r\n"),
        (b"delete 1\r\n", b"delete 1\r\n", b"NOT_FOUND\r\n"),
        (b"delete 1\r\n", b"peek-buried\r\n", b"NOT_FOUND\r\n"),
        (b"kick 1\r\n", b"reserve\r\n", b"RESERVED 1 1\r\nj\r\n"),
        (b"kick 1\r\n", b"list-tubes\r\n", b"OK 14\r\n---\n- default\n\r\n"),
    ],
)
def test_nobody_hears_of_a_change_that_a_crash_could_undo(
    change: bytes, question: bytes, reply: bytes
) -> None:
    server, io = held()
    changing, asking = server.connect(), server.connect()
    changing.send(b"put 0 0 9 1\r\nj\r\nreserve\r\nbury 1 0\r\n")
    finish(server, io)
    changing.take()
    changing.send(change)
    assert asking.ask(question) == b""
    finish(server, io)
    assert asking.take() == reply


# Bounds.


def counted(server: MemoryServer, counter: bytes) -> int:
    asking = server.connect()
    _, _, rest = asking.ask(b"stats\r\n").partition(b"\n%s: " % counter)
    asking.hang_up()
    return int(rest.partition(b"\n")[0])


def test_a_client_that_never_reads_costs_a_bounded_amount_of_memory() -> None:
    server = MemoryServer()
    client = server.connect()
    command, reply, count = b"list-tubes-watched\r\n", b"OK 14\r\n---\n- default\n\r\n", 50_000
    client.send(command * count)
    server.advance()
    parsed = counted(server, b"cmd-list-tubes-watched")
    assert len(client.transport.unread) <= OUTPUT_LIMIT_BYTES + MAX_GATHERED_BYTES + len(reply)
    assert parsed * len(reply) == len(client.transport.unread)
    read = count * len(command) - len(client.transport.unsent)
    assert read - parsed * len(command) <= MAX_BUFFERED_BYTES + READ_BYTES
    assert everything(server, client, b"") == reply * count


def test_a_client_is_read_up_to_the_limit_of_its_buffer_and_no_further() -> None:
    server = MemoryServer()
    client = server.connect()
    client.ask(b"reserve\r\n")
    client.send(b"x" * MAX_BUFFERED_BYTES)
    assert client.transport.is_reading
    client.send(b"x")
    assert not client.transport.is_reading
    client.send(b"\r\nlist-tube-used\r\n")
    server.connect().ask(b"put 0 0 1 1\r\nx\r\n")
    assert client.take() == b"RESERVED 1 1\r\nx\r\nBAD_FORMAT\r\nUSING default\r\n"


def test_no_more_bytes_of_replies_are_held_than_may_be() -> None:
    server, io = held()
    client = server.connect()
    client.send(b"put 0 0 1 60000\r\n" + b"x" * 60_000 + b"\r\n")
    client.send(b"peek 1\r\n" * 50)
    server.advance()
    reply_bytes = len(b"FOUND 1 60000\r\n\r\n") + 60_000
    assert counted(server, b"cmd-peek") == MAX_HELD_BYTES // reply_bytes + 1
    io.step()
    assert everything(server, client, b"").count(b"FOUND 1 60000\r\n") == 50


def test_a_slow_disk_stops_all_who_wait_for_it_and_lets_them_go_on() -> None:
    server, io = held()
    clients = [server.connect() for _ in range(4)]
    put, per_client = b"put 0 0 1 60000\r\n" + b"x" * 60_000 + b"\r\n", 60
    for client in clients:
        client.send(put * per_client)
    server.advance()
    parsed = counted(server, b"cmd-put")
    most = MAX_UNACKNOWLEDGED_BYTES + len(clients) * len(put)
    assert MAX_UNACKNOWLEDGED_BYTES < parsed * len(put) <= most
    assert server.connect().ask(b"use a\r\n") == b"USING a\r\n"
    output = b""
    while io:
        finish(server, io)
        output += b"".join(client.take() for client in clients)
        server.advance()
    assert output.count(b"INSERTED") == per_client * len(clients)


# Faults of ours.


def test_a_put_that_fails_is_an_internal_error_and_the_connection_goes_on(
    clean_reactor: list[Failure],
) -> None:
    server = MemoryServer()
    client = server.connect()
    server.service.queue.keep_in(cast(JobLog, None))
    replies = client.ask(b"put 0 0 1 7\r\nuse abc\r\nlist-tube-used\r\n")
    assert [failure.type for failure in clean_reactor] == [AttributeError]
    clean_reactor.clear()
    assert replies == b"INTERNAL_ERROR\r\nUSING default\r\n"


def test_with_a_log_a_command_that_changes_something_and_fails_ends_the_server(
    clean_reactor: list[Failure],
) -> None:
    server = MemoryServer(directory=MemoryDirectory())
    client = server.connect()
    assert client.ask(b"put 0 0 1 1\r\nx\r\n") == b"INSERTED 1\r\n"
    server.service.queue.keep_in(cast(JobLog, None))
    client.ask(b"delete 1\r\n")
    assert [failure.type for failure in server.failures] == [AttributeError]
    clean_reactor.clear()


@pytest.mark.parametrize("error, reply", [
    (ValueError("a fault of ours"), b"INTERNAL_ERROR"), (MemoryError(), b"OUT_OF_MEMORY"),
])  # fmt: skip
@pytest.mark.parametrize("dialect", ["modern", "v1"])
def test_with_a_log_a_command_that_looks_and_fails_costs_its_reply_only(
    error: Exception, reply: bytes, dialect: str, clean_reactor: list[Failure]
) -> None:
    def fail() -> int:
        raise error

    server = MemoryServer(directory=MemoryDirectory())
    server.service.process.log.oldest = fail
    client = server.connect(dialect)
    assert client.ask(b"stats\r\npeek 9\r\n") == reply + b"\r\nNOT_FOUND\r\n"
    assert not server.failures
    clean_reactor.clear()


def test_replies_that_cannot_be_sent_cost_the_connection_and_its_jobs_go_back(
    clean_reactor: list[Failure],
) -> None:
    def fail(output: bytes) -> None:
        raise MemoryError

    server = MemoryServer(directory=MemoryDirectory())
    client, other = server.connect(), server.connect()
    client.ask(b"put 0 0 1 1\r\nx\r\n")
    cast(Any, client.transport).write = fail
    assert client.ask(b"reserve\r\n") == b""
    assert client.is_closed and not server.failures
    assert other.ask(b"reserve-with-timeout 0\r\n") == b"RESERVED 1 1\r\nx\r\n"
    assert [failure.type for failure in clean_reactor] == [MemoryError]
    clean_reactor.clear()
