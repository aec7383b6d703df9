"""
Clients and a whole server in memory, on clocks that stand still, and the ways between them.

`World` joins our client to `tests.memory_server`: bytes move only in `settle`, `advance` and
`result`, in pieces as small as wished.  `Line` is one connection whose server is the test itself.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar, cast

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionDone, ConnectionRefusedError
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from zope.interface import implementer

from beanstalk_twisted.binlog.memory import MemoryDirectory
from beanstalk_twisted.client.backoff import Backoff
from beanstalk_twisted.client.connection import Connection
from beanstalk_twisted.client.service import Client, Losses
from tests import memory_server
from tests.memory_server import MemoryServer, MemoryTransport

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)

ADDRESS = IPv4Address("TCP", "127.0.0.1", 11300)
READ_BYTES = 1 << 16


def result(deferred: Deferred[T]) -> T:
    """
    Give what a Deferred has fired with; what it failed with is raised.
    """
    results: list[T] = []
    failures: list[Failure] = []

    def keep(value: T) -> T:
        results.append(value)
        return value

    deferred.addCallbacks(keep, failures.append)
    for failure in failures:
        failure.raiseException()
    assert results, "it has not fired"
    return results[0]


def error(deferred: Deferred[Any], kind: type[E]) -> E:
    """
    Give what a Deferred has failed with, which must be of that kind.
    """
    failed: list[Any] = []
    deferred.addErrback(failed.append)
    assert failed, "it has not failed"
    assert isinstance(failed[0].value, kind), failed[0].value
    return failed[0].value


def is_waiting(deferred: Deferred[Any]) -> bool:
    """
    Whether a Deferred has not fired yet.
    """
    return not deferred.called


class Link:
    """
    One connection of a client to the server.

    :ivar is_cut_off: nothing gets through any more, and neither end is told.
    """

    def __init__(self, world: World, protocol: Any) -> None:
        self.world = world
        self.is_cut_off = False
        self.transport = MemoryTransport(world.clock, protocol)
        self.peer: memory_server.Client = world.server.connect()
        protocol.makeConnection(self.transport)

    def carry(self) -> bool:
        """
        Move what each end has sent to the other one.

        :return: whether there was anything.
        """
        if self.is_cut_off:
            self.transport.drain()
            return False
        return self._carry_commands() | self._carry_replies() | self._carry_ends()

    def _carry_commands(self) -> bool:
        sent = self.transport.drain()
        if sent and not self.peer.is_closed:
            self.peer.send(sent)
        return bool(sent)

    def _carry_replies(self) -> bool:
        replies = self.peer.take()
        for start in range(0, len(replies), self.world.piece_bytes):
            if not self.transport.is_closed:
                self.transport.unsent += replies[start : start + self.world.piece_bytes]
                self.transport.read()
        return bool(replies)

    def _carry_ends(self) -> bool:
        if self.transport.is_closed == self.peer.is_closed:
            return False
        if self.transport.is_closed:
            self.peer.hang_up()
        else:
            self.transport.end(ConnectionDone())
        return True


@implementer(IStreamClientEndpoint)
class World:
    """
    A server, and an endpoint that leads to it.

    :ivar links: all connections made, in order.
    :ivar tries: when somebody has tried to connect, seconds.
    :ivar is_refusing: nobody listens.
    :ivar losses: what the client of `client` was told.
    """

    def __init__(
        self, *, piece_bytes: int = READ_BYTES, has_log: bool = False, **options: Any
    ) -> None:
        """
        :param piece_bytes: the most that the clients get at once.
        :param options: the server's.
        """
        self.server = MemoryServer(directory=MemoryDirectory() if has_log else None, **options)
        self.clock = Clock()
        self.piece_bytes = piece_bytes
        self.links: list[Link] = []
        self.tries: list[float] = []
        self.is_refusing = False
        self.losses: list[Losses] = []
        self.connects = 0

    def connect(self, factory: Any) -> Deferred[Any]:
        """
        See `IStreamClientEndpoint.connect`.
        """
        self.tries.append(self.clock.seconds())
        if self.is_refusing:
            return fail(ConnectionRefusedError())
        protocol = factory.buildProtocol(ADDRESS)
        self.links.append(Link(self, protocol))
        return succeed(protocol)

    @property
    def link(self) -> Link:
        """
        The newest connection.
        """
        return self.links[-1]

    def connection(self, **options: Any) -> Connection:
        """
        Make one plain connection.
        """
        connection = Connection(cast(Any, self.clock), **options)
        self.links.append(Link(self, connection))
        return connection

    def client(self, *, starts: bool = True, **options: Any) -> Client:
        """
        Make a client that comes back.
        """
        backoff = Backoff(lambda: 1.0)
        client = Client(
            cast(Any, self), reactor=self.clock, **{"backoff": backoff} | options,
            lost=self.losses.append, connected=self._count_connect,
        )  # fmt: skip
        if starts:
            client.startService()
            self.settle()
        return client

    def _count_connect(self) -> None:
        self.connects += 1

    def settle(self) -> None:
        """
        Let all happen that needs no time.
        """
        is_moving = True
        while is_moving:
            self.server.advance()
            self.clock.advance(0)
            moved = [link.carry() for link in self.links]
            is_moving = any(moved) or self._next_s() <= 0

    def _next_s(self) -> float:
        ours = [call.getTime() for call in self.clock.getDelayedCalls()]
        theirs = self.server.next_call_at()
        mine = min(ours, default=float("inf")) - self.clock.seconds()
        its = (float("inf") if theirs is None else theirs) - self.server.clock.seconds()
        return min(mine, its)

    def advance(self, seconds: float) -> None:
        """
        Let time pass, from one thing that is due to the next.
        """
        self.settle()
        left = seconds
        while left > 0:
            # Sums of seconds are not exact: a microsecond more is always enough.
            step = min(left, self._next_s() + 1e-6)
            left -= step
            self.clock.advance(step)
            self.server.advance(step)
            self.settle()

    def result(self, waited: Deferred[T]) -> T:
        """
        Let all happen that needs no time, and give what has come.
        """
        self.settle()
        return result(waited)

    def run(self, script: Coroutine[Any, Any, T]) -> T:
        """
        The same for a coroutine.
        """
        return self.result(Deferred.fromCoroutine(script))

    def kill(self) -> None:
        """
        End the server as ``kill -9`` does; nobody listens any more.
        """
        self.server.kill()
        self.is_refusing = True
        self.settle()

    def restart(self) -> None:
        """
        Begin another server on what the killed one has left.
        """
        self.server.start()
        self.is_refusing = False


class Line:
    """
    One connection whose server is the test.
    """

    def __init__(self, **options: Any) -> None:
        self.clock = Clock()
        self.connection = Connection(cast(Any, self.clock), **options)
        self.transport = MemoryTransport(self.clock, cast(Any, self.connection))
        cast(Any, self.connection).makeConnection(self.transport)

    def sent(self) -> bytes:
        """
        Take what the client has sent.
        """
        return self.transport.drain()

    def say(self, *replies: bytes) -> None:
        """
        Bring replies, each as a packet of its own.
        """
        for reply in replies:
            self.transport.unsent += reply
            self.transport.read()

    def end(self, reason: Exception | None = None) -> None:
        """
        The connection is lost.
        """
        self.transport.end(reason or ConnectionDone())

    def part(self) -> None:
        """
        Let happen what was left for the next turn, such as the end of a connection that was cut.
        """
        self.clock.advance(0)
