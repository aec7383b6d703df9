"""Connections that wait: for a job, or for the end of one; and how they take that back."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.logger import capturedLogs

from beanstalk_twisted.testing.memory_server import Client, MemoryServer
from tests.binlog.memory import MemoryDirectory
from tests.held_io import HeldIo, finish
from tests.server.connections.test_protocol import everything
from tests.server.test_service import BusyServer

PUT = b"put 0 0 9 1\r\nx\r\n"
INSERTED = b"INSERTED 1\r\n"
CANCEL = b"cancel-reserve\r\n"
CANCELLED = b"TIMED_OUT\r\nCANCELLED\r\n"

WAITS = {
    "reserve": b"reserve\r\n",
    "reserve-with-timeout": b"reserve-with-timeout 100\r\n",
    "wait-job": b"wait-job 1 100\r\n",
}
EACH_WAIT = pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)


@pytest.fixture
def server() -> MemoryServer:
    server = MemoryServer()
    server.connect().ask(PUT + b"reserve\r\n")
    return server


def logged(io: HeldIo) -> MemoryServer:
    server = MemoryServer(directory=MemoryDirectory(), io=lambda: io)
    finish(server, io)
    return server


def waiting(server: MemoryServer, wait: bytes) -> Client:
    client = server.connect()
    assert client.ask(wait) == b""
    return client


@EACH_WAIT
def test_a_wait_is_cancelled(server: MemoryServer, wait: bytes) -> None:
    assert waiting(server, wait).ask(CANCEL) == CANCELLED


def test_where_nothing_waits_nothing_is_cancelled(server: MemoryServer) -> None:
    assert server.connect().ask(CANCEL * 2) == b"CANCELLED\r\n" * 2


CONVERSATION = (
    b"reserve\r\ncancel-reserve\r\nput 0 0 9 1\r\nx\r\nwait-job 1 5\r\ncancel-reserve\r\n"
    b"cancel-reserve\r\nreserve\r\ncancel-reserve\r\nwait-job 2 5\r\nwait-job 1 0\r\n"
    b"reserve-with-timeout 5\r\ncancel-reserve\r\ndelete 1\r\nwait-job 1 5\r\n"
)
REPLIES = (
    b"TIMED_OUT\r\nCANCELLED\r\nINSERTED 1\r\nTIMED_OUT\r\nCANCELLED\r\n"
    b"CANCELLED\r\nRESERVED 1 1\r\nx\r\nCANCELLED\r\nNOT_FOUND\r\nTIMED_OUT\r\n"
    b"TIMED_OUT\r\nCANCELLED\r\nDELETED\r\nNOT_FOUND\r\n"
)


@given(st.sets(st.integers(1, len(CONVERSATION) - 1)))
def test_it_is_understood_in_whatever_packets_it_comes(places: set[int]) -> None:
    client = MemoryServer().connect()
    ends = [0, *sorted(places), len(CONVERSATION)]
    said = [client.ask(CONVERSATION[start:end]) for start, end in pairwise(ends)]
    assert b"".join(said) == REPLIES


@EACH_WAIT
@pytest.mark.parametrize(
    "line", [b"list-tube-used\r\n", b"cancel-reserve 1\r\n", b"foo\r\n", b" \r\n", b"\r\n"]
)
def test_only_the_next_command_cancels(server: MemoryServer, wait: bytes, line: bytes) -> None:
    client = waiting(server, wait + line)
    assert client.ask(CANCEL) == b""
    client.half_close()
    server.advance()
    assert client.take().startswith(b"TIMED_OUT\r\n")


@pytest.mark.parametrize("line", [b"cancel-reserve", b"cancel-reserve\n", b"cancel-reserve\r"])
def test_a_line_that_has_not_ended_cancels_nothing(server: MemoryServer, line: bytes) -> None:
    assert waiting(server, b"reserve\r\n").ask(line) == b""


def test_thousands_of_cancelled_waits_in_one_go_are_answered_in_order(
    server: MemoryServer,
) -> None:
    waits = b"reserve\r\ncancel-reserve\r\nwait-job 1 9\r\ncancel-reserve\r\n" * 5_000
    assert everything(server, server.connect(), waits) == CANCELLED * 10_000


def test_a_job_that_was_handed_out_before_is_not_lost() -> None:
    io = HeldIo()
    server = logged(io)
    client = waiting(server, b"reserve\r\n")
    server.connect().send(PUT)
    assert client.ask(CANCEL + b"delete 1\r\n") == b"", "the job is not on the disk"
    finish(server, io)
    assert client.take() == b"RESERVED 1 1\r\nx\r\nCANCELLED\r\nDELETED\r\n"


def test_nothing_is_cancelled_in_a_server_that_stops() -> None:
    io = HeldIo()
    server = logged(io)
    client = waiting(server, b"reserve\r\n")
    server.connect().send(b"use a\r\n" + PUT)
    stopped = server.stop()
    client.send(CANCEL)
    finish(server, io)
    assert stopped.called
    assert (client.take(), client.is_closed) == (b"", True)


@EACH_WAIT
@pytest.mark.parametrize("commands", range(12))
def test_who_waits_is_read_wherever_its_share_was_used_up(wait: bytes, commands: int) -> None:
    server = BusyServer()
    server.connect().ask(PUT + b"reserve\r\n")
    client = server.connect()
    client.send(b"list-tube-used\r\n" * commands + wait + CANCEL[:3])
    server.advance()
    assert client.take() == b"USING default\r\n" * commands
    assert client.transport.is_reading
    client.send(CANCEL[3:])
    server.advance()
    assert client.take() == CANCELLED


@EACH_WAIT
def test_a_hang_up_is_noticed_at_once(server: MemoryServer, wait: bytes) -> None:
    client = waiting(server, wait)
    client.send(b"cancel")
    client.hang_up()
    assert server.service.queue.state.awaited == {}
    assert server.service.queue.tally.waiting == 0
    assert b"current-connections: 2\n" in server.connect().ask(b"stats\r\n")


@EACH_WAIT
def test_a_half_close_ends_the_wait(server: MemoryServer, wait: bytes) -> None:
    client = waiting(server, wait + b"list-tube-used\r\n" + wait)
    client.half_close()
    server.advance()
    assert client.take() == b"TIMED_OUT\r\nUSING default\r\nTIMED_OUT\r\n"
    assert client.is_closed


@pytest.mark.parametrize(
    ("change", "reply"), [(b"delete 1\r\n", b"DELETED\r\n"), (b"bury 1 0\r\n", b"BURIED\r\n")]
)
def test_nobody_hears_of_an_end_that_a_crash_could_undo(change: bytes, reply: bytes) -> None:
    io = HeldIo()
    server = logged(io)
    worker = server.connect()
    worker.send(PUT + b"reserve\r\n")
    finish(server, io)
    worker.take()
    early = waiting(server, b"wait-job 1 100\r\n")
    assert worker.ask(change) == b""
    late = waiting(server, b"wait-job 1 100\r\n")
    assert early.take() == b""
    finish(server, io)
    assert early.take() == reply
    assert late.take() == (b"NOT_FOUND\r\n" if reply == b"DELETED\r\n" else reply)


def test_the_log_of_commands_has_them_in_the_order_they_are_carried_out() -> None:
    server = MemoryServer(is_started=False)
    server.settings = server.settings._replace(verbosity=2)
    server.start()
    client = waiting(server, b"reserve\r\n")
    with capturedLogs() as events:
        assert client.ask(CANCEL + b"wait-job 1 5\r\n") == CANCELLED + b"NOT_FOUND\r\n"
    told = [event["line"] for event in events if "line" in event]
    assert told == ["cancel-reserve", "wait-job 1 5"]


def test_the_log_says_when_new_jobs_are_refused_and_when_no_longer() -> None:
    server = MemoryServer()
    client = server.connect()
    with capturedLogs() as events:
        client.ask(b"undrain\r\ndrain\r\ndrain\r\nundrain\r\n")
        server.service.drain()
    told = [event for event in events if event["event"] != "audit"]
    assert [event["log_format"] for event in told] == [
        "draining: new jobs are refused",
        "draining has ended: new jobs are taken",
        "draining: new jobs are refused",
    ]
