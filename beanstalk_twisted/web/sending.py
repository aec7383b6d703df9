"""
Sending replies that are made piece by piece, and those that go on.
"""

from collections.abc import Iterable
from typing import Any, Final

from twisted.internet.interfaces import IDelayedCall, IPushProducer, IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from beanstalk_twisted.web.channel import BoundedRequest
from beanstalk_twisted.web.exchange import Stream

REPLY_S: Final = 60.0
"""Seconds that a reply may take, however slowly its client reads."""


@implementer(IPushProducer)
class PieceSender:
    """
    Makes and sends one piece of a reply a turn, while the client takes them.
    """

    log = Logger()

    def __init__(
        self, request: BoundedRequest, pieces: Iterable[bytes], reactor: IReactorTime
    ) -> None:
        self._request: Any = request
        self._pieces = iter(pieces)
        self._reactor = reactor
        self._is_paused = False
        self._turn: IDelayedCall | None = None
        self._limit: IDelayedCall | None = None

    def begin(self) -> None:
        """
        Begin to send; the headers are set.
        """
        self._request.notifyFinish().addBoth(self._ended)
        self._limit = self._reactor.callLater(REPLY_S, self._give_up)
        self._request.registerProducer(self, True)
        self._send()

    def pauseProducing(self) -> None:
        self._is_paused = True

    def resumeProducing(self) -> None:
        self._is_paused = False
        if self._turn is None:
            self._turn = self._reactor.callLater(0, self._send)

    def stopProducing(self) -> None:
        """
        The connection is lost, which `_ended` hears of too.
        """

    def _send(self) -> None:
        self._turn = None
        try:
            piece = next(self._pieces, None)
        except Exception:
            # Half of it has left: that it is no whole reply can only be told by its end.
            self.log.failure("while answering an HTTP request")
            self._give_up()
            return
        if piece is None:
            self._request.unregisterProducer()
            self._request.finish()
            return
        self._request.write(piece)
        if not self._is_paused and self._turn is None and self._limit is not None:
            self._turn = self._reactor.callLater(0, self._send)

    def _give_up(self) -> None:
        self._request.channel.end()

    def _ended(self, outcome: object) -> None:
        for call in (self._turn, self._limit):
            if call is not None and call.active():
                call.cancel()
        self._turn = self._limit = None
        close = getattr(self._pieces, "close", None)
        if close is not None:
            close()


@implementer(IPushProducer)
class StreamOutlet:
    """
    An `exchange.Outlet`: what its client does not take is dropped, not kept.
    """

    def __init__(self, request: BoundedRequest, stream: Stream) -> None:
        self._request: Any = request
        self._stream = stream
        self._is_paused = False
        self._is_over = False

    def begin(self) -> None:
        """
        Send the headers, and let the stream begin.
        """
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
        """
        The connection is lost, which `_ended` hears of too.
        """

    def _ended(self, outcome: object) -> None:
        self._is_over = True
        self._stream.closed()
