"""
An endpoint that speaks TLS, and is connected when both sides have agreed and the server is trusted.

Twisted's own calls a connection made before TLS has begun, so that whoever tries again would take a
server with a wrong certificate for one that is there.
"""

from collections.abc import Callable
from typing import Any

from OpenSSL import SSL
from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.internet.endpoints import wrapClientTLS
from twisted.internet.interfaces import (
    IDelayedCall,
    IHandshakeListener,
    IOpenSSLClientConnectionCreator,
    IProtocol,
    IProtocolFactory,
    IReactorTime,
    IStreamClientEndpoint,
)
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from beanstalk_twisted.client.addresses import Address, Tls
from beanstalk_twisted.client.deadline import cancel
from beanstalk_twisted.client.errors import TlsFailed
from beanstalk_twisted.client.tls import faults
from beanstalk_twisted.client.tls.contexts import Contexts, Verdict, check_name, reason_of
from beanstalk_twisted.client.tls.faults import HANDSHAKE_S, TlsFault


@implementer(IStreamClientEndpoint)
class TlsEndpoint:
    """The way to a server that speaks TLS.  It fails with `errors.TlsFailed`, which says why."""

    def __init__(self, clock: IReactorTime, address: Address, plain: IStreamClientEndpoint) -> None:
        """
        :param plain: the same server without TLS.
        :raise TlsFault: a file that the address names is not what it should be.
        """
        self._clock = clock
        self._address = address
        self._plain = plain
        self._contexts = Contexts(address)
        self._contexts.context()

    def __repr__(self) -> str:
        return f"<TlsEndpoint {self._address}>"

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """Connect, and begin TLS; then the protocol is made."""
        try:
            creator = _Creator(self._contexts, self._contexts.context())
        except TlsFault as fault:
            return fail(TlsFailed(str(self._address), fault))
        waiting = Factory.forProtocol(
            lambda: Handshake(self._clock, self._address, creator.verdict, protocolFactory)
        )
        waiting.noisy = False
        connecting: Deferred[Any] = wrapClientTLS(creator, self._plain).connect(waiting)
        return connecting.addCallback(lambda handshake: handshake.done)


@implementer(IOpenSSLClientConnectionCreator)
class _Creator:
    def __init__(self, contexts: Contexts, context: SSL.Context) -> None:
        self._contexts = contexts
        self._context = context
        self._verdict: Verdict | None = None

    def clientConnectionForTLS(self, tlsProtocol: Any) -> SSL.Connection:
        connection, self._verdict = self._contexts.connection(self._context)
        return connection

    def verdict(self) -> TlsFault | None:
        """Give what was wrong with the server's certificate."""
        return None if self._verdict is None else self._verdict.fault


@implementer(IHandshakeListener)
class Handshake(Protocol):
    """
    Waits for TLS to begin, then gives everything to the protocol that is made for it.

    :ivar done: fires with that protocol; fails with `errors.TlsFailed`, or with what has ended the
        connection.
    """

    transport: Any

    def __init__(
        self, clock: IReactorTime, address: Address, verdict: Callable[[], TlsFault | None],
        factory: IProtocolFactory,
    ) -> None:  # fmt: skip
        self.done: Deferred[IProtocol] = Deferred(self._cancelled)
        self._clock = clock
        self._address = address
        self._verdict = verdict
        self._factory = factory
        self._timer: IDelayedCall | None = None
        self._protocol: IProtocol | None = None
        self._fault: TlsFault | None = None

    def connectionMade(self) -> None:
        self._timer = self._clock.callLater(HANDSHAKE_S, self._late)

    def handshakeCompleted(self) -> None:
        """TLS has begun.  With TLS 1.3, what the server thinks of our certificate is said later."""
        cancel(self._timer)
        try:
            check_name(self.transport.getHandle(), self._address.name)
        except TlsFault as fault:
            self._give_up(fault)
            return
        protocol = self._factory.buildProtocol(self.transport.getPeer())
        if protocol is None:
            self.transport.abortConnection()
            return
        self._protocol = protocol
        protocol.makeConnection(self.transport)
        self.done.callback(protocol)

    def dataReceived(self, data: bytes) -> None:
        if self._protocol is not None:
            self._protocol.dataReceived(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        cancel(self._timer)
        told = self._told(reason)
        if self._protocol is not None:
            self._protocol.connectionLost(told)
        elif not self.done.called:
            self.done.errback(told)

    def _told(self, reason: Failure) -> Failure:
        """Say why in words."""
        fault = self._fault or (self._verdict() if self._protocol is None else None)
        if fault is None and isinstance(reason.value, SSL.Error):
            fault = faults.of_reason(reason_of(reason.value), self._address.tls or Tls())
        if fault is None and self._protocol is None:
            fault = TlsFault(faults.CUT, may_pass=True)
        return reason if fault is None else Failure(TlsFailed(str(self._address), fault))

    def _late(self) -> None:
        self._give_up(TlsFault(faults.NO_ANSWER))

    def _give_up(self, fault: TlsFault) -> None:
        self._fault = fault
        self.transport.abortConnection()

    def _cancelled(self, done: Deferred[IProtocol]) -> None:
        cancel(self._timer)
        self.transport.abortConnection()
        done.errback(CancelledError())
