"""What `put-batch`, `reserve-batch` and `delete-batch` bring, beside single commands and a
pipeline.

    python -m benchmarks.batches [--jobs N] [--rounds N] [--disk memory|log|sync]

One connection puts jobs of 16 bytes, then reserves all, then deletes all: one command at a time, a
hundred on their way at once, and by batches of a hundred; beanstalkd, which has no batches, in the
first two ways.  Each way has a server of its own in each round, and the rounds are interleaved.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import BinaryIO, Final, NamedTuple

from benchmarks.speed.servers import HOST, THEIRS, Side, beanstalkd, cpu_seconds, ours, running
from benchmarks.speed.workloads import LOG, MEMORY, SYNC, Disk

MANY: Final = 100
"""Commands on their way at once, and jobs of a batch."""

BODY: Final = b"0123456789abcdef"

DISKS: Final = {"memory": MEMORY, "log": LOG, "sync": SYNC}

PHASES: Final = ("put", "reserve", "delete")

TIMES_SINGLE: Final = 10.0
"""Jobs/s of batches over single commands that are aimed at, with a sync before each reply."""

TIMES_THEIRS: Final = 1.5
"""Jobs/s of batches over beanstalkd's pipeline that are aimed at, over all three phases."""

LIMIT_S: Final = 300.0
"""How long a reply may take, seconds."""


class Queue:
    """A connection, and what is read from it."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=LIMIT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._replies: BinaryIO = self._socket.makefile("rb")

    def send(self, request: bytes) -> None:
        """Send commands."""
        self._socket.sendall(request)

    def line(self, word: bytes) -> list[bytes]:
        """Read a line, which begins with this word."""
        words = self._replies.readline().split()
        if words[:1] != [word]:
            raise SystemExit(f"expected {word!r}, not {words!r}")
        return words

    def job(self) -> bytes:
        """Read a job.

        :return: its id.
        """
        _, job_id, size = self.line(b"RESERVED")
        self._replies.read(int(size) + 2)
        return job_id

    def close(self) -> None:
        """End the connection."""
        self._replies.close()
        self._socket.close()


def put_command() -> bytes:
    return b"put " + put_job()


def put_job() -> bytes:
    """:return: a job as it stands in a `put` or a `put-batch`."""
    return b"0 0 600 %d\r\n%s\r\n" % (len(BODY), BODY)


def one_by_one(queue: Queue, jobs: int, at_once: int) -> Iterator[None]:
    """Single commands, so many on their way at once; a phase each time it is asked."""
    for _ in range(0, jobs, at_once):
        queue.send(put_command() * at_once)
        for _ in range(at_once):
            queue.line(b"INSERTED")
    yield
    ids = []
    for _ in range(0, jobs, at_once):
        queue.send(b"reserve\r\n" * at_once)
        ids += [queue.job() for _ in range(at_once)]
    yield
    for start in range(0, jobs, at_once):
        some = ids[start : start + at_once]
        queue.send(b"".join([b"delete %s\r\n" % job_id for job_id in some]))
        for _ in some:
            queue.line(b"DELETED")
    yield


def single(queue: Queue, jobs: int) -> Iterator[None]:
    """One command at a time."""
    return one_by_one(queue, jobs, 1)


def pipelined(queue: Queue, jobs: int) -> Iterator[None]:
    """A hundred commands on their way."""
    return one_by_one(queue, jobs, MANY)


def batches(queue: Queue, jobs: int) -> Iterator[None]:
    """A hundred jobs a command."""
    for _ in range(0, jobs, MANY):
        queue.send(b"put-batch %d\r\n" % MANY + put_job() * MANY)
        queue.line(b"INSERTED_BATCH")
        for _ in range(MANY):
            queue.line(b"INSERTED")
    yield
    ids = []
    for _ in range(0, jobs, MANY):
        queue.send(b"reserve-batch %d\r\n" % MANY)
        queue.line(b"RESERVED_BATCH")
        ids += [queue.job() for _ in range(MANY)]
    yield
    for start in range(0, jobs, MANY):
        queue.send(b"delete-batch " + b" ".join(ids[start : start + MANY]) + b"\r\n")
        if queue.line(b"DELETED_BATCH")[1] != b"%d" % MANY:
            raise SystemExit("not all jobs were deleted")
    yield


class Way(NamedTuple):
    """How the jobs go through a server."""

    name: str
    side: Side
    drive: Callable[[Queue, int], Iterator[None]]


class Took(NamedTuple):
    """What a phase has taken, seconds; the processor time is the server's."""

    clock_s: float
    cpu_s: float


