"""What TLS costs the server: processor time of a command, and of a connection's beginning, with TLS
and without, in memory.

Clients run in this process, one thread, and wait for replies as the servers are slow: what is
measured is the processor time of the server alone.  ``python -m benchmarks.tls --help``.
"""

from __future__ import annotations

import argparse
import os
import selectors
import socket
import ssl
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from tests.certificates import Certificates
from tests.server_process import ServerProcess, ours_at_once

TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")

ROUND: Final = b"list-tube-used\r\n"
"""A round trip that changes nothing, so that what differs is the way."""

LIMIT_S: Final = 60.0


class Way(NamedTuple):
    """How a server is reached.

    :ivar listen: its endpoint, for a folder of certificates.
    :ivar words: what its log says behind the address.
    """

    name: str
    listen: str
    words: str = ""


AT: Final = "interface=127.0.0.1"
WAYS: Final = (
    Way("plain", f"tcp:0:{AT}"),
    Way("tls:", "tls:0:{0}/server:" + AT, "TLS"),
    Way("mtls:", "mtls:0:{0}/server:ca={0}/roots/ca.pem:crl={0}/revoked.crl:" + AT, "TLS with "
        "client certificates"),
)  # fmt: skip


class Server:
    """A server of ours."""

    def __init__(self, way: Way, certificates: Certificates, folder: Path) -> None:
        listen = way.listen.format(certificates.folder)
        self.process = ServerProcess(ours_at_once("--listen", listen), folder)
        self.port = self.process.port_of(way.words) if way.words else self.process.port()
        self._context: ssl.SSLContext | None = None
        if way.words:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            self._context.load_verify_locations(certificates.ca)
            self._context.load_cert_chain(certificates.client)

    def connect(self) -> socket.socket:
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._context is None:
            return plain
        return self._context.wrap_socket(plain, server_hostname="127.0.0.1")

    def cpu_s(self) -> float:
        """Processor time so far."""
        fields = Path(f"/proc/{self.process.process.pid}/stat").read_text().rpartition(")")[2]
        return sum(map(int, fields.split()[11:13])) * TICK_S


def read_all(client: socket.socket, count: int) -> None:
    """Read so many bytes."""
    while count:
        came = len(client.recv(min(count, 1 << 16)))
        if not came:
            raise SystemExit("the server has parted")
        count -= came


def round_trips(server: Server, connections: int, seconds: float) -> float:
    """Have clients ask, each again when it was answered.

    :return: microseconds of the server's processor a command.
    """
    clients = [server.connect() for _ in range(connections)]
    reply = len(b"USING default\r\n")
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client, selectors.EVENT_READ)
            client.sendall(ROUND)
            read_all(client, reply)
            client.sendall(ROUND)
        began_s, before_s, count = time.monotonic(), server.cpu_s(), 0
        while time.monotonic() - began_s < seconds:
            for key, _ in selector.select(LIMIT_S):
                client = key.fileobj  # type: ignore[assignment]
                read_all(client, reply)
                client.sendall(ROUND)
                count += 1
        taken_s = server.cpu_s() - before_s
    for client in clients:
        client.close()
    return taken_s / count * 1e6


def pipelined(server: Server, depth: int, seconds: float) -> float:
    """Have one client send so many commands at once, and wait for all their replies.

    :return: as `round_trips`.
    """
    client = server.connect()
    reply = len(b"USING default\r\n")
    client.sendall(ROUND)
    read_all(client, reply)
    began_s, before_s, count = time.monotonic(), server.cpu_s(), 0
    while time.monotonic() - began_s < seconds:
        client.sendall(ROUND * depth)
        read_all(client, reply * depth)
        count += depth
    taken_s = server.cpu_s() - before_s
    client.close()
    return taken_s / count * 1e6


def beginnings(server: Server, seconds: float) -> float:
    """Have clients connect, ask one thing and leave.

    :return: microseconds of the server's processor a connection.
    """
    began_s, before_s, count = time.monotonic(), server.cpu_s(), 0
    while time.monotonic() - began_s < seconds:
        client = server.connect()
        client.sendall(ROUND)
        read_all(client, len(b"USING default\r\n"))
        client.close()
        count += 1
    return (server.cpu_s() - before_s) / count * 1e6


def measure(way: Way, certificates: Certificates, seconds: float) -> tuple[float, float, float]:
    """:return: of a command of 50 connections, of a command of 100 at once, of a connection."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server(way, certificates, Path(folder))
        with server.process:
            return (
                round_trips(server, 50, seconds), pipelined(server, 100, seconds),
                beginnings(server, seconds),
            )  # fmt: skip


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as folder:
        certificates = Certificates(Path(folder))
        found: dict[str, list[tuple[float, float, float]]] = {way.name: [] for way in WAYS}
        for _ in range(given.rounds):
            for way in WAYS:
                found[way.name].append(measure(way, certificates, given.seconds))
    print("| server | rt50, CPU a command, µs | pipe100 | a connection |")
    print("| --- | ---: | ---: | ---: |")
    for name, figures in found.items():
        shown = " | ".join(f"{median(column):.1f}" for column in zip(*figures, strict=True))
        print(f"| {name} | {shown} |")


if __name__ == "__main__":
    main()
