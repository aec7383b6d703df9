"""Clients of all manners on real sockets: with epoll and without it, replies are the same."""

from __future__ import annotations

import selectors
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server_process import (
    LIMIT_S,
    WITH_AND_WITHOUT_EPOLL,
    Command,
    Connection,
    ServerProcess,
)

KINDS = pytest.mark.parametrize("kind", ["memory", "log"])

FLOOD = 60_000
"""Commands of a client that does not read: their replies fill the sockets of both ends."""


@pytest.fixture
def server(tmp_path: Path, command: Command, kind: str) -> Iterator[ServerProcess]:
    log = ["-b", tmp_path / "log"] if kind == "log" else []
    with ServerProcess(command("-p0", *log), tmp_path) as process:
        yield process


@pytest.mark.one_in(3)
@WITH_AND_WITHOUT_EPOLL
@KINDS
def test_what_is_pipelined_is_answered_in_order(server: ServerProcess) -> None:
    count = 2_000
    with Connection(server.port()) as connection:
        puts = (
            b"put 0 0 60 %d\r\n%s\r\n" % (size % 90, b"x" * (size % 90)) for size in range(count)
        )
        connection.send(b"".join(puts) + b"reserve\r\ndelete 1\r\nquit\r\n")
        replies = connection.rest()
    inserted = b"".join(b"INSERTED %d\r\n" % number for number in range(1, count + 1))
    assert replies == inserted + b"RESERVED 1 0\r\n\r\nDELETED\r\n"


@pytest.mark.exhaustive
@WITH_AND_WITHOUT_EPOLL
@KINDS
def test_a_half_close_is_answered_and_then_closed(server: ServerProcess) -> None:
    with Connection(server.port()) as connection:
        connection.send(b"put 0 0 60 1\r\nx\r\nreserve\r\nreserve\r\n")
        connection.half_close()
        assert connection.rest() == b"INSERTED 1\r\nRESERVED 1 1\r\nx\r\nTIMED_OUT\r\n"


@pytest.mark.exhaustive
@WITH_AND_WITHOUT_EPOLL
@KINDS
@pytest.mark.parametrize("is_reset", [False, True], ids=["closed", "reset"])
def test_a_vanished_workers_job_goes_to_the_next(server: ServerProcess, is_reset: bool) -> None:
    holding, waiting = Connection(server.port()), server.connect()
    holding.send(b"put 0 0 60 1\r\nx\r\nreserve\r\nreserve\r\n")
    assert waiting.ask(b"use default\r\n") == b"USING default\r\n"
    while b"RESERVED 1 1\r\nx\r\n" not in holding.socket.recv(100, socket.MSG_PEEK):
        pass
    waiting.send(b"reserve\r\n")
    if is_reset:
        holding.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    holding.close()
    assert waiting.reply() == b"RESERVED 1 1\r\nx\r\n"
    waiting.close()


@pytest.mark.one_in(2)
@WITH_AND_WITHOUT_EPOLL
@pytest.mark.parametrize("kind", ["memory"])
def test_who_does_not_read_is_not_read_and_then_hears_all(server: ServerProcess) -> None:
    request, reply = b"list-tubes-watched\r\n", b"OK 14\r\n---\n- default\n\r\n"
    unsent, heard = memoryview(request * FLOOD), 0
    with Connection(server.port()) as client, selectors.DefaultSelector() as selector:
        connection = client.socket
        # With less all that comes is acknowledged late, and the test takes half a minute.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
        connection.setblocking(False)
        selector.register(connection, selectors.EVENT_WRITE)
        # Until it is not taken any more, or all is.
        while unsent and selector.select(1):
            unsent = unsent[connection.send(unsent) :]
        other: Connection = server.connect()
        assert other.ask(b"list-tube-used\r\n") == b"USING default\r\n"
        other.close()
        selector.modify(connection, selectors.EVENT_READ | selectors.EVENT_WRITE)
        while heard < len(reply) * FLOOD:
            for _, events in selector.select(LIMIT_S):
                if events & selectors.EVENT_READ:
                    arrived = connection.recv(1 << 16)
                    assert (
                        arrived
                        == (reply * (len(arrived) // len(reply) + 2))[heard % len(reply) :][
                            : len(arrived)
                        ]
                    )
                    heard += len(arrived)
                if events & selectors.EVENT_WRITE and unsent:
                    unsent = unsent[connection.send(unsent) :]
                if not unsent:
                    selector.modify(connection, selectors.EVENT_READ)


@pytest.mark.one_in(3)
@WITH_AND_WITHOUT_EPOLL
@KINDS
def test_large_bodies_come_back_whole(server: ServerProcess) -> None:
    body = bytes(range(256)) * 255
    client = server.connect()
    for number in range(1, 6):
        assert client.ask(b"put 0 0 60 %d\r\n%s\r\n" % (len(body), body)) == (
            b"INSERTED %d\r\n" % number
        )
    client.send(b"reserve\r\n" * 5)
    for number in range(1, 6):
        assert client.reply() == b"RESERVED %d %d\r\n%s\r\n" % (number, len(body), body)
    client.close()


@pytest.mark.one_in(3)
@WITH_AND_WITHOUT_EPOLL
@KINDS
def test_a_reserve_is_cancelled_by_what_comes_while_it_waits(server: ServerProcess) -> None:
    with Connection(server.port()) as connection:
        for wait in (b"reserve\r\n", b"put 0 0 9 1\r\nx\r\nwait-job 1 99\r\n"):
            connection.send(wait)
            # The server has carried out what came before when another connection is answered.
            assert server.connect().ask(b"list-tube-used\r\n") == b"USING default\r\n"
            connection.send(b"cancel-")
            assert server.connect().ask(b"list-tube-used\r\n") == b"USING default\r\n"
            connection.send(b"reserve\r\n")
        connection.send(b"quit\r\n")
        replies = connection.rest()
    assert replies == b"TIMED_OUT\r\nCANCELLED\r\nINSERTED 1\r\nTIMED_OUT\r\nCANCELLED\r\n"
