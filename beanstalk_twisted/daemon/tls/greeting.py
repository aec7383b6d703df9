"""
Handshakes of connections to a port: bounded in time, counted, and told when they fail, with why, as
OpenSSL tells it, in the words of docs/tls.md.

The protocol that is served is there from the first packet on, so its connections count before they
are encrypted.  A step of a handshake takes half a millisecond and more, as much as thirty commands,
so steps have turns of their own: a thousand clients that come back at once do not keep others
waiting.
"""

from collections.abc import Callable
from typing import Any, Final

from OpenSSL import SSL
from twisted.internet.error import ConnectionAborted
from twisted.internet.interfaces import (
    IAddress,
    IDelayedCall,
    IHandshakeListener,
    IOpenSSLServerConnectionCreator,
    IProtocolFactory,
    ITransport,
)
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure
from zope.interface import implementer

from beanstalk_twisted.daemon.addresses import in_words
from beanstalk_twisted.daemon.tls.contexts import verify_result, words_of
from beanstalk_twisted.server.access.handshakes import LEFT, STALLED, Handshakes
from beanstalk_twisted.server.connections.turns import SharedTurns

_ISSUERS: Final = dict.fromkeys(
    (2, 18, 19, 20, 21),
    ("unknown-authority", "no authority in ca= has issued the client's certificate"),
)
"""Errors of OpenSSL's (X509_V_ERR…) that say that nobody known has issued a certificate."""

_REJECTIONS: Final = {
    **_ISSUERS,
    3: ("no-list", "crl= has no list of the authority that issued the client's certificate"),
    9: ("not-yet-valid", "the client's certificate is not valid yet"),
    10: ("expired", "the client's certificate has expired"),
    12: ("list-ended", "the list in crl= has ended: renew it and send SIGHUP"),
    23: ("revoked", "the client's certificate was revoked"),
}

_PLAIN: Final = ("plain-text", "plain text came, no TLS")
_VERSION: Final = ("version", "the client speaks no TLS 1.2 or newer")
_NOTHING: Final = ("nothing-common", "the client knows no cipher or curve of the server's")

_REASONS: Final = {
    "peer did not return a certificate": ("no-certificate", "the client has shown no certificate"),
    "http request": _PLAIN,
    "https proxy request": _PLAIN,
    "wrong version number": _PLAIN,
    "unsupported protocol": _VERSION,
    "version too low": _VERSION,
    "no shared cipher": _NOTHING,
    "no suitable key share": _NOTHING,
    "no suitable signature algorithm": _NOTHING,
    "no shared signature algorithms": _NOTHING,
}
"""By what OpenSSL says, in small letters."""

NOT_VERIFIED: Final = "certificate verify failed"

ALERT: Final = " alert "
"""Of what it says of a message in which the client ends the handshake."""


@implementer(IOpenSSLServerConnectionCreator)
class ConnectionCreator:
    """Begins each connection with the newest context."""

    def __init__(self, newest: Callable[[], SSL.Context]) -> None:
        self._newest = newest

    def serverConnectionForTLS(self, protocol: Any) -> SSL.Connection:
        return SSL.Connection(self._newest(), None)


class TlsFactory(TLSMemoryBIOFactory):
    """Puts TLS between connections and what another factory makes for them."""

    wrappedFactory: Any

    def __init__(
        self, newest: Callable[[], SSL.Context], served: IProtocolFactory,
        handshakes: Handshakes, turns: SharedTurns,
    ) -> None:  # fmt: skip
        """:param newest: gives the context of the next handshake."""
        super().__init__(ConnectionCreator(newest), False, served)
        self._handshakes = handshakes
        self._turns = turns

    def buildProtocol(self, addr: IAddress | None) -> Any:
        """:return: None if the other factory takes no more."""
        served = self.wrappedFactory.buildProtocol(addr)
        if served is None:
            return None
        make: Any = self.protocol
        return Steps(make(self, Greeting(served, self._handshakes)), self._turns)

    def stopFactory(self) -> None:
        """The port was closed."""
        self._turns.stop()


class Steps(Protocol):
    """
    Stands between a socket and TLS while the handshake lasts, and has each of its steps wait for a
    turn.
    """

    log = Logger()
    transport: Any

    def __init__(self, tls: Any, turns: SharedTurns) -> None:
        self._tls = tls
        self._turns = turns
        self._came = b""
        self._is_over = False

    def makeConnection(self, transport: ITransport) -> None:
        self.transport = transport
        self._tls.makeConnection(transport)

    def dataReceived(self, data: bytes) -> None:
        """Read nothing more until it is the turn of this."""
        if not self._came:
            self.transport.pauseProducing()
            self._turns.add(self._go_on)
        self._came += data

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._is_over = True
        self._tls.connectionLost(reason)

    def _go_on(self) -> None:
        if self._is_over:
            return
        came, self._came = self._came, b""
        self.transport.resumeProducing()
        try:
            self._tls.dataReceived(came)
        except Exception:
            self.log.failure("while serving a connection", event="connection-failed")
            self.transport.abortConnection()


@implementer(IHandshakeListener)
class Greeting(Protocol):
    """Stands before the protocol that is served while the handshake lasts, and then leaves."""

    transport: Any

    def __init__(self, served: Any, handshakes: Handshakes) -> None:
        self._served = served
        self._handshakes = handshakes
        self._timer: IDelayedCall | None = None
        self._has_stalled = False

    def makeConnection(self, transport: ITransport) -> None:
        self.transport = transport
        lower: Any = getattr(transport, "transport", None)
        # What TLS says of a transport's interfaces is the last of them alone.
        getattr(lower, "setTcpNoDelay", lambda on: None)(True)
        limit_s = self._handshakes.limit_s
        if limit_s:
            self._timer = self._handshakes.clock.callLater(limit_s, self._stalled)
        self._served.makeConnection(transport)

    def handshakeCompleted(self) -> None:
        """Leave: what comes is for the protocol that is served."""
        self._stop_timer()
        self._handshakes.completed()
        self.transport.wrappedProtocol = self._served
        self.transport.transport.protocol = self.transport

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The handshake has failed."""
        self._stop_timer()
        limit_s = self._handshakes.limit_s
        if self._has_stalled:
            self._fail(STALLED, f"it was not over within {limit_s} s")
        elif not reason.check(ConnectionAborted):
            assert reason.value is not None
            verified = verify_result(self.transport.getHandle())
            self._fail(*outcome_of(reason.value, verified))
        self._served.connectionLost(reason)

    def _fail(self, outcome: str, why: str) -> None:
        self._handshakes.failed(outcome, in_words(self.transport.getPeer()), why)

    def _stalled(self) -> None:
        self._timer = None
        self._has_stalled = True
        self.transport.abortConnection()

    def _stop_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()


def outcome_of(problem: BaseException, verified: int) -> tuple[str, str]:
    """
    :param problem: what has ended the connection.
    :param verified: what `verify_result` says of it.
    :return: one of `OUTCOMES`, and a sentence's end.
    """
    if not isinstance(problem, SSL.Error):
        return LEFT, "the client has gone"
    said = words_of(problem).lower()
    if said == NOT_VERIFIED:
        fallback = "untrusted", f"the client's certificate is not trusted, X509_V_ERR {verified}"
        return _REJECTIONS.get(verified, fallback)
    if said in _REASONS:
        return _REASONS[said]
    if ALERT in said:
        why = said.partition(ALERT)[2]
        return "refused", f"the client refuses the server's certificate, or what it offers: {why}"
    return "broken", said or "OpenSSL does not say why"
