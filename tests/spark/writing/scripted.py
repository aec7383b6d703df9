"""A server that says what it is told to, byte by byte if wanted, and remembers what it got."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from types import TracebackType
from typing import BinaryIO

from tests.server_process import Connection

Answer = Callable[[int], bytes | None]
"""What to say to the put with this number, counted over all connections; None: hang up."""

STATS = b"---\nmax-job-size: 65535\n"


class ScriptedServer:
    """Listens on 127.0.0.1 until the block ends."""

    def __init__(
        self, answer: Answer, stats: bytes = STATS,
        capabilities: bytes | None = None,
    ) -> None:  # fmt: skip
        """:param capabilities: what it says to that; None: it does not know the command."""
        self.puts: list[tuple[bytes, bytes]] = []
        self._answer = answer
        self._stats = stats
        self._capabilities = capabilities
        self.lines: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._thread = Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> ScriptedServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:  # fmt: skip
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as commands:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with suppress(ConnectionError):
                    self._speak(connection, commands)

    def _speak(self, connection: socket.socket, commands: BinaryIO) -> None:
        tube = b"default"
        for line in commands:
            words = line.split()
            if words[0] == b"use":
                tube = words[1]
                reply: bytes | None = b"USING %b\r\n" % tube
            elif words[0] == b"put":
                body = commands.read(int(words[4]) + 2)[:-2]
                self.puts.append((tube, body))
                self.lines.append(line)
                reply = self._answer(len(self.puts) - 1)
            elif words[0] == b"capabilities":
                said = self._capabilities
                reply = b"UNKNOWN_COMMAND\r\n" if said is None else ok(said)
            else:
                reply = ok(self._stats)
            if reply is None:
                return
            connection.sendall(reply)


def ok(data: bytes) -> bytes:
    return b"OK %d\r\n%b\r\n" % (len(data), data)


def inserted(number: int) -> bytes:
    return b"INSERTED %d\r\n" % (number + 1)


def taken(client: Connection, most: int = 1 << 30) -> list[str]:
    found: list[str] = []
    while len(found) < most:
        reply = client.ask(b"reserve-with-timeout 0\r\n")
        if not reply.startswith(b"RESERVED "):
            break
        found.append(reply.split(b"\r\n")[1].decode())
        assert client.ask(b"delete %b\r\n" % reply.split()[1]) == b"DELETED\r\n"
    return found
