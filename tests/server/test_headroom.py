"""Whether there is memory for another job."""

from __future__ import annotations

import pytest
from twisted.internet.address import IPv4Address

from beanstalk_twisted.jobs.figures import HOT_JOB_BYTES
from beanstalk_twisted.server.headroom import (
    AGAIN_S,
    CONNECTIONS_BYTES,
    COPIES,
    FRAMED_COPIES,
    HEADROOM_BYTES,
    LARGE_AGAIN_S,
    LOOK_BYTES,
    Headroom,
    can_have,
)
from beanstalk_twisted.testing.memory_server import MemoryServer
from tests.binlog.memory import MemoryDirectory


class Bench:
    """A process's memory."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.free = 1 << 40
        self.now_s = 100.0
        self.headroom = Headroom(self.has, lambda: self.now_s)

    def has(self, size: int) -> bool:
        self.asked.append(size)
        return size <= self.free


def test_the_kernel_is_asked_at_the_first_job_and_once_for_each_so_many_bytes() -> None:
    bench = Bench()
    jobs = LOOK_BYTES // (1000 + HOT_JOB_BYTES)
    assert all(bench.headroom.takes(1000) for _ in range(jobs + 1))
    assert bench.asked == [HEADROOM_BYTES + COPIES * 1000]
    assert bench.headroom.takes(1000)
    assert len(bench.asked) == 2


def test_while_it_is_closed_nothing_is_taken_and_that_is_counted() -> None:
    bench = Bench()
    assert bench.headroom.takes(10)
    bench.headroom.close(True)
    assert not bench.headroom.takes(10)
    assert not bench.headroom.takes_all(10, 10)
    assert not bench.headroom.takes(2 * LOOK_BYTES)
    assert bench.headroom.refused == 3
    bench.headroom.close(False)
    assert bench.headroom.takes(10)


@pytest.mark.parametrize("missing", [0, 1])
def test_what_waits_for_the_disk_and_the_job_itself_must_have_place_beside_it(missing: int) -> None:
    bench = Bench()
    bench.headroom.unsettled = lambda: 5000
    bench.free = HEADROOM_BYTES + COPIES * 15_000 - missing
    assert bench.headroom.takes(10_000) is not bool(missing)


def test_while_memory_is_short_it_is_asked_for_now_and_then_and_taken_when_it_is_there() -> None:
    bench = Bench()
    bench.free = 0
    assert not any(bench.headroom.takes(1) for _ in range(50))
    assert len(bench.asked) == 1
    bench.now_s += AGAIN_S
    assert not bench.headroom.takes(1)
    bench.free = 1 << 40
    assert not bench.headroom.takes(1)
    bench.now_s += AGAIN_S
    assert bench.headroom.takes(1)
    assert len(bench.asked) == 3


@pytest.mark.parametrize("past", [0, 1])
def test_what_is_too_large_for_the_memory_does_not_make_it_short_for_others(past: int) -> None:
    bench = Bench()
    bench.free = HEADROOM_BYTES + COPIES * LOOK_BYTES - 1
    assert not bench.headroom.takes(LOOK_BYTES + past)
    assert bench.headroom.takes(1) is bool(past)


def test_what_is_too_large_is_looked_for_now_and_then() -> None:
    bench = Bench()
    bench.free = HEADROOM_BYTES + COPIES * LOOK_BYTES
    size = 2 * LOOK_BYTES
    assert not any(bench.headroom.takes(size) for _ in range(50))
    assert bench.asked == [HEADROOM_BYTES + COPIES * size]
    bench.now_s += LARGE_AGAIN_S
    bench.free = 1 << 40
    assert bench.headroom.takes(size)


def test_so_much_is_kept_too_that_a_full_server_can_start_again() -> None:
    bench = Bench()
    headroom = bench.headroom
    headroom.largest = 0
    headroom.undurable = lambda: 70_000
    assert headroom.takes(1000)
    assert bench.asked == [HEADROOM_BYTES + FRAMED_COPIES * 71_000]
    headroom.largest = 200_000
    assert headroom.takes(LOOK_BYTES)
    assert bench.asked[1:] == [HEADROOM_BYTES + COPIES * LOOK_BYTES]
    assert headroom.takes(LOOK_BYTES - HOT_JOB_BYTES), "what the last look has found"
    assert headroom.takes(1000)
    assert bench.asked[2:] == [HEADROOM_BYTES + LOOK_BYTES], "the largest job so far"


def test_a_job_that_was_refused_is_none_that_a_start_has_to_read() -> None:
    bench = Bench()
    bench.headroom.largest = 100
    bench.free = HEADROOM_BYTES + 3 * COPIES
    assert not bench.headroom.takes(LOOK_BYTES)
    assert bench.headroom.largest == 100
    bench.free = 1 << 40
    bench.now_s += AGAIN_S
    assert bench.headroom.takes(LOOK_BYTES)
    assert bench.headroom.largest == LOOK_BYTES


def test_without_a_log_there_is_nothing_that_a_start_has_to_read() -> None:
    bench = Bench()
    bench.headroom.undurable = lambda: 1 << 30
    assert bench.headroom.takes(LOOK_BYTES)
    assert bench.headroom.takes(LOOK_BYTES - HOT_JOB_BYTES), "what the last look has found"
    assert bench.headroom.takes(1000)
    assert bench.asked[1:] == [HEADROOM_BYTES + COPIES * 1000]


def test_the_kernel_gives_what_there_is_and_not_more() -> None:
    assert can_have(1 << 20)
    assert not can_have(1 << 60)


class ShortServer(MemoryServer):
    """A server for which the kernel has no more."""

    def __init__(self) -> None:
        super().__init__(directory=MemoryDirectory(), max_job_bytes=1 << 20)
        self.bench = Bench()
        puts = self.service.queue.puts
        puts.memory = self.service.queue.memory = self.bench.headroom
        self.service.connections._headroom = self.bench.headroom

    def have(self, free: int) -> None:
        self.bench.free = free
        self.bench.now_s += AGAIN_S


def put(body: bytes) -> bytes:
    return b"put 0 0 60 %d\r\n%s\r\n" % (len(body), body)


def test_a_put_without_memory_is_refused_and_all_else_goes_on() -> None:
    server = ShortServer()
    one, two = server.connect(), server.connect()
    assert one.ask(put(b"a")) == b"INSERTED 1\r\n"
    server.have(0)
    server.bench.headroom._left = 0
    refused = one.ask(put(b"b") + b"list-tube-used\r\n" + put(b"c"))
    assert refused == b"OUT_OF_MEMORY\r\nUSING default\r\nOUT_OF_MEMORY\r\n"
    assert two.ask(b"reserve\r\ndelete 1\r\n") == b"RESERVED 1 1\r\na\r\nDELETED\r\n"
    server.have(1 << 40)
    assert one.ask(put(b"d")) == b"INSERTED 4\r\n"
    server.kill_and_restart()
    assert list(server.service.queue.state.jobs) == [4]


def test_a_body_that_comes_in_pieces_is_dropped_from_where_memory_ends() -> None:
    server = ShortServer()
    client = server.connect()
    client.send(b"put 0 0 60 1000\r\n" + b"x" * 100)
    server.have(0)
    server.bench.headroom._left = 0
    client.send(b"x" * 100)
    server.have(1 << 40)
    client.send(b"x" * 100)
    assert not client.take()
    assert client.ask(b"x" * 700 + b"\r\n" + put(b"b")) == b"OUT_OF_MEMORY\r\nINSERTED 2\r\n"


@pytest.mark.parametrize(("missing", "is_taken"), [(0, True), (1, False)])
def test_connections_are_taken_beyond_the_last_job_so_that_some_can_be_deleted(
    missing: int, is_taken: bool
) -> None:
    server = ShortServer()
    client = server.connect()
    server.have(CONNECTIONS_BYTES - missing)
    server.bench.headroom._left = 0
    assert client.ask(put(b"a")) == b"OUT_OF_MEMORY\r\n"
    address = IPv4Address("TCP", "127.0.0.1", 1)
    assert (server.service.factory.buildProtocol(address) is not None) is is_taken
    assert client.ask(b"list-tube-used\r\n") == b"USING default\r\n"
    server.have(1 << 40)
    assert client.ask(put(b"b")) == b"INSERTED 2\r\n"
    assert server.service.factory.buildProtocol(address) is not None
