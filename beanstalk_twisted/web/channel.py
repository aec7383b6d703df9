"""HTTP connections with bounds: of lines, headers, bodies and time, and of their number."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from io import BytesIO
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IPushProducer, IReactorTime
from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel, Request
from zope.interface import implementer

from beanstalk_twisted.server.connections.accepting import counted_as
from beanstalk_twisted.server.connections.turns import SharedTurns
from beanstalk_twisted.storage.io_thread import Clock
from beanstalk_twisted.storage.repeats import Repeats
from beanstalk_twisted.web.exchange import Refusal, Stream

MAX_HEAD_BYTES: Final = 16 << 10
"""Bytes of the request line and all headers: browsers send 1 to 8 KiB."""

MAX_HEADERS: Final = 100
"""Headers of a request: browsers send about 20."""

MAX_BODY_BYTES: Final = 256 << 10
"""Bytes of a request's body: the largest job of the default size in base64, and room for more."""

MAX_LENGTH_DIGITS: Final = 19
"""Digits of a Content-Length: more are more bytes than any file has, and above 4,300 an error."""

REQUEST_S: Final = 30
"""Seconds from a connection, or the end of a reply, until the next request has wholly come.  So
slow clients, and idle ones, do not keep others out.
"""

REPLY_S: Final = 60.0
"""Seconds that a reply may take, however slowly its client reads."""

MAX_CONNECTIONS: Final = 64
"""HTTP connections at a time: a browser makes 6, and so many cost at most 16 MiB for bodies."""

MAX_PER_ADDRESS: Final = 48
"""Of one address: nearly all, since behind a proxy all are one, and room for others."""

MAX_FOR_HEALTH: Final = 8
"""Beyond these, for health checks alone: of a load balancer, a container platform, a pager."""

HEALTH_S: Final = 5
"""Seconds until a request on one of those has wholly come."""


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
        raise NotImplementedError


_BASE: Any = HTTPChannel
"""Untyped."""


class BoundedChannel(HTTPChannel):
    """A connection.  twisted.web bounds lines and headers, but takes bodies of any size, lets a
    client that sends a byte a minute continue for ever, and carries out all requests that have come
    at once, whether or not their client reads.

    :ivar is_refused: whether an error was answered that ends it.
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
        """Have what has come after it wait for a turn of its own, and until this reply was taken:
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
        self._is_full = True
        _BASE.pauseProducing(self)

    def resumeProducing(self) -> None:
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

    def end(self) -> None:
        """Close the connection now, whatever is still to be sent."""
        self.transport.abortConnection()

    timeoutConnection = end

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.is_ended = True
        self.factory.connections.left(self)
        _BASE.connectionLost(self, reason)


def lower_case(request: Request) -> Mapping[str, str]:
    """Return the request's headers, by lower-case name."""
    return {
        name.decode("ascii").lower(): values[-1].decode("latin-1")
        for name, values in request.requestHeaders.getAllRawHeaders()
    }


class HttpConnections:
    """The connections there are.  When there is no room for one more, the one is closed that has
    been without a whole request for longest, of the address that has most of them.

    :ivar closed: how many were closed for others.
    """

    log = Logger()

    def __init__(self, clock: Clock) -> None:
        self.closed = 0
        self._repeats: Repeats[str] = Repeats(clock, self._tell)
        # By channel the name of its address; in the order in which they came to rest.
        self._ordinary: dict[BoundedChannel, str] = {}
        self._for_health: dict[BoundedChannel, str] = {}

    def __len__(self) -> int:
        return len(self._ordinary) + len(self._for_health)

    def take(self, channel: BoundedChannel, address: object) -> None:
        """Take one more, for health checks alone if there is no other room."""
        name = counted_as(address)
        ordinary = self._ordinary
        is_crowding = bool(name) and list(ordinary.values()).count(name) >= MAX_PER_ADDRESS
        if is_crowding or len(ordinary) >= MAX_CONNECTIONS:
            self._repeats.note(name or "a UNIX socket")
            resting = {
                each: owner for each, owner in ordinary.items()
                if not each.is_at_work and (owner == name or not is_crowding)
            }  # fmt: skip
            if not resting:
                self._take_for_health(channel, name)
                return
            self._close_one(ordinary, resting)
        ordinary[channel] = name

    def _take_for_health(self, channel: BoundedChannel, name: str) -> None:
        if len(self._for_health) >= MAX_FOR_HEALTH:
            self._close_one(self._for_health, self._for_health)
        channel.is_for_health = True
        channel.timeOut = HEALTH_S
        self._for_health[channel] = name

    def _close_one(
        self, those: dict[BoundedChannel, str], closable: dict[BoundedChannel, str]
    ) -> None:
        counts = Counter(those.values())
        chosen = max(closable, key=lambda each: counts[closable[each]])
        del those[chosen]
        self.closed += 1
        chosen.end()

    def rested(self, channel: BoundedChannel) -> None:
        """Note that a connection has had its reply: its next request may begin."""
        if channel in self._ordinary:
            self._ordinary[channel] = self._ordinary.pop(channel)

    def left(self, channel: BoundedChannel) -> None:
        self._ordinary.pop(channel, None)
        self._for_health.pop(channel, None)

    def stop(self) -> None:
        self._repeats.stop()
        for channel in [*self._ordinary, *self._for_health]:
            channel.end()

    def _tell(self, count: int, name: str) -> None:
        self.log.warn(
            "{count} HTTP {noun} came when there were {most}, or {share} of one address; the "
            "newest from {name}. For each, one without a whole request is closed, or it may ask "
            "for health checks alone", event="http-connections-full", count=count,
            noun="connection" if count == 1 else "connections", most=MAX_CONNECTIONS,
            share=MAX_PER_ADDRESS, name=name,
        )  # fmt: skip


