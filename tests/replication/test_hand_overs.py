"""Hand-overs in quick succession: a server joins again in a few round trips, and is ready to take
over as soon as it has all, but never while another one may speak.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from beanstalk_twisted.replication.stream.interface import EXPIRE_S
from beanstalk_twisted.replication.stream.messages import Kind
from tests.replication.servers import LEASE_S as SERVICE_LEASE_S
from tests.replication.servers import SOUND, ReplicatedLog
from tests.replication.servers import Host as Server
from tests.replication.stream.memory import DELIVERED_TOGETHER, Fate
from tests.replication.test_standby import LEASE_S, Cluster, Host, pair
from tests.replication.world import World

JOBS = 12
"""Puts and deletes of each term."""

MOST_REQUESTS = 20
"""For joining, of a server that was away for a short time: no search by LSN, and each read gives 64
messages here.
"""


def handed_over(terms: int) -> tuple[Cluster, Host, Host]:
    """Let two servers be active in turn.

    :return: the one that is active, and the one that was before.
    """
    cluster, before, active = pair()
    cluster.pass_s(0.2)
    for term in range(terms):
        for _ in range(JOBS):
            before.delete(before.put())
        before.note(Kind.HANDED_OVER)
        cluster.pass_s(0.2)
        assert active.is_active, active.outcome
        if term < terms - 1:
            before, active = active, cluster.start(before.name, before.directory)
            cluster.pass_s(0.3)
    return cluster, active, before


def test_the_requests_of_a_catch_up_do_not_grow_with_the_segments() -> None:
    cluster, active, before = handed_over(12)
    asked: Counter[str] = Counter()
    again = cluster.start("again", before.directory)

    def count(kind: str) -> Fate:
        if again.standby.figures().doing.startswith("catches up"):
            asked[kind] += 1
        return Fate()

    again.stream.fate = count
    cluster.pass_s(0.5, active)
    assert again.standby.figures().is_in_sync
    assert 0 < asked["read"] < MOST_REQUESTS, asked
    # What purging needs is found while it follows.
    cluster.pass_s(LEASE_S, active)
    assert again.standby.first_in_use == 1


def test_the_silence_counts_while_a_server_catches_up() -> None:
    cluster, active, before = handed_over(5)
    again = cluster.start("again", before.directory)
    # All requests of joining take longer than a lease.
    again.stream.fate = lambda kind: Fate(0.1, 0.1)
    active.stream.cut()
    while again.standby.figures().doing.startswith("catches up"):
        cluster.pass_s(0.1)
    assert cluster.now_s > LEASE_S
    cluster.pass_s(LEASE_S - 0.5)
    assert again.is_active, again.outcome


def slow_delivery(kind: str) -> Fate:
    return Fate(0.0, 0.3) if kind == "deliver" else Fate()


def test_the_silence_counts_while_a_server_reads() -> None:
    cluster, active, _ = handed_over(2)
    for _ in range(8 * DELIVERED_TOGETHER):
        active.put()
    cluster.pass_s(LEASE_S, active)
    fresh = cluster.start("fresh")
    fresh.stream.fate = slow_delivery
    active.stream.cut()
    began_s = cluster.now_s
    while fresh.standby.figures().position < cluster.log.newest:
        cluster.pass_s(0.1)
    assert cluster.now_s - began_s > LEASE_S
    cluster.pass_s(0.3)
    assert fresh.is_active, fresh.outcome


def test_who_joins_slowly_leaves_an_active_server_alone() -> None:
    cluster, active, before = handed_over(5)
    again = cluster.start("again", before.directory)
    again.stream.fate = lambda kind: Fate(0.1, 0.1)
    for _ in range(60):
        cluster.pass_s(LEASE_S / 4)
        active.beat()
    assert again.outcome is None and again.standby.figures().is_in_sync


def test_a_handing_over_that_came_while_a_server_was_away_is_heeded_at_once() -> None:
    cluster, active, standby = pair()
    active.put(b"kept")
    cluster.pass_s(0.5, active)
    standby.standby.stop()
    active.note(Kind.HANDED_OVER)
    cluster.pass_s(0.1)
    again = cluster.start("b", standby.directory)
    cluster.pass_s(LEASE_S / 2)
    assert again.is_active and again.bodies() == [b"kept"]


@pytest.mark.parametrize("more", range(-2, 3))
def test_an_old_handing_over_is_none_if_messages_follow_in_the_next_delivery(more: int) -> None:
    cluster, first, second = pair()
    cluster.pass_s(0.2)
    while cluster.log.last < DELIVERED_TOGETHER - 1 + more:
        first.put()
        cluster.pass_s(0.1)
    first.note(Kind.HANDED_OVER)
    cluster.pass_s(0.3)
    assert second.is_active
    second.put(b"of the second")
    second.beat()
    cluster.pass_s(0.3)
    late = cluster.start("c")
    late.stream.fate = slow_delivery
    # The lease of the second server is not over, and it is silent.
    cluster.pass_s(LEASE_S / 2)
    assert late.outcome is None and late.standby.figures().is_in_sync
    for _ in range(8):
        second.beat()
        cluster.pass_s(LEASE_S / 2)
    assert late.outcome is None and late.standby.figures().is_in_sync


@pytest.mark.parametrize("keeps_log", [True, False])
def test_the_lease_of_the_active_server_is_known_when_its_heartbeats_have_expired(
    keeps_log: bool,
) -> None:
    cluster = Cluster()
    active = cluster.start("a", lease_s=4 * LEASE_S)
    cluster.pass_s(4 * LEASE_S + 1)
    assert active.is_active, active.outcome
    before = cluster.start("b")
    active.put(b"kept")
    cluster.pass_s(1, active)
    before.standby.stop()
    cluster.pass_s(EXPIRE_S + 1)
    last = active.put(b"newest")
    cluster.pass_s(0.2)
    assert cluster.log.last > len(cluster.log.messages)
    standby = cluster.start("b", before.directory if keeps_log else None)
    cluster.pass_s(4 * LEASE_S - 0.5)
    assert standby.outcome is None
    assert standby.standby.heard_lease_s == 4 * LEASE_S
    cluster.pass_s(1)
    assert standby.is_active and standby.put() == last + 1


@pytest.mark.parametrize("count", [6, pytest.param(50, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("way_s", [0.001, 0.05])
def test_nobody_is_silent_for_longer_than_the_lease_and_2_s(count: int, way_s: float) -> None:
    """By turns the active server is killed, and ends in order; it starts again at once."""
    world, draw = World(), random.Random(count)
    log = ReplicatedLog(world)
    hosts = [Server(name, world, log, draw, SOUND) for name in "ab"]
    for host in hosts:
        host.fate = lambda kind: Fate(way_s, way_s)
        host.start()

    def wait_for_active() -> Server:
        began_s = world.now_s
        while not (found := [each for each in hosts if each.listens]):
            world.go(0.01)
            assert world.now_s - began_s < SERVICE_LEASE_S + 2, [each.notes for each in hosts]
        return found[0]

    for number in range(count):
        active = wait_for_active()
        world.go(0.2)
        if number % 2:
            active.kill()
        else:
            stopping = active.service.stopService()
            while not stopping.called:
                world.go(0.01)
            active.kill()
        active.start()
    wait_for_active()
    assert all(each.runs and not each.notes for each in hosts)
