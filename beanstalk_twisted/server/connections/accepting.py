"""Limits of connections: how many are accepted at a time and altogether, and how long one may owe
the rest of a command.
"""

import errno
import socket
from collections import Counter
from collections.abc import Callable
from ipaddress import IPv6Address, IPv6Network
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.interfaces import IDelayedCall, IReactorFDSet, IReadDescriptor
from twisted.internet.tcp import Port, Server
from twisted.logger import ILogFilterPredicate, LogEvent, Logger, PredicateResult
from twisted.python.failure import Failure
from zope.interface import implementer

from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.server.connections.epoll_reader import EpollReader
from beanstalk_twisted.server.settings import Settings
from beanstalk_twisted.storage.clock import NS
from beanstalk_twisted.storage.io_thread import Clock
from beanstalk_twisted.storage.repeats import Repeats
from beanstalk_twisted.tcp_keepalive import keep_alive

if TYPE_CHECKING:
    from beanstalk_twisted.server.connections.connection import Connection

HOST_BITS: Final = 64
"""Of an IPv6 address; whoever has one has all that differ in the others (RFC 4291, 2.5.4)."""

MAX_ACCEPTS: Final = 8
"""Connections that a port takes in one round of the reactor: 2 ms with what each costs."""

ACCEPTS: Final = "twisted.internet.tcp.Port"
"""Namespace of the lines that Twisted logs while it accepts connections."""

OUT_OF_DESCRIPTORS: Final = (
    f"no file descriptors are left ({errno.errorcode[errno.EMFILE]}); raise 'ulimit -n' or "
    f"LimitNOFILE of the unit"
)

LEAST_RATE: Final = 1024
"""Bytes of a body in a second: a modem brings more."""

LOOKS: Final = 4
"""So often a connection is looked at in each timeout."""

SLICE_CONNECTIONS: Final = 1000
"""Looked at in one slice: less than a millisecond."""


@implementer(IReadDescriptor)
class AcceptLimiter:
    """Reads a port's new connections in its stead, `MAX_ACCEPTS` in a round of the reactor or a
    turn of the hub.
    """

    def __init__(self, reactor: IReactorFDSet, port: Port) -> None:
        self._reactor = reactor
        self._port = port
        self._hub: EpollReader | None = None
        reactor.removeReader(port)
        reactor.addReader(self)

    def move_to(self, hub: EpollReader) -> None:
        """Let the hub accept: in the order in which connections and commands have come."""
        self._reactor.removeReader(self)
        self._hub = hub
        hub.add_port(self)

    def stop(self) -> None:
        """Take no more; call this before the port stops listening."""
        if self._hub is not None:
            self._hub.remove_port(self)
        self._reactor.removeReader(self)

    # What the hub calls.

    def accept(self) -> None:
        self.doRead()

    def give_back(self) -> None:
        self._hub = None
        self._reactor.addReader(self)

    # What the reactor calls.

    def fileno(self) -> int:
        return int(self._port.fileno())

    def doRead(self) -> None:
        """Take the next few connections."""
        self._port.numberAccepts = MAX_ACCEPTS
        self._port.doRead()

    def logPrefix(self) -> str:
        return str(self._port.logPrefix())

    def connectionLost(self, reason: Failure) -> None:
        self._port.connectionLost(reason)


class WatchedConnection(Server):
    """A TCP connection that was accepted: the kernel asks whether its peer is there.

    Differs from beanstalkd: it asks after a minute; there, after the kernel's two hours.
    """

    def __init__(self, sock: socket.socket, *others: Any) -> None:
        keep_alive(sock)
        super().__init__(sock, *others)


class RefusalLog:
    """Counts connections refused for one reason and logs the number, as `Repeats` does."""

    log = Logger()

    def __init__(self, clock: Clock) -> None:
        self._repeats: Repeats[str] = Repeats(clock, self._tell)
        self.stop = self._repeats.stop
        self.total = 0

    def note(self, why: str) -> None:
        """:param why: the reason and what to do about it: what follows "connections refused:"."""
        self.total += 1
        self._repeats.note(why)

    def _tell(self, count: int, why: str) -> None:
        noun = "connection" if count == 1 else "connections"
        self.log.warn(
            "{count} {noun} refused: {why}", event="connections-refused",
            count=count, noun=noun, why=why,
        )  # fmt: skip


