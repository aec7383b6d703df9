"""Twisted protocols on the double, without sockets."""

import sys
from collections.abc import Callable
from typing import Any, Final

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionDone, ConnectionLost, ConnectionRefusedError
from twisted.internet.interfaces import IDelayedCall, IStreamClientEndpoint
from zope.interface import implementer

from beanstalk_twisted.testing.memory_server import READ_BYTES, MemoryTransport
from beanstalk_twisted.testing.network import Carrier, Network
from beanstalk_twisted.testing.wire import Wire

ADDRESS: Final = IPv4Address("TCP", "127.0.0.1", 11300)
"""What a client is told of where it is connected to."""


class MemoryLink(Carrier):
    """
    A Twisted protocol at one end of a wire.

    :ivar transport: the protocol's.
    """

    def __init__(
        self, network: Network, wire: Wire, protocol: Any, piece_bytes: int,
        stirred: Callable[[], object],
    ) -> None:  # fmt: skip
        """:param stirred: called when there is something to carry."""
        self.wire = wire
        self.transport = MemoryTransport(network.clock, protocol, stirred)
        self._piece_bytes = piece_bytes
        self._has_half_closed = False

    def carry(self) -> bool:
        has_sent = self._carry_commands()
        if self.transport.is_delivering:
            return has_sent  # The protocol gets the rest when it has come back.
        return has_sent | self._carry_replies() | self._carry_end()

    def _carry_commands(self) -> bool:
        sent = self.transport.drain()
        if sent:
            self.wire.send(sent)
        if not self.transport.sends_no_more or self._has_half_closed:
            return bool(sent)
        self._has_half_closed = True
        self.wire.half_close()
        return True

    def _carry_replies(self) -> bool:
        replies = self.wire.take()
        for start in range(0, len(replies), self._piece_bytes):
            if not self.transport.is_closed:
                self.transport.unsent += replies[start : start + self._piece_bytes]
                self.transport.read()
        return bool(replies)

    def _carry_end(self) -> bool:
        if self.transport.is_closed == self.wire.is_over:
            return False
        if self.transport.is_closed:
            self.wire.hang_up()
        else:
            self.transport.end(ConnectionLost() if self.wire.is_dropped else ConnectionDone())
        return True


@implementer(IStreamClientEndpoint)
class MemoryEndpoint:
    """
    Leads to the double.

    Where a reactor is installed, its turns carry the bytes, so that ``await`` does what it does
    everywhere; without one, they move in `Network.settle` and `Network.advance` only.

    :ivar tries: when somebody has tried to connect, seconds.
    :ivar is_refusing: whether nobody listens.
    :ivar piece_bytes: the most that a client gets at once.
    """

    def __init__(
        self, network: Network, make_wire: Callable[[], Wire], *, piece_bytes: int = READ_BYTES,
        uses_reactor: bool = True,
    ) -> None:  # fmt: skip
        self.tries: list[float] = []
        self.is_refusing = False
        self.piece_bytes = piece_bytes
        self._network = network
        self._make_wire = make_wire
        self._call: IDelayedCall | None = None
        self._uses_reactor = uses_reactor

    def connect(self, factory: Any) -> Deferred[Any]:
        self.tries.append(self._network.clock.seconds())
        if self.is_refusing:
            return fail(ConnectionRefusedError())
        protocol = factory.buildProtocol(ADDRESS)
        self.join(protocol)
        return succeed(protocol)

    def join(self, protocol: Any) -> MemoryLink:
        wire = self._make_wire()
        link = MemoryLink(self._network, wire, protocol, self.piece_bytes, self.stir)
        self._network.links.append(link)
        protocol.makeConnection(link.transport)
        return link

    def stir(self) -> None:
        """Let the reactor carry, if there is one."""
        # Asking by import would install one.
        reactor: Any = sys.modules.get("twisted.internet.reactor")
        if reactor is not None and self._call is None and self._uses_reactor:
            self._call = reactor.callLater(0, self._turn)

    def _turn(self) -> None:
        """One round in each turn, so that a client that never waits starves nobody."""
        self._call = None
        if self._network.step():
            self.stir()

    def close(self) -> None:
        """Leave the reactor as it was."""
        self._uses_reactor = False
        if self._call is not None:
            self._call.cancel()
            self._call = None
