"""What dashboards, scrapes and floods of requests cost a server that does nothing else: its
processor time, how much of it each turn of its reactor takes, and how long a client waits.

A dashboard has the console's stream, and asks for a page of tubes each two seconds, as the page
does; beside them somebody scrapes the metrics once a second.  A flood is some connections, each of
which sends as many requests as fit into 250 KB before it reads, and begins anew when it has all
replies, or was closed.  A client waits for one turn, at most; what it waits for on a machine with
other work is mostly the kernel's scheduler.  ``python -m benchmarks.dashboards --help``.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import sys
import tempfile
import time
from array import array
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from time import thread_time
from typing import Final
from urllib.request import urlopen

from twisted.internet.epollreactor import EPollReactor
from twisted.internet.main import installReactor

from tests.server_process import Connection, ServerProcess

ROOT: Final = Path(__file__).resolve().parent.parent

POLL_S: Final = 2.0
"""Seconds from one page of tubes to the next, as in the console."""

FLOODS: Final = ("/healthz", "/metrics", "/api/v1/tubes?limit=200")
"""What is asked for in floods."""

FLOOD_BYTES: Final = 250_000

PROBE_S: Final = 0.01
"""Seconds between two commands of the client that is timed."""

SCRAPE_S: Final = 1.0

SCRAPES: Final = 50
"""Of which the mean cost is told: the kernel counts processor time in 10 ms."""

SERVE: Final = "--serve"
"""As the first argument: be the server, whose turns are written to the file of the next one."""

Span = tuple[str, float, float]
"""What was measured, from when to when, monotonic seconds."""


class TimedReactor(EPollReactor):
    """Notes when each turn began, and the processor time that it took."""

    def __init__(self) -> None:
        self.turns = array("d", (0.0, thread_time()))
        super().__init__()  # type: ignore[no-untyped-call]

    def runUntilCurrent(self) -> None:
        """A turn begins."""
        now_s = thread_time()
        self.turns[-1] = now_s - self.turns[-1]
        self.turns.extend((time.monotonic(), now_s))
        super().runUntilCurrent()


def serve(path: str, options: list[str]) -> None:
    """Run the server; write its turns when it ends."""
    reactor = TimedReactor()
    installReactor(reactor)
    from beanstalk_twisted.tap import main as run

    reactor.addSystemEventTrigger(
        "after", "shutdown", lambda: Path(path).write_bytes(reactor.turns.tobytes())
    )
    run(options)


def main() -> int:
    """Measure without and with dashboards, and print both."""
    if sys.argv[1:2] == [SERVE]:
        serve(sys.argv[2], sys.argv[3:])
        return 0
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tubes", type=int, default=10_000, help="tubes, each with one ready job")
    parser.add_argument("--dashboards", type=int, default=10)
    parser.add_argument("--flood", type=int, default=4, help="connections of each flood; 0: none")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        turns, spans = Path(folder) / "turns", list[Span]()
        command = [sys.executable, "-m", "benchmarks.dashboards", SERVE, str(turns)]
        command += ["--port=0", "--http=0"]
        with ServerProcess(command, Path(folder), {"PYTHONPATH": str(ROOT)}) as server:
            server.wait_for(", HTTP")
            client = Connection(server.port())
            put_jobs(client, given.tubes)
            (http,) = re.findall(r"127\.0\.0\.1:(\d+), HTTP", "".join(server.said()))
            # Until the first look at all tubes has ended.
            time.sleep(given.tubes / 1000 + 2)
            spans.append(measure(server, client, given.seconds, "nobody looks"))
            tell_scrapes(server.process.pid, f"http://127.0.0.1:{http}/metrics", given.tubes)
            with looking(f"http://127.0.0.1:{http}", given.dashboards):
                time.sleep(2)
                spans.append(
                    measure(server, client, given.seconds, f"{given.dashboards} dashboards")
                )
            for path in FLOODS if given.flood else ():
                spans.append(measure(server, client, given.seconds, "nobody looks"))
                with flooding(int(http), given.flood, path):
                    spans.append(measure(server, client, given.seconds, f"{given.flood} of {path}"))
                time.sleep(2)
            client.close()
            server.process.terminate()
            server.process.wait()
        tell_turns(turns.read_bytes(), spans)
    return 0


def tell_turns(written: bytes, spans: list[Span]) -> None:
    """Print how much processor time turns took, of each measurement."""
    numbers = array("d", written)
    for label, began, ended in spans:
        took = sorted(
            cost
            for at, cost in zip(numbers[::2], numbers[1::2], strict=True)
            if began <= at < ended
        )
        parts = [
            f"{name} {took[int((len(took) - 1) * part)] * 1000:.2f} ms"
            for name, part in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("longest", 1.0))
        ]
        print(f"{label:>28}: {len(took)} turns of the server's processor: {', '.join(parts)}")


def put_jobs(client: Connection, tubes: int) -> None:
    """Put one job into each tube."""
    for number in range(tubes):
        client.send(b"use tube-%05d\r\nput 0 0 60 1\r\na\r\n" % number)
        client.reply()
        client.reply()


def tell_scrapes(pid: int, address: str, tubes: int) -> None:
    """Print what a scrape takes of the server's processor, what it does else in that time
    included.
    """
    used, size = processor_s(pid), 0
    for _ in range(SCRAPES):
        with urlopen(address) as reply:
            size = len(reply.read())
    cost_ms = (processor_s(pid) - used) / SCRAPES * 1000
    print(f"a scrape of {tubes} tubes: {cost_ms:.1f} ms of a processor, {size / 1000:.0f} KB")


def measure(server: ServerProcess, client: Connection, seconds: float, label: str) -> Span:
    """Print the server's processor time, and how long a command took."""
    began, used = time.monotonic(), processor_s(server.process.pid)
    waits = sorted(timed(client, began + seconds))
    share = (processor_s(server.process.pid) - used) / (time.monotonic() - began)
    p50, p99 = (waits[int(len(waits) * part)] * 1000 for part in (0.5, 0.99))
    print(
        f"{label:>28}: {share:6.2%} of a processor, a command p50 {p50:.2f} ms, p99 {p99:.2f} ms, "
        f"max {waits[-1] * 1000:.2f} ms",
        flush=True,
    )
    return label, began, time.monotonic()


