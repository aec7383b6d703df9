"""A pool over two servers on real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.endpoints import Backoff
from beanstalk_twisted.client.pool.pool import Pool, Server
from beanstalk_twisted.client.service import Client
from tests.end_to_end.test_client import EACH_SERVER, Command, endpoint_of
from tests.server_process import ServerProcess

NAMES = ("a", "b")


@asynccontextmanager
async def started(endpoints: list[str], **options: Any) -> AsyncIterator[Pool]:
    servers = [Server(endpoint, name) for endpoint, name in zip(endpoints, NAMES, strict=True)]
    quick = partial(Client, backoff=Backoff(lambda: 1.0, most_s=0.2))
    pool = Pool(servers, make_client=quick, **options)
    pool.startService()
    try:
        yield pool
    finally:
        await pool.stopService()


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
