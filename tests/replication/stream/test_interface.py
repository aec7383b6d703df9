"""What a door to a stream does: the same tests for the simulated one and for NATS, on one
server.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest

from beanstalk_twisted.replication.stream import settings
from beanstalk_twisted.replication.stream.addresses import parse
from beanstalk_twisted.replication.stream.interface import (
    MAX_MESSAGE_BYTES,
    Ends,
    Message,
    Refused,
    Stream,
    StreamError,
    Unreachable,
    WrongPosition,
)
from beanstalk_twisted.replication.stream.jetstream import JetStream
from tests.replication.cluster import LIMIT_S, Cluster, ask, running, wait_for
from tests.replication.stream.memory import MemoryLog, MemoryStream
from tests.replication.world import Process

R = TypeVar("R")

EXPIRE_S = 1
"""The shortest time after which NATS lets a message expire."""


class Case(Protocol):
    """A stream, and how time passes."""

    def client(self) -> Stream: ...

    def done(self, future: Future[R]) -> R:
        """The result, when it is there."""

    def until(self, is_so: Callable[[], object]) -> None: ...

    def a_while(self) -> None:
        """Time in which what is under way comes."""

    def until_expired(self) -> None:
        """Time in which what was appended expires, if it does."""

    def remove(self, position: int) -> None:
        """Somebody removes one message."""

    def limit(self, max_bytes: int | None) -> None:
        """Somebody edits the stream: it takes so many bytes; None for any number."""


class Simulated:
    """A log in memory."""

    def __init__(self) -> None:
        self._clock = Process()
        self._log = MemoryLog()
        self._log.expire_s = EXPIRE_S

    def client(self) -> Stream:
        return MemoryStream(self._log, self._clock)

    def done(self, future: Future[R]) -> R:
        self.until(future.done)
        return future.result(0)

    def until(self, is_so: Callable[[], object]) -> None:
        for _ in range(1000):
            if is_so():
                return
            self._clock.pass_s(0.01)
        pytest.fail("it never came")

    def a_while(self) -> None:
        for _ in range(10):
            self._clock.pass_s(0.01)

    def until_expired(self) -> None:
        self._clock.pass_s(EXPIRE_S)

    def remove(self, position: int) -> None:
        self._log.expire(position)

    def limit(self, max_bytes: int | None) -> None:
        self._log.max_bytes = max_bytes
        self._log.warnings = [] if max_bytes is None else [f"{self._log.url}: {max_bytes} bytes"]


class Real:
    """A stream of its own on a server of NATS."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self._address = parse(cluster.url(name))
        self.clients: list[JetStream] = []

    def client(self) -> Stream:
        self.clients.append(JetStream(self._address, expire_s=EXPIRE_S))
        return self.clients[-1]

    def done(self, future: Future[R]) -> R:
        return future.result(LIMIT_S)

    def until(self, is_so: Callable[[], object]) -> None:
        wait_for(is_so)

    def a_while(self) -> None:
        time.sleep(0.05)

    def until_expired(self) -> None:
        time.sleep(EXPIRE_S + 0.5)

    def remove(self, position: int) -> None:
        ask(self._cluster, f"STREAM.MSG.DELETE.{self._address.name}", {"seq": position})

    def limit(self, max_bytes: int | None) -> None:
        name = self._address.name
        limited = {"max_bytes": -1 if max_bytes is None else max_bytes}
        ask(self._cluster, f"STREAM.UPDATE.{name}", settings.wanted(name, 1) | limited)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(Path(tmp_path_factory.mktemp("nats"))) as found:
        yield found


NAMES = (f"S{number}" for number in itertools.count())


@pytest.fixture(params=["simulated", "NATS"])
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    if request.param == "simulated":
        yield Simulated()
        return
    real = Real(request.getfixturevalue("cluster"), next(NAMES))
    yield real
    for client in real.clients:
        client.close().result(LIMIT_S)


def opened(case: Case) -> Stream:
    client = case.client()
    case.done(client.open())
    return client


def never(found: object) -> None:
    pytest.fail(f"called with {found}")


def filled(case: Case, client: Stream, count: int) -> None:
    last = case.done(client.ends()).last
    futures = [client.append(b"%d" % (last + at + 1), last + at) for at in range(count)]
    assert [case.done(each) for each in futures] == list(range(last + 1, last + count + 1))


def test_a_stream_that_is_new_has_nothing_and_says_where_it_is_stored(case: Case) -> None:
    client = opened(case)
    ends = case.done(client.ends())
    assert ends == Ends(1, 0)
    assert ends.is_empty
    assert case.done(client.read(1)) is None
    found = case.done(client.health()).copies
    assert found.missing == 0 and len(found.current) == found.wanted
    assert found.behind == () and found.leader == found.current[0]
    for expected in (1, 7, 8, 9):
        with pytest.raises(WrongPosition):
            case.done(client.append(b"no", expected))
    filled(case, client, 1)
    case.done(client.open())
    assert case.done(opened(case).ends()) == Ends(1, 1)


