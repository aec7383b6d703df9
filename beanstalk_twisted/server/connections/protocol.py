"""The wire, on Twisted: one `BeanstalkProtocol` for each connection, whatever it speaks."""

from typing import Any

from twisted.internet.interfaces import IHalfCloseableProtocol, ITCPTransport
from twisted.internet.protocol import Factory, connectionDone
from twisted.protocols.basic import LineReceiver
from twisted.python.failure import Failure
from zope.interface import implementer

from beanstalk_twisted.server.connections.connection import Connection
from beanstalk_twisted.server.connections.served import ServedConnections
from beanstalk_twisted.wire.commands import MAX_LINE_BYTES
from beanstalk_twisted.wire.dialects import MODERN, Dialect
from beanstalk_twisted.wire.grammar import CRLF


@implementer(IHalfCloseableProtocol)
class BeanstalkProtocol(LineReceiver):
    """What Twisted knows of a connection.

    It is a `LineReceiver`: commands are lines, and it is in raw mode while a body, jobs or a line
    of more than 224 bytes are coming.  But `Connection` is given whole packets and finds the lines
    itself, as `LineReceiver` copies the rest of its buffer for each: a command would cost a third
    more.

    :ivar connection: there is one from `connectionMade` on.
    """

    delimiter = CRLF
    MAX_LENGTH = MAX_LINE_BYTES - len(CRLF)

    __slots__ = ("_dialect", "_host", "connection", "transport")

    connection: Connection
    transport: Any

    def __init__(self, host: ServedConnections, dialect: Dialect = MODERN) -> None:
        self.transport = None
        self._host = host
        self._dialect = dialect

    @property
    def line_mode(self) -> bool:  # type: ignore[override]
        return not self.connection.is_midway

    def connectionMade(self) -> None:
        if ITCPTransport.providedBy(self.transport):
            # Small replies leave immediately.
            self.transport.setTcpNoDelay(True)
        self.connection = Connection(self.transport, self._host, self._dialect)

    def dataReceived(self, data: bytes) -> None:
        """Carry out what has come, as `LineReceiver.dataReceived` would by the methods below."""
        context = self._host.context
        began_ns = context.clock.now_ns()
        self.connection.received(data, began_ns)
        took_ns = context.clock.now_ns() - began_ns
        if took_ns > context.slow_ns:
            self.connection.was_slow(took_ns)

    def lineReceived(self, line: bytes) -> None:
        self.rawDataReceived(line + CRLF)

    def lineLengthExceeded(self, line: bytes) -> None:
        """:param line: what has come of it."""
        self.rawDataReceived(line)

    def rawDataReceived(self, data: bytes) -> None:
        self.connection.received(data, self._host.context.clock.now_ns())

    def readConnectionLost(self) -> None:
        self.connection.half_closed()

    def writeConnectionLost(self) -> None:
        """Close: the peer reads no more replies."""
        self.connection.stop_reading()
        self.transport.loseConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.connection.lost()


class BeanstalkFactory(Factory):
    """Makes a protocol for each connection."""

    noisy = False

    def __init__(self, host: ServedConnections, dialect: Dialect = MODERN) -> None:
        self._host = host
        self.dialect = dialect

    def buildProtocol(self, addr: object) -> BeanstalkProtocol | None:
        """:return: None, and the connection is closed, if there is no room for it."""
        has_room = self._host.takes_connection(addr)
        return BeanstalkProtocol(self._host, self.dialect) if has_room else None
