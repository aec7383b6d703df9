"""A peer that is gone without a word is found out: the kernel asks after a minute of silence."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from beanstalk_twisted.client import connect
from beanstalk_twisted.tcp_keepalive import IDLE_S
from tests.certificates import Certificates
from tests.daemon.tls_talking import client_context
from tests.server_process import LIMIT_S, Connection, ServerProcess, ours

KEEPALIVE = "02"
"""Of what /proc/net/tcp says of a connection's timer: the next thing is such a question."""

TICKS_A_S = 100


def timer(near: tuple[str, int], far: tuple[str, int]) -> tuple[str, float] | None:
    """Ask the kernel what a connection waits for at its end ``near``, and for how many seconds."""
    ends = [
        f"{socket.inet_aton(host)[::-1].hex().upper()}:{port:04X}" for host, port in (near, far)
    ]
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1:3] == ends:
            kind, ticks = fields[5].split(":")
            return kind, int(ticks, 16) / TICKS_A_S
    return None


def is_watched(near: tuple[str, int], far: tuple[str, int]) -> bool:
    """Return True once that end's next step is to ask the other, within a minute."""
    found = timer(near, far)
    return found is not None and found[0] == KEEPALIVE and 0 < found[1] <= IDLE_S


def wait_until_watched(near: tuple[str, int], far: tuple[str, int]) -> None:
    """Wait until the connection is accepted, and what was sent is acknowledged."""
    ends_s = time.monotonic() + LIMIT_S
    while not is_watched(near, far):
        assert time.monotonic() < ends_s, timer(near, far)
        time.sleep(0.01)


def test_the_server_watches_peers_of_all_ports(certificates: Certificates, tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    folder.mkdir()
    (folder / "server.pem").write_bytes(certificates.server.read_bytes())
    at = "interface=127.0.0.1"
    listen = ("--listen", f"tcp:0:{at}", "--listen", f"tls:0:{folder}:{at}", "--http", "0")
    with ExitStack() as stack:
        server = stack.enter_context(
            ServerProcess(ours(*listen, "--listen-v1", f"tcp:0:{at}"), tmp_path)
        )
        others = (server.port(), server.port_v1(), server.port_of("HTTP, read-only"))
        tls_port = server.port_of("TLS")
        for port in (*others, tls_port):
            line = stack.enter_context(Connection(port))
            wait_until_watched(("127.0.0.1", port), line.socket.getsockname())
        tls = stack.enter_context(Connection(tls_port, client_context(certificates.ca)))
        tls.send(b"reserve\r\n")
        wait_until_watched(("127.0.0.1", tls_port), tls.socket.getsockname())


async def test_the_client_watches_the_server_too(tmp_path: Path) -> None:
    with ServerProcess(ours("-p0"), tmp_path) as server:
        connection = await connect(f"tcp:127.0.0.1:{server.port()}")
        await connection.use("a")
        transport: Any = connection.transport
        near = transport.getHandle().getsockname()
        assert is_watched(near, ("127.0.0.1", server.port()))
        await connection.quit()
