"""Appends to a cluster of NATS servers whose leader is killed in the midst of them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread

from beanstalk_twisted.replication.publisher import Publisher
from beanstalk_twisted.replication.stream.addresses import parse
from beanstalk_twisted.replication.stream.interface import HeldLease, WrongPosition
from beanstalk_twisted.replication.stream.jetstream import JetStream
from beanstalk_twisted.replication.stream.messages import Write, encode_write
from tests.conftest import the_reactor
from tests.replication.cluster import LIMIT_S, Cluster, running
from tests.replication.publishing import WHO

pytestmark = pytest.mark.exhaustive

MESSAGES = 600
KILLED_AT = 200


async def test_a_leader_that_is_killed_costs_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    with running(tmp_path, 3) as cluster:
        stream, rival = (_client(cluster) for _ in range(2))
        lease = HeldLease(LIMIT_S)
        publisher = Publisher(stream, the_reactor(), time.monotonic_ns, lease, 0, WHO)
        given = [b"message %d" % number for number in range(MESSAGES)]
        appended: list[Deferred[int]] = []
        for payload in given:
            appended.append(publisher.append(payload))
            if len(appended) == KILLED_AT:
                while publisher.position < KILLED_AT // 2:
                    await deferLater(the_reactor(), 0.005)
                leader = await deferToThread(cluster.leader, "jobs")
                await deferToThread(leader.kill)
        assert await gatherResults(appended) == list(range(1, MESSAGES + 1))
        assert lease.holds(time.monotonic_ns())
        messages = [rival.read(at).result(LIMIT_S) for at in range(1, MESSAGES + 1)]
        assert [message and message.payload for message in messages] == given
        assert rival.ends().result(LIMIT_S).last == MESSAGES

        begins = next(encode_write(Write(9, 0, b"of another term", 99, 0, True, False)))
        rival.append(begins, MESSAGES).result(LIMIT_S)
        with pytest.raises(WrongPosition):
            await publisher.append(b"too late")
        await deferLater(the_reactor(), 0.1)
        assert rival.ends().result(LIMIT_S).last == MESSAGES + 1
        for client in (stream, rival):
            client.close().result(LIMIT_S)


def _client(cluster: Cluster) -> JetStream:
    client = JetStream(parse(cluster.url("jobs")), {}, LIMIT_S)
    client.open().result(LIMIT_S)
    return client
