"""What the log says of wrong lines, slow commands and short memory."""

from __future__ import annotations

from typing import Any

import pytest

from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.server.anomalies import MS, Anomalies
from beanstalk_twisted.server.connections.epoll_reader import was_slow
from beanstalk_twisted.server.settings import DEFAULT_SLOW_MS
from beanstalk_twisted.storage.repeats import TELL_S
from beanstalk_twisted.testing.memory_server import MemoryServer
from tests.binlog.memory import MemoryDirectory
from tests.held_io import HeldIo

PUT = b"put 0 0 9 1\r\nx\r\n"


WRONG = {
    b"bogus\r\n": "UNKNOWN_COMMAND to a line of 5 bytes",
    b"put 1 2 x\r\n": "BAD_FORMAT to put 1 2 (1 bytes)",
    b"put 0 0 1 1 junk\r\n": "BAD_FORMAT to put 0 0 1 1 (4 bytes)",
    b"put 0 0 1 99999999\r\n" + b"x" * 100_000_001: "JOB_TOO_BIG to put 0 0 1 99999999",
    b"put 0 0 1 1\r\nxyz": "EXPECTED_CRLF to put 0 0 1 1",
    b"put-at 0 0 1 1\r\nxyz": "EXPECTED_CRLF to put-at 0 0 1 1",
    b"put-batch 0\r\n": "BAD_FORMAT to put-batch 0",
    b"delete-batch " + b"x" * 30_000 + b"\r\n": "BAD_FORMAT to delete-batch (211 bytes)",
    b"x" * 500 + b"\r\n": "BAD_FORMAT to a line of 224 bytes",
    b"put 0 0 1 5 " + b"1 " * 50 + b"\r\n": "BAD_FORMAT to put 0 0 1 5 " + "1 " * 34,
    b"use " + b"7" * 11 + b"!\r\n": "BAD_FORMAT to use (12 bytes)",
    b"delete 12345678901x 1234567890\r\n": "BAD_FORMAT to delete (12 bytes) 1234567890",
    b"\x1b[2J\r\n": "UNKNOWN_COMMAND to a line of 4 bytes",
}


@pytest.mark.parametrize("sent", WRONG, ids=[repr(each[:20]) for each in WRONG])
def test_a_wrong_line_is_told_with_its_peer_and_its_reply(sent: bytes, told: Any) -> None:
    server = MemoryServer()
    server.connect().send(sent)
    server.advance(1)
    assert told("client-error") == [f"127.0.0.1:1: {WRONG[sent]}"]


def test_a_body_that_came_in_pieces_and_ends_wrongly_is_told(told: Any) -> None:
    client = MemoryServer().connect()
    client.send(b"put 0 0 1 4\r\nab")
    client.send(b"cdefgh")
    assert told("client-error") == ["127.0.0.1:1: EXPECTED_CRLF to put 0 0 1 4"]


SECRET = b"hunter2swordfish"

LEAKS = [
    b"put 0 0 60 3\r\n" + SECRET + b" " + SECRET + b"\r\n",
    b"put 0 0 x 3\r\n" + SECRET + b"\r\n",
    b"put 0 0 60 3 " + SECRET + b"\r\n",
    SECRET + b"\r\n",
    b"delete " + SECRET + b"\r\n",
    b"put 0 0 60 1 idp:" + SECRET + b":x\r\nx\r\n",
    b"use -" + SECRET + b"\r\n",
    b"stats-job 4111111111111111 " + SECRET + b"\r\n",
    b"x" * 300 + SECRET + b"\r\n",
]


@pytest.mark.parametrize("sent", LEAKS, ids=[repr(each[:20]) for each in LEAKS])
def test_what_may_be_a_body_a_key_or_a_token_is_not_shown(sent: bytes, told: Any) -> None:
    server = MemoryServer()
    server.connect().send(sent)
    server.stop()
    said = told("client-error")
    assert said and not any(each in line for line in said for each in (SECRET.decode(), "4111"))


def test_what_is_right_or_has_no_room_is_not_told(told: Any) -> None:
    server = MemoryServer()
    client = server.connect()
    client.ask(PUT + b"delete 9\r\nstats\r\n")
    server.service._headroom._has = lambda size: False
    client.send(PUT)
    assert told("client-error") == []


def test_many_wrong_lines_are_told_once_a_minute(told: Any) -> None:
    server = MemoryServer()
    client = server.connect()
    client.send(b"nonsense\r\n" * 1000)
    client.send(b"bogus\r\n")
    server.advance(1)
    assert len(told("client-error")) == 1
    server.advance(TELL_S)
    assert told("client-error")[1:] == [
        "127.0.0.1:1: UNKNOWN_COMMAND to a line of 5 bytes; the newest of 1000 since the last "
        "such line"
    ]
    server.advance(TELL_S)
    assert server.clock.getDelayedCalls() == []


