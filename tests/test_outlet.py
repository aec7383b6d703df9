"""
Replies leave at once where they can, and in order where they cannot.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any, cast

import pytest
from twisted.internet.main import CONNECTION_DONE
from twisted.internet.protocol import Protocol
from twisted.internet.tcp import Connection

from beanstalk_twisted.outlet import Outlet, is_plain
from beanstalk_twisted.testing.memory_server import OUTPUT_LIMIT_BYTES, MemoryServer

MUCH = bytes(range(256)) * 40_000
"""More than a socket takes that nobody reads."""


class HandReactor:
    """
    A reactor that does nothing by itself.
    """

    def __init__(self) -> None:
        self.writers: list[Any] = []

    def addReader(self, reader: Any) -> None:
        """
        See `IReactorFDSet.addReader`.
        """

    removeReader = addReader

    def addWriter(self, writer: Any) -> None:
        """
        See `IReactorFDSet.addWriter`.
        """
        if writer not in self.writers:
            self.writers.append(writer)

    def removeWriter(self, writer: Any) -> None:
        """
        See `IReactorFDSet.removeWriter`.
        """
        if writer in self.writers:
            self.writers.remove(writer)


class Wire:
    """
    A connection of Twisted's and the socket at its other end, and what its outlet says.
    """

    def __init__(self) -> None:
        near, self.far = socket.socketpair()
        self.far.setblocking(False)
        self.reactor = HandReactor()
        self.transport = Connection(near, Protocol(), cast(Any, self.reactor))
        self.transport.connected = True
        self.said: list[str] = []
        self.outlet = Outlet(self.transport, self)

    def pauseProducing(self) -> None:
        """
        See `Source`.
        """
        self.said.append("pause")

    def resumeProducing(self) -> None:
        """
        See `Source`.
        """
        self.said.append("go on")

    def read(self) -> bytes:
        """
        Read all that is there.
        """
        found = bytearray()
        try:
            while data := self.far.recv(1 << 20):
                found += data
        except BlockingIOError:
            pass
        return bytes(found)

    def read_on(self) -> bytes:
        """
        Read while the transport writes, until it has no more.
        """
        found = self.read()
        while self.reactor.writers:
            ended = self.transport.doWrite()
            found += self.read()
            if ended is CONNECTION_DONE:
                break
        return found


@pytest.fixture
def wire() -> Iterator[Wire]:
    made = Wire()
    yield made
    made.far.close()
    made.transport.socket.close()


def test_a_reply_is_sent_at_once(wire: Wire) -> None:
    wire.outlet.write(b"DELETED\r\n")
    assert wire.read() == b"DELETED\r\n"
    assert wire.reactor.writers == []
    assert wire.said == []


def test_what_the_socket_does_not_take_comes_later_and_all_behind_it_too(wire: Wire) -> None:
    wire.outlet.write(MUCH)
    wire.outlet.write(b"two")
    assert wire.said == ["pause"]
    start = wire.read()
    assert len(start) < len(MUCH)
    wire.outlet.write(b"three")
    assert start + wire.read_on() == MUCH + b"twothree"
    assert wire.said == ["pause", "go on"]


def test_a_peer_that_reads_again_gets_replies_at_once_again(wire: Wire) -> None:
    for _ in range(3):
        wire.outlet.write(MUCH)
        assert wire.read_on() == MUCH
        wire.outlet.write(b"DELETED\r\n")
        assert wire.reactor.writers == []
        assert wire.read() == b"DELETED\r\n"
    assert wire.said == ["pause", "go on"] * 3


def test_a_connection_that_is_to_end_still_says_all(wire: Wire) -> None:
    wire.outlet.write(MUCH)
    wire.outlet.write(b"two")
    wire.outlet.close()
    wire.outlet.write(b"three")
    wire.transport.loseConnection()
    assert wire.read_on() == MUCH + b"twothree"


def test_a_broken_connection_is_left_to_twisted(wire: Wire) -> None:
    wire.far.close()
    wire.outlet.write(b"DELETED\r\n")
    assert wire.reactor.writers == [wire.transport]


def test_what_is_encrypted_or_wrapped_goes_through_the_transport(wire: Wire) -> None:
    assert is_plain(wire.transport)
    wire.transport.TLS = True
    assert not is_plain(wire.transport)
    transport = MemoryServer().connect().transport
    assert not is_plain(transport)
    transport.unregisterProducer()
    wire.said.clear()
    outlet = Outlet(transport, wire)
    outlet.write(b"x" * OUTPUT_LIMIT_BYTES)
    assert wire.said == []
    outlet.write(b"y")
    assert wire.said == ["pause"]
    assert len(transport.drain()) == OUTPUT_LIMIT_BYTES + 1
    assert wire.said == ["pause", "go on"]
