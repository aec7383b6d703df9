"""The client's speed, beside greenstalk (blocking) and aiostalk (asyncio), on the same server.

    python benchmarks/client.py [--server NAME] [--jobs N] [--rounds N]

Needs ``pip install '.[bench]'``.  Each measurement is a new server on a free port
of 127.0.0.1, and a process of its own that puts the jobs, then reserves and deletes them all.
Rounds of all clients follow each other, so that whatever else the machine does hits all alike; the
medians are compared, and the bests, which come near to what a quiet machine would show.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from twisted.internet import task
from twisted.internet.defer import Deferred, gatherResults

from beanstalk_twisted.client import aio, sync
from beanstalk_twisted.client.service import Client

BODY = b"x" * 32
"""A small job: the larger the body, the less a client's own work counts."""

WINDOW = 256
"""Reserves in flight at once, of the pipelining client."""

OURS = [sys.executable, "-m", "beanstalk_twisted", "-p", "0"]
BEANSTALKD = ["beanstalkd", "-V", "-l", "127.0.0.1", "-p", "0"]
LOG = ["-b", "LOG", "-f", "0"]
"""With a log that is synced before each answer; LOG is a temporary directory."""

SERVERS = {
    "ours": OURS, "ours-log": OURS + LOG,
    "beanstalkd": BEANSTALKD, "beanstalkd-log": BEANSTALKD + LOG,
}  # fmt: skip
PORT = re.compile(r"listening on 127\.0\.0\.1:(\d+)|bind \d+ 127\.0\.0\.1:(\d+)")


class Seconds(NamedTuple):
    """How long it took to put all jobs, and to reserve and delete them all.

    :ivar cpu: the processor time of the client for all of it.
    """

    put: float
    work: float
    cpu: float


class Watch:
    """Takes the times."""

    def __init__(self) -> None:
        self._cpu = time.process_time()
        self._began = self._put = time.perf_counter()

    def has_put(self) -> None:
        """All jobs are put."""
        self._put = time.perf_counter()

    def seconds(self) -> Seconds:
        """All jobs are deleted."""
        now, cpu = time.perf_counter(), time.process_time()
        return Seconds(self._put - self._began, now - self._put, cpu - self._cpu)


Measure = Callable[[int, int], Seconds]


def greenstalk(port: int, jobs: int) -> Seconds:
    """One command at a time, blocking."""
    import greenstalk

    with greenstalk.Client(("127.0.0.1", port), encoding=None) as client:
        watch = Watch()
        for _ in range(jobs):
            client.put(BODY)
        watch.has_put()
        for _ in range(jobs):
            client.delete(client.reserve())
        return watch.seconds()


def aiostalk(port: int, jobs: int) -> Seconds:
    """One command at a time, on asyncio."""
    import aiostalk

    async def run() -> Seconds:
        async with aiostalk.Client(("127.0.0.1", port), encoding=None) as client:
            watch = Watch()
            for _ in range(jobs):
                await client.put(BODY)
            watch.has_put()
            for _ in range(jobs):
                await client.delete(await client.reserve())
            return watch.seconds()

    return asyncio.run(run())


def sync_one_by_one(port: int, jobs: int) -> Seconds:
    """Ours for plain Python, waiting for each answer."""
    with sync.Client(f"127.0.0.1:{port}") as client:
        watch = Watch()
        for _ in range(jobs):
            client.put(BODY)
        watch.has_put()
        for _ in range(jobs):
            client.delete(client.reserve())
        return watch.seconds()


def sync_pipelined(port: int, jobs: int) -> Seconds:
    """Ours for plain Python: puts in a pipeline, batches reserved and deleted."""
    with sync.Client(f"127.0.0.1:{port}") as client:
        client.probe()
        watch = Watch()
        with client.pipeline() as pipe:
            for _ in range(jobs):
                pipe.put(BODY)
        watch.has_put()
        for start in range(0, jobs, WINDOW):
            with client.pipeline() as pipe:
                asked = [pipe.reserve() for _ in range(start, min(jobs, start + WINDOW))]
                for each in asked:
                    pipe.delete(each.result)
        return watch.seconds()


def aio_one_by_one(port: int, jobs: int) -> Seconds:
    """Ours for asyncio, waiting for each answer."""

    async def run() -> Seconds:
        async with aio.Client(f"127.0.0.1:{port}") as client:
            watch = Watch()
            for _ in range(jobs):
                await client.put(BODY)
            watch.has_put()
            for _ in range(jobs):
                await client.delete(await client.reserve())
            return watch.seconds()

    return asyncio.run(run())


