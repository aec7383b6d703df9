"""How long a `delete` waits, and how long a new job, while a worker has a job in hand and wants
more.

    python -m benchmarks.stall [--server NAME] [--rounds N]

Beside our worker, with one connection and with two, stands what it must not do: the second reserve
on the connection that holds the job.  Each has a new server on a free port of 127.0.0.1.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater, react

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.service import Client
from beanstalk_twisted.worker.attempt import Attempt
from beanstalk_twisted.worker.hooks import Event
from beanstalk_twisted.worker.service import Worker
from benchmarks.client import SERVERS, running

TTR_S = 4
"""Of the jobs: the stall is a second less."""

QUIET_S = 1.0
"""Before each new job, so that a worker that polls does so as seldom as it ever does, seconds."""


class Times:
    """Notes when each job was begun and when it was deleted."""

    def __init__(self) -> None:
        self.waiting: dict[int, Deferred[None]] = {}
        self.begun: Deferred[int] = Deferred()
        self.deleted: Deferred[None] = Deferred()

    def do(self, attempt: Attempt[Any]) -> Deferred[None]:
        """Begin a job; whoever measures ends it."""
        self.waiting[attempt.id] = Deferred()
        begun, self.begun = self.begun, Deferred()
        begun.callback(attempt.id)
        return self.waiting[attempt.id]

    def __call__(self, event: Event) -> None:
        """Note the end of a job."""
        if event.name != "ended":
            return
        deleted, self.deleted = self.deleted, Deferred()
        deleted.callback(None)


async def naive(reactor: Any, endpoint: str, rounds: int) -> None:
    """Keep a reserve waiting on the connection that has the job."""
    client = Client(endpoint, reactor=reactor)
    client.startService()
    waits = []
    for _ in range(min(rounds, 3)):
        job = await client.put(b"x", ttr=TTR_S)
        await client.reserve()
        began = time.perf_counter()
        client.reserve().addErrback(lambda failure: failure.trap(errors.DeadlineSoon))
        await client.delete(job)
        waits.append(time.perf_counter() - began)
    await client.quit()
    tell("a reserve waits on it", waits, [], 0.0)


async def worked(reactor: Any, endpoint: str, rounds: int, connections: int) -> None:
    """Measure the worker, with one long job in hand all the time."""
    client, times = Client(endpoint, reactor=reactor), Times()
    client.startService()
    worker: Worker[bytes] = Worker(
        endpoint,
        "default",
        times.do,
        10,
        hooks=[times],
        logs=False,
        connections=connections,
        reactor=reactor,
    )
    worker.startService()
    begun = times.begun
    await client.put(b"long", ttr=600)
    long = await begun
    starts, deletes = [], []
    before, from_s = await client.stats(), time.perf_counter()
    for _ in range(rounds):
        await deferLater(reactor, QUIET_S, lambda: None)
        begun, began = times.begun, time.perf_counter()
        client.put(b"x", ttr=TTR_S)
        job = await begun
        starts.append(time.perf_counter() - began)
        await deferLater(reactor, 0.1, lambda: None)
        deleted, began = times.deleted, time.perf_counter()
        times.waiting[job].callback(None)
        await deleted
        deletes.append(time.perf_counter() - began)
    after, seconds = await client.stats(), time.perf_counter() - from_s
    asked = after.cmd_reserve_with_timeout - before.cmd_reserve_with_timeout
    tell(f"worker, connections={connections}", deletes, starts, asked / seconds)
    times.waiting[long].callback(None)
    await worker.stopService()
    await client.quit()


def tell(name: str, deletes: Sequence[float], starts: Sequence[float], asked: float) -> None:
    """Print a row: milliseconds, and reserves in a second."""
    cells = [name.ljust(24), *map(shown, (deletes, starts)), f"{asked:6.1f}"]
    print("  ".join(cells), flush=True)


def shown(seconds: Sequence[float]) -> str:
    """Give median and worst."""
    if not seconds:
        return "-".rjust(20)
    return f"{1000 * statistics.median(seconds):9.1f} {1000 * max(seconds):10.1f}"


async def measure(reactor: Any, name: str, rounds: int) -> None:
    """Measure all on one kind of server."""
    print(f"{name}:".ljust(24), " delete ms, median and worst;  begin ms;  reserves/s")
    with running(name) as port:
        await naive(reactor, f"tcp:127.0.0.1:{port}", rounds)
    for connections in (1, 2):
        with running(name) as port:
            await worked(reactor, f"tcp:127.0.0.1:{port}", rounds, connections)


async def main(reactor: Any, *argv: str) -> None:
    """Read the options and measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", choices=SERVERS, action="append")
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args(argv)
    for name in options.server or ["ours", "beanstalkd"]:
        await measure(reactor, name, options.rounds)


if __name__ == "__main__":
    react(main, sys.argv[1:])
