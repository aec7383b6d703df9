"""The figures of the whole server."""

from __future__ import annotations

from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.web.overview import LOOK_TUBES, OldestReady, Overview
from tests.binlog.memory import MemoryDirectory


def test_jobs_are_told_by_state_and_what_has_ended() -> None:
    server = MemoryServer(directory=MemoryDirectory())
    overview = Overview(server.service)
    client = server.connect()
    for delay in (b"0", b"0", b"0", b"0", b"9"):
        client.ask(b"put 0 %s 60 1\r\na\r\n" % delay)
    for command in (b"reserve", b"delete 1", b"reserve", b"bury 2 0", b"reserve"):
        client.ask(command + b"\r\n")
    server.advance(2)
    figures = overview.figures()
    assert (figures.ready, figures.reserved, figures.delayed, figures.buried) == (1, 1, 1, 1)
    assert (figures.puts, figures.ended, figures.connections) == (5, 1, 1)
    assert figures.oldest_ms == 2000
    assert 0 < figures.live_bytes < figures.log_bytes


def test_without_a_log_there_is_no_size_of_it() -> None:
    figures = Overview(MemoryServer().service).figures()
    assert (figures.log_bytes, figures.live_bytes, figures.unsynced_ms) == (0, 0, 0)


def oldest_after(looks: int, server: MemoryServer) -> int:
    oldest = OldestReady(server.service.queue.state)
    return [oldest.look(server.service.now_ns()) for _ in range(looks)][-1]


def test_the_oldest_of_very_many_tubes_is_found_after_some_looks() -> None:
    server = MemoryServer()
    client = server.connect()
    lines = b"".join(
        b"use tube-%d\r\nput 0 %d 60 1\r\na\r\n" % (number, 0 if number > LOOK_TUBES else 9)
        for number in range(LOOK_TUBES + 2)
    )
    client.ask(lines)
    server.advance(3)
    assert oldest_after(1, server) == 0
    assert oldest_after(2, server) == 3_000_000_000


def test_an_oldest_job_that_is_gone_is_forgotten() -> None:
    server = MemoryServer()
    oldest = OldestReady(server.service.queue.state)
    client = server.connect()
    client.ask(b"put 0 0 60 1\r\na\r\n")
    server.advance(5)
    assert oldest.look(server.service.now_ns()) == 5_000_000_000
    client.ask(b"delete 1\r\n")
    assert oldest.look(server.service.now_ns()) == 0
