"""What only the client for asyncio has: cancelled commands, tasks that share it, jobs as blocks."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from beanstalk_twisted.client import aio, errors, sync
from beanstalk_twisted.testing import BeanstalkServer

Talk = Callable[[aio.Client, BeanstalkServer], Coroutine[Any, Any, None]]


@pytest.fixture(params=["real", "held"])
def server(request: pytest.FixtureRequest) -> Iterator[BeanstalkServer]:
    """The double, with a clock that runs and with one that stands still."""
    with BeanstalkServer(clock=request.param) as running:
        yield running


def talked(talk: Talk) -> Callable[[BeanstalkServer], None]:
    """Run a coroutine as a test: the loop is made after the double."""

    def run(server: BeanstalkServer) -> None:
        async def main() -> None:
            async with asyncio.timeout(60), aio.Client(f"127.0.0.1:{server.port}") as client:
                await talk(client, server)

        asyncio.run(main())

    return run


def test_it_imports_no_twisted() -> None:
    code = (
        "import sys, beanstalk_twisted.client.aio\n"
        "print(*{name.partition('.')[0] for name in sys.modules} & {'twisted', 'zope'})"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "\n"


def test_the_double_is_made_while_a_loop_runs() -> None:
    async def main() -> None:
        with BeanstalkServer() as server:
            async with aio.Client(f"127.0.0.1:{server.port}") as client:
                server.put("hello")
                assert (await client.reserve()).body == b"hello"
                waiting = client.reserve_with_timeout(5)
                await asyncio.to_thread(server.wait_until, lambda: server.waiting() == 1)
                server.advance(5)
                with pytest.raises(errors.TimedOut):
                    await waiting

    asyncio.run(main())


@talked
async def test_many_commands_are_on_their_way_at_once(
    client: aio.Client, server: BeanstalkServer
) -> None:
    ids = await asyncio.gather(*(client.put(b"%d" % number) for number in range(3000)))
    assert ids == sorted(ids) and len(ids) == 3000
    await client.room()


@talked
async def test_a_cancelled_reserve_loses_no_job(
    client: aio.Client, server: BeanstalkServer
) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await client.reserve()
    number = server.put("late")
    job = await client.reserve()  # It takes the place of the one that was cancelled.
    assert job.id == number
    await client.release(job)
    await client.probe()
    first = asyncio.ensure_future(client.reserve_with_timeout(100))
    await asyncio.sleep(0)
    first.cancel()
    assert (await client.stats_job(number)).state in ("ready", "reserved")
    assert (await client.reserve()).id == number


@talked
async def test_a_job_is_settled_at_the_end_of_its_block(
    client: aio.Client, server: BeanstalkServer
) -> None:
    numbers = [server.put(str(number), "mail") for number in range(3)]
    with pytest.raises(ValueError):
        async for job in client.jobs("mail", timeout=0, delay=77, attempts=1):
            async with job:
                if job.body == b"1":
                    raise ValueError
    states = [job.state async for job in client.each_job("mail")]
    assert states == ["ready", "buried"]
    is_held = asyncio.Event()
    task = asyncio.ensure_future(hold(client, is_held))
    await is_held.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    stats = await client.stats_job(numbers[2])
    assert (stats.state, stats.reserves) == ("ready", 0)


async def hold(client: aio.Client, is_held: asyncio.Event) -> None:
    async for job in client.jobs("mail"):
        async with job:
            is_held.set()
            await asyncio.sleep(1000)


@talked
async def test_what_a_block_has_done_with_its_job_stays(
    client: aio.Client, server: BeanstalkServer
) -> None:
    for body in ("bury", "release", "move", "delete"):
        server.put(body, "mail")
    async for job in client.jobs("mail", timeout=0):
        async with job:
            if job.body == b"bury":
                await client.bury(job)
            elif job.body == b"release":
                await client.release(job, delay=100)
            elif job.body == b"move":
                await client.move_job(job, "other")
            else:
                await client.delete(job)
    assert [job.state async for job in client.each_job("mail")] == ["delayed", "buried"]
    assert [job.state async for job in client.each_job("other")] == ["ready"]


@talked
async def test_a_cancelled_reserve_is_in_the_way_of_nothing(
    client: aio.Client, server: BeanstalkServer
) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await client.reserve()
    async with asyncio.timeout(60):
        assert await client.put(b"x", tube="other")


@talked
async def test_the_end_of_a_block_does_not_wait_for_another_loop(
    client: aio.Client, server: BeanstalkServer
) -> None:
    server.put("x", "mail")
    is_held = asyncio.Event()

    async def work() -> None:
        async for job in client.jobs("mail"):
            async with job:
                is_held.set()
                await asyncio.sleep(0.05)

    tasks = [asyncio.ensure_future(work()) for _ in range(2)]
    await is_held.wait()
    async with asyncio.timeout(20):  # A `reserve` of theirs waits for 30 s.
        while server.jobs("mail"):
            await asyncio.sleep(0.01)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_a_client_is_used_in_one_loop_after_the_other() -> None:
    with BeanstalkServer() as server:
        client = aio.Client(f"127.0.0.1:{server.port}")

        async def put() -> int:
            async with asyncio.timeout(60):
                return await client.put(b"x")

        assert [asyncio.run(put()) for _ in range(2)] == [1, 2]


@talked
async def test_a_lost_connection_is_made_again(client: aio.Client, server: BeanstalkServer) -> None:
    await client.use("mine")
    await client.put(b"x")
    await client.watch("mine")
    job = await client.reserve()
    server.drop_connections()
    with pytest.raises(errors.ClientError):
        await client.delete(job)
    with pytest.raises(errors.ReservationLost):
        await client.delete(job)
    assert await client.list_tube_used() == "mine"
    assert (await client.reserve()).id == job.id


@talked
async def test_without_a_server_commands_wait_and_a_closed_client_says_no(
    client: aio.Client, server: BeanstalkServer
) -> None:
    server.stop()
    with pytest.raises(errors.NoHost):
        await aio.Client(f"127.0.0.1:{server.port}").connect()
    waiting = asyncio.ensure_future(client.put(b"x"))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    server.start()
    assert await waiting == 1
    await client.close()
    with pytest.raises(errors.NotCarriedOut):
        await client.put(b"x")


def test_both_other_clients_see_the_same(server: BeanstalkServer) -> None:
    async def put() -> int:
        async with aio.Client(f"127.0.0.1:{server.port}") as client:
            return await client.put(b"x", tube="shared", unique_by=7)

    with sync.Client(f"127.0.0.1:{server.port}") as queue:
        assert queue.put(b"y", tube="shared", unique_by=7) == asyncio.run(put())
