"""One reader for all sockets: who is read, when, and who is left to Twisted."""

from __future__ import annotations

import gc
import select
import socket
import weakref
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IHalfCloseableProtocol
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from zope.interface import implementer

from beanstalk_twisted.server.connections.epoll_reader import (
    AGAIN_NS,
    LIMIT_NS,
    MAX_READS,
    READ_BYTES,
    EpollReader,
    SocketSource,
    has_place_in,
)
from beanstalk_twisted.storage.clock import LogClock
from beanstalk_twisted.storage.fail_stop import FailStop
from beanstalk_twisted.testing.memory_server import MemoryServer
from tests.binlog.memory import MemoryDirectory
from tests.hand_reactor import HandReactor, Wire
from tests.held_io import HeldIo, finish


class Bench:
    """A hub and its wires.

    :ivar heard: what has happened, in order; ``counts`` how many sockets each turn had.
    :ivar failures: why the server should end.
    :ivar slow: whose input took long, and how long.
    :ivar answers: called when a turn ends; says whether another one may follow.
    :ivar ticks: called when the hub asks what time it is.
    """

    def __init__(self, busy_poll_us: int = 0) -> None:
        self.reactor = HandReactor()
        self.heard: list[Any] = []
        self.wires: list[Wire] = []
        self.counts: list[int] = []
        self.now_ns = 0
        self.answers: Callable[[], bool] = lambda: False
        self.ticks: Callable[[], None] = lambda: None
        self.failures: list[Failure] = []
        self.slow: list[tuple[Any, int]] = []
        self.hub = EpollReader(
            cast(Any, self.reactor),
            LogClock(lambda: self.now_ns, self._tell_time),
            self._begin_turn,
            self._end_turn,
            FailStop(self.failures.append),
            LIMIT_NS,
            lambda transport, took_ns: self.slow.append((transport, took_ns)),
            busy_poll_us,
        )

    def _tell_time(self) -> int:
        self.ticks()
        return self.now_ns

    def hear(self, data: bytes, now_ns: int) -> None:
        self.heard.append(data)

    def _begin_turn(self, connections: int) -> None:
        self.counts.append(connections)
        self.heard.append("begin")

    def _end_turn(self) -> bool:
        self.heard.append("end")
        return self.answers()

    def wire(
        self, received: Callable[[bytes, int], None] | None = None
    ) -> tuple[Wire, SocketSource]:
        """Make a connection that the hub reads; what it brings is heard with its number."""
        wire, number = Wire(self.reactor), len(self.wires)
        self.wires.append(wire)
        feed = self.hub.feed(
            wire.transport,
            received or (lambda data, now_ns: self.heard.append((number, data))),
        )
        assert feed is not None
        return wire, feed

    def turn(self) -> list[Any]:
        self.heard.clear()
        self.hub.doRead()
        return list(self.heard)

    def next_turn(self) -> list[Any]:
        """Let the reactor make the calls that are due, and say what was heard."""
        self.heard.clear()
        self.reactor.run_until_current()
        return list(self.heard)

    def close(self) -> None:
        self.hub.close()
        for wire in self.wires:
            wire.close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


def test_a_turn_brings_what_each_socket_has_and_then_ends(bench: Bench) -> None:
    (one, _), (two, _), _ = bench.wire(), bench.wire(), bench.wire()
    one.far.send(b"a\r\n")
    two.far.send(b"b\r\n")
    begin, *brought, end = bench.turn()
    assert (begin, end) == ("begin", "end")
    assert sorted(brought) == [(0, b"a\r\n"), (1, b"b\r\n")]
    assert bench.reactor.readers == [bench.hub]


def test_a_turn_brings_no_more_than_one_read_of_each_socket(bench: Bench) -> None:
    wire, _ = bench.wire()
    wire.far.send(b"x" * (READ_BYTES + 1))
    assert bench.turn() == ["begin", (0, b"x" * READ_BYTES), "end"]
    assert bench.turn() == ["begin", (0, b"x"), "end"]


