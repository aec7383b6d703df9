"""``tls:PORT:FOLDER`` and ``mtls:PORT:FOLDER:ca=FILE``: a port for TLS (docs/tls.md)."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from OpenSSL import SSL
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import quoteStringArgument, serverFromString
from twisted.internet.error import ConnectionAborted
from twisted.internet.interfaces import (
    IAddress,
    IDelayedCall,
    IHandshakeListener,
    IListeningPort,
    IOpenSSLServerConnectionCreator,
    IProtocolFactory,
    IStreamServerEndpoint,
    ITransport,
)
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure
from zope.interface import implementer

from beanstalk_twisted.daemon.files import ReadAgain
from beanstalk_twisted.daemon.sockets import in_words
from beanstalk_twisted.daemon.tls_files import (
    BadTls,
    Credential,
    make_context,
    read_folder,
    read_trust,
    verify_result,
    words_of,
)
from beanstalk_twisted.server.anomalies import LEFT, STALLED, Expiry, Handshakes
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
        super().__init__(ConnectionCreator(newest), False, served)
        self._handshakes = handshakes
        self._turns = turns

    def buildProtocol(self, addr: IAddress | None) -> Any:
        served = self.wrappedFactory.buildProtocol(addr)
        if served is None:
            return None
        make: Any = self.protocol
        return Steps(make(self, Greeting(served, self._handshakes)), self._turns)

    def stopFactory(self) -> None:
        self._turns.stop()


class Steps(Protocol):
    """Has each step of a handshake wait for a turn; stands between a socket and TLS."""

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
    """Say of what has ended a connection one of `OUTCOMES`, and a sentence's end."""
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


WARN_BEFORE: Final = {
    "certificate": timedelta(days=14),
    "authority": timedelta(days=14),
    "revocations": timedelta(days=1),
}
"""How long before it ends something is warned of: lists of a week or a day are renewed each day."""

NOUNS: Final = {
    "certificate": "the certificate",
    "authority": "the certificate of the authority",
    "revocations": "the revocation list",
}

MORE: Final = "[:interface=ADDRESS][:backlog=N]"

FORMS: Final = {
    "tls": f"tls:PORT:FOLDER{MORE}", "mtls": f"mtls:PORT:FOLDER:ca=FILE[:crl=FILE]{MORE}",
}  # fmt: skip


class NoEndpoint(ValueError):
    """:cvar is_whole: whether its words say how these are written."""

    is_whole = True


_COLON: Final = re.compile(r"(?<!\\):")
_NAMED: Final = re.compile(r"([A-Za-z]\w*)=(.*)", re.DOTALL)


class Described(NamedTuple):
    """What an endpoint's text says.

    :ivar ca: a file, empty if clients show no certificates; ``crl`` another one, or empty.
    """

    tcp: str
    folder: str
    ca: str
    crl: str


def described(text: str, backlog: int) -> Described:
    """:raise NoEndpoint: it is none."""
    kind, *parts = _COLON.split(text)
    options = {"interface": "", "backlog": str(backlog)}
    if kind == "mtls":
        options |= {"ca": "", "crl": ""}
    places = []
    for quoted in parts:
        part = quoted.replace("\\:", ":").replace("\\\\", "\\")
        named = _NAMED.fullmatch(part)
        if named is None:
            places.append(part)
        elif named[1] not in options:
            raise NoEndpoint(f"{kind}: takes no {named[1]}=; write {FORMS[kind]}")
        else:
            options[named[1]] = named[2]
    port, folder = places if len(places) == 2 else ("", "")
    if not (port.isascii() and port.isdigit() and folder) or (kind == "mtls" and not options["ca"]):
        raise NoEndpoint(f"it is not {FORMS[kind]}")
    files = (options.get("ca", ""), options.get("crl", ""))
    ca, crl = (os.path.abspath(path) if path else "" for path in files)
    return Described(_tcp(port, options), os.path.abspath(folder), ca, crl)


def _tcp(port: str, options: dict[str, str]) -> str:
    interface = options["interface"]
    kind = "tcp6" if ":" in interface else "tcp"
    at = f":interface={quoteStringArgument(interface)}" if interface else ""
    return f"{kind}:{port}{at}:backlog={options['backlog']}"


