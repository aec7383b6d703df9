"""The client on real sockets, with our server and the real one."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred, gatherResults

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.endpoints import Backoff
from beanstalk_twisted.client.service import Client, Losses
from tests.client.test_announcement import CALLS
from tests.server_process import ServerProcess, theirs

MAX_JOB_BYTES = 3_000_000
Command = Callable[..., list[str]]


def ours(*options: object) -> list[str]:
    """Give the command that runs our server, without twistd's search for plugins."""
    return [sys.executable, "-m", "beanstalk_twisted", *map(str, options)]


EACH_SERVER = pytest.mark.parametrize("command", [ours, theirs], ids=["ours", "beanstalkd"])


@pytest.fixture(scope="module", params=[ours, theirs], ids=["ours", "beanstalkd"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """Run a server that the tests share; each has tubes of its own."""
    command = request.param("-p", 0, "-z", MAX_JOB_BYTES)
    with ServerProcess(command, tmp_path_factory.mktemp("server")) as running:
        yield running


def endpoint_of(server: ServerProcess) -> str:
    server.connect().close()
    return f"tcp:127.0.0.1:{server.port()}"


@asynccontextmanager
async def connected(endpoint: str, **options: Any) -> AsyncIterator[Client]:
    client = Client(endpoint, backoff=Backoff(lambda: 1.0, most_s=0.2), **options)
    client.startService()
    try:
        yield client
    finally:
        await client.stopService()


@pytest.mark.one_in(2)
async def test_all_commands_work(server: ServerProcess) -> None:
    async with connected(endpoint_of(server)) as client:
        await every_command(client)
        await client.quit()


async def every_command(client: Client) -> None:
    assert (await client.use("t"), await client.list_tube_used()) == ("t", "t")
    assert (await client.watch("t"), await client.ignore("default")) == (2, 1)
    assert await client.list_tubes_watched() == ("t",)
    assert {"default", "t"} <= set(await client.list_tubes())
    first = await client.put(b"\r\n\x00", priority=1)
    later = await client.put(b"", delay=100)
    assert (await client.peek_ready()).body == b"\r\n\x00"
    assert (await client.peek_delayed()).id == later
    job = await client.reserve()
    assert job.id == first
    stats = await client.stats_job(job)
    assert (stats.tube, stats.state, stats.pri, stats.reserves) == ("t", "reserved", 1, 1)
    await client.touch(job)
    await client.bury(job)
    assert await client.peek_buried() == job == await client.peek(first)
    assert await client.kick(9) == 1
    await client.kick_job(later)
    assert await client.reserve_job(later) == (later, b"")
    await client.release(later, priority=0, delay=50)
    await client.pause_tube("t", 1)
    assert (await client.stats_tube("t")).pause == 1
    with pytest.raises(errors.TimedOut):
        await client.reserve_with_timeout(0)
    await client.pause_tube("t", 0)
    assert await client.reserve_with_timeout(0) == job
    await client.delete(job)
    with pytest.raises(errors.NotFound):
        await client.delete(job)
    with pytest.raises(errors.NotIgnored):
        await client.ignore("t")
    with pytest.raises(errors.JobTooBig):
        await client.put(bytes(MAX_JOB_BYTES + 1))
    stats_of_server = await client.stats()
    assert stats_of_server.draining is False
    assert stats_of_server.max_job_size == MAX_JOB_BYTES
    await client.delete(later)


async def test_beanstalkd_is_sent_the_question_and_nothing_else(tmp_path: Path) -> None:
    with ServerProcess(theirs(), tmp_path) as server:
        async with connected(endpoint_of(server)) as client:
            job = await client.put(b"x")
            assert await client.probe() == frozenset()
            for name, call in CALLS.items():
                with pytest.raises(errors.NotAnnounced, match=f"^{name}: not sent: 127.0.0.1:"):
                    await call(client)
            stats = await client.stats()
            assert (stats.cmd_delete, stats.current_jobs_ready, stats.total_jobs) == (0, 1, 1)
            assert (stats.cmd_put, stats.cmd_watch) == (1, 0)
            assert await client.reserve() == (job, b"x")


async def test_a_deep_pipeline_of_large_and_small_jobs_goes_through(server: ServerProcess) -> None:
    async with connected(endpoint_of(server)) as client:
        await client.use("deep")
        await client.watch("deep")
        bodies = [b"%d" % number * (number % 7 * 100_000 + 1) for number in range(30)]
        puts = [client.put(body) for body in bodies]
        jobs = await gatherResults([client.reserve() for _ in bodies])
        assert await gatherResults(puts) == [job.id for job in jobs]
        assert [job.body for job in jobs] == bodies
        await gatherResults([client.delete(job) for job in jobs])


@pytest.mark.one_in(2)
@EACH_SERVER
async def test_a_server_killed_and_started_again_is_found(command: Command, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.mkdir()
    losses: list[Losses] = []
    with ServerProcess(command("-p", 0, "-b", log), tmp_path) as server:
        async with connected(endpoint_of(server), lost=losses.append) as client:
            await client.use("t")
            await client.watch("t")
            job = await client.put(b"x")
            await client.reserve()
            waiting = client.reserve()
            server.kill()
            put = client.put(b"y")
            with ServerProcess(command("-p", server.port(), "-b", log), tmp_path) as again:
                assert await waiting == (job, b"x")
                assert losses[0].reservations == (job,)
                await Deferred.fromCoroutine(put_again_if_lost(client, put))
                assert (await client.stats_tube("t")).current_jobs_ready == 1
                again.kill()


async def put_again_if_lost(client: Client, put: Deferred[Any]) -> None:
    """Whether a put reached a server that was killed, its client may not know."""
    try:
        await put
    except errors.Unanswered:
        await client.put(b"y")


@EACH_SERVER
async def test_a_unix_socket_works_too(command: Command, tmp_path: Path) -> None:
    socket = tmp_path / "socket"
    with ServerProcess(command("-l", f"unix:{socket}"), tmp_path):
        async with connected(f"unix:{socket}") as client:
            assert await client.put(b"x") == 1
            assert await client.reserve() == (1, b"x")
