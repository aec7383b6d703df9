"""A backlog larger than memory: jobs that are put, a restart, and 50 workers that drain them, under
a limit of memory.

    python -m benchmarks.bigger [--jobs N] [--memory-limit BYTES] [--body-cache BYTES] [--only NAME]

The same is done by this server with bodies in the log (`log`), by this server with all bodies in
memory (`memory`), and by beanstalkd.  The limit is a control group's, or, where none can be made,
one of the private memory of the process (RLIMIT_DATA); it counts for `log` only, since the others
need the memory.  Writes ``bigger.json`` and ``bigger.svg``.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import numpy as np

from benchmarks.bigger.draining import Sample, Seen, drain, fill, memory_of, reserve_some, watched

PORT: Final = re.compile(r"listening on 127\.0\.0\.1:(\d+)|bind \d+ 127\.0\.0\.1:(\d+)")

LIMIT_S: Final = 3600
"""How long a server may take to start or to end, seconds."""

COLD: Final = 1000
"""Jobs that are reserved one by one."""

GROUPS: Final = (
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
    (Path("/sys/fs/cgroup"), "memory.max"),
)
"""Where control groups of memory are made, of version 1 and 2, and the file of the limit."""

NAMES: Final = ("log", "memory", "beanstalkd")


class Plan(NamedTuple):
    """What is done.

    :ivar memory_limit: bytes; 0 for none.
    :ivar body_cache: bytes, of the server with bodies in the log.
    """

    jobs: int = 1_000_000
    body_bytes: int = 1000
    workers: int = 50
    memory_limit: int = 3 << 30
    body_cache: int = 256 << 20


class Figures(NamedTuple):
    """What a server did; rates in jobs a second, `cpu` in seconds of the processor, times in
    milliseconds, sizes in MB.

    :ivar start: seconds from the process to its first answer.
    :ivar cold: of a `reserve-job` of a job somewhere in the newer half of the backlog.
    :ivar wait: of a worker for its next job.
    :ivar control: of a client that asks for its tube, while the backlog is drained.
    """

    put_rate: float
    put_cpu: float
    start: float
    start_cpu: float
    cold_p50: float
    cold_p99: float
    drain_rate: float
    drain_cpu: float
    wait_p50: float
    wait_p99: float
    control_p99: float
    peak_anonymous_mb: float
    peak_resident_mb: float


class Measured(NamedTuple):
    """A server, and what it did.

    :ivar limited_by: what held the limit; empty for none.
    :ivar phases: when filling, the start and draining ended, seconds.
    """

    name: str
    limited_by: str
    figures: Figures
    samples: list[Sample]
    phases: list[float]


# The limit.


@contextmanager
def limited(limit: int) -> Iterator[tuple[str, Callable[[], None] | None]]:
    """Within the block a process can be begun that has no more memory than this.

    :return: what holds the limit, and what the new process calls first.
    """
    for root, name in GROUPS if limit else ():
        group = root / f"bigger-{os.getpid()}"
        try:
            group.mkdir()
            (group / name).write_text(str(limit))
        except OSError:
            if group.is_dir():
                group.rmdir()
            continue
        try:
            yield "control group", partial(_enter, group)
        finally:
            group.rmdir()
        return
    if limit:
        yield "RLIMIT_DATA", lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    else:
        yield "", None


def _enter(group: Path) -> None:
    (group / "cgroup.procs").write_text(str(os.getpid()))


# A server.


def command_of(name: str, plan: Plan, log: Path) -> list[str]:
    """The words that begin a server."""
    if name == "beanstalkd":
        return ["beanstalkd", "-V", "-l", "127.0.0.1", "-p", "0", "-b", str(log), "-f", "50"]
    command = [sys.executable, "-m", "beanstalk_twisted", "-p", "0", "-b", str(log)]
    cache = plan.body_cache if name == "log" else 1 << 60
    return [*command, "--fsync", "50", "--max-memory", "0", "--body-cache", str(cache)]


class Server:
    """A process; it is ended in order.

    :ivar start_s: seconds until it answered.
    """

    def __init__(self, command: Sequence[str], enter: Callable[[], None] | None) -> None:
        began = time.perf_counter()
        self._process = subprocess.Popen(
            command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=enter
        )
        self.pid = self._process.pid
        assert self._process.stdout is not None
        found = next((m for line in self._process.stdout if (m := PORT.search(line))), None)
        if found is None:
            raise SystemExit(f"{command} ended with {self._process.wait()}")
        self.port = int(found[1] or found[2])
        _wait_for_answer(self.port)
        self.start_s = time.perf_counter() - began

    @property
    def cpu(self) -> float:
        """Seconds of the processor that it has had."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        """End it, and wait until it has."""
        self._process.send_signal(signal.SIGTERM)
        self._process.communicate(timeout=LIMIT_S)


def _wait_for_answer(port: int) -> None:
    """beanstalkd tells of its port before it listens there, and reads its log in between."""
    give_up = time.monotonic() + LIMIT_S
    while time.monotonic() < give_up:
        with socket.socket() as client:
            if not client.connect_ex(("127.0.0.1", port)):
                client.sendall(b"list-tube-used\r\n")
                client.recv(1024)
                return
        time.sleep(0.005)
    raise SystemExit("the server does not answer")


def measure(name: str, plan: Plan, folder: Path) -> Measured:
    """Fill, restart and drain one server."""
    log = folder / name
    log.mkdir()
    command = command_of(name, plan, log)
    began, seen, phases = time.monotonic(), Seen([], []), []
    with limited(plan.memory_limit if name == "log" else 0) as (limited_by, enter):
        server = Server(command, enter)
        with watched(server.port, server.pid, began, seen):
            filled = time.perf_counter()
            fill(server.port, plan.jobs, plan.body_bytes)
            fill_s, fill_cpu = time.perf_counter() - filled, server.cpu
        phases.append(time.monotonic() - began)
        server.end()
        server = Server(command, enter)
        phases.append(time.monotonic() - began)
        start_cpu = server.cpu
        seen.samples.append(Sample(phases[-1], *memory_of(server.pid)))
        cold = reserve_some(server.port, plan.jobs // 2, plan.jobs, COLD)
        seen.waits.clear()
        cpu = server.cpu
        with watched(server.port, server.pid, began, seen):
            count, drain_s, waits = drain(server.port, plan.workers)
        drain_cpu = server.cpu - cpu
        phases.append(time.monotonic() - began)
        server.end()
    shutil.rmtree(log)
    if count != plan.jobs:
        raise SystemExit(f"{name}: {plan.jobs:,} jobs were put, {count:,} came back")
    p50, p99 = np.percentile(cold, [50, 99]) * 1e3
    wait_p50, wait_p99 = np.percentile(waits, [50, 99]) * 1e3
    figures = Figures(
        plan.jobs / fill_s, fill_cpu, server.start_s, start_cpu, p50, p99, count / drain_s,
        drain_cpu, wait_p50, wait_p99, float(np.percentile(seen.waits, 99)) * 1e3,
        max(each.anonymous for each in seen.samples) / 1e6,
        max(each.resident for each in seen.samples) / 1e6,
    )  # fmt: skip
    rounded = Figures(*(float(f"{each:.4g}") for each in figures))
    return Measured(name, limited_by, rounded, seen.samples, phases)


# Telling.


def table(measured: Sequence[Measured]) -> str:
    """The figures side by side, in Markdown."""
    head = ["", *(each.name for each in measured)]
    rows = [head, ["---", *["---:"] * len(measured)]]
    for name in Figures._fields:
        values = [getattr(each.figures, name) for each in measured]
        rows.append([f"bigger-{name.replace('_', '-')}", *(f"{value:,g}" for value in values)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def draw(path: Path, plan: Plan, measured: Sequence[Measured]) -> None:
    """Memory over time.

    :raise ImportError: matplotlib is not installed.
    """
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.fonttype"] = "none"
    matplotlib.rcParams["svg.hashsalt"] = "bigger"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 4.5), layout="constrained")
    for number, each in enumerate(measured):
        seconds = [sample.seconds for sample in each.samples]
        sizes = [sample.anonymous / (1 << 20) for sample in each.samples]
        axes.plot(seconds, sizes, f"C{number}-", label=each.name)
        for end in each.phases:
            axes.axvline(end, color=f"C{number}", linewidth=0.5, linestyle=":")
    if plan.memory_limit:
        axes.axhline(plan.memory_limit >> 20, color="C3", linestyle="--", label="limit of log")
    title = f"{plan.jobs:,} jobs of {plan.body_bytes:,} bytes: put, restarted, drained"
    axes.set(xlabel="seconds", ylabel="private memory, MiB", title=title, ylim=(0, None))
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def report(folder: Path, plan: Plan, measured: Sequence[Measured]) -> None:
    """Write the files, as far as possible."""
    folder.mkdir(parents=True, exist_ok=True)
    content: dict[str, Any] = {"plan": plan._asdict(), "load_average": os.getloadavg()[0]}
    for each in measured:
        content[each.name] = {**each._asdict(), "figures": each.figures._asdict()}
    (folder / "bigger.json").write_text(json.dumps(content) + "\n")
    try:
        draw(folder / "bigger.svg", plan, measured)
    except ImportError:
        print("no plot: matplotlib is not installed; pip install -e '.[bench]' brings it")


def main(words: Sequence[str] | None = None) -> int:
    """:return: the exit code."""
    parser = argparse.ArgumentParser()
    parser.set_defaults(**Plan()._asdict())
    for name in Plan._fields:
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, help="(%(default)s)")
    parser.add_argument("--only", choices=NAMES, action="append", help="these servers only")
    parser.add_argument("--directory", help="where the logs are made, 1.1 times the bodies large")
    parser.add_argument("--output", type=Path, default=Path("build/bigger"))
    given = parser.parse_args(words)
    plan, measured = Plan(*(getattr(given, name) for name in Plan._fields)), list[Measured]()
    for name in given.only or NAMES:
        with TemporaryDirectory(dir=given.directory) as folder:
            measured.append(measure(name, plan, Path(folder)))
        limited_by = measured[-1].limited_by
        print(f"{name}: {limited_by or 'no limit'}", flush=True)
        report(given.output, plan, measured)
    print(table(measured))
    return 0


if __name__ == "__main__":
    sys.exit(main())
