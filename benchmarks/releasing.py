"""A server of our own under a load of reserves and releases, and the size of its log meanwhile."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import BinaryIO, Final, NamedTuple

from beanstalk_twisted.binlog.segments.format import RECORD_BYTES, parse_segment_name

FACTOR: Final = 2
"""Times what lives: when compaction begins (`beanstalk_twisted.binlog.compaction.Policy`)."""

CEILING_FACTOR: Final = 4
"""Times what lives: where the log must never be."""

SPARE_SEGMENTS: Final = 2
"""Segments that both bounds allow beside that."""

CHUNK_BYTES: Final = 1 << 20
"""So much of a segment is held in memory."""

LIMIT_S: Final = 30.0
"""How long a start, a reply or an end may take, seconds."""

REST_S: Final = 5.0
"""How long compaction has to end what it has begun, when the load is over."""


class Plan(NamedTuple):
    """What is to be done.

    :ivar fsync: as the server's option.
    """

    seconds: float
    connections: int
    jobs: int
    body_bytes: int
    segment_bytes: int
    fsync: str

    @property
    def live_bytes(self) -> int:
        """What the log would take if it held nothing but the jobs."""
        return self.jobs * (RECORD_BYTES + self.body_bytes)

    def bound_bytes(self, factor: int) -> int:
        """How large the log may be."""
        return factor * self.live_bytes + SPARE_SEGMENTS * self.segment_bytes


class Sample(NamedTuple):
    """The log at one moment.

    :ivar seconds: since the load began.
    :ivar log_bytes: of all segments, as far as they are written.
    :ivar segment_bytes: of all segments, with what is allocated ahead.
    :ivar file_bytes: of all files in the directory.
    :ivar migrated: jobs that compaction has stated again.
    :ivar records: that were written.
    """

    seconds: float
    log_bytes: int
    segment_bytes: int
    file_bytes: int
    oldest: int
    newest: int
    migrated: int
    records: int
    releases: int


class Measured(NamedTuple):
    """What was seen.

    :ivar samples: under load, one a second.
    :ivar rest_bytes: of the log, when the load was over.
    """

    plan: Plan
    samples: list[Sample]
    rest_bytes: int


class Connection:
    """A client that waits for each reply."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S)
        self._replies: BinaryIO = self._socket.makefile("rb")

    def ask(self, request: bytes) -> tuple[bytes, bytes]:
        """Send a command.

        :return: the line of the reply, and its body if it has one.
        """
        self._socket.sendall(request)
        line = self._replies.readline()
        has_body = line.startswith((b"RESERVED ", b"OK "))
        return line, self._replies.read(int(line.split()[-1]) + 2) if has_body else b""

    def statistics(self) -> dict[str, str]:
        """The answer to `stats`."""
        _, body = self.ask(b"stats\r\n")
        lines = body.decode().splitlines()
        return dict(line.split(": ", 1) for line in lines if ": " in line)


class Worker(Thread):
    """Reserves and releases.

    :ivar releases: how often it has.
    """

    def __init__(self, port: int, stop: Event) -> None:
        super().__init__(daemon=True)
        self.releases = 0
        self.problem = ""
        self._connection = Connection(port)
        self._has_to_end = stop

    def run(self) -> None:
        """Work until told to stop, or something is wrong."""
        try:
            while not self._has_to_end.is_set():
                self._cycle()
        except (OSError, ValueError) as problem:
            self.problem = str(problem)

    def _cycle(self) -> None:
        line, _ = self._connection.ask(b"reserve\r\n")
        if not line.startswith(b"RESERVED "):
            raise ValueError(f"reserve was answered with {line!r}")
        line, _ = self._connection.ask(b"release %d 1024 0\r\n" % int(line.split()[1]))
        if line != b"RELEASED\r\n":
            raise ValueError(f"release was answered with {line!r}")
        self.releases += 1


# Measuring.


