"""Policies of tubes, asked of a server: its lines, its log, its timer."""

from __future__ import annotations

import pytest

from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.wire.extensions import MAX_POLICY_LINE_BYTES
from tests.binlog.memory import MemoryDirectory
from tests.held_io import HeldIo, finish

SET = b"tube-policy default max-jobs=1 max-reserves=3\r\n"
SHOWN = (
    b"OK 82\r\n---\nmax-reserves: 3\nmax-reserves-from: command\nmax-jobs: 1\n"
    b"max-jobs-from: command\n\r\n"
)


@pytest.mark.parametrize(
    ("size", "reply"),
    [(224, b"POLICY"), (225, b"POLICY"), (MAX_POLICY_LINE_BYTES, b"POLICY"),
     (MAX_POLICY_LINE_BYTES + 1, b"BAD_FORMAT")],
)  # fmt: skip
def test_its_line_may_be_longer_up_to_a_limit(size: int, reply: bytes) -> None:
    client = MemoryServer().connect()
    assert (
        client.ask(b"tube-policy default" + b"rate=1\r\n".rjust(size - 19) + b"list-tube-used\r\n")
        == reply + b"\r\nUSING default\r\n"
    )


@pytest.mark.parametrize("jobs", [0, 400])
def test_it_outlives_segments_and_their_compaction(jobs: int) -> None:
    server = MemoryServer(directory=MemoryDirectory(), segment_bytes=8192)
    client = server.connect()
    client.ask(SET)
    client.ask(b"tube-policy other max-age=77 dead-letter=bad\r\nuse busy\r\n")
    for _ in range(jobs):
        client.ask(b"put 0 0 60 100\r\n%s\r\nreserve-job 1\r\n" % bytes(100))
        server.advance(0.01)
    client.ask(b"flush-tube busy\r\n")
    server.advance(1)
    is_compacted = b"binlog-oldest-index: 1\n" not in client.ask(b"stats\r\n")
    assert is_compacted is bool(jobs)
    assert server.directory is not None
    client = MemoryServer(directory=server.directory.after_kill()).connect()
    assert client.ask(b"tube-policy default\r\n") == SHOWN
    assert b"max-age: 77\n" in client.ask(b"tube-policy other\r\n")


def test_the_end_of_its_asker_does_not_end_the_count() -> None:
    server = MemoryServer()
    client, other = server.connect(), server.connect()
    for _ in range(100):
        client.ask(b"put 0 0 60 1\r\nx\r\n" * 200)
    client.send(b"tube-policy default max-bytes=20001\r\n")
    client.hang_up()
    server.advance()
    assert other.ask(b"put 0 0 60 1\r\nx\r\n").startswith(b"INSERTED")
    assert other.ask(b"put 0 0 60 1\r\nx\r\n") == b"OUT_OF_MEMORY\r\n"


@pytest.mark.parametrize("how", ["releases", "hangs up", "waits for its TTRs"])
def test_all_that_come_back_at_once_are_dead_letters_though_the_next_segments_are_to_be_made(
    how: str,
) -> None:
    io, jobs = HeldIo(), 300
    server = MemoryServer(directory=MemoryDirectory(), io=lambda: io, segment_bytes=8192)
    client, other = server.connect(), server.connect()

    client.send(b"tube-policy default max-reserves=1\r\n")
    finish(server, io)
    for _ in range(jobs):
        client.send(b"put 0 0 5 1\r\nx\r\n")
        finish(server, io)
    client.send(b"reserve-batch %d\r\n" % jobs)
    finish(server, io)
    if how == "releases":
        client.send(b"".join(b"release %d 0 0\r\n" % (number + 1) for number in range(jobs)))
    elif how == "hangs up":
        client.hang_up()
    else:
        server.advance(6)
    finish(server, io)
    assert b"current-jobs-buried: %d\n" % jobs in other.ask(b"stats\r\n")
