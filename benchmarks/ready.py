"""How long a start takes on a log of many jobs, from the process's beginning to READY=1.

    python -m benchmarks.ready [--jobs N] [--body-bytes N] [--rounds N] [--folder PATH]

READY=1 is what systemd waits for (``Type=notify``): the log is read, ports are open, the reactor
turns.  The log is written by a server, before; the processor time is the process's until then.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

BATCH = 1_000
"""Jobs that are put before their replies are read."""

LIMIT_S = 600
"""How long a start may take."""


def main(arguments: Sequence[str] | None = None) -> int:
    """:return: the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--body-bytes", type=int, default=100, help="of each job")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", help="where the log is made; by default for temporary files")
    options = parser.parse_args(arguments)
    with TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        with started(folder):
            fill(folder / "queue", options.jobs, bytes(options.body_bytes))
        size_mb = sum(path.stat().st_size for path in (folder / "log").glob("*.tql")) / 1e6
        print(f"{options.jobs:,} jobs of {options.body_bytes} bytes, a log of {size_mb:,.0f} MB")
        found = []
        for _ in range(options.rounds):
            with started(folder) as figures:
                found.append(figures)
        seconds, processor_s, resident_mb = map(statistics.median, zip(*found, strict=True))
        print(f"ready after {seconds:.2f} s, {processor_s:.2f} s of the processor; ", end="")
        print(f"{resident_mb:,.0f} MB resident; medians of {options.rounds}")
    return 0


@contextmanager
def started(folder: Path) -> Iterator[tuple[float, float, float]]:
    """Start a server, and stop it in order.

    :return: seconds until it was ready, of the clock and of the processor, and its megabytes then.
    """
    command = [sys.executable, "-m", "beanstalk_twisted", "-l", f"unix:{folder}/queue"]
    command += ["-b", f"{folder}/log", "--fsync", "never"]
    address = folder / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(address))
        manager.settimeout(LIMIT_S)
        began = time.perf_counter()
        environment = {**os.environ, "NOTIFY_SOCKET": str(address)}
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        try:
            while b"READY=1" not in manager.recv(4096).split(b"\n"):
                pass
            seconds = time.perf_counter() - began
            yield seconds, *figures_of(process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=LIMIT_S)
            address.unlink()


def figures_of(pid: int) -> tuple[float, float]:
    """:return: seconds of the processor that a process has had, and its resident megabytes."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    pages = int(fields[21])
    return ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def fill(path: Path, jobs: int, body: bytes) -> None:
    """Put jobs through a UNIX socket."""
    put = b"put 1000 0 60 %d\r\n%b\r\n" % (len(body), body)
    with socket.socket(socket.AF_UNIX) as client, client.makefile("rb") as replies:
        client.connect(str(path))
        for first in range(0, jobs, BATCH):
            count = min(BATCH, jobs - first)
            client.sendall(put * count)
            for _ in range(count):
                if not replies.readline().startswith(b"INSERTED"):
                    raise SystemExit("a job was not put")


if __name__ == "__main__":
    sys.exit(main())