def sizes(log: Path) -> tuple[int, int, int]:
    """See `Sample`.

    :return: bytes of the log, of its segments, of all files.
    """
    files: dict[str, int] = {}
    for path in log.iterdir():
        with suppress(FileNotFoundError):  # Compaction may delete it in between.
            files[path.name] = path.stat().st_size
    segments = {name: size for name, size in files.items() if parse_segment_name(name) is not None}
    total = sum(segments.values())
    unwritten = allocated_ahead(log / max(segments)) if segments else 0
    return total - unwritten, total, sum(files.values())


def allocated_ahead(segment: Path) -> int:
    """How many zeros a segment ends with."""
    zeros = 0
    with segment.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            start = max(0, end - CHUNK_BYTES)
            file.seek(start)
            written = file.read(end - start).rstrip(b"\0")
            zeros += end - start - len(written)
            if written:
                break
            end = start
    return zeros


def sample(seconds: float, log: Path, stats: dict[str, str], releases: int) -> Sample:
    """Look at the log."""
    return Sample(
        round(seconds, 2), *sizes(log),
        oldest=int(stats["binlog-oldest-index"]), newest=int(stats["binlog-current-index"]),
        migrated=int(stats["binlog-records-migrated"]),
        records=int(stats["binlog-records-written"]), releases=releases,
    )  # fmt: skip


def load(port: int, log: Path, plan: Plan, seen: Callable[[Sample], None]) -> Measured:
    """Put the jobs, work, and look once a second; then once more."""
    observer = Connection(port)
    body = b"x" * plan.body_bytes
    for _ in range(plan.jobs):
        observer.ask(b"put 1024 0 3600 %d\r\n%s\r\n" % (plan.body_bytes, body))
    stop = Event()
    workers = [Worker(port, stop) for _ in range(plan.connections)]
    for worker in workers:
        worker.start()
    samples = watch(observer, log, plan, workers, seen)
    stop.set()
    for worker in workers:
        worker.join(LIMIT_S)
    problems = [worker.problem for worker in workers if worker.problem]
    if problems:
        raise SystemExit(f"the load has failed: {problems[0]}")
    return Measured(plan, samples, size_at_rest(log, plan))


def size_at_rest(log: Path, plan: Plan) -> int:
    """Wait until the log is within its bound, or should have been."""
    give_up = time.monotonic() + REST_S
    while (size := sizes(log)[0]) > plan.bound_bytes(FACTOR) and time.monotonic() < give_up:
        time.sleep(0.1)
    return size


def watch(
    observer: Connection, log: Path, plan: Plan, workers: Sequence[Worker],
    seen: Callable[[Sample], None],
) -> list[Sample]:  # fmt: skip
    """Look once a second."""
    began = time.monotonic()
    samples: list[Sample] = []
    while (passed := time.monotonic() - began) < plan.seconds:
        releases = sum(worker.releases for worker in workers)
        samples.append(sample(passed, log, observer.statistics(), releases))
        seen(samples[-1])
        time.sleep(max(0.0, len(samples) - (time.monotonic() - began)))
    return samples


def soak(plan: Plan, seen: Callable[[Sample], None]) -> Measured:
    """Run a server of our own on a new directory and a free port, under load.

    :param seen: called with each sample.
    """
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        log = Path(folder) / "log"
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        command = [
            sys.executable, "-m", "beanstalk_twisted", "--port", str(port), "--binlog", str(log),
            "--segment-size", str(plan.segment_bytes), "--fsync", plan.fsync,
        ]  # fmt: skip
        with (Path(folder) / "server.log").open("wb") as said:
            server = subprocess.Popen(command, stdout=said, stderr=said)
            try:
                wait_for_port(port, server, Path(folder) / "server.log")
                return load(port, log, plan, seen)
            finally:
                server.terminate()
                server.wait(LIMIT_S)


def wait_for_port(port: int, server: subprocess.Popen[bytes], said: Path) -> None:
    """Wait until the server listens."""
    give_up = time.monotonic() + LIMIT_S
    while time.monotonic() < give_up and server.poll() is None:
        with suppress(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S).close()
            return
        time.sleep(0.05)
    raise SystemExit(f"the server has not started:\n{said.read_text()}")
