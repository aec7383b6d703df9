"""Clients and a whole server in memory, on clocks that stand still, and the ways between them.

`World` joins our client to a `MemoryServer`: bytes move only in `settle`, `advance` and `result`,
in pieces as small as wished.  `Line` is one connection whose server is the test itself.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar, cast

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from beanstalk_twisted.client.connection import Connection
from beanstalk_twisted.client.endpoints import Backoff
from beanstalk_twisted.client.service import Client, Losses
from beanstalk_twisted.testing import memory_server
from beanstalk_twisted.testing.double import MemoryEndpoint, MemoryLink
from beanstalk_twisted.testing.memory_server import READ_BYTES, MemoryServer, MemoryTransport
from beanstalk_twisted.testing.network import Network, Wire
from tests.binlog.memory import MemoryDirectory

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)


def result(deferred: Deferred[T]) -> T:
    """Give what a Deferred has fired with; what it failed with is raised."""
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
    """Give what a Deferred has failed with, which must be of that kind."""
    failed: list[Any] = []
    deferred.addErrback(failed.append)
    assert failed, "it has not failed"
    assert isinstance(failed[0].value, kind), failed[0].value
    return failed[0].value


def is_waiting(deferred: Deferred[Any]) -> bool:
    """Whether a Deferred has not fired yet."""
    return not deferred.called


class World(Network):
    """A server, and an endpoint that leads to it.

    :ivar losses: what the client of `client` was told.
    :ivar connects: how often it was.
    """

    def __init__(
        self, *, piece_bytes: int = READ_BYTES, has_log: bool = False, **options: Any
    ) -> None:
        """:param piece_bytes: the most that the clients get at once.
        :param options: the server's.
        """
        super().__init__(MemoryServer(directory=MemoryDirectory() if has_log else None, **options))
        self.endpoint = MemoryEndpoint(
            self, lambda: Wire(self.server), piece_bytes=piece_bytes, uses_reactor=False
        )
        self.losses: list[Losses] = []
        self.connects = 0

    @property
    def link(self) -> MemoryLink:
        return cast(MemoryLink, self.links[-1])

    @property
    def peer(self) -> memory_server.Client:
        return self.link.wire.peer

    def connection(self, **options: Any) -> Connection:
        connection = Connection(cast(Any, self.clock), **options)
        self.endpoint.join(connection)
        return connection

    def client(self, *, starts: bool = True, **options: Any) -> Client:
        """Make a client that comes back."""
        backoff = Backoff(lambda: 1.0)
        client = Client(
            cast(Any, self.endpoint), reactor=self.clock, **{"backoff": backoff} | options,
            lost=self.losses.append, connected=self._count_connect,
        )  # fmt: skip
        if starts:
            client.startService()
            self.settle()
        return client

    def _count_connect(self) -> None:
        self.connects += 1

    def result(self, waited: Deferred[T]) -> T:
        """Let all happen that needs no time, and give what has come."""
        self.settle()
        return result(waited)

    def run(self, script: Coroutine[Any, Any, T]) -> T:
        return self.result(Deferred.fromCoroutine(script))

    def kill(self) -> None:
        """End the server as ``kill -9`` does; nobody listens any more."""
        self.server.kill()
        self.endpoint.is_refusing = True
        self.settle()

    def restart(self) -> None:
        """Begin another server on what the killed one has left."""
        self.server.start()
        self.endpoint.is_refusing = False


class Line:
    """One connection whose server is the test."""

    def __init__(self, **options: Any) -> None:
        self.clock = Clock()
        self.connection = Connection(cast(Any, self.clock), **options)
        self.transport = MemoryTransport(self.clock, cast(Any, self.connection))
        cast(Any, self.connection).makeConnection(self.transport)

    def sent(self) -> bytes:
        return self.transport.drain()

    def say(self, *replies: bytes) -> None:
        """Bring replies, each as a packet of its own."""
        for reply in replies:
            self.transport.unsent += reply
            self.transport.read()

    def end(self, reason: Exception | None = None) -> None:
        self.transport.end(reason or ConnectionDone())

    def part(self) -> None:
        """Let happen what was left for the next turn, such as the end of a connection that was
        cut.
        """
        self.clock.advance(0)
