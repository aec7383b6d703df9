"""Measures what others hear of a server while one host floods it.

Two clients that do little go on all the time: one asks for its tube, one puts and deletes.  What
they wait is the figure, and how much memory the server takes meanwhile, and keeps.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Final

from benchmarks.speed.figures import (
    ASK_P99,
    ASK_WORST,
    CYCLE_P99,
    CYCLE_WORST,
    KEPT_BYTES,
    PEAK_BYTES,
    Outcome,
    WrongRepliesError,
)
from benchmarks.speed.servers import HOST, Running

PAUSE_S: Final = 0.01
"""Between two questions of a client."""

LOOK_S: Final = 0.05
"""From one look at the server's memory to the next."""

SETTLE_S: Final = 1.0
"""Before the flood begins, and from its end to the last look at the memory: connections are closed
and their memory is given back.
"""

LIMIT_S: Final = 120.0
"""How long a client waits for a reply, and a flood for its end."""


class Client(Thread):
    """Asks now and then, and notes how long each reply takes.

    :ivar waits_s: seconds, in order.
    :ivar problem: why it has ended too early.
    """

    def __init__(self, port: int, ask: Callable[[socket.socket], list[float]]) -> None:
        super().__init__(daemon=True)
        self.waits_s: list[float] = []
        self.problem = ""
        self._connection = socket.create_connection((HOST, port), timeout=LIMIT_S)
        self._ask = ask
        self._is_over = Event()

    def run(self) -> None:
        """Ask until `stop`."""
        try:
            while not self._is_over.wait(PAUSE_S):
                self.waits_s += self._ask(self._connection)
        except (OSError, AssertionError) as problem:
            self.problem = repr(problem)

    def stop(self) -> None:
        """:raise WrongRepliesError: it was answered wrong, or not at all."""
        self._is_over.set()
        self.join(LIMIT_S)
        self._connection.close()
        if self.problem or self.is_alive() or not self.waits_s:
            raise WrongRepliesError(f"a client beside the flood: {self.problem or 'no reply'}")


def timed(connection: socket.socket, request: bytes, begins: bytes) -> tuple[float, bytes]:
    """Ask once.

    :return: seconds, and the reply.
    """
    began = time.perf_counter()
    connection.sendall(request)
    reply = b""
    while not reply.endswith(b"\r\n"):
        arrived = connection.recv(1000)
        assert arrived, "the server has closed"
        reply += arrived
    assert reply.startswith(begins), reply
    return time.perf_counter() - began, reply


def ask(connection: socket.socket) -> list[float]:
    """Ask for the tube that is used."""
    return [timed(connection, b"list-tube-used\r\n", b"USING")[0]]


def put_and_delete(connection: socket.socket) -> list[float]:
    """Put a job that nobody else is given, and delete it."""
    put_s, reply = timed(connection, b"put 0 1000 60 5\r\nhello\r\n", b"INSERTED")
    delete_s, _ = timed(connection, b"delete %s\r\n" % reply.split()[1], b"DELETED")
    return [put_s, delete_s]


def flooded(kind: str, seconds: float, server: Running) -> Outcome:
    """Flood a server.

    :raise WrongRepliesError: a client beside the flood was not served.
    """
    time.sleep(SETTLE_S)
    before = resident_bytes(server.pid)
    clients = [Client(server.port, ask), Client(server.port, put_and_delete)]
    for client in clients:
        client.start()
    peak = watched_peak(kind, seconds, server)
    for client in clients:
        client.stop()
    time.sleep(SETTLE_S)
    asked, cycled = (sorted(client.waits_s) for client in clients)
    return Outcome({
        ASK_P99.key: percentile(asked, 0.99) * 1000, ASK_WORST.key: asked[-1] * 1000,
        CYCLE_P99.key: percentile(cycled, 0.99) * 1000, CYCLE_WORST.key: cycled[-1] * 1000,
        PEAK_BYTES.key: peak - before, KEPT_BYTES.key: resident_bytes(server.pid) - before,
        "questions": len(asked) + len(cycled),
    })  # fmt: skip


def watched_peak(kind: str, seconds: float, server: Running) -> float:
    """Run the flood.

    :return: the most memory that the server had meanwhile, bytes.
    """
    command = [
        sys.executable, "-m", "benchmarks.speed.flood", kind,
        "--port", str(server.port), "--seconds", str(seconds),
    ]  # fmt: skip
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    peak = 0.0
    try:
        give_up = time.monotonic() + seconds + LIMIT_S
        while process.poll() is None and time.monotonic() < give_up:
            peak = max(peak, resident_bytes(server.pid))
            with suppress(subprocess.TimeoutExpired):
                process.wait(LOOK_S)
    finally:
        process.kill()
        process.wait()
    return peak


def resident_bytes(pid: int) -> float:
    """Say how much memory a process has."""
    words = Path(f"/proc/{pid}/statm").read_text().split()
    return float(words[1]) * 4096


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value that this share of them do not exceed."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