class ConnectionLimits:
    """Says whether one more connection may be taken; those that may not are counted in the log.
    UNIX sockets count, but have no address.

    Differs from beanstalkd: it takes as many as it has file descriptors, and then does nothing
    else.
    """

    def __init__(self, clock: Clock) -> None:
        self._reasons = [RefusalLog(clock) for _ in range(3)]
        self._by_address: Counter[str] = Counter()
        self._addresses: dict[Session, str] = {}

    @property
    def refused(self) -> int:
        return sum([each.total for each in self._reasons])

    def stop(self) -> None:
        for each in self._reasons:
            each.stop()

    def takes(self, count: int, address: object, settings: Settings) -> bool:
        """:param count: how many connections there are.
        :param address: of the peer of another one, an IAddress or None.
        """
        limits, (of_files, of_all, of_address) = settings.limits, self._reasons
        if count >= settings.max_connections:
            of_files.note(
                f"no more than {settings.max_connections} connections fit into the limit of "
                f"file descriptors; raise 'ulimit -n' or LimitNOFILE of the unit"
            )
        elif 0 < limits.connections <= count:
            of_all.note(f"--max-connections is {limits.connections}")
        elif 0 < limits.connections_per_address <= self._by_address[counted_as(address)]:
            of_address.note(
                f"--max-connections-per-address is {limits.connections_per_address}; "
                f"the newest came from {counted_as(address)}"
            )
        else:
            return True
        return False

    def connected(self, session: Session, address: object) -> None:
        name = counted_as(address)
        if name:
            self._by_address[name] += 1
            self._addresses[session] = name

    def disconnected(self, session: Session) -> None:
        name = self._addresses.pop(session, "")
        if name:
            self._by_address[name] -= 1
            if not self._by_address[name]:
                del self._by_address[name]


def counted_as(address: object) -> str:
    """As `place_of`, with an IAddress or None; empty on a UNIX socket."""
    return place_of(getattr(address, "host", ""))


def place_of(host: str) -> str:
    """Return what is counted as one address: of IPv6 the network of 64 bits, which one host has.

    :param host: an IP address, or something else that tells peers apart.
    """
    if ":" not in host:
        return host
    try:
        found = IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(IPv6Network((found, HOST_BITS), strict=False))


@implementer(ILogFilterPredicate)
class AcceptErrors:
    """Takes out of a log what Twisted's ports say of connections that they cannot accept, three
    lines and more for each, and counts them in a `RefusalLog`.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._refusals: dict[str, RefusalLog] = {}

    def __call__(self, event: LogEvent) -> Any:
        """:return: ``no`` for what is counted instead, ``maybe`` for all others."""
        said = event.get("log_format") or ""
        if event.get("log_namespace") != ACCEPTS:
            return PredicateResult.maybe
        if said.startswith("Could not accept new connection"):
            self._count(f"they cannot be accepted ({event.get('acceptError')})")
        elif "Closed socket from" in said:
            self._count(OUT_OF_DESCRIPTORS)
        elif "EMFILE" not in said:
            return PredicateResult.maybe
        return PredicateResult.no

    def stop(self) -> None:
        """Log what was counted and not reported yet; leave no timer."""
        for refusals in self._refusals.values():
            refusals.stop()

    def _count(self, why: str) -> None:
        if why not in self._refusals:
            self._refusals[why] = RefusalLog(self._clock)
        self._refusals[why].note(why)


class StalledInput:
    """Closes connections whose peers do not finish a command (`--stalled-timeout`).

    A line has to come whole within the timeout, as what follows it: a body, or the jobs of a batch,
    which may take longer if each timeout brings `LEAST_RATE` bytes a second of it, however they are
    cut.  So a peer that sends one byte now and then is closed too.  Time counts only while the
    server reads the connection: not while a `reserve` waits, or replies are not read.  A connection
    that has begun nothing may be idle for ever.

    There is one timer for all, and none while no peer has begun anything.  It is coarse: a
    connection is closed up to a quarter of the timeout late.

    Differs from beanstalkd: there, half a command keeps its connection and its memory for ever.
    """

    def __init__(
        self, clock: Clock, now_ns: Callable[[], int], limit_s: float,
        close: "Callable[[Connection], None]",
    ) -> None:  # fmt: skip
        """:param limit_s: the timeout, seconds; 0 for none."""
        self._clock = clock
        self._now_ns = now_ns
        self._limit_ns = round(limit_s * NS)
        self._period_s = limit_s / LOOKS
        self._close = close
        self._owing: set[Connection] = set()
        self._unseen: list[Connection] = []
        self._timer: IDelayedCall | None = None

    def note(self, connection: "Connection") -> None:
        """The rest of what it has begun is to come."""
        if self._limit_ns:
            self._owing.add(connection)
            if self._timer is None:
                self._timer = self._clock.callLater(self._period_s, self._look)

    def forget(self, connection: "Connection") -> None:
        self._owing.discard(connection)

    def stop(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        self._limit_ns = 0

    def _look(self) -> None:
        if not self._unseen:
            self._unseen = list(self._owing)
        some = self._unseen[-SLICE_CONNECTIONS:]
        del self._unseen[-SLICE_CONNECTIONS:]
        now_ns = self._now_ns()
        for connection in some:
            since_ns = connection.owes_since(now_ns)
            if since_ns is None:
                self._owing.discard(connection)
            elif now_ns - since_ns >= self._limit_ns:
                self._close(connection)
        self._timer = None
        if self._unseen or self._owing:
            delay_s = 0 if self._unseen else self._period_s
            self._timer = self._clock.callLater(delay_s, self._look)
