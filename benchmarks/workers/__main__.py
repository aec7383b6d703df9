"""Processor time of a worker for each job that does nothing, beside a loop that reserves and
deletes, and beside dramatiq on Redis if both are installed.

    python -m benchmarks.workers [--jobs N] [--rounds N] [--only WORD] [--dramatiq PYTHON]

Each measurement is a new server with all jobs in it, and a worker, whose function prints the
processor time of its process at the 500th job and at the last.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from beanstalk_twisted.client import sync
from benchmarks.client import running

FIRST: Final = 500
PORT: Final = 16379
ROOT: Final = Path(__file__).parents[2]

JOBS: Final = """
import itertools, time
calls = itertools.count(1)
def nothing(*given):
    if next(calls) in ({first}, {last}):
        print("times", time.process_time(), flush=True)
async def later(attempt):
    nothing()
"""
TASKS: Final = """
from beanstalk_twisted.tasks import App
from jobs import nothing
app = App()
@app.task()
def task():
    nothing()
"""
ACTORS: Final = """
import dramatiq
from dramatiq.brokers.redis import RedisBroker
from jobs import nothing
dramatiq.set_broker(RedisBroker(port={port}))
actor = dramatiq.actor(nothing)
if __name__ == "__main__":
    for _ in range({last}):
        actor.send()
"""

WORKERS: Final = {
    "inline, -n 1": ["-n", "1", "--in-reactor", "jobs:nothing"],
    "inline, -n 1 --attempts 0": ["-n", "1", "--attempts", "0", "--in-reactor", "jobs:nothing"],
    "coroutine, -n 1": ["-n", "1", "jobs:later"],
    "thread, -n 1": ["-n", "1", "jobs:nothing"],
    "inline, -n 10": ["-n", "10", "--in-reactor", "jobs:nothing"],
    "threads, -n 10": ["-n", "10", "jobs:nothing"],
    "threads, -n 10 --attempts 0": ["-n", "10", "--attempts", "0", "jobs:nothing"],
    "tasks, -n 10": ["-n", "10", "tasks:app"],
}


def microseconds(command: list[str], folder: str, jobs: int) -> float:
    """Run a worker until its last job."""
    paths = {"PYTHONPATH": os.pathsep.join((str(ROOT), folder))}
    with subprocess.Popen(
        command, cwd=folder, env=os.environ | paths, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as worker:  # fmt: skip
        assert worker.stdout is not None
        try:
            times = (line[6:] for line in worker.stdout if line.startswith("times "))
            first, last = float(next(times)), float(next(times))
        finally:
            worker.terminate()
    return (last - first) / (jobs - FIRST) * 1e6


def ours(options: list[str], folder: str, jobs: int) -> float:
    """:param options: of `beanstalk-work`; none for the loop."""
    with running("ours") as port, sync.Client(f"127.0.0.1:{port}") as client:
        with client.pipeline() as pipe:
            for _ in range(jobs):
                pipe.put(b'{"task":"task"}')
        if not options:
            began = time.process_time()
            for _ in range(jobs):
                client.delete(client.reserve())
            return (time.process_time() - began) / jobs * 1e6
        start = "from beanstalk_twisted.programs import beanstalk_work; beanstalk_work()"
        command = [sys.executable, "-c", start, "-s", f"127.0.0.1:{port}", *options]
        return microseconds(command, folder, jobs)


def dramatiq(python: str, folder: str, jobs: int) -> float:
    options = ["--port", str(PORT), "--save", "", "--dir", folder]
    with subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL) as redis:
        try:
            time.sleep(1)
            subprocess.run([python, "actors.py"], cwd=folder, check=True)
            command = [python, "-m", "dramatiq", "-p", "1", "-t", "10", "actors"]
            return microseconds(command, folder, jobs)
        finally:
            redis.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--jobs", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="measure those with this word in their names")
    parser.add_argument("--dramatiq", metavar="PYTHON", help="that has dramatiq and redis")
    chosen = parser.parse_args()
    measures: dict[str, Callable[[str, int], float]] = {"loop": partial(ours, [])}
    measures |= {name: partial(ours, each) for name, each in WORKERS.items() if chosen.only in name}
    if chosen.dramatiq and shutil.which("redis-server"):
        measures["dramatiq, 10 threads"] = partial(dramatiq, chosen.dramatiq)
    taken: dict[str, list[float]] = {name: [] for name in measures}
    with TemporaryDirectory() as folder:
        for name, source in (("jobs", JOBS), ("tasks", TASKS), ("actors", ACTORS)):
            text = source.format(first=FIRST, last=chosen.jobs, port=PORT)
            Path(folder, f"{name}.py").write_text(text)
        for _ in range(chosen.rounds):
            for name, measure in measures.items():
                taken[name].append(measure(folder, chosen.jobs))
    print("| least of rounds | CPU, µs a job | of the loop |\n| --- | ---: | ---: |")
    for name, each in taken.items():
        print(f"| {name} | {min(each):.0f} | {min(each) / min(taken['loop']):.1f} |")


if __name__ == "__main__":
    main()
