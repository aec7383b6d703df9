"""The connections that are served: how a session begins, waits and ends, and what is known of its
peer without its doing.
"""

import socket
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.interfaces import IAddress, ISSLTransport
from twisted.logger import Logger

from beanstalk_twisted.access.rules import NOBODY, Peer
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.rules.looks import ConnectionFacts
from beanstalk_twisted.rules.reservations import Answer
from beanstalk_twisted.server.anomalies import Anomalies
from beanstalk_twisted.server.connections.accepting import (
    LEAST_RATE,
    ConnectionLimits,
    StalledInput,
)
from beanstalk_twisted.server.connections.epoll_reader import EpollReader, SocketSource
from beanstalk_twisted.server.connections.output import is_plain
from beanstalk_twisted.server.connections.turns import TurnScheduler
from beanstalk_twisted.server.execution_context import ExecutionContext
from beanstalk_twisted.server.headroom import Headroom
from beanstalk_twisted.server.settings import Settings
from beanstalk_twisted.storage.fail_stop import FailStop, fail_stop
from beanstalk_twisted.storage.io_thread import Clock

if TYPE_CHECKING:
    from beanstalk_twisted.server.connections.connection import Connection

_CREDENTIALS: Final = struct.Struct("iII")
"""Of a peer's process: pid, uid, gid (Linux, unix(7), SO_PEERCRED)."""

_KINDS: Final = {"DNSName": "DNS", "UniformResourceIdentifier": "URI", "RFC822Name": "EMAIL"}
"""Names in a certificate, by their classes in `cryptography`."""

MAX_NAMES: Final = 100
"""Of a certificate that are looked at."""

ON_UNIX_SOCKET: Final = "a UNIX socket"


class Sessions:
    """Knows the connection of each session, and its peer.

    :ivar identify: gives the name that the access file has for a session's peer; None without one.
    """

    def __init__(self) -> None:
        self.connections: dict[Session, Connection] = {}
        self.identify: Callable[[Session], str] | None = None

    def known_peer(self, session: Session) -> Peer:
        connection = self.connections.get(session)
        return NOBODY if connection is None else peer_of(connection.transport)

    def host(self, session: Session) -> str:
        connection = self.connections.get(session)
        return "" if connection is None else host_of(connection.transport)

    def peer(self, session: Session) -> str:
        """Describe who is at the other end of a session."""
        connection = self.connections.get(session)
        if connection is None:
            return "a connection that has ended"
        # A request over HTTP has a connection that this process has made to itself.
        return address_of(connection) + getattr(connection.transport, "how", "")

    def facts(self, session: Session) -> ConnectionFacts | None:
        """:return: None if the connection has ended."""
        connection = self.connections.get(session)
        if connection is None:
            return None
        transport = connection.transport
        return ConnectionFacts(
            _written(transport.getPeer()), connection.buffered_bytes, self.identity(session),
            getattr(transport, "is_secure", False) or ISSLTransport.providedBy(transport),
        )  # fmt: skip

    def identity(self, session: Session) -> str:
        """As `identify`; empty without an access file."""
        if self.identify is None or session not in self.connections:
            return ""
        return self.identify(session)


def address_of(connection: "Connection") -> str:
    """Describe the address of a connection's peer."""
    return _written(connection.transport.getPeer()) or ON_UNIX_SOCKET


def _written(address: IAddress) -> str:
    """:return: a peer's address and port; empty on a UNIX socket."""
    if isinstance(address, IPv6Address):
        return f"[{address.host}]:{address.port}"
    return f"{address.host}:{address.port}" if isinstance(address, IPv4Address) else ""