def timed(client: Connection, end: float) -> Iterator[float]:
    """Ask for a tube until then; each time in seconds."""
    while (began := time.monotonic()) < end:
        client.ask(b"list-tube-used\r\n")
        yield time.monotonic() - began
        time.sleep(PROBE_S)


def processor_s(pid: int) -> float:
    """The processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def looking(address: str, dashboards: int) -> Iterator[None]:
    """Have so many dashboards look, and somebody scrape."""
    done = Event()
    port = int(address.rpartition(":")[2])
    with ExitStack() as open_ones:
        Thread(target=asked, args=(f"{address}/metrics", SCRAPE_S, done), daemon=True).start()
        for _ in range(dashboards):
            stream = open_ones.enter_context(socket.create_connection(("127.0.0.1", port)))
            stream.sendall(b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            Thread(target=drained, args=(stream,), daemon=True).start()
            page = f"{address}/api/v1/tubes?sort=ready&limit=25"
            Thread(target=asked, args=(page, POLL_S, done), daemon=True).start()
            time.sleep(POLL_S / dashboards)
        try:
            yield
        finally:
            done.set()


@contextmanager
def flooding(port: int, connections: int, path: str) -> Iterator[None]:
    """Have so many connections flood."""
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
    """Flood until then."""
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
    """Read a stream to its end."""
    try:
        while stream.recv(1 << 16):
            pass
    except OSError:
        return


def asked(address: str, pause_s: float, done: Event) -> None:
    """Ask for it, again and again."""
    while not done.wait(pause_s):
        with urlopen(address) as reply:
            reply.read()


if __name__ == "__main__":
    sys.exit(main())
