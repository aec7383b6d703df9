"""
One reader for all client sockets.

For each event of each socket, Twisted's reactor looks up contexts for its log, tests, and calls
through four functions.  An `EpollReader` is one descriptor of the reactor, an epoll of its own that
holds the sockets: the reactor's price is paid once for all who have sent something.  A *turn* reads
all of them once; at its end the log is written, and replies leave.

It only receives.  When a socket has ended, its transport is told at once, as by Twisted's reactor:
what others have sent since then was sent later, and is to find the jobs of that peer back.

A peer on this machine may have sent its next command by the time the replies have left.  So the
sockets are looked at once more, of a lone client for a while (`BusyPollPolicy`), and there may be
another turn before the reactor goes on, unless a reply waits for the disk.  After `AGAIN_NS` the
reactor has its turn, and a lone client is looked for behind that.
"""

import select
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorFDSet, IReadDescriptor
from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from beanstalk_twisted.server.connections.busy_poll import SEVERAL, BusyPollPolicy
from beanstalk_twisted.server.connections.output import is_plain
from beanstalk_twisted.server.execution_context import NEVER_NS, TURN_NS, US
from beanstalk_twisted.storage.fail_stop import FailStop, fail_stop
from beanstalk_twisted.storage.io_thread import Clock

READ_BYTES: Final = 64 << 10
"""What one socket may bring in a turn, as in Twisted's own reading."""

MAX_READS: Final = 256
"""Sockets read in a turn: then so many replies wait for one write of the log."""

LIMIT_NS: Final = 2 * TURN_NS
"""
How long a turn may take, but for the last socket in it, before timers and new connections have
theirs: what its commands may take, and as much for reading.
"""

AGAIN_NS: Final = 1_000_000
"""
Nanoseconds of turns without the reactor in between, 20 of a lone client without a log: what timers,
HTTP and new connections wait for it, each time that they need the reactor.
"""


class HubReactor(Clock, Protocol):
    """What is needed of a reactor."""

    def addReader(self, reader: IReadDescriptor) -> object:
        """Call its `doRead` while its descriptor can be read."""

    def removeReader(self, reader: IReadDescriptor) -> object:
        """Do not call it any more."""