class Loaded(NamedTuple):
    context: SSL.Context
    expiries: Sequence[Expiry]
    credentials: Sequence[Credential]


def read_all(what: Described, now: datetime) -> Loaded:
    """:raise BadTls: one of the files cannot be used."""
    credentials = read_folder(what.folder, now)
    trust = read_trust(what.ca, what.crl, now) if what.ca else None
    expiries = [each.expiry for each in credentials]
    expiries += [] if trust is None else trust.expiries
    return Loaded(make_context(credentials, trust), expiries, credentials)


def warnings_of(loaded: Loaded, now: datetime) -> Iterator[tuple[str, str]]:
    """:return: events of the log, and what it says of files that can be used today."""
    for each in loaded.expiries:
        if each.ends - now < WARN_BEFORE[each.kind]:
            yield "tls-expires", f"{each.path}: {NOUNS[each.kind]} ends at {shown(each.ends)}"
    for path in dict.fromkeys(each.key_path for each in loaded.credentials if each.has_open_key):
        yield "tls-open", f"{path}: others may read this private key. Run chmod o= {path}"


def shown(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _now() -> datetime:
    return datetime.now(UTC)


@implementer(IStreamServerEndpoint)
class TlsEndpoint(ReadAgain):
    """A port for TLS.

    :ivar name: as it was given, with its option.
    :ivar words: what the log says behind its address.
    :cvar is_encrypted: tells it from endpoints of Twisted's.
    """

    is_encrypted: Final = True

    log = Logger()
    wrong = BadTls

    def __init__(
        self, reactor: Any, option: str, text: str, backlog: int,
        now: Callable[[], datetime] = _now,
    ) -> None:  # fmt: skip
        """:param backlog: connections that the kernel may keep, unless the text says it.
        :raise ValueError: it is none; Twisted's parser may raise others.
        """
        self.name = f"{option} {text}"
        self.what = described(text, backlog)
        self.words = ", TLS with client certificates" if self.what.ca else ", TLS"
        self._tcp: Any = serverFromString(reactor, self.what.tcp)
        # As Twisted's endpoints: see `command_line._endpoint`.
        self._port: int = self._tcp._port
        self._interface: str = self._tcp._interface
        self._handshakes = Handshakes(reactor, 0)
        self._turns = SharedTurns(reactor)
        self._now = now
        self._loaded: Loaded | None = None

    def tell(self, handshakes: Handshakes) -> None:
        """Have handshakes counted there, and what the metrics show of the files."""
        self._handshakes = handshakes
        handshakes.expiries[self.name] = self.expiries

    def expiries(self) -> Sequence[Expiry]:
        return () if self._loaded is None else self._loaded.expiries

    def listen(self, protocolFactory: IProtocolFactory) -> "Deferred[IListeningPort]":
        factory = TlsFactory(self._newest, protocolFactory, self._handshakes, self._turns)
        listening: Deferred[IListeningPort] = self._tcp.listen(factory)
        return listening

    def _newest(self) -> SSL.Context:
        assert self._loaded is not None, "nothing was read"
        return self._loaded.context

    def check(self) -> list[str]:
        """Return what the log would warn of; use nothing.  :raise BadTls: a file cannot be used."""
        now = self._now()
        return [said for _, said in warnings_of(read_all(self.what, now), now)]

    def _read(self) -> None:
        """For handshakes from now on."""
        self._loaded = read_all(self.what, self._now())

    def _warn(self, problem: str) -> None:
        self.log.warn(
            "{name}: {problem}. What was read before holds; mend it and send SIGHUP",
            event="tls-wrong", name=self.name, problem=problem,
        )  # fmt: skip

    def _tell(self, how: str) -> None:
        assert self._loaded is not None
        first = min(self._loaded.expiries, key=lambda each: each.ends)
        self.log.info(
            "{name}: {how}, certificates: {certificates}; {path} is the first to end, at {ends}",
            event="tls-read", name=self.name, how=how, certificates=len(self._loaded.credentials),
            path=first.path, ends=shown(first.ends),
        )  # fmt: skip
        for event, said in warnings_of(self._loaded, self._now()):
            if event == "tls-open":
                self.log.warn("{name}: {said}", event="tls-open", name=self.name, said=said)
            else:
                self.log.warn("{name}: {said}", event="tls-expires", name=self.name, said=said)
