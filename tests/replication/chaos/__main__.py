"""Chaos: a replicated queue under load and faults, and a history that must be one of a queue.

    python -m tests.replication.chaos [--seconds N] [--seed N] [--clients N] [--folder DIR]
        [--only FAULT,FAULT] [--sync-interval S]

Three NATS servers and three of ours run as processes.  As root each is on a machine of its own:
network, monotonic clock and disk (`machines`, `disks`); else all are on 127.0.0.1, without
partitions, full disks and losses of power.  Ends with 1 if the queue has done what it must not; the
folder is kept then.  Ends with 2 if none of the faults can be had here.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from tests.model.ledger import check
from tests.replication.chaos.clients import REPLY_S, Client, Journal
from tests.replication.chaos.faults import WEIGHTS, CannotBe, Faults
from tests.replication.chaos.field import LEASE_S, Field, Host, asked
from tests.replication.chaos.machines import again_inside, has_namespaces
from tests.replication.chaos.watching import Watcher
from tests.server_process import LIMIT_S, Connection

MARGIN_S: Final = LEASE_S + REPLY_S + 2.0
"""A client whose server is silent waits for `REPLY_S` before it takes its jobs for lost."""


class Verdict(NamedTuple):
    """What a run has shown.

    :ivar wrong: each violation, in words.
    :ivar figures: a line each.
    """

    wrong: list[str]
    figures: list[str]


def chaos(
    folder: Path, seconds: float, seed: int, clients: int, only: Sequence[str] = (),
    sync_interval: str = "always",
) -> Verdict:  # fmt: skip
    """Run for so long.

    :param only: kinds of faults; all if it is empty.
    :param sync_interval: of NATS.
    """
    began_s = time.monotonic()

    def tell(text: str) -> None:
        print(f"{time.monotonic() - began_s:7.1f} s  {text}", flush=True)

    journal = Journal()
    field = Field(folder, sync_interval)
    try:
        field.wait_for_nats()
        field.start()
        field.wait_until_well()
        faults = Faults(field, Random(seed), tell, only)
        watcher = Watcher(field, journal)
        try:
            crowd = Crowd(field, journal, seed, clients)
            try:
                faults.run(seconds)
            finally:
                crowd.stop()
        finally:
            wrong = watcher.stop()
        tell("all faults are over")
        wrong += compare(field, journal)
        if wrong:
            keep(folder, field, journal)
    except BaseException:
        keep(folder, field, journal)
        raise
    finally:
        field.stop()
    wrong += [f"{host.name} has ended with {code}: {said}" for host in field.hosts
              for code, said in host.ends]  # fmt: skip
    return Verdict(wrong, figures(journal, faults, time.monotonic() - began_s))


def keep(folder: Path, field: Field, journal: Journal) -> None:
    """Copy what is on disks that end with the run, and write the history beside it."""
    for host in field.hosts:
        shutil.copytree(host.disk.at, folder / "kept" / host.name)
    with (folder / "kept" / "history.txt").open("w") as file:
        file.writelines(f"{event}\n" for event in journal.events)


class Crowd:
    """The clients, in a thread of their own."""

    def __init__(self, field: Field, journal: Journal, seed: int, count: int) -> None:
        self._clients = [
            Client(f"c{at}", field.addresses, journal, Random(f"{seed} {at}"))
            for at in range(count)
        ]
        self.failures: list[BaseException] = []
        self._loop = asyncio.new_event_loop()
        self._all: asyncio.Future[list[None]] | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._work())
        except asyncio.CancelledError:
            # What was aborted is closed in the next turn.
            self._loop.run_until_complete(asyncio.sleep(0.1))
        except BaseException as error:
            self.failures.append(error)
        finally:
            self._loop.close()

    async def _work(self) -> None:
        self._all = asyncio.gather(*(client.run() for client in self._clients))
        await self._all

    def stop(self) -> None:
        """Let all clients part.

        :raise BaseException: one has failed.
        """
        if self._all is not None:
            self._loop.call_soon_threadsafe(self._all.cancel)
        self._thread.join(LIMIT_S)
        if self.failures:
            raise self.failures[0]


def compare(field: Field, journal: Journal) -> list[str]:
    """Look what is in the queue and in all logs at the end."""
    active = field.wait_until_well()
    standbys = [host for host in field.hosts if host is not active]
    for host in standbys:
        host.end(signal.SIGTERM)
    connection = asked(active)
    jobs, counts = left(connection)
    wrong = [
        f"{each.fault.value}: job {each.job}: {each.events}"
        for each in check(journal.events, jobs, MARGIN_S)
    ]
    wrong += journal.odd + too_low(journal, counts)
    for host in standbys:
        wrong += differences(host, set(jobs))
    for job in jobs:
        if connection.ask(b"delete %d\r\n" % job) != b"DELETED\r\n":
            wrong.append(f"job {job} cannot be deleted at the end")
    connection.close()
    active.end(signal.SIGTERM)
    return wrong + differences(active, set())


GONE_S: Final = 30.0
"""How long a client that was cut off may hold a job: until its TTR, or the server, ends it."""


def left(connection: Connection) -> tuple[dict[int, bytes], dict[int, dict[str, int]]]:
    """Reserve all jobs of a queue.

    :return: their bodies, and what is counted of each, by ids.
    """
    jobs: dict[int, bytes] = {}
    counts = {}
    while connection.ask(b"kick 1000000\r\n") != b"KICKED 0\r\n":
        pass
    states = ("ready", "delayed", "buried", "reserved")
    ends_s = time.monotonic() + GONE_S
    while True:
        while (reply := connection.ask(b"reserve-with-timeout 0\r\n")).startswith(b"RESERVED "):
            line, body = reply.split(b"\r\n", 1)
            job = int(line.split()[1])
            jobs[job] = body.split()[0]
            counts[job] = counted(connection.ask(b"stats-job %d\r\n" % job))
        assert reply == b"TIMED_OUT\r\n", reply
        total = counted(connection.ask(b"stats\r\n"))
        if sum(total[f"current-jobs-{state}"] for state in states) == len(jobs):
            return jobs, counts
        assert time.monotonic() < ends_s, total
        time.sleep(1)


def counted(reply: bytes) -> dict[str, int]:
    lines = (line.split(": ") for line in reply.decode().splitlines() if ": " in line)
    return {name: int(value) for name, value in lines if value.lstrip("-").isdigit()}


def too_low(journal: Journal, counts: dict[int, dict[str, int]]) -> list[str]:
    """Find counters of jobs that are lower than what clients were told."""
    return [
        f"job {job}: {told[job]} {name} were acknowledged, and {counts[job][name]} are counted"
        for name, told in journal.counts.items()
        for job in counts
        if counts[job][name] < told[job]
    ]


def differences(host: Host, jobs: set[int]) -> list[str]:
    """Check a log, and look whether it has these jobs."""
    program = str(Path(sys.executable).with_name("binlog-inspect"))
    log = str(host.binlog)
    done = subprocess.run([program, "check", log], capture_output=True, text=True, check=False)
    wrong = [f"{host.name}: {done.stdout}{done.stderr}"] if done.returncode > 1 else []
    listed = subprocess.run(
        [program, "jobs", "--json", log], capture_output=True, text=True, check=False
    )
    found = {int(json.loads(line)["job"]) for line in listed.stdout.splitlines()}
    if found != jobs:
        wrong.append(f"{host.name}: its log has other jobs: {sorted(found ^ jobs)[:20]}")
    return wrong


def figures(journal: Journal, faults: Faults, seconds: float) -> list[str]:
    told = ", ".join(f"{count} {name}" for name, count in sorted(journal.told.items()))
    return [
        f"{seconds:.0f} s, {sum(faults.injected.values())} faults, "
        f"{sum(journal.told.values())} commands acknowledged",
        "faults: " + ", ".join(f"{count} {kind}" for kind, count in faults.injected.items()),
        f"commands: {told}; refused: {dict(journal.refused)}; {journal.connects} connections",
        f"nobody was answered for {journal.longest_silence_s:.1f} s at most",
    ]


def main() -> int:
    again = [] if has_namespaces() else sys.argv[1:]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--folder", help="where the logs are kept")
    parser.add_argument("--only", help=f"kinds of faults: {', '.join(WEIGHTS)}")
    parser.add_argument("--sync-interval", default="always", help="of NATS (%(default)s)")
    chosen = parser.parse_args()
    if not has_namespaces():
        again_inside([*again, "--seed", str(chosen.seed)], "tests.replication.chaos")
        print("not root: no partitions, no full disks, no losses of power")
    folder = Path(tempfile.mkdtemp(prefix="chaos-", dir=chosen.folder))
    print(f"seed {chosen.seed}, in {folder}", flush=True)
    only = chosen.only.split(",") if chosen.only else ()
    seconds, seed, clients = chosen.seconds, chosen.seed, chosen.clients
    try:
        verdict = chaos(folder, seconds, seed, clients, only, chosen.sync_interval)
    except CannotBe as problem:
        print(problem)
        return 2
    print("\n".join(verdict.figures))
    print("\n".join(verdict.wrong) or "nothing is wrong")
    return 1 if verdict.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
