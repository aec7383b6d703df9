"""Limits of connections: how many are accepted at a time and altogether, and what is logged."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any, cast

import pytest
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import ITCPTransport
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.internet.tcp import Port
from twisted.logger import LogEvent
from twisted.python.failure import Failure
from zope.interface import directlyProvides

from beanstalk_twisted.server.connections.accepting import (
    MAX_ACCEPTS,
    OUT_OF_DESCRIPTORS,
    AcceptErrors,
    AcceptLimiter,
    RefusalLog,
    WatchedConnection,
    counted_as,
)
from beanstalk_twisted.server.settings import Limits
from beanstalk_twisted.storage.repeats import TELL_S
from beanstalk_twisted.testing.memory_server import Client, MemoryServer, MemoryTransport
from tests.hand_reactor import HandReactor


class Counting(Factory):
    """Counts connections."""

    def __init__(self) -> None:
        self.made: list[Protocol] = []

    def buildProtocol(self, addr: object) -> Protocol:
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
        address = ("127.0.0.1", self.port.getHost().port)
        self.far += [socket.create_connection(address, timeout=10) for _ in range(times)]

    def close(self) -> None:
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


REFUSED = "connections-refused"
HERE = IPv4Address("TCP", "127.0.0.1", 1)
UNIX = UNIXAddress(None)
IN_NETWORK = [IPv6Address("TCP", f"2001:db8::{number:x}", 9) for number in (1, 2, 0xFFFF)]


def limited(limits: Limits, max_connections: int = 1 << 20) -> MemoryServer:
    server = MemoryServer(is_started=False)
    server.settings = server.settings._replace(limits=limits, max_connections=max_connections)
    server.start()
    return server


def is_refused(server: MemoryServer, peer: Any = HERE) -> bool:
    return server.service.factory.buildProtocol(peer) is None


@pytest.mark.parametrize("peer", [HERE, UNIX, IN_NETWORK[0]], ids=["IPv4", "UNIX", "IPv6"])
def test_so_many_are_served_and_the_next_is_closed_at_once(peer: Any, told: Any) -> None:
    server = limited(Limits(connections=3))
    clients = [server.connect(peer=each) for each in (HERE, UNIX, IN_NETWORK[0])]
    assert is_refused(server, peer)
    assert server.service.factory_v1.buildProtocol(peer) is None
    assert server.service.connections.refused == 2
    assert all(each.ask(b"list-tube-used\r\n") == b"USING default\r\n" for each in clients)
    clients[0].hang_up()
    assert not is_refused(server, peer)
    server.advance(TELL_S)
    refused = "refused: --max-connections is 3"
    assert told(REFUSED) == [f"1 connection {refused}", f"1 connection {refused}"]


def test_descriptors_are_a_limit_of_their_own(told: Any) -> None:
    server = limited(Limits(connections=0), max_connections=2)
    server.connect()
    server.connect()
    assert is_refused(server)
    assert told(REFUSED) == [
        "1 connection refused: no more than 2 connections fit into the limit of file "
        "descriptors; raise 'ulimit -n' or LimitNOFILE of the unit"
    ]


def test_one_address_has_so_many_and_others_have_theirs(told: Any) -> None:
    server = limited(Limits(connections_per_address=2))
    other = IPv4Address("TCP", "10.0.0.7", 1)
    first = [server.connect(), server.connect()]
    assert is_refused(server) and is_refused(server)
    assert [server.connect(peer=other).ask(b"use a\r\n") for _ in range(2)] == [b"USING a\r\n"] * 2
    assert is_refused(server, other)
    first[0].hang_up()
    assert not is_refused(server) and is_refused(server, other)
    server.advance(TELL_S)
    assert told(REFUSED) == [
        "1 connection refused: --max-connections-per-address is 2; the newest came from 127.0.0.1",
        "3 connections refused: --max-connections-per-address is 2; the newest came from 10.0.0.7",
    ]


def test_a_connection_that_says_quit_is_counted_no_longer() -> None:
    server = limited(Limits(connections_per_address=1))
    for _ in range(5):
        client = server.connect()
        assert is_refused(server)
        client.ask(b"quit\r\n")
        assert client.is_closed


def test_addresses_that_have_gone_leave_nothing_behind() -> None:
    server = limited(Limits(connections_per_address=1))
    clients: list[Client] = []
    for number in range(50):
        clients.append(server.connect(peer=IPv4Address("TCP", f"10.0.0.{number}", 1)))
    for client in clients:
        client.hang_up()
    counts = server.service.connections._limits
    assert not counts._by_address and not counts._addresses


def test_hosts_of_ipv6_are_counted_by_their_network_and_unix_sockets_not_at_all() -> None:
    server = limited(Limits(connections_per_address=2))
    for peer in IN_NETWORK[:2]:
        server.connect(peer=peer)
    assert is_refused(server, IN_NETWORK[2])
    assert not is_refused(server, IPv6Address("TCP", "2001:db8:0:1::1", 9))
    for _ in range(5):
        server.connect(peer=UNIX)
    assert not is_refused(server, UNIX)


@pytest.mark.parametrize(
    ("address", "name"),
    [
        (HERE, "127.0.0.1"), (IPv6Address("TCP", "::ffff:10.0.0.7", 1), "10.0.0.7"),
        (IPv6Address("TCP", "fe80::1%eth0", 1), "fe80::/64"), (UNIX, ""), (None, ""),
    ],
)  # fmt: skip
def test_what_connections_are_counted_together_as(address: Any, name: str) -> None:
    assert counted_as(address) == name


class TcpTransport(MemoryTransport):
    """A socket, as far as its options go."""

    def __init__(self, server: MemoryServer, protocol: Any) -> None:
        super().__init__(server.clock, protocol)
        self.options: dict[str, bool] = {}

    def setTcpNoDelay(self, enabled: bool) -> None:
        self.options["no delay"] = enabled


def test_small_replies_leave_at_once() -> None:
    server = MemoryServer()
    protocol: Any = server.service.factory.buildProtocol(HERE)
    transport = TcpTransport(server, protocol)
    directlyProvides(transport, ITCPTransport)
    protocol.makeConnection(transport)
    assert transport.options == {"no delay": True}


def test_a_stop_tells_what_was_not_told_and_leaves_no_timer(told: Any) -> None:
    clock = Clock()
    refusals, accept_errors = RefusalLog(clock), AcceptErrors(clock)
    for _ in range(5):
        refusals.note("it is full")
        accept_errors(accept_event("EMFILE recovery: Closed socket from {address}"))
    for each in (refusals, accept_errors, refusals):
        each.stop()
    assert told(REFUSED)[2:] == [
        "4 connections refused: it is full",
        f"4 connections refused: {OUT_OF_DESCRIPTORS}",
    ]
    assert clock.getDelayedCalls() == []


def accept_event(text: str, **others: Any) -> LogEvent:
    return {"log_namespace": "twisted.internet.tcp.Port", "log_format": text, **others}


def test_what_ports_say_at_the_limit_of_descriptors_is_counted_by_connections(told: Any) -> None:
    clock = Clock()
    accept_errors = AcceptErrors(clock)
    for _ in range(100):
        for text in (
            "EMFILE encountered; releasing reserved file descriptor.",
            "EMFILE recovery: Closed socket from {address}",
            "Re-reserving EMFILE recovery file descriptor.",
        ):
            assert accept_errors(accept_event(text)).name == "no"
    clock.advance(TELL_S)
    clock.advance(TELL_S)
    assert told(REFUSED) == [
        f"1 connection refused: {OUT_OF_DESCRIPTORS}",
        f"99 connections refused: {OUT_OF_DESCRIPTORS}",
    ]
    assert clock.getDelayedCalls() == []


def test_other_errors_of_accepting_are_counted_by_their_reason(told: Any) -> None:
    clock = Clock()
    accept_errors = AcceptErrors(clock)
    text = "Could not accept new connection ({acceptError})"
    for reason in ("ENFILE", "ENOBUFS", "ENFILE"):
        assert accept_errors(accept_event(text, acceptError=reason)).name == "no"
    clock.advance(TELL_S)
    clock.advance(TELL_S)
    assert told(REFUSED) == [
        "1 connection refused: they cannot be accepted (ENFILE)",
        "1 connection refused: they cannot be accepted (ENOBUFS)",
        "1 connection refused: they cannot be accepted (ENFILE)",
    ]


@pytest.mark.parametrize(
    "event",
    [accept_event("something else"), {"log_namespace": "other", "log_format": "EMFILE"}, {}],
)
def test_all_else_stays_in_the_log(event: LogEvent) -> None:
    assert AcceptErrors(Clock())(event).name == "maybe"