def ours_one_by_one(port: int, jobs: int) -> Seconds:
    """Ours on Twisted, waiting for each answer."""

    async def run(client: Client) -> Seconds:
        watch = Watch()
        for _ in range(jobs):
            await client.put(BODY)
        watch.has_put()
        for _ in range(jobs):
            await client.delete(await client.reserve())
        return watch.seconds()

    return on_reactor(port, run)


def ours_pipelined(port: int, jobs: int) -> Seconds:
    """Ours, sending without waiting: puts as there is room, and `WINDOW` workers."""

    async def work(client: Client, share: int) -> None:
        for _ in range(share):
            await client.delete(await client.reserve())

    async def run(client: Client) -> Seconds:
        watch = Watch()
        answers = []
        for _ in range(jobs):
            await client.room()
            answers.append(client.put(BODY))
        for answer in answers:
            await answer
        watch.has_put()
        shares = [len(range(start, jobs, WINDOW)) for start in range(WINDOW)]
        await gatherResults([Deferred.fromCoroutine(work(client, share)) for share in shares])
        return watch.seconds()

    return on_reactor(port, run)


def on_reactor(port: int, run: Callable[[Client], Awaitable[Seconds]]) -> Seconds:
    """Run a measurement on Twisted's reactor."""
    measured: list[Seconds] = []

    async def main(reactor: Any) -> None:
        client = Client(f"tcp:127.0.0.1:{port}", reactor=reactor)
        client.startService()
        await client.room()
        measured.append(await run(client))
        await client.quit()

    def begin(reactor: Any) -> Deferred[None]:
        return Deferred.fromCoroutine(main(reactor))

    try:
        task.react(begin)
    except SystemExit as ended:
        if ended.code:
            raise
    return measured[0]


CLIENTS: dict[str, Measure] = {
    "greenstalk": greenstalk,
    "aiostalk": aiostalk,
    "sync": sync_one_by_one,
    "sync, pipelined": sync_pipelined,
    "aio": aio_one_by_one,
    "Twisted": ours_one_by_one,
    "Twisted, pipelined": ours_pipelined,
}


@contextmanager
def running(server: str) -> Iterator[int]:
    """Run a server, and give its port."""
    with TemporaryDirectory() as log:
        command = [word.replace("LOG", log) for word in SERVERS[server]]
        process = subprocess.Popen(
            command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert process.stdout is not None
        try:
            found = next(match for line in process.stdout if (match := PORT.search(line)))
            yield int(found[1] or found[2])
        finally:
            process.kill()
            process.communicate()


def measure(name: str, server: str, jobs: int) -> Seconds:
    """Let one client do the work once, on a new server, in a process of its own."""
    with running(server) as port:
        command = [
            sys.executable,
            __file__,
            "--one",
            name,
            "--port",
            str(port),
            "--jobs",
            str(jobs),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return Seconds(*map(float, done.stdout.split()))


def compare(server: str, jobs: int, rounds: int) -> None:
    """Measure all clients in turn, and print a table."""
    taken: dict[str, list[Seconds]] = {name: [] for name in CLIENTS}
    for _ in range(rounds):
        for name, results in taken.items():
            results.append(measure(name, server, jobs))
    print(f"server: {server}; {jobs} jobs of {len(BODY)} bytes; {rounds} rounds")
    for kind, choose in (("medians", statistics.median), ("bests", min)):
        print_table(kind, jobs, {name: chosen(choose, each) for name, each in taken.items()})


def chosen(choose: Callable[[Iterable[float]], float], results: Sequence[Seconds]) -> Seconds:
    """Choose each time by itself."""
    return Seconds(*map(choose, zip(*results, strict=True)))


def print_table(kind: str, jobs: int, results: dict[str, Seconds]) -> None:
    """Print the rates, and how they compare with greenstalk's."""
    print(
        f"\n| {kind} | puts/s | of greenstalk | reserve+delete/s | of greenstalk | CPU, µs a job |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    base = results["greenstalk"]
    for name, each in results.items():
        print(
            f"| {name} | {jobs / each.put:,.0f} | {base.put / each.put:.2f} "
            f"| {jobs / each.work:,.0f} | {base.work / each.work:.2f} "
            f"| {each.cpu / jobs * 1e6:.0f} |"
        )


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0].strip())
    parser.add_argument("--server", choices=SERVERS, default="beanstalkd")
    parser.add_argument("--jobs", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--one", choices=CLIENTS, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        print(*CLIENTS[chosen.one](chosen.port, chosen.jobs))
    else:
        compare(chosen.server, chosen.jobs, chosen.rounds)


if __name__ == "__main__":
    main()
