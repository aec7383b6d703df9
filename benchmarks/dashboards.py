"""
What dashboards, and floods of requests, cost a server that does nothing else: its processor time,
and how long a client waits.

A dashboard has the console's stream, and asks for a page of tubes each two seconds, as the page
does.  A flood is some connections, each of which sends as many requests as fit into 250 KB before
it reads, and begins anew when it has all replies, or was closed.
``python -m benchmarks.dashboards --help``.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Final
from urllib.request import urlopen

from tests.server_process import Connection, ServerProcess, ours_at_once

POLL_S: Final = 2.0
"""Seconds from one page of tubes to the next, as in the console."""

FLOODS: Final = ("/healthz", "/metrics", "/api/v1/tubes?limit=200")
"""What is asked for in floods."""

FLOOD_BYTES: Final = 250_000

PROBE_S: Final = 0.01
"""Seconds between two commands of the client that is timed."""


def main() -> int:
    """
    Measure without and with dashboards, and print both.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tubes", type=int, default=10_000, help="tubes, each with one ready job")
    parser.add_argument("--dashboards", type=int, default=10)
    parser.add_argument("--flood", type=int, default=4, help="connections of each flood; 0: none")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        command = ours_at_once("--port", 0, "--http", 0)
        with ServerProcess(command, Path(folder)) as server:
            server.wait_for(", HTTP")
            client = Connection(server.port())
            put_jobs(client, given.tubes)
            (http,) = re.findall(r"127\.0\.0\.1:(\d+), HTTP", "".join(server.said()))
            # Until the first look at all tubes has ended.
            time.sleep(given.tubes / 1000 + 2)
            measure(server, client, given.seconds, "nobody looks")
            with looking(f"http://127.0.0.1:{http}", given.dashboards):
                time.sleep(2)
                measure(server, client, given.seconds, f"{given.dashboards} dashboards")
            for path in FLOODS if given.flood else ():
                measure(server, client, given.seconds, "nobody looks")
                with flooding(int(http), given.flood, path):
                    measure(server, client, given.seconds, f"{given.flood} of {path}")
                time.sleep(2)
            client.close()
    return 0


def put_jobs(client: Connection, tubes: int) -> None:
    """
    Put one job into each tube.
    """
    for number in range(tubes):
        client.send(b"use tube-%05d\r\nput 0 0 60 1\r\na\r\n" % number)
        client.reply()
        client.reply()


def measure(server: ServerProcess, client: Connection, seconds: float, label: str) -> None:
    """
    Print the server's processor time, and how long a command took.
    """
    began, used = time.monotonic(), processor_s(server.process.pid)
    waits = sorted(timed(client, began + seconds))
    share = (processor_s(server.process.pid) - used) / (time.monotonic() - began)
    p50, p99 = (waits[int(len(waits) * part)] * 1000 for part in (0.5, 0.99))
    print(
        f"{label:>28}: {share:6.2%} of a processor, a command p50 {p50:.2f} ms, p99 {p99:.2f} ms, "
        f"max {waits[-1] * 1000:.2f} ms",
        flush=True,
    )


def timed(client: Connection, end: float) -> Iterator[float]:
    """
    Ask for a tube until then; each time in seconds.
    """
    while (began := time.monotonic()) < end:
        client.ask(b"list-tube-used\r\n")
        yield time.monotonic() - began
        time.sleep(PROBE_S)


def processor_s(pid: int) -> float:
    """
    The processor time that a process has used.
    """
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def looking(address: str, dashboards: int) -> Iterator[None]:
    """
    Have so many dashboards look.
    """
    done = Event()
    port = int(address.rpartition(":")[2])
    with ExitStack() as open_ones:
        for _ in range(dashboards):
            stream = open_ones.enter_context(socket.create_connection(("127.0.0.1", port)))
            stream.sendall(b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            Thread(target=drained, args=(stream,), daemon=True).start()
            Thread(target=polled, args=(address, done), daemon=True).start()
            time.sleep(POLL_S / dashboards)
        try:
            yield
        finally:
            done.set()


@contextmanager
def flooding(port: int, connections: int, path: str) -> Iterator[None]:
    """
    Have so many connections flood.
    """
    done = Event()
    threads = [Thread(target=flood, args=(port, path, done)) for _ in range(connections)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()


def flood(port: int, path: str, done: Event) -> None:
    """
    Flood until then.
    """
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
    requests = request * (FLOOD_BYTES // len(request))
    while not done.is_set():
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            with suppress(OSError):
                connection.sendall(requests)
            with suppress(OSError):
                while not done.is_set() and connection.recv(1 << 16):
                    pass


def drained(stream: socket.socket) -> None:
    """
    Read a stream to its end.
    """
    try:
        while stream.recv(1 << 16):
            pass
    except OSError:
        return


def polled(address: str, done: Event) -> None:
    """
    Ask for the first page of tubes, again and again.
    """
    while not done.wait(POLL_S):
        with urlopen(f"{address}/api/v1/tubes?sort=ready&limit=25") as reply:
            reply.read()


if __name__ == "__main__":
    sys.exit(main())
