"""What replication costs, and how long a take-over takes: three NATS servers on this machine.

    python -m benchmarks.replication [--quick] [--rounds N] [--seconds N] [--jobs N,N]
        [--reserved] [--folder DIR] [--only speed,takeover,rejoin]

Speed: one client process puts, reserves and deletes, with so many connections, on a server that
syncs its local log before each reply, and on one that is replicated too, with a standby beside it;
round by round in turn, and the medians are compared.  Take-over: so many jobs are put, and the
active server is killed, with ``--reserved`` while one client has reserved all of them; then a third
server begins with nothing.  Rejoin: the standby of a stream of many small messages is killed, and
started again on its log; then the same with an empty one.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any, Final

from benchmarks.speed.building import build
from benchmarks.speed.figures import CPU, RATE, Outcome, parse_outcome
from benchmarks.speed.flooding import resident_bytes
from tests.ports import free_ports
from tests.replication.cluster import Cluster, running
from tests.server_process import Connection, ServerProcess, ours_at_once

CONNECTIONS: Final = (1, 10, 50, 200)
JOBS: Final = (1, 100_000, 1_000_000)
LEASE_S: Final = 3

REJOIN_JOBS: Final = 20_000
REJOIN_CONNECTIONS: Final = 3
"""Few, so that there are many small messages."""

ASKED_TOGETHER: Final = 500
"""Jobs that are reserved by requests that leave together."""

LONG_S: Final = 600.0
"""How long a million jobs may take."""


class Node:
    """A server of ours.

    :param url: of the stream; empty for a server that is not replicated.
    """

    def __init__(self, folder: Path, name: str, url: str = "") -> None:
        self.port, self._http = free_ports(2)
        options: list[object] = ["-b", folder / name, "-p", self.port, "--http", self._http]
        if url:
            options += ["--replicate", url, "--lease-seconds", LEASE_S]
        self.process = ServerProcess(ours_at_once(*options), folder)
        self.pid = self.process.process.pid

    def situation(self) -> dict[str, Any]:
        """What it says of replication; empty while it says nothing."""
        url = f"http://127.0.0.1:{self._http}/api/v1/replication"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                found: dict[str, Any] = json.load(answer)
        except OSError:
            return {}
        return found

    def has_all(self) -> bool:
        """Whether it follows, and has applied and written all that it has received."""
        now = self.situation()
        return "follows" in now.get("why_not_ready", "") and not (
            now["lag_records"] or now["lag_bytes"]
        )

    def ask_ready(self) -> bool:
        """Whether it takes a job."""
        try:
            connection = Connection(self.port)
            return connection.ask(b"put 0 0 60 1\r\nx\r\n").startswith(b"INSERTED")
        except OSError:
            return False


def wait(is_so: Callable[[], bool], pause_s: float = 0.05) -> float:
    """Wait until something is so.

    :return: how long it took, seconds.
    """
    start_s = time.monotonic()
    while not is_so():
        assert time.monotonic() < start_s + LONG_S, "it never came"
        time.sleep(pause_s)
    return time.monotonic() - start_s


@contextmanager
def nodes(cluster: Cluster, folder: Path, stream: str, count: int) -> Iterator[list[Node]]:
    """Some servers of one queue; the first one is active, the others follow it."""
    (folder / stream).mkdir()
    found: list[Node] = []
    try:
        for at in range(count):
            found.append(Node(folder / stream, str(at), cluster.url(stream)))
            wait(found[-1].has_all if at else lambda: found[0].situation().get("role") == "active")
        yield found
    finally:
        for each in found:
            each.process.kill()


def loaded(program: Path, node: Node, *words: object) -> Outcome:
    """Put a load on a server."""
    command = [str(program), "--port", str(node.port), "--pid", str(node.pid), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG_S, check=True)
    return parse_outcome(done.stdout)


class Lag(Thread):
    """Looks how far a standby is behind, ten times a second."""

    def __init__(self, standby: Node) -> None:
        super().__init__()
        self._standby = standby
        self.is_over = False
        self.records: list[int] = []
        self.seconds: list[float] = []

    def run(self) -> None:
        """Do so until told otherwise."""
        while not self.is_over:
            now = self._standby.situation()
            self.records.append(now.get("lag_records", 0))
            self.seconds.append(now.get("lag_s", 0.0))
            time.sleep(0.1)


def speed(program: Path, cluster: Cluster, folder: Path, rounds: int, seconds: float) -> None:
    """Compare a replicated server with one that is not."""
    local = Node(folder, "local")
    words = ("--ops", "put,reserve,delete", "--ms", int(seconds * 1000), "--warmup-ms", 300)
    found: dict[tuple[int, str], list[Outcome]] = defaultdict(list)
    try:
        local.process.port()
        with nodes(cluster, folder, "speed", 2) as (active, standby):
            lag = Lag(standby)
            lag.start()
            for _ in range(rounds):
                for connections in CONNECTIONS:
                    for name, node in (("local", local), ("replicated", active)):
                        found[connections, name].append(
                            loaded(program, node, *words, "--connections", connections)
                        )
            lag.is_over = True
            lag.join()
            print("connections | local/s | replicated/s | ratio | local us | replicated us | ratio")
            for connections in CONNECTIONS:
                print(
                    line(connections, found[connections, "local"], found[connections, "replicated"])
                )
            print(
                f"lag of the standby meanwhile: median {statistics.median(lag.records):.0f}, "
                f"most {max(lag.records)} records, {1000 * max(lag.seconds):.0f} ms"
            )
    finally:
        local.process.kill()


def line(connections: int, local: list[Outcome], replicated: list[Outcome]) -> str:
    """Commands a second and processor time a command, each beside the other."""
    words = [f"{connections:11}"]
    for key in (RATE.key, CPU.key):
        one = statistics.median(each.figures[key] for each in local)
        two = statistics.median(each.figures[key] for each in replicated)
        words += [f"{one:9,.0f}", f"{two:9,.0f}", f"{two / one:5.2f}"]
    return " | ".join(words)


def reserve_all(node: Node, jobs: int) -> Connection:
    """Reserve so many jobs."""
    connection = Connection(node.port)
    for first in range(0, jobs, ASKED_TOGETHER):
        asked = min(ASKED_TOGETHER, jobs - first)
        connection.send(b"reserve-with-timeout 0\r\n" * asked)
        for _ in range(asked):
            reply = connection.reply()
            assert reply.startswith(b"RESERVED "), reply
    return connection


def ready_jobs(node: Node) -> int:
    """How many jobs can be reserved."""
    found = re.search(rb"current-jobs-ready: (\d+)", Connection(node.port).ask(b"stats\r\n"))
    assert found is not None
    return int(found[1])


def takeover(
    program: Path, cluster: Cluster, folder: Path, jobs: int, are_reserved: bool = False
) -> None:  # fmt: skip
    """Kill the active server of a queue with so many jobs; then let a third one catch up.

    :param are_reserved: whether one client has reserved all of them.
    """
    stream = f"takeover{jobs}"
    with nodes(cluster, folder, stream, 2) as found:
        active, standby = found
        load = ("--ops", "put", "--connections", 4, "--depth", min(64, -(-jobs // 4)))
        loaded(program, active, *load, "--count", jobs, "--timeout", int(LONG_S))
        holder = reserve_all(active, jobs) if are_reserved else None
        wait(standby.has_all)
        memory = [resident_bytes(each.pid) / 2**20 for each in found]
        active.process.process.kill()
        away_s = wait(standby.ask_ready, 0.01)
        if holder is not None:
            holder.close()
            assert ready_jobs(standby) == jobs + 1
        log = sum(path.stat().st_size for path in (folder / stream / "1").glob("*"))
        start_s = time.monotonic()
        found.append(Node(folder / stream, "2", cluster.url(stream)))
        wait(found[-1].has_all)
        caught_s = time.monotonic() - start_s
    print(
        f"{jobs:9,} jobs{', reserved' * are_reserved}: nobody answered for {away_s:.2f} s of which "
        f"{LEASE_S} s are the lease; "
        f"{memory[0]:.0f} MB active, {memory[1]:.0f} MB standby; a new standby had all in "
        f"{caught_s:.1f} s, {jobs / caught_s:,.0f} jobs and {log / caught_s / 1e6:.1f} MB a second"
    )


def rejoin(program: Path, cluster: Cluster, folder: Path, jobs: int) -> None:
    """Let a standby join again, with its log and without."""
    with nodes(cluster, folder, "rejoin", 2) as found:
        active, standby = found
        words = ("--ops", "put", "--connections", REJOIN_CONNECTIONS, "--count", jobs)
        loaded(program, active, *words, "--timeout", int(LONG_S))
        wait(standby.has_all)
        messages = active.situation()["position"]
        standby.process.process.kill()
        taken: list[float] = []
        for name in ("1", "2"):
            start_s = time.monotonic()
            found.append(Node(folder / "rejoin", name, cluster.url("rejoin")))
            wait(found[-1].has_all)
            taken.append(time.monotonic() - start_s)
    print(
        f"{messages:,} messages: a standby that was killed was in sync {taken[0]:.1f} s after it "
        f"was started again, an empty one {taken[1]:.1f} s"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one round of a second; 1,000 jobs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--jobs", default=",".join(map(str, JOBS)))
    parser.add_argument(
        "--reserved", action="store_true", help="all jobs, when the server is killed"
    )
    parser.add_argument("--only", default="speed,takeover,rejoin")
    parser.add_argument("--folder", help="on the disk that is measured")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.rounds, chosen.seconds, chosen.jobs = 1, 1.0, "1,1000"
    program = build(Path("build/bench")).loadgen
    print(f"load {os.getloadavg()[0]:.1f} before")
    with TemporaryDirectory(dir=chosen.folder) as name, running(Path(name), 3) as cluster:
        wait(lambda: all(each.is_well for each in cluster.servers))
        if "speed" in chosen.only:
            speed(program, cluster, Path(name), chosen.rounds, chosen.seconds)
        if "takeover" in chosen.only:
            for jobs in map(int, chosen.jobs.split(",")):
                takeover(program, cluster, Path(name), jobs, chosen.reserved)
        if "rejoin" in chosen.only:
            rejoin(program, cluster, Path(name), 1000 if chosen.quick else REJOIN_JOBS)
    print(f"load {os.getloadavg()[0]:.1f} after")


if __name__ == "__main__":
    main()