def test_many_sockets_are_read_in_several_turns_and_none_is_left_out(bench: Bench) -> None:
    count = MAX_READS + 1
    for _ in range(count):
        bench.wire()[0].far.send(b"x")
    first, second = bench.turn(), bench.turn()
    assert len(first) == MAX_READS + 2
    assert {number for number, _ in first[1:-1] + second[1:-1]} == set(range(count))


def test_what_became_readable_first_is_read_first_whoever_was_read_before(bench: Bench) -> None:
    (first, _), (second, _) = bench.wire(), bench.wire()
    for wire, other in [(first, second), (second, first)] * 2:
        wire.far.send(b"known")
        bench.turn()
        other.far.send(b"a")
        wire.far.send(b"b")
        numbers = [number for number, _ in bench.turn()[1:-1]]
        assert numbers == [bench.wires.index(other), bench.wires.index(wire)]


class ListeningPort:
    """A port of the hub's."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.sources: list[SocketSource] = []
        self.received = bench.hear
        self._waiting: list[Wire] = []
        self.given_back = False
        self.fileno = self._socket.fileno
        bench.hub.add_port(self)

    def connect(self, data: bytes = b"") -> Wire:
        self._waiting.append(Wire(self._bench.reactor))
        self._bench.wires.append(self._waiting[-1])
        self._waiting[-1].far.send(data)
        socket.create_connection(self._socket.getsockname(), timeout=10).close()
        return self._waiting[-1]

    def accept(self) -> None:
        wire = self._waiting.pop(0)
        self._socket.accept()[0].close()
        source = self._bench.hub.feed(wire.transport, self.received)
        assert source is not None
        self.sources.append(source)

    def give_back(self) -> None:
        self.given_back = True

    def close(self) -> None:
        self._bench.hub.remove_port(self)
        self._socket.close()


@pytest.fixture
def port(bench: Bench) -> Iterator[ListeningPort]:
    made = ListeningPort(bench)
    yield made
    made.close()


def test_the_first_bytes_of_a_new_connection_are_read_before_what_others_send_later(
    bench: Bench, port: ListeningPort
) -> None:
    known, _ = bench.wire()
    known.far.send(b"earlier")
    bench.turn()
    port.connect(b"new")
    known.far.send(b"later")
    assert bench.turn() == ["begin", b"new", (0, b"later"), "end"]


def test_a_new_connection_that_has_ended_ends_before_what_others_send_later(
    bench: Bench, port: ListeningPort
) -> None:
    known, _ = bench.wire()
    new = port.connect(b"new")
    new.transport.protocol = Ending(bench.heard.append)
    new.far.close()
    known.far.send(b"later")
    assert bench.turn() == ["begin", b"new", ConnectionDone, (0, b"later"), "end"]


def test_a_new_connection_that_sends_without_end_is_read_twice(
    bench: Bench, port: ListeningPort
) -> None:
    known, _ = bench.wire()
    new = port.connect(b"new")

    def hear(data: bytes, now_ns: int) -> None:
        bench.hear(data, now_ns)
        new.far.send(b"more")

    port.received = hear
    known.far.send(b"later")
    assert bench.turn() == ["begin", b"new", b"more", (0, b"later"), "end"]
    assert bench.turn() == ["begin", b"more", "end"]


def test_a_new_connection_comes_after_what_others_have_sent_before(
    bench: Bench, port: ListeningPort
) -> None:
    known, _ = bench.wire()
    known.far.send(b"earlier")
    port.connect(b"new")
    assert bench.turn() == ["begin", (0, b"earlier"), b"new", "end"]


def test_a_connection_that_was_accepted_is_read_in_its_order_from_then_on(
    bench: Bench, port: ListeningPort
) -> None:
    known, _ = bench.wire()
    new = port.connect(b"first")
    assert bench.turn() == ["begin", b"first", "end"]
    known.far.send(b"earlier")
    new.far.send(b"later")
    assert bench.turn() == ["begin", (0, b"earlier"), b"later", "end"]
    silent = port.connect()
    assert bench.turn() == ["begin", "end"]
    silent.far.send(b"now")
    assert bench.turn() == ["begin", b"now", "end"]


def test_a_new_connection_may_be_paused_and_resumed_by_its_first_bytes(
    bench: Bench, port: ListeningPort
) -> None:
    def pause_and_resume(data: bytes, now_ns: int) -> None:
        port.sources[0].pauseProducing()
        port.sources[0].resumeProducing()
        bench.hear(data, now_ns)

    port.received = pause_and_resume
    new = port.connect(b"first")
    assert bench.turn() == ["begin", b"first", "end"]
    new.far.send(b"later")
    assert bench.turn() == ["begin", b"later", "end"]
    assert bench.failures == []


def test_a_port_may_be_closed_while_it_accepts(bench: Bench, port: ListeningPort) -> None:
    accept = port.accept

    def accept_and_leave() -> None:
        accept()
        bench.hub.remove_port(port)

    port.accept = accept_and_leave  # type: ignore[method-assign]
    port.connect(b"last")
    assert bench.turn() == ["begin", b"last", "end"]
    assert bench.failures == []


def test_connections_that_a_port_has_left_are_accepted_in_the_next_turn(
    bench: Bench, port: ListeningPort
) -> None:
    for data in (b"a", b"b"):
        port.connect(data)
    assert bench.turn() == ["begin", b"a", "end"]
    assert select.select([bench.hub], [], [], 0)[0] == [bench.hub]
    assert bench.turn() == ["begin", b"b", "end"]
    assert select.select([bench.hub], [], [], 0)[0] == []


def test_who_is_left_over_when_the_time_of_a_turn_is_up_comes_first_in_the_next(
    bench: Bench,
) -> None:
    def work(data: bytes, now_ns: int) -> None:
        bench.heard.append(data)
        bench.now_ns += cost_ns

    wires = [bench.wire(work)[0] for _ in range(4)]
    for number, wire in enumerate(wires):
        wire.far.send(b"%d" % number)
    cost_ns = LIMIT_NS // 2
    first = bench.turn()
    assert first == ["begin", b"0", b"1", b"2", "end"]
    wires[0].far.send(b"again")
    assert bench.turn() == []
    assert bench.next_turn() == ["begin", b"3", "end"]
    assert bench.turn() == ["begin", b"again", "end"]


@pytest.mark.parametrize(("cost_ns", "is_told"), [(LIMIT_NS, False), (LIMIT_NS + 1, True)])
def test_whose_input_took_longer_than_the_limit_is_told_and_nobody_else(
    bench: Bench, cost_ns: int, is_told: bool
) -> None:
    def work(data: bytes, now_ns: int) -> None:
        bench.now_ns += cost_ns if data == b"slow" else LIMIT_NS - 1

    wires = [bench.wire(work)[0] for _ in range(2)]
    for wire, data in zip(wires, (b"quick", b"slow"), strict=True):
        wire.far.send(data)
    bench.turn()
    bench.turn()
    assert bench.slow == [(wires[1].transport, cost_ns)] * is_told


def test_what_a_connection_brings_comes_with_the_time_that_it_is_then(bench: Bench) -> None:
    def work(data: bytes, now_ns: int) -> None:
        bench.heard.append(now_ns)
        bench.now_ns += 7

    wires = [bench.wire(work)[0] for _ in range(2)]
    for now_ns in (1, 100):
        for wire in wires:
            wire.far.send(b"a")
        bench.now_ns = now_ns
        assert bench.turn() == ["begin", now_ns, now_ns + 7, "end"]


def test_who_answers_at_once_is_read_again_before_the_reactor_has_its_turn(bench: Bench) -> None:
    (wire, _), _ = bench.wire(), bench.wire()
    rest = [b"b", b"c"]

    def answer() -> bool:
        if rest:
            wire.far.send(rest.pop(0))
        return True

    bench.answers = answer
    wire.far.send(b"a")
    begin, end = "begin", "end"
    assert bench.turn() == [begin, (0, b"a"), end, begin, (0, b"b"), end, begin, (0, b"c"), end]


def test_the_reactor_has_its_turn_when_those_who_answer_at_once_had_their_time(
    bench: Bench,
) -> None:
    (wire, _), _ = bench.wire(), bench.wire()

    def answer() -> bool:
        bench.now_ns += AGAIN_NS // 2
        wire.far.send(b"x")
        return True

    bench.answers = answer
    wire.far.send(b"x")
    assert bench.turn() == ["begin", (0, b"x"), "end"] * 2
    assert bench.turn() == ["begin", (0, b"x"), "end"] * 2


class LoneBench(Bench):
    """A hub that looks for a lone client's next command for `LOOK_US`, by a clock that goes on by
    a microsecond when it is asked.

    :ivar next_after_us: how long behind the end of the next turn ``sends`` is called; None: never.
    """

    LOOK_US = 20

    def __init__(self, busy_poll_us: int = LOOK_US) -> None:
        super().__init__(busy_poll_us)
        self.next_after_us: int | None = None
        self.ended_ns = 0
        self.answers = self.end
        self.ticks = self._tick
        self.lone, _ = self.wire()
        self.sends: Callable[[], object] = lambda: self.lone.far.send(b"next")
        self._due_ns: int | None = None

    def end(self) -> bool:
        self.ended_ns = self.now_ns
        after_us, self.next_after_us = self.next_after_us, None
        self._due_ns = None if after_us is None else self.now_ns + after_us * 1_000
        return True

    def _tick(self) -> None:
        self.now_ns += 1_000
        if self._due_ns is not None and self.now_ns >= self._due_ns:
            self._due_ns = None
            self.sends()

    def ask(self, after_us: int | None) -> list[Any]:
        """Two commands, each alone, and a third so long after the turn of the second."""
        self.lone.far.send(b"first")
        self.turn()
        self.lone.far.send(b"second")
        self.next_after_us = after_us
        return self.turn()


SECOND = ["begin", (0, b"second"), "end"]
NEXT = ["begin", (0, b"next"), "end"]


@pytest.fixture
def lone() -> Iterator[LoneBench]:
    made = LoneBench()
    yield made
    made.close()


@pytest.mark.parametrize("after_us", [2, 10, LoneBench.LOOK_US])
def test_a_lone_clients_next_command_is_looked_for(lone: LoneBench, after_us: int) -> None:
    assert lone.ask(after_us) == SECOND + NEXT


@pytest.mark.parametrize("after_us", [LoneBench.LOOK_US + 3, None])
def test_one_that_comes_later_is_the_reactors(lone: LoneBench, after_us: int | None) -> None:
    assert lone.ask(after_us) == SECOND
    assert lone.now_ns - lone.ended_ns <= (LoneBench.LOOK_US + 2) * 1_000


def test_with_0_a_lone_client_is_looked_for_once() -> None:
    bench = LoneBench(busy_poll_us=0)
    assert bench.ask(2) == SECOND
    bench.close()


def test_by_a_clock_that_stands_still_it_ends_too(lone: LoneBench) -> None:
    readings = []
    lone.ticks = lambda: readings.append(lone.now_ns)
    assert lone.ask(None) == SECOND
    assert LoneBench.LOOK_US <= len(readings) <= LoneBench.LOOK_US + 10


def test_what_another_client_sends_meanwhile_is_found_too(lone: LoneBench) -> None:
    other, _ = lone.wire()
    lone.sends = lambda: other.far.send(b"x")
    assert lone.ask(9) == [*SECOND, "begin", (1, b"x"), "end"]


class RestlessBench(LoneBench):
    """A lone client whose next command comes 5 µs after each turn, and a quarter of `AGAIN_NS` of
    work in each.
    """

    def end(self) -> bool:
        self.now_ns += AGAIN_NS // 4
        self.next_after_us = 5
        return super().end()


@pytest.fixture
def restless() -> Iterator[RestlessBench]:
    made = RestlessBench()
    made.ask(5)
    yield made
    made.close()


def test_the_reactor_has_its_turn_also_when_a_lone_client_never_rests(
    restless: RestlessBench,
) -> None:
    assert restless.heard.count("end") == 4


def test_behind_the_reactors_turn_a_lone_client_is_looked_for_again(
    restless: RestlessBench,
) -> None:
    for _ in range(3):
        restless.heard.clear()
        restless.reactor.run_until_current()
        assert restless.heard == NEXT * 4


def test_what_the_reactor_finds_before_that_look_is_left_to_it(restless: RestlessBench) -> None:
    restless.sends = lambda: None
    restless.lone.far.send(b"x")
    assert restless.turn() == []
    restless.reactor.run_until_current()
    assert restless.heard[:2] == ["begin", (0, b"x")]


def test_after_a_look_in_vain_the_reactor_calls_the_hub(restless: RestlessBench) -> None:
    restless.sends = lambda: None
    restless.heard.clear()
    restless.reactor.run_until_current()
    assert restless.heard == []
    assert restless.reactor.getDelayedCalls() == []
    restless.lone.far.send(b"next")
    assert restless.turn() == NEXT


def test_several_clients_that_never_rest_are_left_to_the_reactor(bench: Bench) -> None:
    wires = [bench.wire()[0] for _ in range(2)]

    def answer() -> bool:
        bench.now_ns += AGAIN_NS
        return True

    bench.answers = answer
    for _ in range(2):
        for wire in wires:
            wire.far.send(b"x")
        bench.turn()
    assert bench.reactor.getDelayedCalls() == []


def test_a_hub_that_is_closed_looks_for_nobody(restless: RestlessBench) -> None:
    restless.hub.close()
    assert restless.reactor.getDelayedCalls() == []


def test_a_turn_behind_the_reactors_that_cannot_end_ends_the_server(
    restless: RestlessBench,
) -> None:
    def fail() -> bool:
        raise ValueError

    restless.answers = fail
    with pytest.raises(ValueError):
        restless.reactor.run_until_current()
    assert [failure.type for failure in restless.failures] == [ValueError]


def test_a_turn_that_cannot_end_ends_the_server_and_no_other_follows(bench: Bench) -> None:
    wire, _ = bench.wire()

    def fail() -> bool:
        wire.far.send(b"b")
        raise ValueError

    bench.answers = fail
    wire.far.send(b"a")
    with pytest.raises(ValueError):
        bench.turn()
    assert bench.heard == ["begin", (0, b"a"), "end"]
    assert [failure.type for failure in bench.failures] == [ValueError]


def test_a_feed_that_pauses_brings_nothing_until_it_goes_on(bench: Bench) -> None:
    wire, feed = bench.wire()
    feed.pauseProducing()
    feed.pauseProducing()
    wire.far.send(b"a")
    assert bench.turn() == []
    feed.resumeProducing()
    feed.resumeProducing()
    assert bench.turn() == ["begin", (0, b"a"), "end"]


class Ending(Protocol):
    """Hears how its connection ends."""

    def __init__(self, hear: Callable[[Any], None]) -> None:
        self._hear = hear

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._hear(reason.type)


@implementer(IHalfCloseableProtocol)
class HalfEnding(Ending):
    """Goes on when its peer has only said that it sends no more."""

    def readConnectionLost(self) -> None:
        self._hear("half")

    def writeConnectionLost(self) -> None:
        """The peer reads no more."""


def test_the_end_of_a_connection_is_told_in_the_turn_that_finds_it(bench: Bench) -> None:
    wire, _ = bench.wire()
    wire.transport.protocol = Ending(bench.heard.append)
    wire.far.send(b"a")
    wire.far.shutdown(1)
    assert bench.turn() == ["begin", (0, b"a"), ConnectionDone, "end"]
    assert bench.reactor.readers == [bench.hub]
    assert bench.turn() == []


def test_the_end_of_one_that_may_go_on_writing_is_told_so(bench: Bench) -> None:
    wire, feed = bench.wire()
    wire.transport.protocol = HalfEnding(bench.heard.append)
    wire.transport.write(b"reply")
    wire.far.shutdown(1)
    assert bench.turn() == ["begin", "half", "end"]
    assert wire.read_on() == b"reply"
    assert bench.reactor.readers == [bench.hub]
    feed.pauseProducing()
    assert bench.turn() == []


def test_a_connection_that_breaks_is_told_so(bench: Bench) -> None:
    wire, _ = bench.wire()
    wire.transport.protocol = HalfEnding(bench.heard.append)
    wire.transport.write(b"unread")
    wire.transport.doWrite()
    wire.transport.write(b"more")
    wire.far.close()
    assert bench.turn() == ["begin", ConnectionLost, "end"]
    assert (bench.reactor.readers, bench.reactor.writers) == ([bench.hub], [])


def test_a_connection_that_vanishes_while_it_is_paused_costs_no_turns(bench: Bench) -> None:
    wire, feed = bench.wire()
    wire.transport.protocol = Ending(bench.heard.append)
    feed.pauseProducing()
    wire.far.close()
    assert select.select([bench.hub], [], [], 0)[0] == []
    feed.resumeProducing()
    assert bench.turn() == ["begin", ConnectionDone, "end"]


def test_a_connection_that_is_closed_in_a_turn_is_not_read_in_it(bench: Bench) -> None:
    feeds: list[SocketSource] = []

    def part(data: bytes, now_ns: int) -> None:
        bench.heard.append(data)
        for feed in feeds:
            feed.close()

    for _ in range(2):
        wire, feed = bench.wire(part)
        feeds.append(feed)
        wire.far.send(b"a")
    assert bench.turn() == ["begin", b"a", "end"]
    assert bench.reactor.readers == [bench.hub]


def test_the_number_of_a_closed_socket_is_free_for_another_connection(bench: Bench) -> None:
    wire, feed = bench.wire()
    wire.close()
    other = Wire(bench.reactor)
    feed.close()
    bench.wires.append(other)
    assert other.transport.fileno() == feed.fd or other.far.fileno() == feed.fd
    assert bench.hub.feed(other.transport, bench.hear) is not None
    other.far.send(b"b")
    assert bench.turn() == ["begin", b"b", "end"]


def test_a_fault_of_ours_costs_one_connection_and_nobody_else(
    bench: Bench, clean_reactor: list[Failure]
) -> None:
    broken, _ = bench.wire(lambda data, now_ns: cast(Any, None)())
    aborted: list[bool] = []
    cast(Any, broken.transport).abortConnection = lambda: aborted.append(True)
    good, _ = bench.wire()
    broken.far.send(b"a")
    good.far.send(b"b")
    assert bench.turn() == ["begin", (1, b"b"), "end"]
    assert aborted == [True]
    assert [failure.type for failure in clean_reactor] == [TypeError]
    clean_reactor.clear()


def test_what_is_encrypted_or_another_reactors_is_left_to_twisted(bench: Bench) -> None:
    encrypted, foreign = Wire(bench.reactor), Wire(HandReactor())
    bench.wires += [encrypted, foreign]
    cast(Any, encrypted.transport).TLS = True
    assert bench.hub.feed(encrypted.transport, bench.hear) is None
    assert bench.hub.feed(foreign.transport, bench.hear) is None
    assert encrypted.transport in bench.reactor.readers


def test_a_reactor_without_descriptors_has_no_place_for_a_hub() -> None:
    assert has_place_in(HandReactor())
    assert not has_place_in(Clock())


def test_a_hub_that_ends_leaves_its_connections_and_ports_to_twisted(
    bench: Bench, port: ListeningPort
) -> None:
    (one, _), (two, paused) = bench.wire(), bench.wire()
    paused.pauseProducing()
    bench.hub.connectionLost(Failure(ValueError()))
    assert (bench.hub.fileno(), bench.reactor.readers) == (-1, [one.transport])
    assert port.given_back
    paused.resumeProducing()
    assert bench.reactor.readers == [one.transport, two.transport]


class HubServer(MemoryServer):
    """A server whose connections are read by a hub."""

    def start(self) -> None:
        self.clock = self.reactor = HandReactor()
        super().start()

    def hear(self, wire: Wire, *lines: bytes) -> None:
        """Connect a peer that answers each reply at once with its next line."""
        connected(self, wire, list(lines[1:]))
        wire.far.send(lines[0])

    def call_hub(self) -> None:
        (hub,) = self.reactor.readers
        hub.doRead()


class EagerSocket:
    """The server's end of a connection; whenever it has sent, its peer sends too.

    :ivar sends: called before something is sent.
    """

    def __init__(self, wire: Wire, lines: list[bytes]) -> None:
        self._near = wire.transport.socket
        self._far = wire.far
        self._lines = lines
        self.sends: Callable[[], object] = lambda: None
        self.fileno = self._near.fileno
        self.recv = self._near.recv
        self.close = self._near.close
        self.shutdown = self._near.shutdown

    def setsockopt(self, *_: int) -> None:
        """It is no TCP."""

    def sendmsg(self, pieces: list[bytes]) -> int:
        return self.send(b"".join(pieces))

    def send(self, output: bytes) -> int:
        self.sends()
        sent = self._near.send(output)
        if self._lines:
            self._far.send(self._lines.pop(0))
        return sent


def connected(server: MemoryServer, wire: Wire, lines: list[bytes]) -> Any:
    """Connect a peer that answers each reply at once with the next of these lines."""
    cast(Any, wire.transport).socket = EagerSocket(wire, lines)
    protocol = server.service.factory.buildProtocol(cast(Any, None))
    assert protocol is not None
    cast(Any, wire.transport).protocol = protocol
    protocol.makeConnection(wire.transport)
    return protocol


PUT = b"put 0 0 60 1\r\nx\r\n"


def test_while_somebody_waits_for_the_disk_the_reactor_has_its_turn_after_each_other() -> None:
    io = HeldIo()
    server = HubServer(directory=MemoryDirectory(), io=lambda: io)
    slow, quick = Wire(server.reactor), Wire(server.reactor)
    server.hear(slow, PUT)
    server.hear(quick, *[b"list-tube-used\r\n"] * 3)
    server.call_hub()
    assert (slow.read(), quick.read()) == (b"", b"USING default\r\n")
    server.call_hub()
    assert quick.read() == b"USING default\r\n"
    finish(server, io)
    server.call_hub()
    assert (slow.read(), quick.read()) == (b"INSERTED 1\r\n", b"USING default\r\n")
    slow.close()
    quick.close()


@pytest.mark.parametrize("is_logged", [False, True])
def test_the_jobs_of_who_has_closed_are_found_by_the_next_command_of_the_same_turn(
    is_logged: bool,
) -> None:
    server = HubServer(directory=MemoryDirectory() if is_logged else None)
    first = Wire(server.reactor)
    server.hear(first, PUT + b"reserve\r\n")
    server.call_hub()
    assert first.read() == b"INSERTED 1\r\nRESERVED 1 1\r\nx\r\n"
    first.far.close()
    second = Wire(server.reactor)
    server.hear(second, b"reserve-with-timeout 0\r\nstats\r\n")
    server.call_hub()
    replies = second.read()
    assert replies.startswith(b"RESERVED 1 1\r\n")
    assert b"\ncurrent-connections: 1\n" in replies
    second.close()


@pytest.mark.parametrize("sent", [b"", PUT, b"put 0 0 60 10\r\nhalf", b"x" * 300, b"reserve\r\n"])
@pytest.mark.parametrize("server", [HubServer, MemoryServer])
def test_what_a_connection_took_is_free_when_it_ends_without_the_collector(
    server: type[MemoryServer], sent: bytes
) -> None:
    running = server()
    wire = Wire(getattr(running, "reactor", HandReactor()))
    protocol = connected(running, wire, [])
    protocol.dataReceived(sent)
    left = weakref.ref(protocol)
    gc.disable()
    try:
        wire.transport.connectionLost(Failure(ConnectionLost()))
        running.advance()
        del protocol
        assert left() is None
    finally:
        gc.enable()
    wire.close()
