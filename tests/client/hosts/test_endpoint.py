"""Which host a client finds, on a clock that stands still."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone, ConnectionRefusedError
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from zope.interface import implementer

from beanstalk_twisted.client.addresses import ASK, FIRST_LIMIT_S, NEXT_S
from beanstalk_twisted.client.endpoints import Host, HostsEndpoint
from beanstalk_twisted.client.errors import NoHost, TlsFailed
from beanstalk_twisted.client.tls_faults import TlsFault
from tests.client.world import error, is_waiting, result

ANSWER = b"USING default\r\n"


@implementer(IStreamClientEndpoint)
class Door:
    """One host, which does what the test says.

    :ivar tries: those that have come, in order.
    :ivar dropped: how many of them were given up.
    """

    def __init__(self) -> None:
        self.tries: list[tuple[Factory, Deferred[Any]]] = []
        self.dropped = 0
        self.refuses: Exception | None = None

    def connect(self, protocolFactory: Any) -> Deferred[Any]:
        trying: Deferred[Any] = Deferred(self._drop)
        self.tries.append((protocolFactory, trying))
        if self.refuses is not None:
            trying.errback(self.refuses)
        return trying

    def _drop(self, trying: object) -> None:
        self.dropped += 1

    def accept(self, *, says: bytes = b"") -> tuple[Protocol, StringTransport]:
        factory, trying = self.tries[-1]
        protocol: Any = factory.buildProtocol(None)
        transport = StringTransport()
        protocol.makeConnection(transport)
        trying.callback(protocol)
        assert transport.value() == ASK
        if says:
            protocol.dataReceived(says)
        return protocol, transport


class Echoed(Protocol):
    """Keeps what it gets."""

    def __init__(self) -> None:
        self.got = b""
        self.lost: list[Failure] = []

    def dataReceived(self, data: bytes) -> None:
        self.got += data

    def connectionLost(self, reason: Any = None) -> None:
        self.lost.append(reason)


class Hosts:
    """Three hosts, and an endpoint that leads to them."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.a, self.b, self.c = self.doors = [Door(), Door(), Door()]
        hosts = [Host(name, door) for name, door in zip("abc", self.doors, strict=True)]
        self.endpoint = HostsEndpoint(self.clock, hosts)

    def connect(self) -> Deferred[Any]:
        return self.endpoint.connect(Factory.forProtocol(Echoed))

    @property
    def tried(self) -> list[int]:
        return [len(door.tries) for door in self.doors]

    def is_quiet(self) -> bool:
        return not self.clock.getDelayedCalls()


@pytest.fixture
def hosts() -> Hosts:
    """As at the start."""
    return Hosts()


def test_the_first_one_that_answers_is_the_one(hosts: Hosts) -> None:
    made = hosts.connect()
    protocol, transport = hosts.a.accept()
    assert is_waiting(made) and hosts.endpoint.host is None
    protocol.dataReceived(ANSWER[:4])
    assert is_waiting(made)
    protocol.dataReceived(ANSWER[4:])
    found = result(made)
    assert hosts.endpoint.host == "a" and hosts.tried == [1, 0, 0] and hosts.is_quiet()
    assert isinstance(found, Echoed) and found.transport is transport
    protocol.dataReceived(b"more")
    protocol.connectionLost(Failure(ConnectionDone()))
    assert found.got == b"more" and len(found.lost) == 1


def test_one_that_refuses_is_left_for_the_next_at_once(hosts: Hosts) -> None:
    hosts.a.refuses = hosts.b.refuses = ConnectionRefusedError()
    made = hosts.connect()
    assert hosts.tried == [1, 1, 1]
    hosts.c.accept(says=ANSWER)
    assert isinstance(result(made), Echoed) and hosts.endpoint.host == "c" and hosts.is_quiet()


def test_one_that_is_silent_has_a_head_start_and_is_still_tried(hosts: Hosts) -> None:
    made = hosts.connect()
    hosts.clock.advance(NEXT_S - 0.001)
    assert hosts.tried == [1, 0, 0]
    hosts.clock.advance(0.001)
    assert hosts.tried == [1, 1, 0]
    hosts.a.accept(says=ANSWER)
    assert isinstance(result(made), Echoed) and hosts.endpoint.host == "a"
    assert (hosts.b.dropped, hosts.tried) == (1, [1, 1, 0]) and hosts.is_quiet()


def test_one_that_accepts_and_says_nothing_does_not_hold_up_the_others(hosts: Hosts) -> None:
    made = hosts.connect()
    _, paused = hosts.a.accept()
    hosts.clock.advance(NEXT_S)
    hosts.b.accept(says=ANSWER)
    assert isinstance(result(made), Echoed) and hosts.endpoint.host == "b"
    assert paused.disconnecting


def test_one_that_accepts_and_closes_is_not_there(hosts: Hosts) -> None:
    made = hosts.connect()
    protocol, _ = hosts.a.accept()
    protocol.connectionLost(Failure(ConnectionDone()))
    assert hosts.tried == [1, 1, 0]
    hosts.b.accept(says=ANSWER)
    assert isinstance(result(made), Echoed)


def test_one_that_is_no_server_is_not_there(hosts: Hosts) -> None:
    hosts.connect()
    _, transport = hosts.a.accept(says=b"SSH-2.0-OpenSSH_9.2\r\n")
    assert hosts.tried == [1, 1, 0] and transport.disconnecting


def test_the_next_search_begins_with_who_has_answered(hosts: Hosts) -> None:
    hosts.a.refuses = ConnectionRefusedError()
    hosts.connect()
    hosts.b.accept(says=ANSWER)
    hosts.b.refuses = ConnectionRefusedError()
    hosts.connect()
    assert hosts.tried == [1, 2, 1]
    hosts.a.refuses = None
    _, trying = hosts.c.tries[-1]
    trying.errback(ConnectionRefusedError())
    assert hosts.tried == [2, 2, 1]


def test_a_lost_round_says_why_of_each_and_the_next_has_more_time(hosts: Hosts) -> None:
    hosts.a.refuses = ConnectionRefusedError()
    for limit_s in (FIRST_LIMIT_S, 2 * FIRST_LIMIT_S):
        made = hosts.connect()
        protocol, _ = hosts.b.accept()
        protocol.connectionLost(Failure(ConnectionDone()))
        hosts.clock.advance(limit_s - 0.001)
        assert is_waiting(made)
        hosts.clock.advance(0.001)
        why = error(made, NoHost)
        assert str(why) == (
            "no host answers: a: Connection was refused by other side.; b: it has closed the "
            f"connection before any answer; c: no answer within {limit_s:g} s"
        )
        assert list(why.reasons) == ["a", "b", "c"] and hosts.is_quiet()


@pytest.mark.parametrize(("may_pass", "kind"), [(False, TlsFailed), (True, NoHost)])
def test_a_wrong_certificate_is_told_rather_than_who_is_not_there(
    hosts: Hosts, may_pass: bool, kind: type[Exception]
) -> None:
    hosts.a.refuses = hosts.c.refuses = ConnectionRefusedError()
    hosts.b.refuses = TlsFailed("b", TlsFault("expired", may_pass=may_pass))
    error(hosts.connect(), kind)


def test_who_gives_up_leaves_nothing_behind(hosts: Hosts) -> None:
    made = hosts.connect()
    hosts.clock.advance(NEXT_S)
    made.addErrback(lambda failure: None)
    made.cancel()
    assert (hosts.a.dropped, hosts.b.dropped) == (1, 1) and hosts.is_quiet()
    hosts.clock.advance(60)
    assert hosts.tried == [1, 1, 0]
