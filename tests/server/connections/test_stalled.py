"""Connections that have begun a command and do not go on."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.task import Clock

from beanstalk_twisted.server.connections.accepting import (
    LEAST_RATE,
    LOOKS,
    SLICE_CONNECTIONS,
    StalledInput,
)
from beanstalk_twisted.server.settings import DEFAULT_STALLED_S, Limits
from beanstalk_twisted.storage.clock import NS
from beanstalk_twisted.testing.memory_server import OUTPUT_LIMIT_BYTES, MemoryServer

LIMIT_S = DEFAULT_STALLED_S
CLOSED_AFTER_S = LIMIT_S + LIMIT_S / LOOKS
ENOUGH = LEAST_RATE * LIMIT_S

LARGE = 10 * ENOUGH

BEGUN = {
    "a line": b"put 0 0 60",
    "one byte": b"p",
    "a CR": b"list-tubes\r",
    "behind others": b"use a\r\nuse b\r\nuse",
    "a put": b"put 0 0 60 10\r\n",
    "a body": b"put 0 0 60 10\r\nhello",
    "a body's end": b"put 0 0 60 5\r\nhello\r",
    "a body that is too large": b"put 0 0 60 1000000000\r\nhello",
    "a body with tags": b"put 0 0 60 10 idp:x\r\nhello",
    "a batch": b"put-batch 2\r\n0 0 60 1\r\nx\r\n",
    "a line of a batch": b"put-batch 2\r\n0 0 60 1\r\nx\r\n0 0",
    "an update": b"update-job 1 0 0 60 5\r\nhe",
    "a line that is too long": b"x" * 500,
    "a long line": b"delete-batch " + b"1 " * 200,
}
BEGUN_CASES = pytest.mark.parametrize("begun", BEGUN.values(), ids=BEGUN)


def serve(limit_s: int = LIMIT_S) -> MemoryServer:
    server = MemoryServer(max_job_bytes=LARGE, is_started=False)
    server.settings = server.settings._replace(limits=Limits(stalled_s=limit_s))
    server.start()
    return server


@BEGUN_CASES
def test_what_was_begun_and_does_not_go_on_ends_its_connection(begun: bytes, told: Any) -> None:
    server = serve()
    client = server.connect()
    client.send(begun)
    server.advance(LIMIT_S - 1)
    assert not client.is_closed
    server.advance(CLOSED_AFTER_S - LIMIT_S + 1)
    assert client.is_closed
    assert server.service.connections.stalled == 1
    assert told("connections-stalled") == [
        "127.0.0.1:1 was closed: the rest of a command that it had begun did not come within "
        f"{LIMIT_S} s; its jobs are ready again"
    ]
    server.advance(60)
    assert server.clock.getDelayedCalls() == [], "no timer is left"


@BEGUN_CASES
def test_bytes_one_by_one_do_not_keep_it(begun: bytes) -> None:
    server = serve()
    client = server.connect()
    client.send(begun[:-1])
    for _ in range(int(CLOSED_AFTER_S)):
        client.send(b"x")
        server.advance(1)
    assert client.is_closed


@BEGUN_CASES
def test_without_a_timeout_it_is_waited_for_for_ever(begun: bytes) -> None:
    server = serve(0)
    client = server.connect()
    client.send(begun)
    server.advance(1_000_000)
    assert not client.is_closed
    assert server.clock.getDelayedCalls() == []


@pytest.mark.parametrize(
    "waiting",
    [b"", b"reserve\r\n", b"reserve\r\nput 0 0 60 5\r\nhe", b"reserve\r\nuse", b"use a\r\n"],
    ids=["idle", "reserve", "half a put behind a reserve", "half a line behind one", "answered"],
)
def test_who_waits_or_is_idle_is_left_alone(waiting: bytes) -> None:
    server = serve()
    client = server.connect()
    client.send(waiting)
    server.advance(3600)
    assert not client.is_closed


def test_what_stands_behind_a_reserve_has_its_time_from_the_job_on() -> None:
    server = serve()
    client, other = server.connect(), server.connect()
    client.send(b"reserve\r\nput 0 0 60 5\r\nhe")
    server.advance(3600)
    other.ask(b"put 0 0 9999 1\r\nx\r\n")
    server.advance(LIMIT_S - 1)
    assert client.take() == b"RESERVED 1 1\r\nx\r\n"
    assert client.ask(b"llo\r\ndelete 2\r\n") == b"INSERTED 2\r\nDELETED\r\n"
    server.advance(3600)
    assert not client.is_closed
    client.send(b"reserve-with-timeout 5\r\nuse")
    client.send(b" a")
    server.advance(5 + LIMIT_S - 1)
    assert not client.is_closed
    server.advance(CLOSED_AFTER_S - LIMIT_S + 1)
    assert client.is_closed


def test_who_does_not_read_is_left_alone_as_before() -> None:
    server = serve()
    client = server.connect()
    client.ask(b"put 0 0 60 50000\r\n" + bytes(50_000) + b"\r\n")
    client.send(b"peek 1\r\n" * (OUTPUT_LIMIT_BYTES // 50_000 + 2) + b"use")
    server.advance(3600)
    assert not client.is_closed
    assert client.take().count(b"FOUND") > 1
    server.advance(CLOSED_AFTER_S)
    assert client.is_closed


@pytest.mark.parametrize(("past", "is_closed"), [(0, False), (1, True)])
def test_a_large_body_may_take_long_if_enough_of_it_comes(past: int, is_closed: bool) -> None:
    server = serve()
    client = server.connect()
    client.send(b"put 0 0 60 %d\r\n" % LARGE)
    for _ in range(LARGE // ENOUGH - 1):
        server.advance(LIMIT_S / 2)
        client.send(bytes(ENOUGH - past))
        if past:
            # What is missing in one timeout is not made up for by what came before.
            server.advance(CLOSED_AFTER_S / 2)
    assert client.is_closed is is_closed
    if not is_closed:
        assert client.ask(bytes(ENOUGH) + b"\r\n") == b"INSERTED 1\r\n"


class Owing:
    """A connection that owes something since then."""

    def __init__(self, since_ns: int | None = 0) -> None:
        self.since_ns = since_ns
        self.looks = 0

    def owes_since(self, now_ns: int) -> int | None:
        self.looks += 1
        return self.since_ns


class Bench:
    """A timeout of 8 seconds."""

    def __init__(self, limit_s: float = 8) -> None:
        self.clock = Clock()
        self.closed: list[Any] = []
        self.looks = 0
        self.stalled = StalledInput(self.clock, self.now_ns, limit_s, self.close)

    def now_ns(self) -> int:
        self.looks += 1
        return round(self.clock.seconds() * NS)

    def close(self, connection: Any) -> None:
        self.closed.append(connection)
        self.stalled.forget(connection)

    def note(self, connection: Owing) -> Owing:
        self.stalled.note(connection)  # type: ignore[arg-type]
        return connection


def test_there_is_one_timer_for_all_and_none_when_nobody_owes_anything() -> None:
    bench = Bench()
    assert bench.clock.getDelayedCalls() == []
    owing = [bench.note(Owing(10 * NS)) for _ in range(5)]
    assert len(bench.clock.getDelayedCalls()) == 1
    for each in owing:
        each.since_ns = None
    bench.clock.advance(8 / LOOKS)
    assert [each.looks for each in owing] == [1] * 5
    assert bench.clock.getDelayedCalls() == [] and bench.closed == []


def test_who_is_at_the_limit_is_closed_and_who_is_not_there_yet_looked_at_again() -> None:
    bench = Bench()
    at, before = bench.note(Owing(0)), bench.note(Owing(1))
    for _ in range(LOOKS):
        assert bench.closed == []
        bench.clock.advance(8 / LOOKS)
    assert bench.closed == [at]
    bench.clock.advance(8 / LOOKS)
    assert bench.closed == [at, before]
    assert bench.clock.getDelayedCalls() == []


def test_many_are_looked_at_in_slices() -> None:
    bench = Bench()
    owing = [bench.note(Owing(10**6 * NS)) for _ in range(2 * SLICE_CONNECTIONS + 1)]
    bench.clock.advance(8 / LOOKS)
    assert [each.looks for each in owing] == [1] * len(owing)
    assert bench.looks == 3
    (timer,) = bench.clock.getDelayedCalls()
    assert timer.getTime() == bench.clock.seconds() + 8 / LOOKS


def test_a_stop_leaves_no_timer_and_nothing_begins_one() -> None:
    bench = Bench()
    bench.note(Owing())
    bench.stalled.stop()
    bench.note(Owing())
    assert bench.clock.getDelayedCalls() == []
