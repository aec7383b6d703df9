"""What one process of the server carries, and what several do together.

    .venv/bin/python -m benchmarks.scaling [--processes 2] [--rounds 5] [--seconds 3] [--only NAME]
    .venv/bin/python -m benchmarks.scaling --one [--python INTERPRETER]

Without ``--one`` the same load, the same number of connections in all, goes to one process, and to
several that have a share of the connections and a load generator each, as the tubes of a pool
(`beanstalk_twisted.client.pool`) do when they are spread evenly.  Both take turns at being first.
All of it shares the processors of this machine, the generators too.  So the commands a second
that are measured say what was left of this machine; the processor time of a command says what
processes do that have a core each.

With ``--one`` it measures what `docs/scaling.md` lists of one process: memory of connections that
do nothing, bytes of log, the speed of a start, and what commands cost that come one at a time.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.speed import ending
from benchmarks.speed.building import Tools, build
from benchmarks.speed.figures import WrongRepliesError, median
from benchmarks.speed.machine import look
from benchmarks.speed.running import FAILURES, LOAD_LIMIT_S, size_of
from benchmarks.speed.servers import Running, Side, cpu_seconds, end, ours, running
from benchmarks.speed.workloads import CYCLE, LOG, MEMORY, SYNC, Disk

PROG: Final = "python -m benchmarks.scaling"

PROBLEM: Final = 1
"""Exit code: a server failed, or its replies were wrong."""

MOST_PROCESSES: Final = 50
"""With more, some would have none of the 50 connections."""

USUAL: Final[Mapping[str, float]] = {"processes": 2, "rounds": 5, "seconds": 3.0}
"""Unless told otherwise."""

LEAST_S: Final = 0.01
"""A load is at least so long, seconds: some hundred commands."""

TOOLS: Final = Path("build/speed")
RESULTS: Final = Path("build")
"""Here go the results as JSON."""

WARMUP_MS: Final = 300
"""Of each load, unmeasured, milliseconds."""

IDLE: Final = 5_000
"""Connections that do nothing; descriptors of both ends have to be there."""

CYCLES: Final = 20_000
"""Jobs that are put, reserved and deleted to weigh the log: they fit into one segment."""

BODY_BYTES: Final = 256
"""Of those jobs."""

REPLAYED: Final = 1_000_000
"""Jobs in the log of a start: it takes a second and more, so that what starts vary by is little."""

PACES: Final = (100, 1000)
"""Jobs a second of a client that waits between them: a quiet server, and half of what one
connection can do.
"""

PACED_S: Final = 5
"""How long it does so, seconds."""


class Load(NamedTuple):
    """What is asked of the servers.

    :ivar connections: in all.
    """

    name: str
    says: str
    disk: Disk
    words: str
    connections: int


LOADS: Final = (
    Load("rt50", "round trips, 50 connections, in memory", MEMORY, CYCLE, 50),
    Load("pipe", "pipelined, depth 25, 4 connections, in memory", MEMORY, f"{CYCLE} --depth 25", 4),
    Load("log", "round trips, 50 connections, binlog, no fsync", LOG, CYCLE, 50),
    Load("sync", "round trips, 50 connections, fsync before reply", SYNC, CYCLE, 50),
)


class Sum(NamedTuple):
    """What processes and their load generators did together.

    :ivar server_us: processor time of all servers for a command, microseconds.
    :ivar generator_us: that of the load generators.
    :ivar busy: processors that the servers kept busy.
    """

    rate: float
    server_us: float
    generator_us: float
    busy: float


def main(arguments: Sequence[str] | None = None) -> int:
    """:return: the exit code."""
    options = read_options(arguments)
    return ending.ended(PROG, lambda: run(options))


def run(options: argparse.Namespace) -> int:
    """Measure, print, and write the JSON; if it is interrupted, of the loads that are finished.

    :return: the exit code.
    """
    # Neither beanstalkd nor Redis takes part, so their lines are left out.
    ours_is, _, machine_is = look(options.python, "true", None, None).sentences()
    print(f"- {ours_is}\n- {machine_is}\n")
    tools, side = build(TOOLS), ours(options.python)
    if options.one:
        return one_told(side, tools)
    loads = [load for load in LOADS if options.only in (None, load.name)]
    found: list[dict[str, Any]] = []
    code = 0
    try:
        for load in loads:
            found.append(compared(load, side, tools, options))
    except ending.STOPPED as stopped:
        code = ending.code_of(stopped)
        print(f"**Interrupted** after {len(found)} of {len(loads)} loads.\n")
    except FAILURES as problem:
        code = PROBLEM
        print(f"FAILED: {problem}\n")
    if found:
        print(table(found, options.processes))
        print(f"written: {written('scaling.json', found)}")
    return code


def one_told(side: Side, tools: Tools) -> int:
    """Measure what one process carries, print it, and write the JSON."""
    try:
        found = one(side, tools)
    except FAILURES as problem:
        print(f"FAILED: {problem}")
        return PROBLEM
    print(f"written: {written('scaling-one.json', found)}")
    return 0


def written(name: str, found: Any) -> Path:
    """Write what was found.

    :return: where it is.
    """
    RESULTS.mkdir(exist_ok=True)
    result = RESULTS / name
    result.write_text(json.dumps(found, indent=1))
    return result


def read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = ending.Parser(prog=PROG, description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--one", action="store_true", help="what one process carries")
    parser.add_argument("--processes", type=int, help="how many, against one (2)")
    parser.add_argument("--rounds", type=int, help="of each (5)")
    parser.add_argument("--seconds", type=float, help="of each load (3)")
    parser.add_argument("--only", choices=[load.name for load in LOADS], help="this load")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the servers")
    given = parser.parse_args(arguments)
    idle = [f"--{name}" for name in (*USUAL, "only") if getattr(given, name) is not None]
    if given.one and idle:
        parser.error(f"with --one this has no effect: {', '.join(idle)}")
    for name, usual in USUAL.items():
        if getattr(given, name) is None:
            setattr(given, name, usual)
    if not 2 <= given.processes <= MOST_PROCESSES:
        parser.error(f"--processes is 2 to {MOST_PROCESSES}")
    if given.rounds < 1:
        parser.error("--rounds is 1 at least")
    if not LEAST_S <= given.seconds <= LOAD_LIMIT_S / 2:
        parser.error(f"--seconds is {LEAST_S} to {LOAD_LIMIT_S / 2:.0f}")
    return given


# One against several.


def compared(load: Load, side: Side, tools: Tools, options: argparse.Namespace) -> dict[str, Any]:
    """Run all rounds of a load."""
    counts = (1, options.processes)
    sums: dict[int, list[Sum]] = {count: [] for count in counts}
    for round_ in range(options.rounds):
        for processes in counts if round_ % 2 == 0 else reversed(counts):
            print(f"{load.name}, round {round_ + 1}, processes: {processes}", file=sys.stderr)
            sums[processes].append(measured(load, processes, side, tools, options.seconds))
    return {
        "load": load.says,
        "processes": {str(count): [each._asdict() for each in sums[count]] for count in counts},
    }


def measured(load: Load, processes: int, side: Side, tools: Tools, seconds: float) -> Sum:
    """Put a load on so many servers at the same time."""
    connections = max(1, load.connections // processes)
    words = f"{load.words} --connections {connections} --ms {seconds * 1000:.0f}"
    words += f" --warmup-ms {WARMUP_MS}"
    with servers(processes, load.disk, side, tools) as several, ExitStack() as stack:
        loads = [stack.enter_context(begun(tools, server, words)) for server in several]
        return added([ended(each) for each in loads])


@contextmanager
def servers(count: int, disk: Disk, side: Side, tools: Tools) -> Iterator[list[Running]]:
    """Run servers, each with a log of its own."""
    with ExitStack() as stack:
        folder = stack.enter_context(ending.temporary_folder("scaling-"))
        started = []
        for number in range(count):
            (folder / str(number)).mkdir()
            own = running(side, disk, folder / str(number), tools.slowsync)
            started.append(stack.enter_context(own))
        yield started


@contextmanager
def begun(tools: Tools, server: Running, words: str) -> Iterator[subprocess.Popen[str]]:
    """Begin to put a load on a server; it ends with the block at the latest."""
    command = [str(tools.loadgen), "--port", str(server.port), "--pid", str(server.pid)]
    with ExitStack() as stack:
        with ending.signals_held():
            load = subprocess.Popen([*command, *words.split()], stdout=subprocess.PIPE, text=True)
            stack.callback(end, load)
        yield load


def loaded(tools: Tools, server: Running, words: str) -> dict[str, Any]:
    """Put a load on a server, and wait for what the load generator says."""
    with begun(tools, server, words) as load:
        return ended(load)


def ended(load: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for what a load generator says.

    :raise WrongRepliesError: the replies were wrong, or there were none.
    """
    said, _ = load.communicate(timeout=LOAD_LIMIT_S)
    found: dict[str, Any] = json.loads(said) if said else {"wrong": 0, "commands": 0}
    if found["wrong"] or not found["commands"]:
        raise WrongRepliesError(f"{found['wrong']} wrong replies to {found['commands']} commands")
    return found