class ServedConnections:
    """Takes connections and knows them until they have closed.

    :ivar hub: reads their sockets; None where Twisted does.
    :ivar settings: with the limits for the next ones.
    :ivar ended: called with each session that has ended.
    :ivar stalled: how many were closed since what they had begun did not continue.
    :ivar wrapped_ended: how many have ended that were not `is_plain`.
    :ivar is_stopping: connections that end change no job and no tube, as if the process was killed.
    :ivar is_log_congested: tells whether so much is on its way to disk that connections that wait
        for it should not be read.
    """

    log = Logger()

    def __init__(
        self, sessions: Sessions, context: ExecutionContext, turns: TurnScheduler,
        settings: Settings, reactor: Clock, headroom: Headroom, anomalies: Anomalies,
        fail_stop: FailStop,
    ) -> None:  # fmt: skip
        self.context = context
        self.turns = turns
        self.hub: EpollReader | None = None
        self.ended: Callable[[Session], None] = lambda session: None
        self.stalled = self.wrapped_ended = 0
        self.is_stopping = False
        self.is_log_congested: Callable[[], bool] = lambda: False
        self.fail_stop = fail_stop
        self._headroom = headroom
        self._anomalies = anomalies
        self.settings = settings
        self._sessions = sessions
        self._limits = ConnectionLimits(reactor)
        # Their sessions are over, and not all of their replies have left.
        self._parting: set[Connection] = set()
        stalled_s = settings.limits.stalled_s
        self._owing = StalledInput(reactor, context.clock.now_ns, stalled_s, self._close_stalled)
        context.enough_bytes = LEAST_RATE * stalled_s

    @property
    def refused(self) -> int:
        return self._limits.refused

    # What connections call.

    def takes_connection(self, address: object) -> bool:
        """Return True if there is room for another one; one that is refused counts in the log."""
        count = len(self._sessions.connections)
        if not self._limits.takes(count, address, self.settings):
            return False
        return self._headroom.takes_connections

    def feed(self, connection: "Connection") -> SocketSource | None:
        """Begin to read the connection's socket; return None if that is left to Twisted."""
        if self.hub is None:
            return None
        return self.hub.feed(connection.transport, connection.received)

    @fail_stop
    def connected(self, connection: "Connection") -> Session:
        """Begin a connection's session."""
        session = self.context.queue.connect(hears_deadlines=connection.dialect.hears_deadlines)
        self._sessions.connections[session] = connection
        if self.settings.limits.connections_per_address:
            self._limits.connected(session, connection.transport.getPeer())
        if self.settings.verbosity:
            self.log.info(
                "connection {connection} made", event="connected", connection=session.number
            )
        return session

    def owes(self, connection: "Connection") -> None:
        """The peer has begun a command, and the rest is to come."""
        self._owing.note(connection)

    @fail_stop
    def half_closed(self, session: Session) -> Answer | None:
        """The peer will send no more: if the session waits for a job, that ends."""
        return self.context.queue.half_close(session)

    @fail_stop
    def cancel_wait(self, session: Session) -> Answer | None:
        """The peer takes back what the session waits for: that ends, if it does."""
        return self.context.queue.cancel_wait(session)

    @fail_stop
    def disconnected(self, session: Session) -> None:
        """End a session, whose connection has ended or is about to, unless it has ended before."""
        connection = self._sessions.connections.pop(session, None)
        if connection is None:
            return
        self._parting.add(connection)
        self._limits.disconnected(session)
        self._owing.forget(connection)
        self.wrapped_ended += not is_plain(connection.transport)
        if self.is_stopping:
            self.context.queue.forget_waits(session)
        else:
            self.context.queue.disconnect(session, self.context.clock.now_ns())
        self.ended(session)
        if self.settings.verbosity:
            self.log.info(
                "connection {connection} ended", event="disconnected", connection=session.number
            )
        self.turns.after_change()

    def closed(self, connection: "Connection") -> None:
        """A connection has ended; its session did so before."""
        self._parting.discard(connection)

    @fail_stop
    def _close_stalled(self, connection: "Connection") -> None:
        self.stalled += 1
        self._anomalies.note_stalled(address_of(connection), self.settings.limits.stalled_s)
        connection.abandon()

    # The end.

    def stop(self) -> None:
        """Have the connections begin no more commands; leave no timer."""
        self.is_stopping = True
        self._limits.stop()
        self._owing.stop()
        for connection in list(self._sessions.connections.values()):
            connection.refuse_commands()

    def part(self) -> None:
        """Close all: what was begun is answered."""
        for connection in self._open():
            connection.part()

    def abandon(self) -> None:
        """End all immediately, with no more replies."""
        for connection in self._open():
            connection.abandon()

    def _open(self) -> "list[Connection]":
        return [*self._sessions.connections.values(), *self._parting]


def peer_of(transport: Any) -> Peer:
    """Describe a peer.  An encrypted connection has a certificate only after its handshake, which
    is over when something has come.
    """
    uid, gid = _process_of(transport)
    return Peer(tuple(_listeners(transport.getHost())), uid, gid, tuple(_names(transport)))


def host_of(transport: Any) -> str:
    """Tell peers apart that guess tokens: by address, or on a UNIX socket by user."""
    address = transport.getPeer()
    if isinstance(address, IPv4Address | IPv6Address):
        return str(address.host)
    return f"uid {_process_of(transport)[0]}"


def _listeners(address: object) -> Iterator[str]:
    if isinstance(address, UNIXAddress):
        if address.name:
            yield f"unix:{address.name.decode(errors='surrogateescape')}"
    elif isinstance(address, IPv6Address):
        yield f"[{address.host}]:{address.port}"
        yield f"tcp:{address.port}"
    elif isinstance(address, IPv4Address):
        yield f"{address.host}:{address.port}"
        yield f"tcp:{address.port}"


def _process_of(transport: Any) -> tuple[int | None, int | None]:
    """:return: uid and gid; None where the kernel does not know them."""
    handle: Any = getattr(transport, "getHandle", lambda: None)()
    if getattr(handle, "family", None) != socket.AF_UNIX or not hasattr(socket, "SO_PEERCRED"):
        return None, None
    with suppress(OSError):
        _, uid, gid = _CREDENTIALS.unpack(
            handle.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        return uid, gid
    return None, None


def _names(transport: Any) -> Iterator[str]:
    get = getattr(transport, "getPeerCertificate", None)
    certificate = None if get is None else get()
    if certificate is None:
        return
    shown = certificate.to_cryptography()
    for attribute in _understood(lambda: shown.subject):
        if attribute.oid.dotted_string == "2.5.4.3":
            yield f"CN={attribute.value}"
    for extension in _understood(lambda: shown.extensions):
        if extension.oid.dotted_string == "2.5.29.17":
            for name in list(extension.value)[:MAX_NAMES]:
                kind = _KINDS.get(type(name).__name__)
                if kind is not None:
                    yield f"{kind}:{name.value}"


def _understood(read: Callable[[], Iterable[Any]]) -> Iterable[Any]:
    """:return: nothing if `cryptography` refuses what OpenSSL took: one extension that is damaged,
    or is there twice, keeps all others from being read.
    """
    try:
        return read()
    except Exception:
        return ()
