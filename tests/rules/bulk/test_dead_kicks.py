"""`kick-dead`: which dead letters go back, as what, and slice by slice."""

from __future__ import annotations

import pytest

from beanstalk_twisted.binlog.records.jobs import Reason, State
from beanstalk_twisted.binlog.tags import Tags
from beanstalk_twisted.rules.bulk import (
    DEAD_LOOK_JOBS,
    DEAD_SLICE_BYTES,
    DEAD_SLICE_JOBS,
    ROOM_REST_NS,
)
from tests.rules.conversation import Client, Server
from tests.rules.recording_log import Budget
from tests.rules.tagged import states, tag
from tests.rules.test_moves import send_dead_letters_to, the_job


@pytest.fixture
def server(server: Server) -> Server:
    """Let its dead letters go to a tube of their own."""
    send_dead_letters_to(server, b"dead")
    return server


def grow(server: Server, job_id: int, body_bytes: int) -> None:
    """Give a job a body of that size."""
    job = the_job(server, job_id)
    server.queue.state.jobs.remake(job, b"x" * body_bytes, job.tags)


def die(server: Server, job_id: int) -> None:
    """Make a dead letter of a job."""
    job = the_job(server, job_id)
    assert server.queue.moves.dead_letter(job, Reason.MAX_RESERVES, server.now_ns)


def place(server: Server, client: Client, tube: str = "work", tags: Tags | None = None) -> int:
    """Put a job that dies, and give its id."""
    job_id = client.place("ready", 0, tube)
    if tags is not None:
        tag(server, job_id, tags)
    die(server, job_id)
    return job_id


def test_many_go_slice_by_slice_and_those_that_die_meanwhile_stay(
    server: Server, client: Client
) -> None:
    count = 3 * DEAD_SLICE_JOBS
    for _ in range(count):
        place(server, client)
    server.pass_time(1)
    asker = server.connect()
    assert asker.says("kick-dead work 100000") is None
    assert asker.session.is_blocked
    assert client.asks("stats-tube work")["current-jobs-ready"] == str(DEAD_SLICE_JOBS)
    late = place(server, client)
    client.says(f"delete {count}")
    assert server.finish_slices() == 2
    assert asker.hears() == f"KICKED {count - 1}"
    assert states(client, late) == ["buried"]


def test_a_bound_holds_over_all_slices(server: Server, client: Client) -> None:
    for _ in range(2 * DEAD_SLICE_JOBS + 2):
        place(server, client)
    asker = server.connect()
    assert asker.says(f"kick-dead work {2 * DEAD_SLICE_JOBS + 1}") is None
    server.finish_slices()
    assert asker.hears() == f"KICKED {2 * DEAD_SLICE_JOBS + 1}"
    assert client.asks("stats-tube dead")["current-jobs-buried"] == "1"


@pytest.mark.parametrize("count", [DEAD_LOOK_JOBS, DEAD_LOOK_JOBS + 1])
def test_one_slice_looks_at_so_many_that_stay(server: Server, client: Client, count: int) -> None:
    for _ in range(count):
        client.says(f"kick-job {place(server, client)}")
    assert client.says("kick-dead work 9") is None
    assert server.finish_slices() == 1
    assert client.hears() == "KICKED 0"


def test_a_slice_ends_behind_large_bodies(server: Server, client: Client) -> None:
    for _ in range(3):
        place(server, client)
    for job_id in (1, 2, 3):
        grow(server, job_id, DEAD_SLICE_BYTES)
    asker = server.connect()
    assert asker.says("kick-dead work 9") is None
    assert client.asks("stats-tube work")["current-jobs-ready"] == "1"
    server.finish_slices()
    assert asker.hears() == "KICKED 3"


def test_on_a_full_disk_they_stay(server: Server, client: Client) -> None:
    job_id = place(server, client)
    budget = server.log.budget = Budget()
    budget.is_short, budget.largest = True, 0
    assert client.says("kick-dead work 9") == "OUT_OF_MEMORY"
    assert states(client, job_id) == ["buried"]
    assert the_job(server, job_id).state is State.BURIED


def test_a_disk_that_becomes_full_ends_it(server: Server, client: Client) -> None:
    place(server, client)
    server.pass_time(1)
    large = place(server, client)
    grow(server, large, 9999)
    budget = server.log.budget = Budget()
    budget.is_short, budget.largest = True, 5000
    assert client.says("kick-dead work 9") == "KICKED 1"
    assert states(client, large) == ["buried"]


def test_it_waits_for_room_that_the_disk_may_still_give(server: Server, client: Client) -> None:
    place(server, client)
    server.pass_time(1)
    grow(server, place(server, client), 9999)
    server.pass_time(1)
    place(server, client)
    budget = server.log.budget = Budget()
    budget.largest = 5000
    asker = server.connect()
    assert asker.says("kick-dead work 9") is None
    for _ in range(3):
        server.tick()
    assert client.asks("stats-tube work")["current-jobs-ready"] == "1"
    assert server.queue.demand().largest > 9999
    budget.largest = 20000
    server.finish_slices()
    assert asker.hears() is None, "it rests before it looks again"
    server.pass_time(ROOM_REST_NS / 10**9)
    assert asker.hears() == "KICKED 3"
    assert server.queue.demand().largest == 0


def test_it_gives_up_when_the_disk_turns_out_to_be_full(server: Server, client: Client) -> None:
    place(server, client)
    budget = server.log.budget = Budget()
    budget.largest = 0
    assert client.says("kick-dead work 9") is None
    budget.is_short = True
    server.finish_slices()
    assert client.hears() == "OUT_OF_MEMORY"
    assert server.queue.demand().largest == 0
