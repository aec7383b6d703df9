"""What a pool costs beside a plain client, and what it does on two servers.

    python -m benchmarks.pool [--jobs 3000] [--callers 20] [--rounds 5]

Jobs are put into ten tubes, many on their way at once; then so many callers reserve and delete one
after the other.  A plain client, with a connection for each caller as a pool has, a pool of one
server, and a pool of two take turns.  *CPU* is the processor time of this process for a job.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import react

from beanstalk_twisted.client import Client, Pool, Server
from benchmarks.speed.servers import ours, running
from benchmarks.speed.workloads import MEMORY

TUBES = [f"tube-{number}" for number in range(10)]
BODY = b"x" * 32


class Timed(NamedTuple):
    """Half of a run.

    :ivar rate: jobs a second.
    :ivar cpu_us: processor time of a job, microseconds.
    """

    rate: float
    cpu_us: float


async def timed(jobs: int, work: Callable[[], Awaitable[object]]) -> Timed:
    """Do it, and take the time."""
    began_s, cpu_s = time.perf_counter(), time.process_time()
    await work()
    return Timed(jobs / (time.perf_counter() - began_s), (time.process_time() - cpu_s) / jobs * 1e6)


async def with_client(endpoints: Sequence[str], jobs: int, callers: int) -> list[Timed]:
    """Measure plain clients of one server."""
    clients = [Client(endpoints[0]) for _ in range(callers)]
    for client in clients:
        client.startService()
        for tube in TUBES:
            await client.watch(tube)
        await client.ignore("default")

    async def put() -> None:
        await put_all(jobs, lambda tube: clients[0].put(BODY, tube=tube), clients[0].room)

    async def one_by_one(client: Client) -> None:
        for _ in range(jobs // callers):
            await client.delete(await client.reserve())

    async def take() -> None:
        await gatherResults([Deferred.fromCoroutine(one_by_one(each)) for each in clients])

    found = [await timed(jobs, put), await timed(jobs, take)]
    await gatherResults([client.stopService() for client in clients])
    return found


async def with_pool(endpoints: Sequence[str], jobs: int, callers: int) -> list[Timed]:
    """Measure a pool."""
    pool = Pool([Server(each, str(number)) for number, each in enumerate(endpoints)], TUBES)
    pool.startService()
    await pool.stats()

    async def put() -> None:
        await put_all(jobs, lambda tube: pool.put(tube, BODY), lambda: pool.room(TUBES[0]))

    async def one_by_one() -> None:
        for _ in range(jobs // callers):
            await pool.delete(await pool.reserve())

    async def take() -> None:
        await gatherResults([Deferred.fromCoroutine(one_by_one()) for _ in range(callers)])

    found = [await timed(jobs, put), await timed(jobs, take)]
    await pool.stopService()
    return found


async def put_all(
    jobs: int, put: Callable[[str], Deferred[Any]], room: Callable[[], Deferred[None]]
) -> None:
    """Put many at once, into all tubes in turn."""
    puts = []
    for number in range(jobs):
        await room()
        puts.append(put(TUBES[number % len(TUBES)]))
    await gatherResults(puts)


WAYS: dict[str, tuple[Callable[..., Awaitable[list[Timed]]], int]] = {
    "plain clients, one server": (with_client, 1),
    "a pool of one server": (with_pool, 1),
    "a pool of two servers": (with_pool, 2),
}


async def main(reactor: Any, arguments: Sequence[str]) -> None:
    """Measure, print, and write the JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pool")
    parser.add_argument("--jobs", type=int, default=3000, help="in each round (3000)")
    parser.add_argument("--callers", type=int, default=20, help="who reserve at once (20)")
    parser.add_argument("--rounds", type=int, default=5, help="of each (5)")
    options = parser.parse_args(arguments)
    jobs = options.jobs // options.callers * options.callers
    found: dict[str, list[list[Timed]]] = {name: [] for name in WAYS}
    for round_ in range(options.rounds):
        names = list(WAYS) if round_ % 2 == 0 else list(reversed(WAYS))
        for name in names:
            way, count = WAYS[name]
            with ExitStack() as stack:
                endpoints = [started(stack) for _ in range(count)]
                found[name].append(await way(endpoints, jobs, options.callers))
    print("| | puts/s | CPU, µs a put | reserve+delete/s | CPU, µs a job |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, rounds in found.items():
        cells = [
            f"{statistics.median(getattr(halves[half], key) for halves in rounds):,.0f}"
            for half in (0, 1) for key in Timed._fields
        ]  # fmt: skip
        print(f"| {name} | {' | '.join(cells)} |")
    Path("build").mkdir(exist_ok=True)
    Path("build/pool.json").write_text(json.dumps(found, indent=1))


def started(stack: ExitStack) -> str:
    """Start a server that keeps its jobs in memory, and give its endpoint."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pool-")))
    server = stack.enter_context(running(ours(sys.executable), MEMORY, folder, Path()))
    return f"127.0.0.1:{server.port}"


if __name__ == "__main__":
    react(main, [sys.argv[1:]])
