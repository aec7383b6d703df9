"""Somebody who is no server of a queue writes to its stream: nothing is removed because of that,
and the queue goes on.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from beanstalk_twisted.binlog.errors import Incompatible
from beanstalk_twisted.replication.receiving import FOLLOWS
from beanstalk_twisted.replication.stream.messages import Kind, Part, decode, encode_note
from beanstalk_twisted.replication.stream_reading import MAX_LOOKED_THROUGH
from beanstalk_twisted.replication.window import MAX_STEPPED
from tests.binlog.scribe import T0, segment_files
from tests.replication.test_standby import LEASE_S, Cluster, check_same, long_running

FOREIGN = b"rubbish"
COUNTS = [1, 3 * MAX_STEPPED, *(pytest.param(n, marks=pytest.mark.exhaustive) for n in (95, 101))]


def write_of_a_job(cluster: Cluster) -> bytes:
    """A message that is in the stream, and begins no segment."""
    return next(
        payload for payload in reversed(cluster.log.messages.values())
        if isinstance(found := decode(payload), Part) and not found.write.begins
    )  # fmt: skip


@pytest.mark.parametrize("count", COUNTS)
def test_the_active_server_and_its_standby_go_on(count: int) -> None:
    cluster, active, standby = long_running()
    cluster.append(*[FOREIGN] * count)
    cluster.pass_s(LEASE_S + 1, active)
    active.put(b"behind it")
    cluster.pass_s(0.5, active)
    assert standby.outcome is None and active.outcome.publisher.oldest_ns() is None
    assert standby.standby.figures().doing == FOLLOWS
    assert [each.foreign.count for each in (active.outcome.publisher, standby.standby)] == [
        count
    ] * 2
    check_same(active, standby)
    cluster.pass_s(LEASE_S + 1)
    assert standby.is_active


@pytest.mark.parametrize("count", COUNTS)
def test_who_joins_keeps_its_log(count: int) -> None:
    cluster, active, standby = long_running()
    cluster.append(*[FOREIGN] * count)
    directories = [host.kill() for host in (active, standby)]
    before = [segment_files(each) for each in directories]
    hosts = [cluster.start(f"again {n}", each) for n, each in enumerate(directories)]
    cluster.pass_s(2 * LEASE_S)
    [first] = [host for host in hosts if host.is_active]
    first.put(b"behind it")
    fresh = cluster.start("fresh")
    cluster.pass_s(1, first)
    for each, files in zip(directories, before, strict=True):
        assert not each.quarantined
        assert files.keys() <= segment_files(each).keys()
    for host in hosts:
        assert sorted(host.bodies()) == sorted(first.bodies())
    assert len(first.bodies()) == 41
    assert sorted(fresh.bodies()) == sorted(first.bodies())
    assert fresh.standby.figures().is_in_sync


@pytest.mark.parametrize(
    "where",
    ["among", *(pytest.param(at, marks=pytest.mark.exhaustive) for at in ("before", "behind"))],
)
def test_more_of_them_than_messages_of_a_queue_are_looked_through(where: str) -> None:
    count = MAX_LOOKED_THROUGH + 1
    cluster = Cluster()
    if where == "before":
        # A server that waits at an empty stream has seen that it is empty.
        host = cluster.start("a")
        cluster.pass_s(0.5)
        cluster.append(*[FOREIGN] * count)
        cluster.pass_s(LEASE_S + 1)
        assert host.is_active
    else:
        host = cluster.active()
    host.put(b"kept")
    cluster.pass_s(0.5)
    if where != "before":
        cluster.append(*[FOREIGN] * count)
        cluster.pass_s(LEASE_S / 2)
    if where == "among":
        host.rotate()
        host.put(b"kept too")
        cluster.pass_s(1, host)
    directory = host.kill()
    again, fresh = cluster.start("again", directory), cluster.start("fresh")
    cluster.pass_s(2 * LEASE_S)
    assert not directory.quarantined
    assert sorted(again.bodies()) == sorted(fresh.bodies()) == sorted(host.bodies())
    assert [again.is_active, fresh.is_active].count(True) == 1


def test_a_search_by_lsn_passes_over_them_once() -> None:
    cluster, active, standby = long_running()
    cluster.append(*[FOREIGN] * 500)
    directory = standby.directory.after_kill()
    read: list[str] = []
    again = cluster.start("again", directory)
    asked = again.stream.fate
    again.stream.fate = lambda kind: (read.append(kind), asked(kind))[1]  # type: ignore[func-returns-value]
    cluster.pass_s(1, active)
    assert again.standby.figures().is_in_sync
    # Once while segments are looked for, and once while all behind one of them is compared.
    assert len(segment_files(directory)) > 3
    assert read.count("read") < 3 * cluster.log.last


@pytest.mark.parametrize("count", [101, 3 * MAX_STEPPED])
def test_copies_of_a_message_of_the_queue_remove_nothing(count: int) -> None:
    cluster, active, standby = long_running()
    cluster.append(*[write_of_a_job(cluster)] * count)
    cluster.pass_s(0.5, active)
    directories = [host.kill() for host in (active, standby)]
    hosts = [cluster.start(f"again {n}", each) for n, each in enumerate(directories)]
    cluster.pass_s(1.5 * LEASE_S)
    assert not any(each.quarantined for each in directories)
    [first] = [host for host in hosts if host.is_active]
    assert len(first.bodies()) == 40


def test_who_writes_again_and_again_does_not_keep_a_standby_from_its_turn() -> None:
    cluster, active, standby = long_running()
    active.kill()
    for _ in range(round(LEASE_S / 0.2) + 5):
        cluster.append(FOREIGN)
        cluster.pass_s(0.2)
    assert standby.is_active


def test_foreign_messages_in_a_gap_tell_of_no_loss() -> None:
    cluster, active, standby = long_running()
    active.beat()
    cluster.pass_s(0.1)
    directory = standby.kill()
    active.beat()
    cluster.pass_s(0.1)
    cluster.log.expire(cluster.log.last)
    cluster.append(*[FOREIGN] * 3)
    active.kill()
    again = cluster.start("again", directory)
    cluster.pass_s(2 * LEASE_S)
    assert again.is_active


def test_a_foreign_message_that_was_removed_is_no_loss() -> None:
    cluster, active, standby = long_running()
    directory = standby.directory.after_kill()
    cluster.append(*[FOREIGN] * 3)
    cluster.pass_s(0.5, active)
    active.put(b"behind it")
    cluster.pass_s(0.5, active)
    for before, at in pairwise(list(cluster.log.messages)):
        if cluster.log.messages[before] == FOREIGN:
            cluster.log.expire(before)
            assert at
    again = cluster.start("again", directory)
    cluster.pass_s(1, active)
    assert again.standby.figures().is_in_sync
    check_same(active, again)
    cluster.pass_s(LEASE_S + 1)
    assert again.is_active or standby.is_active


@pytest.mark.parametrize(
    "forged", [b"BTR2" + bytes(60), encode_note(Kind.FILL_BEGINS, 1 << 40, T0)]
)
def test_behind_one_that_was_forged_servers_go_on_when_it_is_removed(forged: bytes) -> None:
    cluster, active, standby = long_running()
    cluster.append(forged)
    at = cluster.log.last
    cluster.pass_s(0.5, active)
    directories = [host.kill() for host in (active, standby)]
    way_out = f"'nats stream rmm log {at}'"
    for number, directory in enumerate(directories):
        host = cluster.start("stopped", directory)
        cluster.pass_s(LEASE_S + 1)
        said = host.outcome.getErrorMessage() if host.outcome else host.standby.figures().doing
        assert way_out in said
        assert host.outcome is None or host.outcome.check(Incompatible)
        directories[number] = host.kill()
        assert not directories[number].quarantined
    cluster.log.expire(at)
    hosts = [cluster.start(f"again {n}", each) for n, each in enumerate(directories)]
    for _ in range(4):
        cluster.pass_s(LEASE_S)
        if active_ones := [host for host in hosts if host.is_active]:
            break
    [first] = active_ones
    assert len(first.bodies()) == 40
    assert not any(each.quarantined for each in directories)