def ways() -> list[Way]:
    """All that are compared; beanstalkd if it is installed."""
    side = ours(sys.executable)
    found = [
        Way("single", side, single), Way("pipelined", side, pipelined),
        Way("batches", side, batches),
    ]  # fmt: skip
    program = shutil.which("beanstalkd")
    if program is not None:
        side = beanstalkd(program)
        found += [Way("single", side, single), Way("pipelined", side, pipelined)]
    return found


def run(way: Way, disk: Disk, jobs: int, parent: Path | None) -> list[Took]:
    """:return: what each phase has taken."""
    with TemporaryDirectory(dir=parent) as folder, \
            running(way.side, disk, Path(folder), Path()) as server:  # fmt: skip
        queue = Queue(server.port)
        phases, took = way.drive(queue, jobs), []
        for _ in PHASES:
            began_s, cpu_s = time.perf_counter(), cpu_seconds(server.pid)
            next(phases)
            ended_s, ended_cpu_s = time.perf_counter(), cpu_seconds(server.pid)
            took.append(Took(ended_s - began_s, ended_cpu_s - cpu_s))
        queue.close()
        server.stop()
    return took


class Figures(NamedTuple):
    """Medians over the rounds.

    :ivar clock_us: microseconds a job in each phase; ``cpu_us`` the server's processor time.
    """

    clock_us: list[float]
    cpu_us: list[float]

    @property
    def rate(self) -> float:
        """Jobs that go through all three phases in a second."""
        return 1e6 / sum(self.clock_us)


def figures(rounds: Sequence[Sequence[Took]], jobs: int) -> Figures:
    """Put the rounds of one way together."""
    by_phase = list(zip(*rounds, strict=True))
    return Figures(
        [median(took.clock_s for took in phase) * 1e6 / jobs for phase in by_phase],
        [median(took.cpu_s for took in phase) * 1e6 / jobs for phase in by_phase],
    )


def row(way: Way, found: Figures) -> str:
    """A line of the table."""
    cells = [f"{1e6 / us:,.0f} ({cpu:.1f})" for us, cpu in zip(*found, strict=True)]
    cells += [f"{found.rate:,.0f}", f"{sum(found.cpu_us):.1f}"]
    return f"| {way.side.name}, {way.name} | " + " | ".join(cells) + " |"


def compare(disk: str, found: dict[tuple[str, str], Figures]) -> None:
    """Say what batches bring."""
    side = next(iter(found))[0]
    batch, one = found[side, "batches"], found[side, "single"]
    pipeline = found.get((THEIRS, "pipelined"))
    phases = [
        f"{phase} {one.clock_us[at] / batch.clock_us[at]:.1f}" for at, phase in enumerate(PHASES)
    ]
    print(f"\n{disk}: batches beside single commands, jobs/s: {', '.join(phases)}", end="")
    print(f", all {batch.rate / one.rate:.1f}" + aim(disk == "sync", TIMES_SINGLE))
    if pipeline is not None:
        print(f"{disk}: batches beside beanstalkd's pipeline, jobs/s: ", end="")
        print(f"{batch.rate / pipeline.rate:.2f}" + aim(True, TIMES_THEIRS))


def aim(is_one: bool, least: float) -> str:
    """:return: what is aimed at, to stand behind a ratio."""
    return f" (aim {least})" if is_one else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """:return: the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2000, help="a multiple of 100")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--disk", choices=DISKS, action="append", help="(memory and sync)")
    parser.add_argument("--directory", type=Path, help="for logs (the one for temporary files)")
    options = parser.parse_args(arguments)
    if options.jobs < MANY or options.jobs % MANY or options.rounds < 1:
        parser.error(f"--jobs is a multiple of {MANY}, and --rounds is 1 at least")
    for name in options.disk or ("memory", "sync"):
        rounds: dict[Way, list[list[Took]]] = {way: [] for way in ways()}
        for _ in range(options.rounds):
            for way, took in rounds.items():
                took.append(run(way, DISKS[name], options.jobs, options.directory))
        print(
            f"\n| {name} | " + " | ".join(f"{phase}, jobs/s (CPU, µs)" for phase in PHASES), end=""
        )
        print(" | all, jobs/s | CPU, µs a job |\n| --- | ---: | ---: | ---: | ---: | ---: |")
        found = {}
        for way, took in rounds.items():
            found[way.side.name, way.name] = figures(took, options.jobs)
            print(row(way, found[way.side.name, way.name]))
        compare(name, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
