"""
An HTTP connection with bounds: of its lines, headers, body and time.

twisted.web bounds lines and headers, but takes bodies of any size, lets a client that sends a byte
a minute go on for ever, and carries out all requests that have come at once, whether or not their
client reads.
"""

from collections.abc import Mapping
from http import HTTPStatus
from io import BytesIO
from typing import Any, Final

from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel, Request

MAX_HEAD_BYTES: Final = 16 << 10
"""Bytes of the request line and all headers: browsers send 1 to 8 KiB."""

MAX_HEADERS: Final = 100
"""Headers of a request: browsers send about 20."""

MAX_BODY_BYTES: Final = 256 << 10
"""Bytes of a request's body: the largest job of the default size in base64, and room for more."""

MAX_LENGTH_DIGITS: Final = 19
"""Digits of a Content-Length: more are more bytes than any file has, and above 4,300 an error."""

REQUEST_S: Final = 30
"""
Seconds from a connection, or the end of a reply, until the next request has wholly come.  So slow
clients, and idle ones, do not keep others out.
"""


class BoundedRequest(Request):
    """A request whose body stays in memory, and is refused when it is too large."""

    channel: "BoundedChannel"
    content: BytesIO

    def gotLength(self, length: int | None) -> None:
        self.content = BytesIO()
        if length is not None and length > MAX_BODY_BYTES:
            self.channel.refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)

    def handleContentChunk(self, data: bytes) -> None:
        if self.content.tell() + len(data) > MAX_BODY_BYTES:
            self.channel.refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        elif not self.channel.is_refused:
            self.content.write(data)

    def parseCookies(self) -> None:
        """`logins` reads them."""

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        """Unlike Twisted's, it leaves the body alone: no form is parsed."""
        if self._disconnected or self.channel.is_refused:
            return
        self.method, self.uri, self.clientproto = command, path, version
        self.answer()

    def answer(self) -> None:
        """Answer it: all of it has come."""
        raise NotImplementedError


_BASE: Any = HTTPChannel
"""Untyped."""


class BoundedChannel(HTTPChannel):
    """
    A connection.

    :ivar is_refused: whether an error was answered that ends it.
    :ivar is_ended: whether the connection is gone.
    :ivar is_for_health: whether only health checks are answered, and none after the first.
    :ivar is_carrying_out: whether an operation has begun for its request, which has wholly come,
        and whose sender may ask for it.
    """

    MAX_LENGTH = MAX_HEAD_BYTES
    totalHeadersSize = MAX_HEAD_BYTES
    maxHeaders = MAX_HEADERS
    is_refused = False
    is_ended = False
    is_for_health = False
    is_carrying_out = False
    _is_full = False
    _is_planned = False
    paused: bool
    persistent: bool
    factory: Any
    transport: Any

    @property
    def is_at_work(self) -> bool:
        """Whether something would be lost with the connection."""
        return self.is_carrying_out or self._is_full

    def checkPersistence(self, request: Request, version: bytes) -> bool:
        if not self.is_for_health:
            return bool(_BASE.checkPersistence(self, request, version))
        request.responseHeaders.setRawHeaders(b"Connection", [b"close"])
        return False

    def dataReceived(self, data: bytes) -> None:
        if not self.is_refused:
            _BASE.dataReceived(self, data)

    def lineReceived(self, line: bytes) -> None:
        if not self.is_refused:
            _BASE.lineReceived(self, line)

    def headerReceived(self, line: bytes) -> bool:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length" and len(value.strip()) > MAX_LENGTH_DIGITS:
            self.refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return False
        return bool(_BASE.headerReceived(self, line))

    def requestDone(self, request: Request) -> None:
        """
        Have what has come behind it wait for a turn of its own, and until this reply was taken:
        many requests at once cost others no more than one does, and no memory.
        """
        self.paused = True
        self.is_carrying_out = False
        self.factory.connections.rested(self)
        _BASE.requestDone(self, request)
        if self._is_full:
            self.transport.pauseProducing()
        elif self.persistent:
            self._plan()

    def pauseProducing(self) -> None:
        """The client does not read."""
        self._is_full = True
        _BASE.pauseProducing(self)

    def resumeProducing(self) -> None:
        """The client has read all."""
        self._is_full = False
        _BASE.resumeProducing(self)
        if self.paused:
            self._plan()

    def _plan(self) -> None:
        if not self._is_planned:
            self._is_planned = True
            self.factory.turns.add(self._go_on)

    def _go_on(self) -> None:
        self._is_planned = False
        if not (self._is_full or self.is_refused or self.is_ended):
            self.paused = False
            self.dataReceived(b"")

    def resetTimeout(self) -> None:
        """Do nothing: bytes that come do not give a client more time."""

    def lineLengthExceeded(self, line: bytes) -> None:
        self.refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def refuse(self, status: HTTPStatus) -> None:
        """Answer that the request is wrong or too large, and end the connection."""
        if self.is_refused:
            return
        self.is_refused = True
        head = f"HTTP/1.1 {status.value} {status.phrase}\r\nConnection: close\r\n"
        self.transport.write(f"{head}Content-Length: 0\r\n\r\n".encode())
        _BASE.loseConnection(self)

    def _respondToBadRequestAndDisconnect(self) -> None:
        self.refuse(HTTPStatus.BAD_REQUEST)

    def timeoutConnection(self) -> None:
        self.end()

    def end(self) -> None:
        """Close the connection now, whatever is still to be sent."""
        self.transport.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.is_ended = True
        self.factory.connections.left(self)
        _BASE.connectionLost(self, reason)


def lower_case(request: Request) -> Mapping[str, str]:
    """:return: the request's headers, by lower-case name."""
    return {
        name.decode("ascii").lower(): values[-1].decode("latin-1")
        for name, values in request.requestHeaders.getAllRawHeaders()
    }
