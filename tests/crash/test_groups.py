"""A group ends, and the process is killed or the power lost at some moment: those that wait for the
group wait as long as it has a job, go when it has none, and none is forgotten.
"""

from __future__ import annotations

import pytest

from beanstalk_twisted.binlog.records.jobs import State
from beanstalk_twisted.rules.timekeeping import RELEASED_JOBS
from beanstalk_twisted.testing.memory_server import MemoryServer
from tests.binlog.memory import MemoryDirectory

COUNT = RELEASED_JOBS + 7
BATCH = 500


def with_group() -> MemoryServer:
    """Give a server with a job of a group, and many that wait for the group."""
    server = MemoryServer(directory=MemoryDirectory())
    client = server.connect()
    assert client.ask(b"put 0 0 60 1 grp:g\r\nx\r\n") == b"INSERTED 1\r\n"
    for start in range(0, COUNT, BATCH):
        count = min(BATCH, COUNT - start)
        reply = client.ask(b"put-batch %d\r\n" % count + count * b"0 0 60 1 aft:g\r\nx\r\n")
        assert reply.startswith(b"INSERTED_BATCH ")
    return server


def counts(server: MemoryServer) -> tuple[int, int]:
    state = server.service.queue.state
    return state.counts[State.READY], state.counts[State.DELAYED]


@pytest.mark.parametrize("is_power_lost", [False, True], ids=["kill", "power loss"])
def test_whenever_it_ends_all_that_wait_go_with_the_last_job(is_power_lost: bool) -> None:
    seen = set()
    for ticks in range(4):
        server = with_group()
        client = server.connect()
        client.send(b"delete 1\r\n")
        for _ in range(ticks):
            server.service.queue.tick(server.service.clock.now_ns())
        if ticks % 2:
            server.advance()
        told = client.take()
        server.kill()
        if is_power_lost:
            assert server.directory is not None
            server.directory = server.directory.after_power_loss()
        server.start()
        server.advance()
        is_deleted = 1 not in server.service.queue.state.jobs
        assert is_deleted or told != b"DELETED\r\n"
        assert counts(server) == ((COUNT, 0) if is_deleted else (1, COUNT))
        seen.add(is_deleted)
        if is_deleted:
            server.kill_and_restart()
            assert counts(server) == (COUNT, 0)
    assert seen == {False, True}
