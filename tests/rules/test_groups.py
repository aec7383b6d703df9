"""Jobs that wait for a group."""

from __future__ import annotations

import pytest

from beanstalk_twisted.binlog.records.jobs import Kind, State
from beanstalk_twisted.rules.timekeeping import RELEASED_JOBS
from tests.rules.conversation import Client, Server
from tests.rules.recording_log import full_disk
from tests.rules.tagged import put, states


def start() -> tuple[Server, Client]:
    server = Server()
    return server, server.connect()


def test_it_waits_until_the_last_job_of_the_group_is_deleted() -> None:
    server, client = start()
    members = [put(client, "grp:g"), put(client, "grp:g")]
    waiting = put(client, "aft:g")
    assert states(client, waiting) == ["delayed"]
    assert client.asks(f"stats-job {waiting}")["time-left"] == "0"
    server.pass_time(10**9)
    assert states(client, waiting) == ["delayed"]
    client.says(f"delete {members[1]}")
    assert states(client, waiting) == ["delayed"]
    client.says(f"delete {members[0]}")
    assert states(client, waiting) == ["ready"]
    assert client.last is not None
    ended = server.log.images(waiting)[-1]
    assert (ended.kind, ended.state, ended.deadline_ns) == (Kind.GROUP_ENDED, State.READY, 0)
    assert client.last[1] == server.log.committed_lsn(waiting)


def many(client: Client, count: int) -> tuple[int, list[int]]:
    """Put a job of a group, and so many that wait for it."""
    return put(client, "grp:g"), [put(client, "aft:g", pri=9 - n % 9) for n in range(count)]


@pytest.mark.parametrize("count", [RELEASED_JOBS, RELEASED_JOBS + 1, 3 * RELEASED_JOBS])
def test_very_many_go_slice_by_slice_in_order(count: int) -> None:
    server, client = start()
    member, ids = many(client, count)
    client.says(f"delete {member}")
    ready = server.queue.state.counts[State.READY]
    assert ready == min(RELEASED_JOBS, count)
    assert client.asks(f"stats-job {ids[-1]}") is not None
    # The commands of others are not burdened with the rest.
    other, others = put(client, "grp:h"), put(client, "aft:h")
    client.says(f"delete {other}")
    assert server.queue.state.counts[State.READY] <= ready + 1
    ticks = server.finish_slices()
    assert ticks <= -(-count // RELEASED_JOBS)
    assert states(client, others, *ids) == ["ready"] * (count + 1)
    ended = [image for image in server.log.images() if image.kind is Kind.GROUP_ENDED]
    gone = [(image.priority, image.job_id) for image in ended if image.job_id in ids]
    assert gone == sorted(gone)


def test_many_groups_that_end_together_are_ended_slice_by_slice() -> None:
    server, client = start()
    count = 2 * RELEASED_JOBS + 1
    client.says("use members")
    for number in range(count):
        put(client, f"grp:g{number}")
    client.says("use default")
    ids = [put(client, f"aft:g{number}") for number in range(count)]
    assert client.says("flush-tube members") is None
    server.finish_slices()
    assert client.hears() == f"FLUSHED {count}"
    assert states(client, *ids) == ["ready"] * count


def test_one_that_joins_the_group_meanwhile_holds_those_that_have_not_gone() -> None:
    server, client = start()
    member, ids = many(client, RELEASED_JOBS + 3)
    client.says(f"delete {member}")
    another = put(client, "grp:g")
    server.finish_slices()
    assert states(client, *ids).count("delayed") == 3
    assert server.queue.next_due_ns() is None
    client.says(f"delete {another}")
    server.finish_slices()
    assert states(client, *ids).count("delayed") == 0


def test_a_disk_that_becomes_full_in_the_middle_keeps_the_rest_waiting() -> None:
    server, client = start()
    member, ids = many(client, 5)
    plenty, server.log.budget = server.log.budget, full_disk(changes=3)
    client.says(f"delete {member}")
    server.tick()
    assert states(client, *ids).count("ready") == 3
    server.log.budget = plenty
    server.finish_slices()
    assert states(client, *ids).count("ready") == 5


def test_those_whose_group_ended_before_a_crash_go_when_all_is_loaded() -> None:
    server, client = start()
    member, waiting = put(client, "grp:g"), put(client, "aft:g")
    held_by, held = put(client, "grp:h"), put(client, "aft:h")
    images = [server.log.images(job_id)[0] for job_id in (waiting, held, held_by)]
    assert member not in [image.job_id for image in images]
    after = Server()
    after.queue.state.load_tubes({1: b"default"}, 2, 9)
    for image in images:
        after.queue.state.apply(image)
    after.queue.finish_loading([], after.now_ns)
    assert after.queue.next_due_ns() == 0
    after.tick()
    assert states(after.connect(), waiting, held) == ["ready", "delayed"]
    assert after.queue.next_due_ns() is None
