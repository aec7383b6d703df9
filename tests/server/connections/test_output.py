"""Replies leave at once where they can, and in order where they cannot."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any, cast

import pytest
from twisted.internet.protocol import Factory, Protocol
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory

from beanstalk_twisted.jobs.body_room import BodyRoom
from beanstalk_twisted.server.connections.output import (
    MAX_PIECES,
    MAX_SEND_BYTES,
    PORTION_BYTES,
    Output,
    is_plain,
)
from beanstalk_twisted.testing.memory_server import OUTPUT_LIMIT_BYTES, MemoryServer
from tests.hand_reactor import HandReactor, Wire

MUCH = bytes(range(256)) * 40_000
"""More than a socket takes that nobody reads."""


class Replying(Wire):
    """A connection with an output, and what that says."""

    def __init__(self) -> None:
        super().__init__(HandReactor())
        self.said: list[str] = []
        self.room = BodyRoom()
        self.output = Output(self.transport, self, self.room)

    def pauseProducing(self) -> None:
        self.said.append("pause")

    def resumeProducing(self) -> None:
        self.said.append("go on")


@pytest.fixture
def wire() -> Iterator[Replying]:
    made = Replying()
    yield made
    made.close()


def test_what_the_socket_does_not_take_comes_later_and_all_behind_it_too(wire: Replying) -> None:
    wire.output.write([MUCH])
    wire.output.write([b"two"])
    assert wire.said == ["pause"]
    start = wire.read()
    assert len(start) < len(MUCH)
    wire.output.write([b"three"])
    assert start + wire.read_on() == MUCH + b"twothree"
    assert wire.said == ["pause", "go on"]


def test_a_peer_that_reads_again_gets_replies_at_once_again(wire: Replying) -> None:
    for _ in range(3):
        wire.output.write([MUCH])
        assert wire.read_on() == MUCH
        wire.output.write([b"DELETED\r\n"])
        assert wire.reactor.writers == []
        assert wire.read() == b"DELETED\r\n"
    assert wire.said == ["pause", "go on"] * 3


def test_a_connection_that_is_to_end_still_says_all(wire: Replying) -> None:
    wire.output.write([MUCH])
    wire.output.write([b"two"])
    wire.output.close()
    wire.output.write([b"three"])
    wire.transport.loseConnection()
    assert wire.read_on() == MUCH + b"twothree"


def test_replies_count_whole_until_the_peer_has_read_them(wire: Replying) -> None:
    wire.output.write([b"DELETED\r\n"])
    assert wire.room.taken_bytes == 0
    wire.output.write([MUCH])
    assert wire.room.taken_bytes == len(MUCH), "all of it stays in memory"
    wire.output.write([b"two"])
    assert wire.room.taken_bytes == len(MUCH) + 3
    assert wire.read_on() == b"DELETED\r\n" + MUCH + b"two"
    assert wire.room.taken_bytes == 0


def test_what_a_peer_has_not_read_counts_no_more_when_it_has_gone(wire: Replying) -> None:
    wire.output.write([MUCH])
    wire.output.forget()
    wire.output.write([b"two"])
    assert wire.room.taken_bytes == 0


def test_a_broken_connection_is_left_to_twisted(wire: Replying) -> None:
    wire.far.close()
    wire.output.write([b"DELETED\r\n"])
    assert wire.reactor.writers == [wire.transport]


def test_what_is_encrypted_or_wrapped_goes_through_the_transport(wire: Replying) -> None:
    assert is_plain(wire.transport)
    wrapper = ProtocolWrapper(WrappingFactory(Factory()), Protocol())
    wrapper.transport = wire.transport
    # It passes on what it does not know, so it seems to have a socket of its own.
    assert cast(Any, wrapper).getHandle() is wire.transport.getHandle()
    assert not is_plain(wrapper)
    wire.transport.TLS = True
    assert not is_plain(wire.transport)
    transport = MemoryServer().connect().transport
    assert not is_plain(transport)
    transport.unregisterProducer()
    wire.said.clear()
    output = Output(transport, wire, wire.room)
    output.write([b"x" * OUTPUT_LIMIT_BYTES])
    assert wire.said == []
    output.write([b"y"])
    assert wire.said == ["pause"]
    wire.said.clear()
    output.write([b"zz"])
    assert wire.room.taken_bytes == 3
    assert len(transport.drain()) == OUTPUT_LIMIT_BYTES + 3
    assert wire.said == ["pause", "go on"]
    assert wire.room.taken_bytes == 0


def test_peers_that_do_not_read_a_large_reply_cost_no_copy_of_it() -> None:
    wires = [Replying() for _ in range(8)]
    tracemalloc.start()
    try:
        for wire in wires:
            wire.output.write([b"FOUND\r\n", MUCH, b"\r\n"])
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < len(MUCH) // 10
    for wire in wires:
        assert wire.read_on() == b"FOUND\r\n" + MUCH + b"\r\n"
        assert wire.said == ["pause", "go on"]
        wire.close()


def test_a_reply_of_more_pieces_than_the_kernel_takes_at_once_is_sent_whole(wire: Replying) -> None:
    pieces = [b"%d\r\n" % number for number in range(3 * MAX_PIECES + 1)]
    wire.output.write(pieces)
    assert wire.read_on() == b"".join(pieces)


@pytest.mark.parametrize("size", [PORTION_BYTES, PORTION_BYTES + 1, 3 * PORTION_BYTES])
def test_what_waits_keeps_its_order_behind_a_portion(wire: Replying, size: int) -> None:
    wire.output.write([MUCH])
    wire.output.write([b"a" * size, b"b"])
    wire.output.write([b"c" * size])
    assert wire.read_on() == MUCH + b"a" * size + b"b" + b"c" * size


def test_a_peer_that_reads_again_is_sent_no_more_in_one_go_than_a_slice(wire: Replying) -> None:
    wire.output.write([MUCH])
    wire.read()
    wire.transport.doWrite()
    assert len(wire.read()) <= PORTION_BYTES + MAX_SEND_BYTES
