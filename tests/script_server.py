"""Servers that say what they are told to, and speak TLS in ways that ours does not."""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from threading import Lock, Thread
from types import TracebackType

from tests.server_process import LIMIT_S

Speak = Callable[[socket.socket], object]
"""What is done with each connection; it is closed then."""

Reply = Callable[[list[bytes]], bytes | None]
"""What to say to the words of a command; None: hang up."""


def server_context(
    pem: Path, ca: Path | None = None, revocations: Path | None = None, newest: bool = True
) -> ssl.SSLContext:
    """Make what a server needs.

    :param ca: whom it trusts to vouch for clients; it asks for no certificate without it.
    :param revocations: a list of certificates that it does not take.
    :param newest: speak TLS 1.3, not only 1.2.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    if not newest:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    if ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(ca)
    if revocations is not None:
        context.load_verify_locations(revocations)
        context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
    return context


class Listener:
    """Accepts connections and speaks on each, in threads.

    :ivar port: at 127.0.0.1.
    :ivar address: the same as `beanstalk -s` takes it.
    :ivar connections: how many have come.
    """

    def __init__(self, speak: Speak) -> None:
        self.speak = speak
        self.connections = 0
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.port: int = self._listening.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self._thread = Thread(target=self._accept, daemon=True)
        self._thread.start()

    def __enter__(self) -> Listener:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()
        self._thread.join(LIMIT_S)

    def close(self) -> None:
        """Accept no more."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                line, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            Thread(target=self._speak, args=(line,), daemon=True).start()

    def _speak(self, line: socket.socket) -> None:
        line.settimeout(LIMIT_S)
        with line, suppress(OSError):
            self.speak(line)


def relay(context: ssl.SSLContext, port: int) -> Speak:
    """Speak TLS, and give what comes to a server at that port; and back."""

    def speak(line: socket.socket) -> None:
        with (
            context.wrap_socket(line, server_side=True) as client,
            socket.create_connection(("127.0.0.1", port)) as server,
        ):
            turns = Lock()
            back = Thread(target=copy, args=(server, client, turns), daemon=True)
            back.start()
            copy(client, server, turns)
            back.join(LIMIT_S)

    return speak


def copy(source: socket.socket, target: socket.socket, turns: Lock) -> None:
    """Pass on all that comes until one of the two has ended.

    :param turns: held while a socket of TLS is read or written: OpenSSL takes one thread at a time,
        and before 3.13 Python does not see to that.
    """
    with suppress(OSError):
        while data := received(source, turns):
            with turns if isinstance(target, ssl.SSLSocket) else nullcontext():
                target.sendall(data)
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def received(source: socket.socket, turns: Lock) -> bytes:
    """What has come; nothing is held while it is waited for."""
    if not isinstance(source, ssl.SSLSocket):
        return source.recv(1 << 16)
    with turns:
        is_there = source.pending()
    if not is_there:
        select.select([source], [], [], LIMIT_S)
    with turns:
        return source.recv(1 << 16)


def say(data: bytes) -> Speak:
    """Say this to whoever comes, and hear what it says until it goes."""

    def speak(line: socket.socket) -> None:
        line.sendall(data)
        while line.recv(1 << 16):
            pass

    return speak


def answer(reply: Reply) -> Speak:
    """Answer each command, and read the body of a put."""

    def speak(line: socket.socket) -> None:
        with line.makefile("rb") as commands:
            for command in commands:
                words = command.split()
                if words[0] == b"put":
                    commands.read(int(words[4]) + 2)
                said = reply(words)
                if said is None:
                    return
                line.sendall(said)

    return speak


def hang(line: socket.socket) -> None:
    """Say nothing."""
    while line.recv(1 << 16):
        pass


def die(line: socket.socket) -> None:
    """Go away in the middle of the handshake."""
    line.recv(16)
