"""TLS of the connections to one server.

Imported only where TLS is spoken, since it needs pyOpenSSL.
"""

import re
from collections.abc import Callable
from typing import Any, Final

from cryptography import x509
from OpenSSL import SSL, crypto
from service_identity import VerificationError
from service_identity.exceptions import CertificateError
from service_identity.pyopenssl import verify_hostname, verify_ip_address
from twisted.internet.abstract import isIPAddress, isIPv6Address
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

from beanstalk_twisted.client import tls_faults as faults
from beanstalk_twisted.client.addresses import Address, Tls
from beanstalk_twisted.client.errors import TlsFailed
from beanstalk_twisted.client.pending import cancel
from beanstalk_twisted.client.ssl_contexts import read_pem
from beanstalk_twisted.client.tls_faults import HANDSHAKE_S, Files, Seen, TlsFault

# No block reaches over five dashes, so that a beginning without an end costs little.
_PEM: Final = re.compile(
    rb"-----BEGIN CERTIFICATE-----[^-]*(?:-(?!----)[^-]*)*-----END CERTIFICATE-----"
)


VERIFY: Final = SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT


class Verdict:
    """The first fault of the certificate of one server, which has to have this name."""

    def __init__(self, name: str) -> None:
        self.fault: TlsFault | None = None
        self._name = name

    def note(
        self, connection: SSL.Connection, certificate: crypto.X509, number: int, depth: int,
        is_well: int,
    ) -> bool:  # fmt: skip
        """Keep the first fault that OpenSSL finds; that of the server's own is at depth 0."""
        if not is_well and self.fault is None:
            told = None if depth else seen(certificate)
            self.fault = faults.of_certificate(number, self._name, told)
        return bool(is_well)


class Contexts:
    """Gives what new connections need; files that have changed are taken over by the next one."""

    def __init__(self, address: Address) -> None:
        self._tls = address.tls or Tls()
        self._name = address.name
        self._files: Files | None = None
        self._context: SSL.Context | None = None

    def context(self) -> SSL.Context:
        """:raise TlsFault: a file is not what it should be."""
        files = faults.read_files(self._tls, read_pem)
        if self._context is None or files != self._files:
            self._context, self._files = self._make(files), files
        return self._context

    def connection(self, context: SSL.Context) -> tuple[SSL.Connection, Verdict]:
        """Make one that is about to begin, and what will be found of the server's certificate."""
        connection = SSL.Connection(context, None)
        verdict = Verdict(self._name)
        try:
            connection.set_verify(VERIFY, verdict.note)
        except MemoryError:
            # None can be called back where memory cannot be written and executed, as under
            # systemd's MemoryDenyWriteExecute; what is wrong is not told then, only that it is.
            connection.set_verify(VERIFY)
        if not is_address(self._name):
            connection.set_tlsext_host_name(ascii_name(self._name))
        return connection, verdict

    def _make(self, files: Files) -> SSL.Context:
        context = SSL.Context(SSL.TLS_METHOD)
        context.set_min_proto_version(SSL.TLS1_2_VERSION)
        context.set_mode(SSL.MODE_RELEASE_BUFFERS)
        if files.ca is None:
            context.set_default_verify_paths()
        else:
            self._trust(context, files.ca)
        if self._tls.cert is not None:
            self._be(context, self._tls.cert, self._tls.key or self._tls.cert)
        return context

    def _trust(self, context: SSL.Context, content: bytes) -> None:
        store = context.get_cert_store()
        assert store is not None
        try:
            for pem in _PEM.findall(content):
                store.add_cert(crypto.load_certificate(crypto.FILETYPE_PEM, pem))
        except crypto.Error:
            raise faults.damaged(self._tls.ca) from None
        # What is in the file need not be a root.
        store.set_flags(crypto.X509StoreFlags.PARTIAL_CHAIN)

    def _be(self, context: SSL.Context, cert: str, key: str) -> None:
        try:
            context.use_certificate_chain_file(cert)
        except SSL.Error:
            raise faults.damaged(cert) from None
        try:
            context.use_privatekey_file(key)
            context.check_privatekey()
        except SSL.Error:
            raise faults.wrong_pair(self._tls) from None


def seen(certificate: crypto.X509) -> Seen:
    found = certificate.to_cryptography()
    names: list[str] = []
    try:
        others = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names += others.get_values_for_type(x509.DNSName)
        names += map(str, others.get_values_for_type(x509.IPAddress))
    except (x509.ExtensionNotFound, x509.DuplicateExtension, ValueError):
        pass  # It is for nothing that can be connected to.
    return Seen(tuple(names), _moment(certificate.get_notBefore()),
                _moment(certificate.get_notAfter()))  # fmt: skip


def _moment(text: bytes | None) -> str:
    """Write ``20261231235959Z`` as people do."""
    day = (text or b"").decode("ascii", "replace")
    return f"{day[:4]}-{day[4:6]}-{day[6:8]} {day[8:10]}:{day[10:12]} UTC"


def is_address(name: str) -> bool:
    """Return True for an IP address, which has a place of its own in certificates."""
    return bool(isIPAddress(name) or isIPv6Address(name))


def ascii_name(name: str) -> bytes:
    """Write the name of a host as DNS has it."""
    if name.isascii():
        return name.encode()
    import idna

    return idna.encode(name)


def check_name(connection: SSL.Connection, name: str) -> None:
    """:raise TlsFault: the server's certificate is not for this name."""
    try:
        if is_address(name):
            verify_ip_address(connection, name)
        else:
            verify_hostname(connection, name)
    except (VerificationError, CertificateError):
        certificate = connection.get_peer_certificate()
        said = None if certificate is None else seen(certificate)
        raise faults.of_certificate(faults.WRONG_NAME[0], name, said) from None


def reason_of(error: SSL.Error) -> str:
    """Give OpenSSL's own word for an error."""
    told: Any = error.args[0] if error.args else ""
    if isinstance(told, list | tuple) and told:
        last = told[0]
        return str(last[-1]) if isinstance(last, tuple) else str(last)
    return str(told)


@implementer(IStreamClientEndpoint)
class TlsEndpoint:
    """The way to a server that speaks TLS.  It fails with `errors.TlsFailed`."""

    def __init__(self, clock: IReactorTime, address: Address, plain: IStreamClientEndpoint) -> None:
        """:param plain: the same server without TLS.
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
        return None if self._verdict is None else self._verdict.fault


@implementer(IHandshakeListener)
class Handshake(Protocol):
    """:ivar done: fires with the protocol; fails with `TlsFailed`, or why the connection ended."""

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
        late = TlsFault(faults.NO_ANSWER)
        self._timer = self._clock.callLater(HANDSHAKE_S, self._give_up, late)

    def handshakeCompleted(self) -> None:
        """With TLS 1.3, what the server thinks of our certificate comes later."""
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
        fault = self._fault or (self._verdict() if self._protocol is None else None)
        if fault is None and isinstance(reason.value, SSL.Error):
            fault = faults.of_reason(reason_of(reason.value), self._address.tls or Tls())
        if fault is None and self._protocol is None:
            fault = TlsFault(faults.CUT, may_pass=True)
        return reason if fault is None else Failure(TlsFailed(str(self._address), fault))

    def _give_up(self, fault: TlsFault) -> None:
        self._fault = fault
        self.transport.abortConnection()

    def _cancelled(self, done: Deferred[IProtocol]) -> None:
        cancel(self._timer)
        self.transport.abortConnection()
        done.errback(CancelledError())