def test_sixteen_appends_in_flight_each_expect_the_one_before(case: Case) -> None:
    client = opened(case)
    filled(case, client, 16)
    assert case.done(client.ends()) == Ends(1, 16)
    assert case.done(client.read(16)) == Message(16, b"16")


@pytest.mark.parametrize("expected", [0, 1, 3, 1 << 40])
def test_an_append_behind_another_position_than_the_last_does_nothing(
    case: Case, expected: int
) -> None:
    client = opened(case)
    filled(case, client, 2)
    with pytest.raises(WrongPosition, match="2"):
        case.done(client.append(b"no", expected))
    assert case.done(client.ends()) == Ends(1, 2)
    filled(case, client, 1)


def test_of_two_writers_one_wins_each_position(case: Case) -> None:
    writers = [opened(case), opened(case)]
    for last in range(10):
        futures = [writer.append(b"%d" % at, last) for at, writer in enumerate(writers)]
        outcomes = []
        for future in futures:
            try:
                outcomes.append(case.done(future))
            except WrongPosition:
                outcomes.append(0)
        assert sorted(outcomes) == [0, last + 1]
        winner = case.done(writers[0].read(last + 1))
        assert winner == Message(last + 1, b"%d" % outcomes.index(last + 1))


def test_a_purge_takes_the_beginning_and_leaves_the_positions(case: Case) -> None:
    client = opened(case)
    filled(case, client, 5)
    for below, ends in [(0, (1, 5)), (1, (1, 5)), (3, (3, 5)), (3, (3, 5)), (2, (3, 5))]:
        case.done(client.purge(below))
        assert case.done(client.ends()) == ends
    assert case.done(client.read(1)) == Message(3, b"3")
    case.done(client.purge(6))
    ends = case.done(client.ends())
    assert (ends, ends.is_empty) == ((6, 5), True)
    assert case.done(client.read(1)) is None
    with pytest.raises(WrongPosition):
        case.done(client.append(b"no", 0))
    filled(case, client, 1)
    assert case.done(client.ends()) == Ends(6, 6)


def test_what_is_read_on_is_in_order_and_some_of_it_at_a_time(case: Case) -> None:
    client = opened(case)
    assert case.done(client.read_on(1)) == []
    filled(case, client, 200)
    case.done(client.purge(3))
    case.remove(70)
    found: list[Message] = []
    while some := case.done(client.read_on(found[-1].position + 1 if found else 1)):
        found += some
    assert found == [Message(at, b"%d" % at) for at in range(3, 201) if at != 70]
    assert case.done(client.read_on(201)) == []
    largest = bytes(MAX_MESSAGE_BYTES)
    for at in range(200, 212):
        assert case.done(client.append(largest, at)) == at + 1
    found = [Message(200, b"")]
    while some := case.done(client.read_on(found[-1].position + 1)):
        found += some
    assert found[1:] == [Message(at, largest) for at in range(201, 213)]


def test_a_stream_that_is_full_says_so_and_goes_on_when_it_is_not(case: Case) -> None:
    client = opened(case)
    filled(case, client, 3)
    case.limit(5000)
    with pytest.raises(Unreachable, match="maximum bytes exceeded"):
        case.done(client.append(bytes(10_000), 3))
    assert case.done(client.ends()) == Ends(1, 3)
    assert case.done(client.read(3)) == Message(3, b"3")
    case.limit(None)
    assert case.done(client.append(bytes(10_000), 3)) == 4


def test_what_is_changed_of_its_settings_is_seen_while_it_is_open(case: Case) -> None:
    client = opened(case)
    before = case.done(client.health()).problems
    case.limit(5000)
    [limited] = [each for each in case.done(client.health()).problems if each not in before]
    assert limited.startswith(client.url) and "5000 bytes" in limited
    case.limit(None)
    assert case.done(client.health()).problems == before


def test_those_who_follow_get_what_is_there_and_what_comes(case: Case) -> None:
    writer, reader = opened(case), opened(case)
    filled(case, writer, 100)
    seen: dict[int, list[Message]] = {1: [], 50: [], 101: []}
    for position, found in seen.items():
        reader.follow(position, found.extend, never)
    filled(case, writer, 30)
    case.until(lambda: all(found and found[-1].position == 130 for found in seen.values()))
    for position, found in seen.items():
        assert found == [Message(at, b"%d" % at) for at in range(position, 131)]


def test_those_who_follow_step_over_what_was_purged(case: Case) -> None:
    client = opened(case)
    filled(case, client, 10)
    case.done(client.purge(4))
    seen: list[Message] = []
    client.follow(1, seen.extend, never)
    case.until(lambda: len(seen) == 7)
    case.done(client.purge(11))
    filled(case, client, 2)
    case.until(lambda: len(seen) == 9)
    assert [message.position for message in seen] == list(range(4, 13))


