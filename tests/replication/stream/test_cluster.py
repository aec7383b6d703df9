"""The door to a cluster of three servers of NATS, of which some end."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from beanstalk_twisted.replication.stream.addresses import parse
from beanstalk_twisted.replication.stream.interface import (
    Ends,
    Message,
    StreamError,
    Unreachable,
    WrongPosition,
)
from beanstalk_twisted.replication.stream.jetstream import JetStream
from tests.replication.cluster import LIMIT_S, Cluster, running, wait_for

IN_FLIGHT = 16

pytestmark = pytest.mark.exhaustive


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(Path(tmp_path_factory.mktemp("cluster")), 3) as found:
        yield found


def client_of(cluster: Cluster, name: str) -> tuple[JetStream, list[str]]:
    """A client, open, and what it was warned of."""
    client = JetStream(parse(cluster.url(name)), {}, LIMIT_S)
    return client, client.open().result(LIMIT_S)


class Writer:
    """Appends as a careful writer does.

    :ivar acknowledged: payloads by position.
    """

    def __init__(self, client: JetStream) -> None:
        self._client = client
        self._last = client.ends().result(LIMIT_S).last
        self._count = 0
        self.acknowledged: dict[int, bytes] = {}
        self.failed = 0

    def some(self) -> None:
        """Append `IN_FLIGHT` messages; after a failure, look where the stream is."""
        payloads = [b"%d " % (self._count + at) * 100 for at in range(IN_FLIGHT)]
        self._count += IN_FLIGHT
        futures = [
            self._client.append(payload, self._last + at) for at, payload in enumerate(payloads)
        ]
        for payload, future in zip(payloads, futures, strict=True):
            try:
                self._last = future.result(LIMIT_S)
                self.acknowledged[self._last] = payload
            except (Unreachable, WrongPosition):
                self.failed += 1
        if self.failed:
            self._last = self._looked().last

    def until(self, count: int) -> None:
        """Go on until so many are acknowledged."""
        give_up = time.monotonic() + LIMIT_S
        while len(self.acknowledged) < count:
            assert time.monotonic() < give_up
            self.some()

    def _looked(self) -> Ends:
        give_up = time.monotonic() + LIMIT_S
        while True:
            try:
                return self._client.ends().result(LIMIT_S)
            except Unreachable:
                assert time.monotonic() < give_up


def check_history(writer: Writer, reader: JetStream, seen: list[Message]) -> None:
    """All that was acknowledged is there, and who followed has seen all, once and in order."""
    first, last = reader.ends().result(LIMIT_S)
    wait_for(lambda: seen and seen[-1].position >= last)
    assert [message.position for message in seen] == list(range(first, last + 1))
    there = dict(seen)
    assert {at: there[at] for at in writer.acknowledged} == writer.acknowledged


@pytest.mark.timeout(180)
def test_servers_end_while_a_writer_appends_and_another_client_follows(cluster: Cluster) -> None:
    client, warnings = client_of(cluster, "kills")
    assert not [warning for warning in warnings if "copies" in warning]
    reader, _ = client_of(cluster, "kills")
    seen: list[Message] = []
    ends: list[StreamError] = []
    reader.follow(1, seen.extend, ends.append)
    writer = Writer(client)
    for is_leader in (True, False):
        leader = cluster.leader("kills")
        victim = leader if is_leader else next(x for x in cluster.servers if x is not leader)
        killing = threading.Timer(0.3, victim.kill)
        killing.start()
        until = time.monotonic() + 0.6
        before = len(writer.acknowledged)
        while time.monotonic() < until or len(writer.acknowledged) < before + 64:
            writer.some()
        killing.join()
        victim.start()
        writer.some()
    check_history(writer, reader, seen)
    assert ends == []
    for each in (client, reader):
        each.close().result(LIMIT_S)


@pytest.mark.timeout(180)
def test_without_a_quorum_nothing_is_acknowledged_and_with_it_all_goes_on(cluster: Cluster) -> None:
    client, _ = client_of(cluster, "quorum")
    seen: list[Message] = []
    client.follow(1, seen.extend, lambda why: pytest.fail(str(why)))
    writer = Writer(client)
    writer.some()
    assert (len(writer.acknowledged), writer.failed) == (IN_FLIGHT, 0)
    leader = cluster.leader("quorum")
    others = [each for each in cluster.servers if each is not leader]
    for each in others:
        each.kill()
    with pytest.raises(Unreachable):
        client.append(b"waits", IN_FLIGHT).result(LIMIT_S)
    for each in others:
        each.start()
    writer.failed = 1
    writer.until(2 * IN_FLIGHT)
    check_history(writer, client, seen)
    client.close().result(LIMIT_S)


@pytest.mark.timeout(180)
def test_a_server_that_stands_still_is_given_up(cluster: Cluster) -> None:
    client, _ = client_of(cluster, "still")
    writer = Writer(client)
    leader = cluster.leader("still")
    leader.pause()
    try:
        writer.some()
        assert writer.failed
        writer.until(IN_FLIGHT)
    finally:
        leader.resume()
    client.close().result(LIMIT_S)


@pytest.mark.timeout(180)
def test_a_server_that_takes_no_bytes_is_given_up(cluster: Cluster) -> None:
    client, _ = client_of(cluster, "full")
    seen: list[Message] = []
    client.follow(1, seen.extend, lambda why: pytest.fail(str(why)))
    writer = Writer(client)
    still = cluster.servers[0]
    still.pause()
    try:
        # More than what the buffers of two sockets hold.
        sent = [client.append(bytes(500_000), at) for at in range(32)]
        for each in sent:
            with contextlib.suppress(Unreachable, WrongPosition):
                each.result(LIMIT_S)
        writer.until(IN_FLIGHT)
        wait_for(lambda: seen and seen[-1].position >= max(writer.acknowledged))
    finally:
        still.resume()
    client.close().result(LIMIT_S)