class SlowServer(MemoryServer):
    """A server on which one look at the clock, when a command has been carried out, takes long."""

    looks = 0
    waste_ms = 0

    def _now_ns(self) -> int:
        self.looks += 1
        return super()._now_ns() + (self.waste_ms * MS if self.looks > 1 else 0)


@pytest.mark.parametrize(
    ("limit_ms", "ms", "line", "what"),
    [
        (DEFAULT_SLOW_MS, DEFAULT_SLOW_MS, b"list-tube-used", None),
        (DEFAULT_SLOW_MS, DEFAULT_SLOW_MS + 1, b"list-tube-used", "list-tube-used"),
        (DEFAULT_SLOW_MS, 500, b"bogus", "a wrong line"),
        (0, 100_000, b"list-tube-used", None),
    ],
)
def test_a_command_that_takes_longer_than_the_limit_is_told(
    limit_ms: int, ms: int, line: bytes, what: str | None, told: Any
) -> None:
    server = SlowServer(is_started=False)
    server.settings = server.settings._replace(slow_ms=limit_ms)
    server.start()
    client = server.connect()
    server.looks, server.waste_ms = 0, ms
    assert client.ask(line + b"\r\n") in (b"USING default\r\n", b"UNKNOWN_COMMAND\r\n")
    words = f"{what} of connection 1 (127.0.0.1:1) kept all others waiting for {ms} ms"
    assert told("slow-command") == [words] * (what is not None)


def test_many_slow_commands_are_told_once_a_minute_by_the_slowest(told: Any) -> None:
    server = SlowServer()
    client = server.connect()
    for server.waste_ms in (200, 300, 900, 400):
        server.looks = 0
        client.ask(b"list-tube-used\r\n")
    server.waste_ms = 0
    server.advance(TELL_S)
    assert [each.partition("waiting ")[2] for each in told("slow-command")] == [
        "for 200 ms",
        "for 900 ms; the slowest of 3 since the last such line",
    ]


def test_short_memory_is_told_at_once_and_its_end_after_a_minute(told: Any) -> None:
    server = MemoryServer()
    changed = server.service._headroom.changed
    changed(True)
    assert len(told("memory-short")) == 1
    changed(False)
    changed(True)
    changed(False)
    assert len(told("memory-short")) == 1 and told("memory-again") == []
    server.advance(TELL_S)
    assert told("memory-again") == [
        "there is memory again since a minute: new jobs are taken (it was short 2 times)"
    ]


def test_a_stop_tells_what_was_counted_and_leaves_no_timer(told: Any) -> None:
    server = MemoryServer()
    server.connect().send(b"bogus\r\n" * 5)
    server.service._headroom.changed(True)
    server.service._headroom.changed(False)
    server.stop()
    server.advance()
    assert len(told("client-error")) == 2
    assert server.clock.getDelayedCalls() == []


def no_memory(session: Session) -> str:
    """Say who is at the other end, where there is no memory for it."""
    raise MemoryError


def test_a_wrong_line_is_answered_also_where_there_is_no_memory_to_tell_of_it(told: Any) -> None:
    server = MemoryServer(directory=MemoryDirectory())
    server.advance()
    server.service.context.wrong = Anomalies(
        server.clock, no_memory, server.service.memory
    ).note_wrong
    assert server.connect().ask(b"bogus\r\nuse a\r\n") == b"UNKNOWN_COMMAND\r\nUSING a\r\n"
    assert told("client-error") == []


def test_a_connection_that_has_ended_in_its_slow_command_is_not_asked_for_it() -> None:
    was_slow(object(), 10**9)


@pytest.mark.parametrize(("clients", "who"), [(1, "1 connection"), (2, "2 connections")])
def test_who_has_waited_for_a_slow_sync_is_counted(told: Any, clients: int, who: str) -> None:
    io, directory = HeldIo(), MemoryDirectory()
    server = MemoryServer(directory=directory, io=lambda: io)
    waiting = [server.connect() for _ in range(clients)]
    for client in waiting:
        client.send(b"put 1 0 60 1\r\na\r\n")
    server.advance()

    def takes(operation: str, name: str) -> None:
        server.clock.rightNow += 0.25 if operation == "sync" else 0.0

    directory.fault = takes
    while io:
        io.step()
    [line] = told("fsync-slow")
    assert f"; {who} waited up to 250 ms for the disk" in line
