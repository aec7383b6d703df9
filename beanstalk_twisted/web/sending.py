"""Sending replies that are made piece by piece, and those that go on."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IPushProducer, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from beanstalk_twisted.server.connections.turns import SharedTurns
from beanstalk_twisted.web.channel import BoundedRequest
from beanstalk_twisted.web.exchange import Refusal, Stream

REPLY_S: Final = 60.0
"""Seconds that a reply may take, however slowly its client reads."""


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
        self._reactor = reactor
        self._is_paused = False
        self._turns = turns
        self._is_waiting = self._is_over = False
        self._limit: IDelayedCall | None = None

    def begin(self) -> None:
        """Begin to send; the headers are set."""
        self._request.notifyFinish().addBoth(self._ended)
        self._limit = self._reactor.callLater(REPLY_S, self._give_up)
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
        """Half of it has left: that it is no whole reply can only be told by its end."""
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
        """
        :param is_outdated: says before each piece whether who asked is to be asked who they are.
        """
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
