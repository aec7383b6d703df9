"""A pool over two servers on real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.endpoints import Backoff
from beanstalk_twisted.client.pool.hashing import Split
from beanstalk_twisted.client.pool.pool import Pool, Server
from beanstalk_twisted.client.service import Client
from tests.end_to_end.test_client import EACH_SERVER, Command, endpoint_of, ours
from tests.server_process import ServerProcess

NAMES = ("a", "b")


@asynccontextmanager
async def started(endpoints: list[str], **options: Any) -> AsyncIterator[Pool]:
    """Start a pool, and stop it."""
    servers = [Server(endpoint, name) for endpoint, name in zip(endpoints, NAMES, strict=True)]
    quick = partial(Client, backoff=Backoff(lambda: 1.0, most_s=0.2))
    pool = Pool(servers, make_client=quick, **options)
    pool.startService()
    try:
        yield pool
    finally:
        await pool.stopService()


def tube_on(split: Split, name: str) -> str:
    """Find a tube that is on this server."""
    return next(tube for tube in map("t{}".format, range(999)) if split.server_of(tube) == name)


@pytest.mark.exhaustive
@EACH_SERVER
async def test_jobs_go_round_over_two_servers(command: Command, tmp_path: Path) -> None:
    with (
        ServerProcess(command("-p", 0), tmp_path) as first,
        ServerProcess(command("-p", 0), tmp_path) as second,
    ):
        endpoints = [endpoint_of(first), endpoint_of(second)]
        tubes = [f"t{number}" for number in range(10)]
        async with started(endpoints, tubes=tubes) as pool:
            waits = [pool.reserve() for _ in range(40)]
            puts = [await pool.put(tube, tube.encode()) for tube in tubes * 4]
            jobs = [await wait for wait in waits]
            assert {(job.server, job.id) for job in jobs} == {(job.server, job.id) for job in puts}
            assert {job.server for job in jobs} == set(NAMES)
            for job in jobs:
                assert pool.server_of(job.body.decode()) == job.server
                await pool.delete(job)
            total = (await pool.stats()).total
            assert (total["total-jobs"], total["current-jobs-ready"]) == (40, 0)
            with pytest.raises(errors.TimedOut):
                await pool.reserve_with_timeout(0)


@pytest.mark.exhaustive
async def test_a_server_is_killed_while_reserves_wait_and_comes_back(tmp_path: Path) -> None:
    logs = [tmp_path / name for name in NAMES]
    with (
        ServerProcess(ours("-p", 0, "-b", logs[0]), tmp_path) as first,
        ServerProcess(ours("-p", 0, "-b", logs[1]), tmp_path) as second,
    ):
        endpoints = [endpoint_of(first), endpoint_of(second)]
        split = Split(dict.fromkeys(NAMES, 1))
        tubes = [tube_on(split, name) for name in NAMES]
        is_down: Deferred[None] = Deferred()

        def changed() -> None:
            if pool.down and not is_down.called:
                is_down.callback(None)

        async with started(endpoints, tubes=tubes, patience_s=0.1, changed=changed) as pool:
            await pool.put(tubes[0], b"kept", delay=1)
            waits = [pool.reserve(), pool.reserve()]
            while (await pool.stats()).total["current-waiting"] < 2:
                pass
            first.kill()
            await is_down
            with pytest.raises(errors.ServerDown):
                await pool.put(tubes[0], b"x")
            await pool.put(tubes[1], b"other")
            assert (await waits[0]).body == b"other"
            port = endpoints[0].rpartition(":")[2]
            with ServerProcess(ours("-p", port, "-b", logs[0]), tmp_path):
                job = await waits[1]
                assert (job.server, job.body) == ("a", b"kept")
                await pool.delete(job)