def test_who_has_stopped_to_follow_receives_nothing_more(case: Case) -> None:
    client = opened(case)
    seen: list[Message] = []
    following = client.follow(1, seen.extend, never)
    filled(case, client, 1)
    case.until(lambda: seen)
    following.stop()
    following.stop()
    case.a_while()
    filled(case, client, 1)
    case.a_while()
    assert len(seen) == 1


def test_the_largest_message_and_one_past_it(case: Case) -> None:
    client = opened(case)
    largest = bytes(range(256)) * (MAX_MESSAGE_BYTES // 256)
    assert case.done(client.append(largest, 0)) == 1
    with pytest.raises(Refused, match=str(MAX_MESSAGE_BYTES + 1)):
        case.done(client.append(largest + b"x", 1))
    seen: list[Message] = []
    client.follow(1, seen.extend, never)
    case.until(lambda: seen)
    assert seen == [case.done(client.read(1))] == [Message(1, largest)]


def test_what_expires_leaves_gaps_and_positions_stay(case: Case) -> None:
    client = opened(case)
    futures = [
        client.append(b"%d" % at, at - 1, expires=at in (1, 3, 4, 6, 7)) for at in range(1, 8)
    ]
    assert [case.done(each) for each in futures] == list(range(1, 8))
    seen: list[Message] = []
    client.follow(1, seen.extend, never)
    case.until(lambda: len(seen) == 7)
    case.until_expired()
    case.until(lambda: case.done(client.ends()) == Ends(2, 7))
    case.until(lambda: case.done(client.read(6)) is None)
    assert case.done(client.read(1)) == Message(2, b"2")
    assert case.done(client.read(3)) == case.done(client.read(5)) == Message(5, b"5")
    later: list[Message] = []
    client.follow(3, later.extend, never)
    behind: list[Message] = []
    client.follow(7, behind.extend, never)
    with pytest.raises(WrongPosition):
        case.done(client.append(b"no", 5))
    assert case.done(client.append(b"8", 7)) == 8
    case.until(lambda: behind and later[-1:] == behind[-1:] == seen[-1:])
    assert later == [Message(5, b"5"), Message(8, b"8")]
    assert behind == [Message(8, b"8")]
    case.done(client.purge(6))
    assert case.done(client.ends()) == Ends(8, 8)


def test_a_stream_of_which_all_has_expired_goes_on_where_it_was(case: Case) -> None:
    client = opened(case)
    assert case.done(client.append(b"1", 0, expires=True)) == 1
    case.until_expired()
    case.until(lambda: case.done(client.ends()) == Ends(2, 1))
    filled(case, client, 1)
    assert case.done(client.ends()) == Ends(2, 2)


HOSTILE = [
    b"", b"\0", bytes(range(256)), b"\r\n", b"PUB x 1\r\na\r\n", b"NATS/1.0 503\r\n\r\n", b"{}",
    b'{"error":{"code":400,"err_code":10071}}', b"+OK\r\n-ERR 'x'\r\n", b"\xff\xfe", b"BTR1" * 11,
]  # fmt: skip


def test_bytes_of_any_kind_are_read_as_they_were_appended(case: Case) -> None:
    client = opened(case)
    for at, payload in enumerate(HOSTILE):
        case.done(client.append(payload, at))
    seen: list[Message] = []
    client.follow(1, seen.extend, never)
    case.until(lambda: len(seen) == len(HOSTILE))
    assert [message.payload for message in seen] == HOSTILE
    for at, payload in enumerate(HOSTILE):
        assert case.done(client.read(at + 1)) == Message(at + 1, payload)


def test_what_is_told_is_heard_by_all_and_not_kept(case: Case) -> None:
    clients = [opened(case), opened(case)]
    heard: list[list[bytes]] = [[], []]
    for client, found in zip(clients, heard, strict=True):
        client.hear(found.append)
    case.a_while()
    clients[0].tell(b"here \r\n I am")
    case.until(lambda: all(heard))
    assert heard == [[b"here \r\n I am"]] * 2
    assert case.done(clients[0].ends()) == Ends(1, 0)


def test_a_door_that_is_closed_reaches_nothing(case: Case) -> None:
    client = opened(case)
    ends: list[StreamError] = []
    client.follow(1, never, ends.append)
    case.done(client.close())
    asked: list[Callable[[], Future[Any]]] = [
        client.ends, client.health, lambda: client.read(1), lambda: client.read_on(1),
        lambda: client.purge(1), lambda: client.append(b"", 0), client.open,
    ]  # fmt: skip
    for each in asked:
        with pytest.raises(Unreachable):
            case.done(each())
    client.tell(b"nobody")
    assert ends == []
    case.done(client.close())
