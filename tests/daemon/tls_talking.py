"""Clients of TLS without sockets: a handshake with a factory, byte by byte if that is wanted."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionAborted, ConnectionDone
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from beanstalk_twisted.daemon.tls_endpoint import TlsFactory
from beanstalk_twisted.daemon.tls_files import make_context, read_folder, read_trust
from beanstalk_twisted.server.anomalies import Handshakes
from beanstalk_twisted.server.connections.turns import SharedTurns

LIMIT_S = 60
"""Of a handshake."""

PEER = IPv4Address("TCP", "10.0.0.7", 51234)


class Served(Protocol):
    """What is behind TLS."""

    def __init__(self, lost: Callable[[], None]) -> None:
        self.received = b""
        self.is_lost = False
        self._lost = lost

    def dataReceived(self, data: bytes) -> None:
        self.received += data

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.is_lost = True
        self._lost()


class ServedFactory(Factory):
    """Makes `Served` ones, unless it is full.

    :ivar lost: called when one has ended.
    """

    def __init__(self) -> None:
        self.made: list[Served] = []
        self.is_full = False
        self.lost: Callable[[], None] = lambda: None

    def buildProtocol(self, addr: Any) -> Any:
        if self.is_full:
            return None
        self.made.append(Served(self.lost))
        return self.made[-1]


class Socket(StringTransport):
    """A transport that ends its protocol when it is closed, once what was written has left."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(peerAddress=PEER)  # type: ignore[no-untyped-call]
        self.protocol: Any = None
        self.is_closed = False
        self._clock = clock

    def receive(self, data: bytes) -> None:
        """Have this come, and let everybody have a turn."""
        self.protocol.dataReceived(data)
        self._clock.advance(0)

    def loseConnection(self) -> None:
        self.close(ConnectionDone())

    def abortConnection(self) -> None:
        self.close(ConnectionAborted())

    def take(self) -> bytes:
        written = bytes(self.value())  # type: ignore[no-untyped-call]
        self.clear()  # type: ignore[no-untyped-call]
        return written

    def close(self, why: Exception) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.protocol.connectionLost(Failure(why))


class Port:
    """A server's side."""

    def __init__(self, folder: Path, ca: Path | None = None, crl: Path | None = None) -> None:
        self.clock = Clock()
        self.handshakes = Handshakes(self.clock, LIMIT_S)
        self.served = ServedFactory()
        self.read(folder, ca, crl)
        self.factory = TlsFactory(
            lambda: self.context, self.served, self.handshakes, SharedTurns(self.clock)
        )

    def read(self, folder: Path, ca: Path | None = None, crl: Path | None = None) -> None:
        """Read the files, for handshakes from now on."""
        now = datetime.now(UTC)
        trust = None if ca is None else read_trust(str(ca), "" if crl is None else str(crl), now)
        self.context = make_context(read_folder(str(folder), now), trust)

    def accept(self) -> Socket:
        socket = Socket(self.clock)
        socket.protocol = self.factory.buildProtocol(None)
        socket.protocol.makeConnection(socket)
        return socket

    def outcomes(self) -> dict[str, int]:
        """Give what became of handshakes, without what became of none."""
        return {outcome: count for outcome, count in self.handshakes.counts.items() if count}


class Client:
    """A client's side."""

    def __init__(self, context: ssl.SSLContext, name: str | None = "localhost") -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=name)

    def steps(self, socket: Socket, piece: int = 1 << 20) -> None:
        """Exchange bytes until nobody has any.

        :param piece: bytes that the server gets at once.
        :raise ssl.SSLError: the client does not go on.
        """
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                self._deliver(socket, piece)
                raise
            came = self._deliver(socket, piece)
            answer = socket.take()
            self._incoming.write(answer)
            if not came and not answer:
                return

    def _deliver(self, socket: Socket, piece: int) -> bool:
        sent = self._outgoing.read()
        for at in range(0, len(sent), piece):
            if not socket.is_closed:
                socket.receive(sent[at : at + piece])
        return bool(sent)

    def send(self, socket: Socket, data: bytes) -> None:
        self.tls.write(data)
        self._deliver(socket, 1 << 20)

    def certificate(self) -> bytes:
        shown = self.tls.getpeercert(binary_form=True)
        assert shown is not None
        return shown


def client_context(
    roots: Path | None, certificate: Path | None = None, newest: ssl.TLSVersion | None = None
) -> ssl.SSLContext:
    """Make what a client trusts and shows.

    :param roots: None to trust anybody.
    :param newest: the newest version of TLS that it speaks.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if roots is None:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context.load_verify_locations(roots)
    if certificate is not None:
        context.load_cert_chain(certificate)
    if newest is not None:
        # In this order: the oldest may not be newer than the newest.
        context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        context.maximum_version = newest
        context.set_ciphers("ALL:@SECLEVEL=0")
    return context
