"""What somebody did is told: who, what, and how many jobs it changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from twisted.logger import LogEvent, capturedLogs, formatEvent
from twisted.python.failure import Failure

from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.rules.timekeeping import SLICE_JOBS
from beanstalk_twisted.server.audit import MAX_LINES, SECOND_S, Audit
from beanstalk_twisted.testing.memory_server import Client, MemoryServer
from beanstalk_twisted.wire.dialects import MODERN
from tests.binlog.memory import MemoryDirectory
from tests.held_io import HeldIo, finish

PUT = b"put 0 0 9 1\r\nx\r\n"


@pytest.fixture
def told() -> Iterator[Any]:
    with capturedLogs() as events:
        yield lambda: [line(event) for event in events if event["event"] == "audit"]


def line(event: LogEvent) -> str:
    """Give the text of an event, behind the number of jobs if it says one."""
    jobs = f"[{event['jobs']}] " if "jobs" in event else ""
    return f"{jobs}{formatEvent(event)}"


def buried(client: Client, count: int = 2) -> None:
    for job_id in range(1, count + 1):
        client.ask(PUT + b"reserve\r\nbury %d 0\r\n" % job_id)


def test_each_of_them_is_told_with_its_arguments_its_reply_and_its_jobs(told: Any) -> None:
    client = MemoryServer().connect()
    buried(client, 6)
    client.ask(
        b"kick 2\r\nkick-job 3\r\nkick-job 99\r\npause-tube default 7\r\npause-tube default 0\r\n"
        b"move-job 4 other\r\nupdate-job 5 9 0 60\r\nupdate-job 5 9 0 60 3\r\nabc\r\n"
        b"tube-policy default rate=7 max-jobs=5\r\nkick-dead default 10\r\n"
        b"flush-tube default buried\r\nflush-tube other\r\ndrain\r\nundrain\r\n"
        b"put 0 0 9 0\r\n\r\nreserve\r\ncancel-job 7\r\ncancel-job 7\r\n"
    )
    who = "127.0.0.1:1"
    assert told() == [
        f"[2] {who}: kick bound=2 tube=default: KICKED 2",
        f"[1] {who}: kick-job id=3: KICKED",
        f"[0] {who}: kick-job id=99: NOT_FOUND",
        f"[0] {who}: pause-tube tube=default pause=7: PAUSED",
        f"[0] {who}: pause-tube tube=default pause=0: PAUSED",
        f"[1] {who}: move-job id=4 tube=other: MOVED",
        f"[1] {who}: update-job id=5 pri=9 delay=0 ttr=60 bytes=0: UPDATED",
        f"[1] {who}: update-job id=5 pri=9 delay=0 ttr=60 bytes=3: UPDATED",
        f"[0] {who}: tube-policy tube=default policy=rate=7 max-jobs=5: POLICY",
        f"[0] {who}: kick-dead tube=default bound=10: KICKED 0",
        f"[2] {who}: flush-tube tube=default state=buried: FLUSHED 2",
        f"[1] {who}: flush-tube tube=other state=all: FLUSHED 1",
        f"[0] {who}: drain: DRAINING",
        f"[0] {who}: undrain: NOT_DRAINING",
        f"[1] {who}: cancel-job id=7: CANCELLED",
        f"[0] {who}: cancel-job id=7: NOT_FOUND",
    ]


def test_what_only_looks_puts_or_works_is_not_told(told: Any) -> None:
    server = MemoryServer()
    client = server.connect()
    client.ask(
        PUT + b"tube-policy default\r\nreserve\r\nrelease 1 0 0\r\nreserve\r\nbury 1 0\r\n"
        b"peek-buried\r\nlist-jobs default all 9\r\nlist-connections\r\ndelete-batch 1\r\nquit\r\n"
    )
    assert told() == []


def test_a_command_in_slices_is_told_when_it_is_answered(told: Any) -> None:
    server = MemoryServer()
    client = server.connect()
    client.send(PUT * (3 * SLICE_JOBS))
    server.advance(0.1)
    client.take()
    client.send(b"flush-tube default\r\n")
    assert told() == []
    server.advance(1)
    assert client.take() == b"FLUSHED %d\r\n" % (3 * SLICE_JOBS)
    assert told() == [
        f"[{3 * SLICE_JOBS}] 127.0.0.1:1: flush-tube tube=default state=all: "
        f"FLUSHED {3 * SLICE_JOBS}"
    ]


def test_one_whose_connection_ends_before_it_is_answered_is_told_all_the_same(told: Any) -> None:
    server = MemoryServer()
    client = server.connect()
    client.send(PUT * (3 * SLICE_JOBS))
    server.advance(0.1)
    client.send(b"flush-tube default\r\n")
    client.hang_up()
    server.advance(1)
    assert server.service.context.late == {}
    assert told() == [
        "[0] 127.0.0.1:1: flush-tube tube=default state=all: no answer, the connection ended"
    ]


def test_more_than_a_person_does_in_a_second_is_summed_by_host_and_command(told: Any) -> None:
    server = MemoryServer()
    client, other = server.connect(), server.connect()
    buried(client, MAX_LINES + 9)
    for job_id in range(1, MAX_LINES + 1):
        client.ask(b"kick-job %d\r\n" % job_id)
    assert len(told()) == MAX_LINES
    client.ask(b"kick 2\r\nkick 1\r\nkick 0\r\n")
    other.ask(b"kick 1\r\ndrain\r\nundrain\r\n")
    assert len(told()) == MAX_LINES
    server.advance(SECOND_S)
    assert told()[MAX_LINES:] == [
        "[4] 127.0.0.1: kick 4 more times in this second, 4 jobs changed",
        "[0] 127.0.0.1: drain 1 more times in this second, 0 jobs changed",
        "[0] 127.0.0.1: undrain 1 more times in this second, 0 jobs changed",
    ]
    client.ask(b"kick 1\r\n")
    assert told()[-1] == "[1] 127.0.0.1:1: kick bound=1 tube=default: KICKED 1"
    server.advance(10 * SECOND_S)
    assert server.clock.getDelayedCalls() == []


def test_one_host_hides_no_other_one(told: Any) -> None:
    server = MemoryServer(is_started=False)
    server.start()
    context = server.service.context
    context.methods["drain"] = server.service.queue.puts.drain
    audit = Audit(server.clock, context, lambda session: f"10.0.0.{session.number}:7")
    audit.watch([row for row in MODERN.rows if row.name == "drain"])
    busy, other = server.connect(), server.connect()
    busy.ask(b"drain\r\n" * (MAX_LINES + 1))
    other.ask(b"drain\r\n")
    assert told()[-1] == "[0] 10.0.0.2:7: drain: DRAINING"
    audit.stop()
    assert told()[-1] == "[0] 10.0.0.1: drain 1 more times in this second, 0 jobs changed"


def test_a_stop_tells_what_was_summed_and_leaves_no_timer(told: Any) -> None:
    server = MemoryServer()
    server.connect().ask(b"kick 1\r\n" * (MAX_LINES + 3))
    server.service.audit.stop()
    server.service.audit.stop()
    assert told()[-1] == "[0] 127.0.0.1: kick 3 more times in this second, 0 jobs changed"
    assert server.clock.getDelayedCalls() == []


def test_with_a_log_a_line_does_not_wait_for_the_disk(told: Any) -> None:
    io = HeldIo()
    server = MemoryServer(directory=MemoryDirectory(), io=lambda: io)
    finish(server, io)
    assert server.connect().ask(b"pause-tube default 9\r\n") == b""
    assert told() == ["[0] 127.0.0.1:1: pause-tube tube=default pause=9: PAUSED"]


class Unwritable:
    """An address of a peer that cannot be told."""

    def __call__(self, session: Session) -> str:
        raise OverflowError("no such address")


def test_what_cannot_be_told_costs_a_line_and_not_the_server(
    clean_reactor: list[Failure],
) -> None:
    server = MemoryServer(directory=MemoryDirectory())
    server.advance()
    server.service.context.methods["drain"] = server.service.queue.puts.drain
    audit = Audit(server.clock, server.service.context, Unwritable())
    audit.watch([row for row in MODERN.rows if row.name == "drain"])
    client = server.connect()
    with capturedLogs() as events:
        assert client.ask(b"drain\r\nundrain\r\n") == b"DRAINING\r\nNOT_DRAINING\r\n"
    assert [event["event"] for event in events] == ["drain", "audit-lost", "undrain", "audit"]
    (failure,) = clean_reactor
    assert isinstance(failure.value, OverflowError)
    clean_reactor.clear()
