"""One reader for all client sockets."""

import select
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol, cast

from twisted.internet.interfaces import IReactorFDSet
from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST
from twisted.logger import Logger
from twisted.python.failure import Failure

from beanstalk_twisted.server.connections.output import is_plain
from beanstalk_twisted.server.execution_context import NEVER_NS, TURN_NS, US
from beanstalk_twisted.storage.clock import LogClock
from beanstalk_twisted.storage.fail_stop import FailStop, fail_stop
from beanstalk_twisted.storage.io_thread import Clock, Timer

BUSY_POLL_US: Final = 60
"""Microseconds: about what a sleep and a wake-up cost.  Measured, a lone client's round trips are
slower with 30, and no quicker with 120.
"""

MOST_POINTS: Final = 8
"""Consecutive looks in vain that end it for a client that always was quick."""

REST: Final = 64
"""So a look in vain costs slow clients a microsecond of each command."""

SEVERAL: Final = -1
"""In place of a socket: there was more than one in a turn."""

READ_BYTES: Final = 64 << 10
"""What one socket may bring in a turn, as in Twisted's own reading."""

MAX_READS: Final = 256
"""Sockets read in a turn: then so many replies wait for one write of the log."""

HAS_EPOLL: Final = hasattr(select, "epoll")
"""Whether the kernel is Linux; on others Twisted reads the connections."""

READABLE: Final = (
    select.EPOLLIN | select.EPOLLPRI | select.EPOLLRDHUP | select.EPOLLET if HAS_EPOLL else 0
)
"""What is polled for; urgent data (EPOLLPRI) cuts a read short."""

LIMIT_NS: Final = 2 * TURN_NS
"""How long a turn may take, except for the last socket in it, before timers and new connections
have theirs: what its commands may take, and as much for reading.
"""

AGAIN_NS: Final = 1_000_000
"""Nanoseconds of turns without the reactor in between, 20 of a lone client without a log: so long
timers, HTTP and new connections wait, each time that they need the reactor.
"""

ARRIVED: Final = select.EPOLLIN if HAS_EPOLL else 0
"""The event of a connection that has sent bytes, and not ended."""

log: Final = Logger("beanstalk_twisted.server.connections.epoll_reader")

FIRST: Final = 0
"""In place of events, and the only one that is false: a connection that was accepted just now."""


class BusyPollPolicy:
    """Learns whether looking for a lone client's next command pays."""

    def __init__(self, limit_us: int = BUSY_POLL_US) -> None:
        """:param limit_us: how long to look, microseconds; 0 is never."""
        self.limit_us = limit_us
        self._socket = SEVERAL
        self._points = MOST_POINTS
        self._rested = 0

    def take(self, socket: int) -> bool:
        """Return True to look now, after a turn of this socket, or of `SEVERAL`."""
        is_lone = socket == self._socket != SEVERAL
        self._socket = socket
        if not is_lone or not self.limit_us:
            return False
        if self._points:
            return True
        self._rested = (self._rested + 1) % REST
        return not self._rested

    def note(self, has_found: bool) -> None:
        """A look that was taken has ended."""
        if has_found:
            self._points = min(self._points + 1, MOST_POINTS)
        elif self._points:
            self._points -= 1


class HubReactor(Clock, Protocol):
    """What is needed of a reactor."""

    def addReader(self, reader: "EpollReader") -> object:
        """Call its `doRead` while its descriptor can be read."""

    def removeReader(self, reader: "EpollReader") -> object:
        """Do not call it any more."""


