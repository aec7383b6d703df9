"""The sessions that there are: the connection of each, and who is at its other end."""

from collections.abc import Callable
from typing import Final

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.interfaces import IAddress, ISSLTransport

from beanstalk_twisted.access.rules import NOBODY, Peer
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.rules.looking.connections import ConnectionFacts
from beanstalk_twisted.server.access.peers import host_of, peer_of
from beanstalk_twisted.server.connections.host import ServedConnection

ON_UNIX_SOCKET: Final = "a UNIX socket"


class Sessions:
    """
    Knows the peer of each session; an `access.control.Peers`.

    :ivar connections: that of each session.
    :ivar identify: gives the name that the access file has for a session's peer; None without one.
    """

    def __init__(self) -> None:
        self.connections: dict[Session, ServedConnection] = {}
        self.identify: Callable[[Session], str] | None = None

    def known_peer(self, session: Session) -> Peer:
        connection = self.connections.get(session)
        return NOBODY if connection is None else peer_of(connection.transport)

    def host(self, session: Session) -> str:
        connection = self.connections.get(session)
        return "" if connection is None else host_of(connection.transport)

    def peer(self, session: Session) -> str:
        """:return: who is at the other end of a session, in words."""
        connection = self.connections.get(session)
        if connection is None:
            return "a connection that has ended"
        # A request over HTTP has a connection that this process has made to itself.
        return address_of(connection) + getattr(connection.transport, "how", "")

    def facts(self, session: Session) -> ConnectionFacts | None:
        """:return: what is shown of a session's connection; None if it has ended."""
        connection = self.connections.get(session)
        if connection is None:
            return None
        transport = connection.transport
        return ConnectionFacts(
            _written(transport.getPeer()), connection.buffered_bytes, self.identity(session),
            getattr(transport, "is_secure", False) or ISSLTransport.providedBy(transport),
        )  # fmt: skip

    def identity(self, session: Session) -> str:
        """:return: the name that the access file has for a session's peer; empty without one."""
        if self.identify is None or session not in self.connections:
            return ""
        return self.identify(session)


def address_of(connection: ServedConnection) -> str:
    """:return: the address of a connection's peer, in words."""
    return _written(connection.transport.getPeer()) or ON_UNIX_SOCKET


def _written(address: IAddress) -> str:
    """:return: a peer's address and port; empty on a UNIX socket."""
    if isinstance(address, IPv6Address):
        return f"[{address.host}]:{address.port}"
    return f"{address.host}:{address.port}" if isinstance(address, IPv4Address) else ""
