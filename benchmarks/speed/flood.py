"""What one host can do to others that use the same server.

    python -m benchmarks.speed.flood KIND --port PORT --seconds S

It sends to 127.0.0.1 only, and ends by itself.  `flooding` runs it beside a client that measures.
"""

from __future__ import annotations

import argparse
import random
import resource
import selectors
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from threading import Thread
from typing import Final, NamedTuple

HOST: Final = "127.0.0.1"

LINES_BYTES: Final = 64 << 10
"""What a connection pipelines of one line."""

LARGE_BODY: Final = 20_000_000
SMALL_BODY: Final = 65_000
"""Bytes of the jobs that are looked at and not read."""

CONNECTS_A_SECOND: Final = 3_000
PATIENCE_S: Final = 5.0
"""How long a connection of a flood waits for the server, seconds."""


def noise(chance: random.Random) -> list[bytes]:
    """Make pieces of nonsense."""
    return [
        chance.randbytes(20_000), b"\r\n" * 5_000, b"A" * 50_000, b"put " * 5_000,
        b"peek 1\r\n" * 1_000,
    ]  # fmt: skip


def lines(line: bytes) -> list[bytes]:
    """Make one piece of a line again and again."""
    return [line * (LINES_BYTES // len(line))]


class Flood(NamedTuple):
    """Where a flood goes, and when it ends.

    :ivar ends_s: on `time.monotonic`.
    """

    port: int
    ends_s: float

    @property
    def is_over(self) -> bool:
        """Whether its time is up."""
        return time.monotonic() >= self.ends_s

    def connect(self) -> socket.socket:
        """Connect, and have no patience."""
        return socket.create_connection((HOST, self.port), timeout=PATIENCE_S)

    def wait(self) -> None:
        """Do nothing until it is over."""
        time.sleep(max(0.0, self.ends_s - time.monotonic()))


def send_on(flood: Flood, count: int, pieces: Sequence[bytes]) -> None:
    """Send at full speed on so many connections, and read the replies; connect again when
    closed.
    """
    chance = random.Random(count)
    selector = selectors.DefaultSelector()

    def begin() -> None:
        connection = flood.connect()
        connection.setblocking(False)
        both = selectors.EVENT_READ | selectors.EVENT_WRITE
        selector.register(connection, both, [memoryview(chance.choice(pieces))])

    for _ in range(count):
        begin()
    while not flood.is_over:
        for key, events in selector.select(0.1):
            connection, left = key.fileobj, key.data
            assert isinstance(connection, socket.socket)
            try:
                exchange(connection, events, left)
            except OSError:
                selector.unregister(connection)
                connection.close()
                begin()
            if not left[0]:
                left[0] = memoryview(chance.choice(pieces))


def exchange(connection: socket.socket, events: int, left: list[memoryview]) -> None:
    """Read and send what may be.

    :raise OSError: the connection is over.
    """
    try:
        if events & selectors.EVENT_READ and not connection.recv(1 << 20):
            raise ConnectionResetError
        if events & selectors.EVENT_WRITE:
            left[0] = left[0][connection.send(left[0]) :]
    except BlockingIOError:
        pass


def send_and_close(flood: Flood, count: int, pieces: Sequence[bytes]) -> None:
    """Connect, send a piece, close and read nothing, on so many connections at a time."""

    def work(seed: int) -> None:
        chance = random.Random(seed)
        while not flood.is_over:
            try:
                with flood.connect() as connection:
                    connection.sendall(chance.choice(pieces))
            except OSError:
                time.sleep(0.01)

    threads = [Thread(target=work, args=(seed,)) for seed in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def connect_and_leave(flood: Flood) -> None:
    """Connect `CONNECTS_A_SECOND` times, put half a job or one, and close or reset."""
    began, made = time.monotonic(), 0
    reset = struct.pack("ii", 1, 0)
    while not flood.is_over:
        while made < (time.monotonic() - began) * CONNECTS_A_SECOND and not flood.is_over:
            made += 1
            try:
                with flood.connect() as connection:
                    whole = made % 2
                    connection.send(b"put 0 0 9 %d\r\nhello\r\n" % (5 if whole else 1_000))
                    if made % 3 == 0:
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            except OSError:
                pass
        time.sleep(0.001)


def look_and_read_nothing(flood: Flood, count: int, size: int, times: int) -> None:
    """Ask so many times for a job of this size on each of so many connections."""
    allow_connections(count)
    with flood.connect() as first:
        first.sendall(b"put 0 0 9 %d\r\n" % size + bytes(size) + b"\r\n")
        job_id = first.recv(100).split()[1]
        connections = list(asking(flood, count, b"peek %s\r\n" % job_id * times))
        flood.wait()
        for connection in connections:
            connection.close()
        first.sendall(b"delete %s\r\n" % job_id)
        first.recv(100)


def asking(flood: Flood, count: int, request: bytes) -> Iterator[socket.socket]:
    """Make connections that have sent a request, as many as there is time for."""
    for _ in range(count):
        if flood.is_over:
            return
        connection = flood.connect()
        connection.sendall(request)
        yield connection


def allow_connections(count: int) -> None:
    """Raise the limit of open files, if it may be raised."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count + 100:
        wanted = count + 100 if hard == resource.RLIM_INFINITY else min(count + 100, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


KINDS: Final[dict[str, Callable[[Flood], None]]] = {
    "noise": lambda flood: send_on(flood, 20, noise(random.Random(1))),
    "noise-and-close": lambda flood: send_and_close(flood, 20, noise(random.Random(1))),
    "wrong-lines": lambda flood: send_on(flood, 200, lines(b"nonsense\r\n")),
    "touch": lambda flood: send_on(flood, 20, lines(b"touch 1\r\n")),
    "connects": connect_and_leave,
    "unread": lambda flood: look_and_read_nothing(flood, 3_000, SMALL_BODY, 60),
    "unread-large": lambda flood: look_and_read_nothing(flood, 60, LARGE_BODY, 1),
}


def main(words: Sequence[str] | None = None) -> int:
    """:return: the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.flood")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    given = parser.parse_args(words)
    KINDS[given.kind](Flood(given.port, time.monotonic() + given.seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