class Acceptor(Protocol):
    """A port that listens."""

    def fileno(self) -> int: ...

    def accept(self) -> None:
        """Accept the next few connections."""

    def give_back(self) -> None:
        """The reactor calls from now on."""


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

    def read(self, now_ns: int, events: int) -> None:
        """Deliver what has come, or the end of the connection."""
        # As names, since this is on every command's way: see `LogClock.now_ns`.
        receive, received = self._receive, self._received
        try:
            arrived = receive(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            self.close()
            self.transport.connectionLost(cast(Any, Failure)(CONNECTION_LOST))
            return
        if arrived:
            received(arrived, now_ns)
            if events != ARRIVED or len(arrived) == READ_BYTES:
                self._hub.read_on(self, events, is_cut=len(arrived) == READ_BYTES)
        else:
            self.close()
            self.transport.readConnectionLost(cast(Any, Failure)(CONNECTION_DONE))

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


def was_slow(transport: Any, took_ns: int) -> None:
    """Report a slow connection, unless it has ended: Twisted's transport has no protocol then."""
    protocol = getattr(transport, "protocol", None)
    if protocol is not None:
        protocol.connection.was_slow(took_ns)


class EpollReader:
    """Reads all sockets that have something, then says that the turn is over.  For a reactor it is
    an `IReadDescriptor`.

    For each event of each socket, Twisted's reactor looks up contexts for its log, tests, and calls
    through four functions.  This is one descriptor of the reactor, an epoll of its own that holds
    the sockets: the reactor's price is paid once for all that have sent something.  A *turn* reads
    all of them once; at its end the log is written, and replies leave.

    What became readable first is read first.  The epoll is edge-triggered: level-triggered, the
    kernel keeps a socket that it has reported in its place in the queue until the next poll, so
    that its next command would pass what others have sent, or closed, meanwhile.  The ports are in
    the same epoll, and what a new connection has sent is read when it is accepted, in the place of
    the port.  The end of a connection is read with the last bytes before it.

    Differs from beanstalkd: there, a new connection's first command comes after what known
    connections have sent meanwhile.

    It only receives.  When a socket has ended, its transport is notified immediately, as by
    Twisted's reactor: commands that others have sent later must find that peer's jobs released.

    A peer on this machine may have sent its next command by the time the replies have left.  So
    several sockets are looked at once more, that of a lone client for a while (`BusyPollPolicy`),
    and there may be another turn before the reactor continues, unless a reply waits for the disk.
    After `AGAIN_NS` the reactor has its turn.  A lone client is looked for after that, and input
    that is left over is read.
    """

    def __init__(
        self, reactor: HubReactor, clock: LogClock,
        begin_turn: Callable[[int], None], end_turn: Callable[[], bool], fail_stop: FailStop,
        slow_ns: int = NEVER_NS, slow: Callable[[Any, int], None] = was_slow,
        busy_poll_us: int = 0,
    ) -> None:  # fmt: skip
        """:param begin_turn: called before the first socket is read, with how many there are.
        :param end_turn: called after the last one; returns whether another turn may follow now.
        :param slow_ns: above this, `LIMIT_NS` or more, ``slow`` is called with the transport of the
            socket and how long its input took, nanoseconds.
        :param busy_poll_us: how long a lone client's next command is looked for; 0 is never.
        """
        self.fail_stop = fail_stop
        self._slow_ns = slow_ns
        self._slow = slow
        self._clock = clock
        self._ready: list[tuple[int, int]] = []
        self._reactor = reactor
        self._begin_turn = begin_turn
        self._end_turn = end_turn
        self._busy_poll = BusyPollPolicy(busy_poll_us)
        self._next_call: Timer | None = None
        self._epoll = select.epoll()
        self._feeds: dict[int, SocketSource] = {}
        self._ports: dict[int, Acceptor] = {}
        # While a port accepts: its connections, by descriptor.
        self._accepted: dict[int, SocketSource] | None = None
        reactor.addReader(self)

    def feed(self, transport: Any, received: Callable[[bytes, int], None]) -> SocketSource | None:
        """Read a connection from now on.

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
            if self._accepted is None:
                self._epoll.register(feed.fd, READABLE)
            else:
                self._accepted[feed.fd] = feed

    def remove(self, feed: SocketSource) -> None:
        """Do not poll this socket.  One that was closed has left the epoll by itself."""
        if self._feeds.get(feed.fd) is feed:
            del self._feeds[feed.fd]
            with suppress(OSError):
                self._epoll.unregister(feed.fd)

    def read_on(self, feed: SocketSource, events: int, is_cut: bool) -> None:
        """Read a socket again that may have more, such as its end.

        :param is_cut: whether it has brought `READ_BYTES`; then others are read before.
        """
        # A new one is read again in any case.
        if events != FIRST and self._feeds.get(feed.fd) is feed:
            if is_cut:
                self._epoll.modify(feed.fd, READABLE)
            else:
                self._ready.append((feed.fd, events))

    def add_port(self, port: Acceptor) -> None:
        self._ports[port.fileno()] = port
        self._epoll.register(port.fileno(), READABLE)

    def remove_port(self, port: Acceptor) -> None:
        if self._ports.pop(port.fileno(), None) is not None:
            self._epoll.unregister(port.fileno())

    def close(self) -> None:
        """Read nothing more; Twisted reads what is still connected or listens."""
        self._reactor.removeReader(self)
        if self._next_call is not None:
            self._next_call.cancel()
            self._next_call = None
        feeds, self._feeds = list(self._feeds.values()), {}
        ports, self._ports = list(self._ports.values()), {}
        self._ready.clear()
        self._epoll.close()
        for feed in feeds:
            feed.give_back()
        for port in ports:
            port.give_back()

    # What the reactor calls.

    def fileno(self) -> int:
        """Return the epoll's, which can be read when one of its sockets can; -1 when closed."""
        return -1 if self._epoll.closed else self._epoll.fileno()

    @fail_stop
    def doRead(self) -> None:
        if self._next_call is None and self._look():
            self._take_turns()

    def _take_turns(self) -> None:
        now_ns = self._clock.now_ns()
        ends_ns = now_ns + AGAIN_NS
        while True:
            ready = self._ready
            socket = ready[0][0] if len(ready) == 1 else SEVERAL
            if not self._turn(now_ns):
                break
            is_lone = self._busy_poll.take(socket)
            now_ns = self._clock.now_ns()
            if now_ns >= ends_ns:
                if is_lone:
                    self._call_soon()
                break
            # One connection has just been answered: only a lone client is looked for.
            may_look = is_lone or len(self._feeds) > 1
            if not may_look or not (self._look_on(now_ns) if is_lone else self._look()):
                break
        # The reactor is not told of what the epoll has reported already.
        if self._ready:
            self._call_soon()

    def _call_soon(self) -> None:
        if self._next_call is None:
            self._next_call = cast("Timer", self._reactor.callLater(0, self._go_on))

    @fail_stop
    def _go_on(self) -> None:
        self._next_call = None
        if self._ready or self._look_on(self._clock.now_ns()):
            self._take_turns()

    def _look_on(self, now_ns: int) -> bool:
        """Look until a lone client's next command is there, or its time is over.  A look takes a
        microsecond at least, so that a clock which stands still does not make it longer by much.

        :return: whether a socket has something.
        """
        limit_us = self._busy_poll.limit_us
        ends_ns = now_ns + limit_us * US
        is_found = False
        for _ in range(limit_us):
            is_found = self._look()
            if is_found or self._clock.now_ns() >= ends_ns:
                break
        self._busy_poll.note(is_found)
        return is_found

    def _look(self) -> bool:
        if not self._epoll.closed:
            # Nothing is left when this is called.
            self._ready = self._epoll.poll(0, MAX_READS)
            self._ready.reverse()
        return bool(self._ready)

    def _turn(self, now_ns: int) -> bool:
        """Read each ready socket once.  Those left when time runs out begin the next turn.

        :return: whether another turn may follow immediately.
        """
        ready, clock = self._ready, self._clock
        ends_ns = now_ns + LIMIT_NS
        self._begin_turn(len(ready))
        while ready:
            descriptor, events = ready.pop()
            feed = self._feeds.get(descriptor)
            if feed is None:
                # A connection may have ended since it was found ready.
                if descriptor in self._ports:
                    self._accept(descriptor)
                    now_ns = clock.now_ns()
                continue
            began_ns = now_ns
            try:
                feed.read(now_ns, events)
            except Exception:
                log.failure("while reading a connection", event="read-failed")
                feed.fail()
            if not events and self._feeds.get(descriptor) is feed:
                # One that was paused and resumed meanwhile is registered.
                with suppress(FileExistsError):
                    self._epoll.register(descriptor, READABLE)
                # What has come before that, and the end, comes before what others send later.
                ready.append((descriptor, ARRIVED))
            now_ns = clock.now_ns()
            if now_ns > ends_ns:
                # Whatever is slow ends here: it takes no look of its own.
                if now_ns - began_ns > self._slow_ns:
                    self._slow(feed.transport, now_ns - began_ns)
                break
        return self._end_turn() and not ready

    def _accept(self, descriptor: int) -> None:
        """Accept some of a port's connections.  They are read next, and polled from then on: polled
        before, they would keep the place that they have in the epoll's queue now.
        """
        accepted: dict[int, SocketSource] = {}
        self._accepted = accepted
        try:
            self._ports[descriptor].accept()
        finally:
            self._accepted = None
        if descriptor in self._ports:
            # It is reported again if there are more.
            self._epoll.modify(descriptor, READABLE)
        self._ready.extend([(each, FIRST) for each in reversed(accepted)])

    def logPrefix(self) -> str:
        return "hub"

    def connectionLost(self, reason: Failure) -> None:
        self.close()


def has_place_in(reactor: object) -> bool:
    """Return whether there is an epoll here, and a reactor that can wait for it."""
    return HAS_EPOLL and IReactorFDSet.providedBy(reactor)