@implementer(IPushProducer)
class PieceSender:
    """Makes and sends one piece of a reply a turn, while the client takes them."""

    log = Logger()

    def __init__(
        self, request: BoundedRequest, pieces: Iterable[bytes | Deferred[bytes]],
        reactor: IReactorTime, turns: SharedTurns,
    ) -> None:  # fmt: skip
        self._request: Any = request
        self._pieces = iter(pieces)
        self._turns = turns
        self._is_paused = self._is_waiting = self._is_over = False
        self._request.notifyFinish().addBoth(self._ended)
        self._limit: IDelayedCall | None = reactor.callLater(REPLY_S, self._give_up)

    def begin(self) -> None:
        """Begin to send; the headers are set."""
        self._request.registerProducer(self, True)
        self._send()

    def pauseProducing(self) -> None:
        self._is_paused = True

    def resumeProducing(self) -> None:
        self._is_paused = False
        self._wait()

    def stopProducing(self) -> None:
        """The connection is lost, which `_ended` hears of too."""

    def _wait(self) -> None:
        if not (self._is_paused or self._is_waiting or self._is_over):
            self._is_waiting = True
            self._turns.add(self._send)

    def _send(self) -> None:
        self._is_waiting = False
        if self._is_over:
            return
        try:
            piece = next(self._pieces, None)
        except Exception:
            self._failed(Failure())
            return
        if isinstance(piece, Deferred):
            piece.addCallback(self._take).addErrback(self._failed)
        else:
            self._take(piece)

    def _take(self, piece: bytes | None) -> None:
        if self._is_over:
            return
        if piece is None:
            self._request.unregisterProducer()
            self._request.finish()
            return
        self._request.write(piece)
        self._wait()

    def _failed(self, failure: Failure) -> None:
        """Close the connection: half of the reply has left, and only its end can show that."""
        if not failure.check(Refusal):
            self.log.failure("while answering an HTTP request", failure, event="http-failed")
        self._give_up()

    def _give_up(self) -> None:
        if not self._is_over:
            self._request.channel.end()

    def _ended(self, outcome: object) -> None:
        self._is_over = True
        limit, self._limit = self._limit, None
        if limit is not None and limit.active():
            limit.cancel()
        close = getattr(self._pieces, "close", None)
        if close is not None:
            close()


@implementer(IPushProducer)
class StreamOutlet:
    """An `exchange.Outlet`: what its client does not take is dropped, not kept."""

    def __init__(
        self, request: BoundedRequest, stream: Stream, is_outdated: Callable[[], bool]
    ) -> None:
        """:param is_outdated: whether the client has to show a token again."""
        self._request: Any = request
        self._stream = stream
        self._is_outdated = is_outdated
        self._is_paused = False
        self._is_over = False

    def begin(self) -> None:
        """Send the headers, and let the stream begin."""
        self._request.notifyFinish().addBoth(self._ended)
        self._request.registerProducer(self, True)
        self._request.write(b"")
        if self._request.method == b"HEAD":
            self.end()
        else:
            self._stream.opened(self)

    def write(self, data: bytes) -> bool:
        if self._is_over or self._is_paused:
            return False
        if self._is_outdated():
            self.end()
            return False
        self._request.write(data)
        return True

    def end(self) -> None:
        if not self._is_over:
            self._request.unregisterProducer()
            self._request.finish()

    def pauseProducing(self) -> None:
        self._is_paused = True

    def resumeProducing(self) -> None:
        self._is_paused = False

    def stopProducing(self) -> None:
        """The connection is lost, which `_ended` hears of too."""

    def _ended(self, outcome: object) -> None:
        self._is_over = True
        self._stream.closed()
