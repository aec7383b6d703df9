"""Batches on the wire: long lines and large replies in any pieces, among other commands, and peers
that leave in the middle.
"""

from __future__ import annotations

import pytest

from beanstalk_twisted.rules.batches import BATCH_SLICE_JOBS
from beanstalk_twisted.server.connections.connection import MAX_HELD_BYTES
from beanstalk_twisted.testing.memory_server import OUTPUT_LIMIT_BYTES, Client, MemoryServer
from beanstalk_twisted.wire.extensions import MAX_BATCH_LINE_BYTES
from beanstalk_twisted.wire.grammar import MAX_BATCH_JOBS
from tests.binlog.memory import MemoryDirectory
from tests.held_io import HeldIo, finish
from tests.server.conversing import LOGGED, check_conversation

PUT = b"put 0 0 60 1\r\nx\r\n"
USED = b"list-tube-used\r\n"
USING = b"USING default\r\n"


def line(count: int, size: int = 0) -> bytes:
    """Give the line that deletes the jobs 1 to ``count``, with spaces up to a size."""
    text = b"delete-batch" + b"".join(b" %d" % number for number in range(1, count + 1))
    return text.replace(b" 1 ", b" 1 " + b" " * (size - len(text) - 2), 1) + b"\r\n"


CONVERSATION = (
    PUT * 400 + USED + line(300) + USED + b"delete-batch 301 302 301\r\n" + USED
    + line(2, MAX_BATCH_LINE_BYTES + 1) + USED + line(400, MAX_BATCH_LINE_BYTES)
    + b"reserve-batch 5\r\n" + line(300)[:-2] + b" x\r\n" + USED + b"a" * 400 + b"\r\n" + PUT
    + b"reserve-batch 5 1\r\n" + USED
)  # fmt: skip
REPLIES = (
    b"".join(b"INSERTED %d\r\n" % number for number in range(1, 401)) + USING
    + b"DELETED_BATCH 300 0\r\n" + USING + b"DELETED_BATCH 2 1\r\n" + USING
    + b"BAD_FORMAT\r\n" + USING + b"DELETED_BATCH 98 302\r\nRESERVED_BATCH 0\r\nBAD_FORMAT\r\n"
    + USING + b"BAD_FORMAT\r\nINSERTED 401\r\nRESERVED_BATCH 1\r\nRESERVED 401 1\r\nx\r\n"
    + USING
)  # fmt: skip


def a_server(*, is_logged: bool = False, max_job_bytes: int = 65_535) -> MemoryServer:
    directory = MemoryDirectory() if is_logged else None
    return MemoryServer(directory=directory, segment_bytes=1 << 20, max_job_bytes=max_job_bytes)


@LOGGED
def test_a_conversation_in_one_packet_and_byte_by_byte(is_logged: bool) -> None:
    check_conversation(CONVERSATION, REPLIES, 100, is_logged=is_logged)


def test_a_line_one_past_the_limit_is_answered_when_it_ends_and_costs_no_memory() -> None:
    client = a_server().connect()
    assert client.ask(b"delete-batch 1" + b" " * 100_000) == b""
    incoming = client.protocol.connection._incoming
    assert incoming is not None
    assert not incoming._text  # type: ignore[attr-defined]
    assert client.ask(b"2\r\n" + USED) == b"BAD_FORMAT\r\n" + USING


def test_a_half_close_in_the_middle_of_a_long_line_drops_it() -> None:
    server = a_server()
    client, other = server.connect(), server.connect()
    client.ask(PUT * 300)
    client.send(line(300)[:-2])
    client.half_close()
    server.advance()
    assert client.take() == b""
    assert client.is_closed
    assert b"current-jobs-ready: 300\n" in other.ask(b"stats\r\n")


def test_a_half_close_behind_a_large_batch_is_answered_and_its_jobs_go_back() -> None:
    server = a_server()
    client, other = server.connect(), server.connect()
    client.ask(PUT * MAX_BATCH_JOBS)
    client.send(b"reserve-batch 1000\r\n")
    client.half_close()
    server.advance()
    reply = client.take()
    assert reply.startswith(b"RESERVED_BATCH 1000\r\nRESERVED 1 1\r\nx\r\n")
    assert reply.count(b"RESERVED ") == MAX_BATCH_JOBS
    server.advance()
    assert client.is_closed
    assert b"current-jobs-ready: 1000\n" in other.ask(b"stats\r\n")


