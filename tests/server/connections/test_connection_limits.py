"""How many connections there may be, in all and from one address."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.interfaces import ITCPTransport
from twisted.logger import capturedLogs, formatEvent
from zope.interface import directlyProvides

from beanstalk_twisted.server.connections.accepting import counted_as
from beanstalk_twisted.server.settings import Limits
from beanstalk_twisted.storage.repeats import TELL_S
from beanstalk_twisted.testing.memory_server import Client, MemoryServer, MemoryTransport

HERE = IPv4Address("TCP", "127.0.0.1", 1)
UNIX = UNIXAddress(None)
IN_NETWORK = [IPv6Address("TCP", f"2001:db8::{number:x}", 9) for number in (1, 2, 0xFFFF)]


@pytest.fixture
def told() -> Iterator[Any]:
    """Gather the lines on refused connections."""
    with capturedLogs() as events:
        yield lambda: [
            formatEvent(each) for each in events if each["event"] == "connections-refused"
        ]


def limited(limits: Limits, max_connections: int = 1 << 20) -> MemoryServer:
    server = MemoryServer(is_started=False)
    server.settings = server.settings._replace(limits=limits, max_connections=max_connections)
    server.start()
    return server


def is_refused(server: MemoryServer, peer: Any = HERE) -> bool:
    """Knock, and go away again."""
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
    assert told() == [f"1 connection {refused}", f"1 connection {refused}"]


def test_descriptors_are_a_limit_of_their_own(told: Any) -> None:
    server = limited(Limits(connections=0), max_connections=2)
    server.connect()
    server.connect()
    assert is_refused(server)
    assert told() == [
        "1 connection refused: no more than 2 connections fit into the limit of file "
        "descriptors; raise 'ulimit -n' or LimitNOFILE of the unit"
    ]


def test_without_limits_all_are_taken() -> None:
    server = limited(Limits(connections=0))
    clients = [server.connect() for _ in range(100)]
    assert not is_refused(server)
    assert len(clients) == 100


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
    assert told() == [
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
        (HERE, "127.0.0.1"),
        (IPv6Address("TCP", "::ffff:10.0.0.7", 1), "10.0.0.7"),
        (IPv6Address("TCP", "fe80::1%eth0", 1), "fe80::/64"),
        (UNIX, ""),
        (None, ""),
    ],
)
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
