"""The clients of `bigger`: one that fills a queue, workers that drain it, one that looks at single
jobs, and one that watches what a client notices and what the server takes of memory meanwhile.
"""

from __future__ import annotations

import multiprocessing
import random
import selectors
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from typing import Any, Final, NamedTuple

BATCH: Final = 2000
"""Jobs that are put before their replies are read."""

RECEIVE_BYTES: Final = 1 << 18
"""Bytes that a worker reads at once."""

LOOK_S: Final = 0.02
"""Seconds from one question of the watcher to the next."""

SAMPLE_S: Final = 0.5
"""The same of its looks at the server's memory."""


class Sample(NamedTuple):
    """What a server took at a time.

    :ivar seconds: since the measurement has begun; ``resident`` and ``anonymous`` bytes.
    """

    seconds: float
    resident: int
    anonymous: int


class Seen(NamedTuple):
    """What the watcher has seen.

    :ivar waits: seconds of each of its round trips.
    """

    waits: list[float]
    samples: list[Sample]


def memory_of(pid: int) -> tuple[int, int]:
    """:return: the resident bytes of a process, and those of them that are no file's."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    kib = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.endswith(" kB")}
    return kib["VmRSS"] << 10, kib["RssAnon"] << 10


def fill(port: int, jobs: int, body_bytes: int) -> None:
    """Put jobs, many in one packet.

    :raise SystemExit: one was not put.
    """
    put = b"put 1000 0 600 %d\r\n%b\r\n" % (body_bytes, b"x" * body_bytes)
    with socket.create_connection(("127.0.0.1", port)) as client, client.makefile("rb") as replies:
        for first in range(0, jobs, BATCH):
            count = min(BATCH, jobs - first)
            sending = Thread(target=client.sendall, args=(put * count,))
            sending.start()
            for _ in range(count):
                if not (line := replies.readline()).startswith(b"INSERTED"):
                    raise SystemExit(f"a job was not put: {line!r}")
            sending.join()


class _Worker:
    """Reserves a job, deletes it and reserves the next one in one packet."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._heard = b""
        self._asked = 0.0

    def ask(self, request: bytes) -> None:
        """Send what ends with a reserve."""
        self._asked = time.perf_counter()
        self.socket.sendall(request)

    def hear(self, waits: list[float]) -> tuple[int, bool]:
        """Take what has come, and ask for the next job.

        :param waits: gets the seconds from asking to having the job.
        :return: how many jobs it has got, and whether there are no more.
        """
        self._heard += self.socket.recv(RECEIVE_BYTES)
        _, found, rest = self._heard.rpartition(b"RESERVED ")
        if not found:
            return 0, b"TIMED_OUT" in self._heard
        head, ended, body = rest.partition(b"\r\n")
        if not ended or len(body) < int(head.split()[1]) + 2:
            return 0, False
        waits.append(time.perf_counter() - self._asked)
        self._heard = b""
        self.ask(b"delete %b\r\nreserve-with-timeout 0\r\n" % head.split()[0])
        return 1, False


def drain(port: int, workers: int) -> tuple[int, float, list[float]]:
    """Reserve and delete all ready jobs.

    :return: how many there were, the seconds, and those that each worker waited for each.
    """
    selector, waits, count = selectors.DefaultSelector(), list[float](), 0
    began = time.perf_counter()
    for worker in [_Worker(port) for _ in range(workers)]:
        selector.register(worker.socket, selectors.EVENT_READ, worker)
        worker.ask(b"reserve-with-timeout 0\r\n")
    while selector.get_map():
        for key, _ in selector.select():
            taken, is_over = key.data.hear(waits)
            count += taken
            if is_over:
                selector.unregister(key.fileobj)
                key.data.socket.close()
    return count, time.perf_counter() - began, waits


def reserve_some(port: int, first: int, last: int, count: int) -> list[float]:
    """Reserve and release single jobs, by chance.

    :param first: the smallest id that may be drawn, ``last`` the largest.
    :return: the seconds of each `reserve-job`.
    """
    draw, waits = random.Random(1), list[float]()
    with socket.create_connection(("127.0.0.1", port)) as client, client.makefile("rb") as replies:
        for _ in range(count):
            job = draw.randint(first, last)
            began = time.perf_counter()
            client.sendall(b"reserve-job %d\r\n" % job)
            line = replies.readline()
            if not line.startswith(b"RESERVED "):
                raise SystemExit(f"job {job}: {line!r}")
            replies.read(int(line.split()[2]) + 2)
            waits.append(time.perf_counter() - began)
            client.sendall(b"release %d 1000 0\r\n" % job)
            replies.readline()
    return waits


@contextmanager
def watched(port: int, pid: int, began: float, seen: Seen) -> Iterator[None]:
    """Within the block a process of its own asks the server again and again.

    :param began: when the measurement has begun, on the clock of `time.monotonic`.
    :param seen: gets what it has seen.
    """
    ours, its = multiprocessing.Pipe()
    watcher = multiprocessing.Process(target=_watch, args=(port, pid, began, its), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ours.send(None)
        waits, samples = ours.recv()
        seen.waits.extend(waits)
        seen.samples.extend(samples)
        watcher.join()


def _watch(port: int, pid: int, began: float, pipe: Connection[Any, Any]) -> None:
    waits: list[float] = []
    samples: list[Sample] = []
    sampled = 0.0
    with socket.create_connection(("127.0.0.1", port)) as client:
        while not pipe.poll(LOOK_S):
            asked = time.perf_counter()
            client.sendall(b"list-tube-used\r\n")
            client.recv(1024)
            waits.append(time.perf_counter() - asked)
            if asked >= sampled + SAMPLE_S:
                sampled = asked
                samples.append(Sample(time.monotonic() - began, *memory_of(pid)))
    pipe.send((waits, samples))