@LOGGED
def test_who_hangs_up_during_a_large_batch_gives_its_jobs_back(is_logged: bool) -> None:
    server = a_server(is_logged=is_logged)
    client, other = server.connect(), server.connect()
    client.ask(PUT * MAX_BATCH_JOBS)
    client.send(b"reserve-batch 1000\r\n")
    assert len(client.protocol.connection.session.reserved) == BATCH_SLICE_JOBS
    client.hang_up()
    server.advance()
    stats = other.ask(b"stats\r\n")
    assert b"current-jobs-ready: 1000\n" in stats
    assert b"current-jobs-reserved: 0\n" in stats


def test_others_are_served_while_a_large_batch_goes_on() -> None:
    server = a_server()
    client, other = server.connect(), server.connect()
    client.ask(PUT * (BATCH_SLICE_JOBS + 1))
    client.send(line(BATCH_SLICE_JOBS + 1) + USED)
    other.send(b"use default\r\nreserve-batch 1\r\n")
    assert (client.take(), other.take()[:40]) == (
        b"", USING + b"RESERVED_BATCH 1\r\nRESERVE",
    )  # fmt: skip
    server.advance()
    assert client.take() == b"DELETED_BATCH %d 1\r\n" % BATCH_SLICE_JOBS + USING


def test_what_others_have_waits_for_no_batch_that_waits() -> None:
    server = a_server()
    client, other = server.connect(), server.connect()
    assert client.ask(b"reserve-batch 10 5\r\n" + USED) == b""
    other.ask(PUT * 3)
    jobs = b"".join(b"RESERVED %d 1\r\nx\r\n" % number for number in (1, 2, 3))
    assert client.take() == b"RESERVED_BATCH 3\r\n" + jobs + USING
    client.send(b"reserve-batch 10 5\r\n" + USED)
    server.advance(5)
    assert client.take() == b"RESERVED_BATCH 0\r\n" + USING


def fill(client: Client, count: int, size: int) -> bytes:
    """Put jobs of a size, and give the reply that has all of them."""
    bodies = [bytes([97 + number % 26]) * size for number in range(count)]
    for body in bodies:
        client.ask(b"put 0 0 60 %d\r\n%b\r\n" % (size, body))
    jobs = (b"RESERVED %d %d\r\n%b\r\n" % (at, size, each) for at, each in enumerate(bodies, 1))
    return b"RESERVED_BATCH %d\r\n%b" % (count, b"".join(jobs))


@LOGGED
@pytest.mark.parametrize("size", [10, 4095, 4096, 20_000, 65_535])
def test_a_peer_that_reads_late_gets_all_of_a_large_reply_and_what_is_behind_it(
    size: int, is_logged: bool
) -> None:
    server = a_server(is_logged=is_logged)
    client = server.connect()
    reply = fill(client, 100, size)
    client.send(b"reserve-batch 100\r\n" + b"touch 1\r\n" * 3)
    server.advance()
    is_full = len(reply) > OUTPUT_LIMIT_BYTES
    assert len(client.transport.unread) == len(reply) + (0 if is_full else 27)
    heard = client.take()
    server.advance()
    assert heard + client.take() == reply + b"TOUCHED\r\n" * 3


def test_a_large_reply_waits_for_the_disk_and_is_not_copied() -> None:
    io = HeldIo()
    server = MemoryServer(directory=MemoryDirectory(), io=lambda: io, segment_bytes=1 << 24)
    producer, client = server.connect(), server.connect()
    while io:
        io.step()
    body = b"x" * 65_535
    producer.send(b"put 0 0 60 65535\r\n%b\r\n" % body * 40)
    client.send(b"reserve-batch 40\r\nlist-tube-used\r\n")
    server.clock.advance(0)
    assert client.take() == b""
    replies = client.protocol.connection.replies
    assert replies.held_bytes > 40 * len(body) > MAX_HELD_BYTES
    held = {id(piece) for _, pieces in replies._held for piece in pieces if len(piece) == 65_535}
    queue = server.service.queue
    jobs = [queue.state.jobs.get(job_id) for job_id in range(1, 41)]
    assert held == {id(job.body) for job in jobs if job is not None}
    finish(server, io)
    heard = client.take()
    server.advance()
    heard += client.take()
    assert heard.count(b"RESERVED ") == 40
    assert heard.endswith(b"\r\n" + USING)


def test_a_server_that_stops_ends_the_batches_that_were_begun() -> None:
    server = a_server(is_logged=True)
    client = server.connect()
    client.ask(PUT * MAX_BATCH_JOBS)
    client.send(line(MAX_BATCH_JOBS))
    server.stop()
    server.advance()
    assert client.take() == b"DELETED_BATCH 1000 0\r\n"
