"""How many connections are taken in one round of the reactor."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any, cast

import pytest
from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.tcp import Port
from twisted.python.failure import Failure

from beanstalk_twisted.server.connections.accepting import (
    MAX_ACCEPTS,
    AcceptLimiter,
    WatchedConnection,
)
from tests.hand_reactor import HandReactor


class Counting(Factory):
    """Counts connections."""

    def __init__(self) -> None:
        self.made: list[Protocol] = []

    def buildProtocol(self, addr: object) -> Protocol:
        """See `IProtocolFactory.buildProtocol`."""
        self.made.append(Protocol())
        return self.made[-1]


class Door:
    """A port of Twisted's that listens, limited."""

    def __init__(self) -> None:
        self.reactor = HandReactor()
        self.factory = Counting()
        self.port = Port(0, self.factory, interface="127.0.0.1", reactor=cast(Any, self.reactor))
        cast(Any, self.port).transport = WatchedConnection
        self.port.startListening()
        self.limiter = AcceptLimiter(cast(Any, self.reactor), self.port)
        self.far: list[socket.socket] = []

    def knock(self, times: int) -> None:
        """Connect."""
        address = ("127.0.0.1", self.port.getHost().port)
        self.far += [socket.create_connection(address, timeout=10) for _ in range(times)]

    def close(self) -> None:
        """Close all."""
        for connection in self.far:
            connection.close()
        self.limiter.connectionLost(Failure(ConnectionDone()))


@pytest.fixture
def door() -> Iterator[Door]:
    made = Door()
    yield made
    made.close()


def test_it_stands_in_the_place_of_its_port(door: Door) -> None:
    assert door.reactor.readers == [door.limiter]
    assert door.limiter.fileno() == door.port.fileno()
    door.limiter.stop()
    assert door.reactor.readers == []


@pytest.mark.parametrize(
    ("knocking", "taken"), [(MAX_ACCEPTS, [MAX_ACCEPTS, 0]), (MAX_ACCEPTS + 1, [MAX_ACCEPTS, 1])]
)
def test_no_more_are_taken_in_a_round_than_the_limit(
    door: Door, knocking: int, taken: list[int]
) -> None:
    for _ in range(3):
        before = len(door.factory.made)
        door.knock(knocking)
        for more in taken:
            door.limiter.doRead()
            before += more
            assert len(door.factory.made) == before


def test_a_peer_that_is_gone_is_found_out_in_two_minutes(door: Door) -> None:
    door.knock(2)
    door.limiter.doRead()
    for made in door.factory.made:
        near = cast(Any, made.transport).getHandle()
        assert near.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        idle_s, interval_s, probes = (
            near.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        assert (idle_s, idle_s + interval_s * probes) == (60, 120)
        # It would end the connection of a live peer that does not read.
        assert near.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 0