class SocketSource:
    """Delivers one socket's input to its protocol.  An `IPushProducer`: reading can be paused."""

    __slots__ = ("_hub", "_is_here", "_receive", "_received", "fd", "transport")

    def __init__(
        self, hub: "EpollReader", transport: Any, received: Callable[[bytes, int], None]
    ) -> None:
        handle = transport.getHandle()
        self.fd: int = handle.fileno()
        self._hub = hub
        self.transport = transport
        self._receive: Callable[[int], bytes] = handle.recv
        self._received = received
        self._is_here = True
        transport.pauseProducing()
        hub.add(self)

    def read(self, now_ns: int) -> None:
        """
        Deliver what has come, or the end of the connection.

        :param now_ns: passed on.
        """
        try:
            arrived = self._receive(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            self.close()
            self.transport.connectionLost(Failure(CONNECTION_LOST))
            return
        if arrived:
            self._received(arrived, now_ns)
        else:
            self.close()
            self.transport.readConnectionLost(Failure(CONNECTION_DONE))

    def pauseProducing(self) -> None:
        if self._is_here:
            self._hub.remove(self)
        else:
            self.transport.pauseProducing()

    def resumeProducing(self) -> None:
        if self._is_here:
            self._hub.add(self)
        else:
            self.transport.resumeProducing()

    def close(self) -> None:
        """Deliver nothing more; what else happens to the connection is Twisted's."""
        if self._is_here:
            self._is_here = False
            self._hub.remove(self)

    def give_back(self) -> None:
        """Twisted reads the connection from now on."""
        self.close()
        self.transport.resumeProducing()

    def fail(self) -> None:
        """Reading or receiving has failed: as with Twisted, only this connection ends."""
        self.close()
        self.transport.abortConnection()


@implementer(IReadDescriptor)
class EpollReader:
    """Reads all sockets that have something, then says that the turn is over."""

    log = Logger()

    def __init__(
        self, reactor: HubReactor, now_ns: Callable[[], int],
        begin_turn: Callable[[int], None], end_turn: Callable[[], bool], failed: FailStop,
        slow_ns: int = NEVER_NS, slow: Callable[[Any, int], None] = lambda transport, took_ns: None,
        busy_poll_us: int = 0,
    ) -> None:  # fmt: skip
        """
        :param begin_turn: called before the first socket is read, with how many there are.
        :param end_turn: called after the last one; says whether another turn may follow at once.
        :param failed: when a turn cannot be carried to its end.
        :param slow_ns: nanoseconds above which what a socket brings took long, `LIMIT_NS` or more;
            then ``slow`` is called with its transport and how long it was.
        :param busy_poll_us: how long a lone client's next command is looked for; 0 is never.
        """
        self._fail_stop = failed
        self._slow_ns = slow_ns
        self._slow = slow
        self._now_ns = now_ns
        self._ready: list[tuple[int, int]] = []
        self._reactor = reactor
        self._begin_turn = begin_turn
        self._end_turn = end_turn
        self._busy_poll = BusyPollPolicy(busy_poll_us)
        self._look_call: IDelayedCall | None = None
        self._epoll = select.epoll()
        self._feeds: dict[int, SocketSource] = {}
        reactor.addReader(self)

    def feed(self, transport: Any, received: Callable[[bytes, int], None]) -> SocketSource | None:
        """
        Read a connection from now on.

        :return: None if that is better left to Twisted: TLS, wrappers, other reactors.
        """
        if is_plain(transport) and transport.reactor is self._reactor:
            return SocketSource(self, transport, received)
        return None

    def add(self, feed: SocketSource) -> None:
        """Poll this socket; after `close`, let Twisted read it."""
        if self._epoll.closed:
            feed.give_back()
        elif feed.fd not in self._feeds:
            self._feeds[feed.fd] = feed
            self._epoll.register(feed.fd, select.EPOLLIN)

    def remove(self, feed: SocketSource) -> None:
        """Do not poll this socket.  One that was closed has left the epoll by itself."""
        if self._feeds.get(feed.fd) is feed:
            del self._feeds[feed.fd]
            with suppress(OSError):
                self._epoll.unregister(feed.fd)

    def close(self) -> None:
        """Read nothing more; Twisted reads what is still connected."""
        self._reactor.removeReader(self)
        if self._look_call is not None:
            self._look_call.cancel()
            self._look_call = None
        feeds, self._feeds = list(self._feeds.values()), {}
        self._ready.clear()
        self._epoll.close()
        for feed in feeds:
            feed.give_back()

    # What the reactor calls.

    def fileno(self) -> int:
        """:return: the epoll's, which can be read when one of its sockets can; -1 when closed."""
        return -1 if self._epoll.closed else self._epoll.fileno()

    def doRead(self) -> None:
        """Take turns, unless a look that comes next will."""
        if self._look_call is None:
            self._begin()

    @fail_stop
    def _begin(self) -> None:
        if len(self._feeds) == 1 and not self._ready:
            # The reactor says that the epoll can be read, and so whose socket it is.
            self._ready.append((next(iter(self._feeds)), select.EPOLLIN))
        elif not self._ready:
            self._look()
        self._take_turns()

    def _take_turns(self) -> None:
        now_ns = self._now_ns()
        ends_ns = now_ns + AGAIN_NS
        while True:
            ready = self._ready
            socket = ready[0][0] if len(ready) == 1 else SEVERAL
            if not self._turn(now_ns):
                return
            is_lone = self._busy_poll.take(socket)
            now_ns = self._now_ns()
            if now_ns >= ends_ns:
                if is_lone:
                    self._look_call = self._reactor.callLater(0, self._look_again)
                return
            if not self._look() and not (is_lone and self._look_on(now_ns)):
                return

    @fail_stop
    def _look_again(self) -> None:
        """The reactor has had its turn."""
        self._look_call = None
        if self._look_on(self._now_ns()):
            self._take_turns()

    def _look_on(self, now_ns: int) -> bool:
        """
        Look until a lone client's next command is there, or its time is over.  A look takes a
        microsecond at least, so that a clock which stands still does not make it longer by much.

        :return: whether a socket has something.
        """
        limit_us = self._busy_poll.limit_us
        ends_ns = now_ns + limit_us * US
        is_found = False
        for _ in range(limit_us):
            is_found = self._look()
            if is_found or self._now_ns() >= ends_ns:
                break
        self._busy_poll.note(is_found)
        return is_found

    def _look(self) -> bool:
        """:return: whether a socket has something."""
        if not self._epoll.closed:
            self._ready.extend(reversed(self._epoll.poll(0, MAX_READS)))
        return bool(self._ready)

    def _turn(self, now_ns: int) -> bool:
        """
        Read each ready socket once.  Those left when time runs out begin the next turn.

        :return: whether another turn may follow at once.
        """
        ready = self._ready
        ends_ns = now_ns + LIMIT_NS
        self._begin_turn(len(ready))
        while ready:
            # A connection may have ended since it was found ready.
            feed = self._feeds.get(ready.pop()[0])
            if feed is None:
                continue
            began_ns = now_ns
            try:
                feed.read(now_ns)
            except Exception:
                self.log.failure("while reading a connection", event="read-failed")
                feed.fail()
            now_ns = self._now_ns()
            if now_ns > ends_ns:
                # Whatever is slow ends here: it takes no look of its own.
                if now_ns - began_ns > self._slow_ns:
                    self._slow(feed.transport, now_ns - began_ns)
                break
        return self._end_turn() and not ready

    def logPrefix(self) -> str:
        return "hub"

    def connectionLost(self, reason: Failure) -> None:
        self.close()


def has_place_in(reactor: object) -> bool:
    """Whether there is an epoll here, and a reactor that can wait for it."""
    return hasattr(select, "epoll") and IReactorFDSet.providedBy(reactor)
