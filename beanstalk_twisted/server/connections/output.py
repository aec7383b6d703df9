"""Where the replies of a connection leave."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, cast

from twisted.internet.tcp import Connection

from beanstalk_twisted.jobs.body_room import BodyRoom
from beanstalk_twisted.server.reply_queue import total_bytes

PORTION_BYTES: Final = 4 << 10
"""Bytes given to the transport of a peer that does not read: a page, all that is copied for it."""

MAX_SEND_BYTES: Final = 256 << 10
"""What is sent to one peer that reads again before others have their turn: 0.1 ms of copying."""

MAX_PIECES: Final = 512
"""Pieces for one call of the kernel, which takes 1,024 (IOV_MAX)."""


class Source(Protocol):
    """What makes the output; an IPushProducer."""

    def pauseProducing(self) -> None:
        """The peer does not read."""

    def resumeProducing(self) -> None:
        """The peer has read all."""


def is_plain(transport: object) -> bool:
    """Return True if a transport's socket carries what is written: no TLS, no wrapper."""
    return isinstance(transport, Connection) and not getattr(transport, "TLS", False)


class Output:
    """Sends replies through the socket if the transport `is_plain`; otherwise through that.  An
    `IPullProducer` for the transport.

    Twisted's `transport.write` waits for the reactor to say that the socket takes bytes, which it
    nearly always does: two calls of `epoll_ctl` and a round of the reactor for each reply.

    What the socket does not take waits here, as references to the replies: a thousand peers that do
    not read one large body do not cost a copy of it each.  The transport is given a page of it, and
    when that has left the socket is tried again.  So the two never mix.  What waits counts in
    `BodyRoom`: it may be all that keeps a body in memory.
    """

    __slots__ = (
        "_is_direct", "_is_full", "_room", "_send", "_send_all", "_source", "_transport",
        "_waiting", "_waiting_bytes",
    )  # fmt: skip

    def __init__(self, transport: Any, source: Source, room: BodyRoom | None = None) -> None:
        """:param room: where the bytes count that the peer has not taken."""
        self._transport = transport
        self._source: Source | None = source
        self._room = BodyRoom() if room is None else room
        self._waiting_bytes = 0
        # Of a transport that waits itself: whether it does.
        self._is_full = False
        # What the peer has not taken, while there is something; the transport then feeds on us.
        self._waiting: deque[memoryview] | None = None
        self._is_direct = is_plain(transport)
        if self._is_direct:
            handle = transport.getHandle()
            self._send: Callable[[bytes | memoryview], int] = handle.send
            self._send_all: Callable[[Sequence[bytes]], int] = handle.sendmsg
        else:
            transport.registerProducer(_Flow(self), True)

    def write(self, pieces: list[bytes]) -> None:
        """Send these after all that was written before."""
        if self._waiting is not None:
            self._waiting.extend([memoryview(piece) for piece in pieces])
            self._count(total_bytes(pieces))
        elif not self._is_direct:
            self._transport.writeSequence(pieces)
            if self._is_full:
                self._count(total_bytes(pieces))
        else:
            try:
                if len(pieces) == 1:
                    send = self._send
                    size = len(pieces[0])
                    sent = send(pieces[0])
                else:
                    size = total_bytes(pieces)
                    sent = self._send_all(pieces[:MAX_PIECES])
            except OSError:
                # It takes nothing now, or it is broken, which Twisted will find.
                sent = 0
            if sent != size:
                self._wait(pieces, sent)

    def close(self) -> None:
        """The connection will end when what waits has left."""
        self._is_direct = False
        if self._waiting is None:
            self._transport.unregisterProducer()

    def forget(self) -> None:
        self._is_direct = False
        self._is_full = False
        self._source = self._waiting = None
        self._count(-self._waiting_bytes)

    def filled(self) -> None:
        """The transport waits for the peer."""
        self._is_full = True
        if self._source is not None:
            self._source.pauseProducing()

    def emptied(self) -> None:
        """It has sent all."""
        self._is_full = False
        self._count(-self._waiting_bytes)
        if self._source is not None:
            self._source.resumeProducing()

    def _count(self, change: int) -> None:
        self._waiting_bytes += change
        self._room.taken_bytes += change

    def _wait(self, pieces: list[bytes], sent: int) -> None:
        """:param sent: bytes of the pieces that have left."""
        self._waiting = waiting = deque([memoryview(piece) for piece in pieces])
        while waiting and sent >= len(waiting[0]):
            sent -= len(waiting.popleft())
        self._count(sum(map(_kept_bytes, waiting)))
        if sent:
            waiting[0] = waiting[0][sent:]
        if self._source is not None:
            self._source.pauseProducing()
        # A pull producer is asked now, and whenever the transport has nothing.
        self._transport.registerProducer(self, False)

    def resumeProducing(self) -> None:
        """The transport has sent all that it was given: the socket may take more."""
        if self._waiting is None:
            return
        self._send_waiting(self._waiting)
        if self._waiting:
            # What the transport will wait with.
            piece = self._waiting[0]
            if len(piece) > PORTION_BYTES:
                self._waiting[0] = piece[PORTION_BYTES:]
            else:
                self._count(-_kept_bytes(self._waiting.popleft()))
            self._transport.write(bytes(piece[:PORTION_BYTES]))
            return
        self._waiting = None
        self._transport.unregisterProducer()
        if self._is_direct and self._source is not None:
            self._source.resumeProducing()

    def _send_waiting(self, waiting: "deque[memoryview]") -> None:
        """Send from where it lies what the socket takes, up to `MAX_SEND_BYTES`."""
        left = MAX_SEND_BYTES
        while waiting and left > 0:
            piece = waiting[0]
            try:
                sent = self._send(piece[:left])
            except OSError:
                return
            left -= max(sent, 1)
            if sent == len(piece):
                self._count(-_kept_bytes(waiting.popleft()))
            else:
                waiting[0] = piece[sent:]

    def stopProducing(self) -> None:
        self.forget()


def _kept_bytes(piece: memoryview) -> int:
    """Count the bytes that what is left of a reply's piece keeps in memory."""
    return len(cast(bytes, piece.obj))


class _Flow:
    """Pauses an output when a transport that waits itself is full: an `IPushProducer`."""

    __slots__ = ("_output",)

    def __init__(self, output: Output) -> None:
        self._output = output

    def pauseProducing(self) -> None:
        self._output.filled()

    def resumeProducing(self) -> None:
        self._output.emptied()

    def stopProducing(self) -> None:
        """Nothing to do: the connection ends."""