def added(loads: Sequence[dict[str, Any]]) -> Sum:
    """Add up what the load generators say."""
    commands = sum(load["commands"] for load in loads)
    return Sum(
        sum(load["commands_per_s"] for load in loads),
        sum(load["server"]["cpu_s"] for load in loads) / commands * 1e6,
        sum(load["client"]["cpu_s"] for load in loads) / commands * 1e6,
        sum(load["server"]["cpu_share"] for load in loads),
    )


def table(found: Sequence[dict[str, Any]], processes: int) -> str:
    """Write the medians of all rounds, and the median of the ratios of the rounds."""
    lines = [
        f"| load | CPU a command, 1, µs | {processes} | ratio | spread | full cores carry, 1 "
        f"| {processes} | measured, 1 | {processes} | processors busy, 1 | {processes} "
        "| CPU of the generators, µs |",
        "| --- | ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in found:
        one, several = row["processes"]["1"], row["processes"][str(processes)]
        ratios = [b["server_us"] / a["server_us"] for a, b in zip(one, several, strict=True)]
        costs = [median(each["server_us"] for each in sums) for sums in (one, several)]
        cells = [
            row["load"], *(f"{cost:.1f}" for cost in costs), f"{median(ratios):.2f}",
            f"{min(ratios):.2f} to {max(ratios):.2f}" if len(ratios) > 1 else "-",
            f"{1e6 / costs[0]:,.0f}", f"{processes * 1e6 / costs[1]:,.0f}",
            *(f"{median(each['rate'] for each in sums):,.0f}" for sums in (one, several)),
            *(f"{median(each['busy'] for each in sums):.2f}" for sums in (one, several)),
            f"{median(each['generator_us'] for each in several):.1f}",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


# What one carries.


def one(side: Side, tools: Tools) -> dict[str, float]:
    """Measure memory of connections and bytes of log."""
    with servers(1, MEMORY, side, tools) as (server,):
        found = idle(server)
    found["replay, jobs a CPU second"] = replayed(side, tools)
    for connections in (1, 50):
        found[f"log of a job, {connections} connections, bytes"] = logged(connections, side, tools)
    for rate in PACES:
        found[f"CPU a command, {rate} jobs a second, µs"] = paced(rate, side, tools)
    for name, value in found.items():
        print(f"{name:40} {value:12,.1f}")
    return found


def idle(server: Running) -> dict[str, float]:
    """Weigh connections that do nothing."""
    before, began_s = resident(server.pid), cpu_seconds(server.pid)
    with ExitStack() as stack:
        for _ in range(IDLE):
            own = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            own.sendall(b"watch a\r\n")
            own.recv(100)
        grown, taken_s = resident(server.pid) - before, cpu_seconds(server.pid) - began_s
    return {
        "memory of a connection, bytes": grown / IDLE,
        "CPU of a connection and one command, µs": taken_s / IDLE * 1e6,
    }


def logged(connections: int, side: Side, tools: Tools) -> float:
    """Weigh what putting, reserving and deleting a job writes; a stopped server keeps no spare
    space.
    """
    words = f"{CYCLE} --connections {connections} --body {BODY_BYTES} --count {CYCLES}"
    with ending.temporary_folder("scaling-") as folder:
        with running(side, SYNC, folder, tools.slowsync) as server:
            loaded(tools, server, words)
            server.stop()
        return size_of(folder / "log") / CYCLES


def replayed(side: Side, tools: Tools) -> float:
    """Time a start on a full log, less a start on an empty one, by the processor."""
    words = f"--ops put --connections 4 --depth 16 --body {BODY_BYTES} --count {REPLAYED}"
    with ending.temporary_folder("scaling-") as folder:
        with running(side, LOG, folder, tools.slowsync) as server:
            empty_s = server.cpu_s
            loaded(tools, server, words)
            server.stop()
        with running(side, LOG, folder, tools.slowsync) as server:
            return REPLAYED / (server.cpu_s - empty_s)


def paced(rate: int, side: Side, tools: Tools) -> float:
    """Time commands that come one at a time, by the processor, with fsync before each reply: each
    wakes the server, and shares a sync with none.
    """
    put = b"put 0 0 60 %d\r\n%s\r\n" % (BODY_BYTES, b"x" * BODY_BYTES)
    cycles = PACED_S * rate
    with servers(1, SYNC, side, tools) as (server,), ExitStack() as stack:
        own = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        replies = stack.enter_context(own.makefile("rb"))
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began_s, cpu_s = time.monotonic(), cpu_seconds(server.pid)
        for cycle in range(cycles):
            time.sleep(max(0.0, began_s + cycle / rate - time.monotonic()))
            own.sendall(put)
            job_id = replies.readline().split()[1]
            own.sendall(b"reserve\r\n")
            replies.readline()
            replies.read(BODY_BYTES + len("\r\n"))
            own.sendall(b"delete %s\r\n" % job_id)
            if replies.readline() != b"DELETED\r\n":
                raise WrongRepliesError("a job that was put was not deleted")
        return (cpu_seconds(server.pid) - cpu_s) / (3 * cycles) * 1e6


def resident(pid: int) -> int:
    """Say how much memory a process has, bytes."""
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * 4096


if __name__ == "__main__":
    sys.exit(main())
