"""Tubes are emptied: at once, and in slices while others do what they like."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanstalk_twisted.binlog.records.jobs import GONE, Kind, Reason
from beanstalk_twisted.rules.bulk import LOOK_JOBS, TAGGED_JOBS
from beanstalk_twisted.rules.timekeeping import SLICE_JOBS
from tests.rules.conversation import Client, Server
from tests.rules.recording_log import full_disk
from tests.rules.tagged import put


def one_of_each(client: Client) -> dict[str, int]:
    """Put a job into each state."""
    buried, reserved = client.put(), client.put()
    client.says(f"reserve-job {buried}")
    client.says(f"bury {buried} 0")
    client.says(f"reserve-job {reserved}")
    return {"buried": buried, "reserved": reserved, "delayed": client.put(delay=9),
            "ready": client.put()}  # fmt: skip


def counted(client: Client, key: str) -> int:
    """Ask for a number of the used tube."""
    used = client.says("list-tube-used")
    assert used is not None
    return int(client.asks(f"stats-tube {used.split()[1]}")[key])


def test_each_deletion_is_a_record_and_the_answer_waits_for_the_last() -> None:
    server = Server()
    client = server.connect()
    jobs = one_of_each(client)
    before = len(server.log.records)
    client.says("flush-tube default")
    images = server.log.images()[-3:]
    assert len(server.log.records) == before + 3
    assert {image.job_id for image in images} == set(jobs.values()) - {jobs["reserved"]}
    for image in images:
        known = (image.kind, image.state, image.reason, image.connection, image.ts_ns)
        assert known == (
            Kind.DELETE, GONE, Reason.CLIENT, client.session.number, server.now_ns,
        )  # fmt: skip
    assert client.last is not None and client.last[1] == len(server.log.records)


def test_a_full_disk_does_not_hinder_it(server: Server, client: Client) -> None:
    one_of_each(client)
    server.log.budget = full_disk()
    assert client.says("kick 1") == "OUT_OF_MEMORY"
    assert client.says("flush-tube default") == "FLUSHED 3"


@pytest.mark.parametrize("count", [1, 2 * SLICE_JOBS])
def test_a_tube_that_nobody_refers_to_is_gone_with_its_last_job(count: int) -> None:
    server = Server()
    client = server.connect()
    client.says("use a")
    for _ in range(count):
        client.put()
    client.says("pause-tube a 9")
    client.says("use default")
    said = client.says("flush-tube a")
    server.finish_slices()
    assert (said or client.hears()) == f"FLUSHED {count}"
    assert client.lists("list-tubes") == ["default"]
    client.says("use a")
    assert counted(client, "pause") == 0


def test_one_slice_is_answered_at_once_and_one_job_more_takes_another(server: Server) -> None:
    client, other = server.connect(), server.connect()
    for _ in range(SLICE_JOBS - 1):
        client.put()
    assert client.says("flush-tube default") == f"FLUSHED {SLICE_JOBS - 1}"
    for _ in range(2 * SLICE_JOBS + 1):
        client.put()
    assert client.says("flush-tube default") is None
    assert client.session.is_busy
    assert counted(other, "current-jobs-ready") == SLICE_JOBS + 1
    assert server.finish_slices() == 2
    assert client.hears() == f"FLUSHED {2 * SLICE_JOBS + 1}"
    assert client.last is not None and client.last[1] == server.log.committed_lsn()
    assert not client.session.is_blocked
    assert server.queue.next_due_ns() is None


@pytest.mark.parametrize("pri", [0, 5, 9])
def test_what_is_put_meanwhile_stays_wherever_it_stands(server: Server, pri: int) -> None:
    client, other = server.connect(), server.connect()
    for _ in range(2 * SLICE_JOBS):
        client.put(pri=5)
    client.says("flush-tube default")
    late = [other.put(pri=pri), other.put(pri=pri, delay=9)]
    server.finish_slices()
    assert client.hears() == f"FLUSHED {2 * SLICE_JOBS}"
    assert [other.asks(f"stats-job {job_id}")["state"] for job_id in late] == ["ready", "delayed"]


def test_one_slice_passes_over_so_many_jobs_at_most(server: Server, client: Client) -> None:
    other = server.connect()
    for _ in range(SLICE_JOBS):
        client.put(delay=5)
    last = client.put(delay=100)
    client.says("flush-tube default delayed")
    for _ in range(LOOK_JOBS + SLICE_JOBS):
        other.put(delay=9)
    server.tick()
    assert other.asks(f"stats-job {last}")["state"] == "delayed"
    server.tick()
    assert client.hears() == f"FLUSHED {SLICE_JOBS + 1}"


def test_one_slice_deletes_fewer_jobs_with_tags(server: Server, client: Client) -> None:
    a_slice = -(-SLICE_JOBS // TAGGED_JOBS)
    for number in range(a_slice + 1):
        put(client, f"idp:{number}")
    assert client.says("flush-tube default") is None
    assert len(server.queue.state.jobs) == 1
    assert server.finish_slices() == 1
    assert client.hears() == f"FLUSHED {a_slice + 1}"


@pytest.mark.parametrize("state", ["ready", "buried"])
def test_one_slice_deletes_so_many_bytes_at_most(state: str) -> None:
    server = Server(max_job_bytes=1 << 20)
    client = server.connect()
    for _ in range(9):
        job_id = client.put(bytes(1 << 20))
        if state == "buried":
            client.says(f"reserve-job {job_id}")
            client.says(f"bury {job_id} 0")
    client.says("flush-tube default all")
    left = [len(server.queue.state.jobs)]
    while left[-1]:
        server.tick()
        left.append(len(server.queue.state.jobs))
    assert left == [5, 1, 0]
    assert client.hears() == "FLUSHED 9"


def test_it_ends_though_more_comes_all_the_time(server: Server, client: Client) -> None:
    other = server.connect()
    for _ in range(2 * SLICE_JOBS):
        client.put()
    client.says("flush-tube default")
    ticks = 0
    while not client.late:
        for _ in range(SLICE_JOBS):
            other.put()
        server.tick()
        ticks += 1
    assert ticks <= 3


def test_delayed_jobs_that_become_ready_meanwhile_are_deleted_too(server: Server) -> None:
    client, other = server.connect(), server.connect()
    for _ in range(2 * SLICE_JOBS):
        client.put(delay=1)
    client.says("flush-tube default")
    server.stall(2)
    server.finish_slices()
    assert client.hears() == f"FLUSHED {2 * SLICE_JOBS}"
    assert counted(other, "current-jobs-ready") == 0


def test_two_flushes_of_one_tube_delete_each_job_once(server: Server) -> None:
    clients = [server.connect(), server.connect()]
    for _ in range(4 * SLICE_JOBS):
        clients[0].put()
    for client in clients:
        client.says("flush-tube default")
    server.finish_slices()
    said = [client.hears() or "" for client in clients]
    assert sum(int(each.split()[1]) for each in said) == 4 * SLICE_JOBS


def test_a_flush_goes_on_when_its_client_has_left(server: Server, client: Client) -> None:
    other = server.connect()
    for _ in range(2 * SLICE_JOBS):
        client.put()
    client.says("flush-tube default")
    client.leaves()
    server.finish_slices()
    assert counted(other, "current-jobs-ready") == 0


def test_a_namesake_of_a_tube_that_went_meanwhile_is_left_alone(server: Server) -> None:
    client, other = server.connect(), server.connect()
    client.says("use a")
    ids = [client.put() for _ in range(SLICE_JOBS + 3)]
    client.says("use default")
    client.says("flush-tube a")
    for job_id in ids[SLICE_JOBS:]:
        other.says(f"delete {job_id}")
    assert other.lists("list-tubes") == ["default"]
    other.says("use a")
    late = other.put()
    server.finish_slices()
    assert client.hears() == f"FLUSHED {SLICE_JOBS}"
    assert other.asks(f"stats-job {late}")["tube"] == "a"


# Against plain lists, with others at work between the slices.

STATES = ("ready", "delayed", "buried", "reserved")
PLACED = st.tuples(st.sampled_from(STATES), st.sampled_from([0, 1, 9]), st.sampled_from(["a", "b"]))
LATER = st.lists(PLACED, max_size=4)


@given(
    st.lists(PLACED, max_size=30), st.sampled_from([*STATES[:3], "all"]), st.lists(LATER),
    st.sampled_from(["a", "b", "c"]),
)  # fmt: skip
def test_a_flush_leaves_what_a_plain_list_would(
    jobs: list[tuple[str, int, str]], which: str, later: list[list[tuple[str, int, str]]],
    tube: str,
) -> None:  # fmt: skip
    server = Server()
    client, other = server.connect(), server.connect()
    known = {client.place(*job): job for job in jobs}
    for _ in range(2 * SLICE_JOBS if later else 0):
        known[client.place("ready", 1, "a")] = ("ready", 1, "a")
    client.says("use default")
    gone = [
        job_id for job_id, (state, _, name) in known.items()
        if name == tube and state != "reserved" and which in (state, "all")
    ]  # fmt: skip
    said = client.says(f"flush-tube {tube} {which}")
    for each in later:
        known |= {other.place(*job): job for job in each}
        if server.queue.next_due_ns() == 0:
            server.tick()
    server.finish_slices()
    assert (said or client.hears()) == f"FLUSHED {len(gone)}"
    for job_id, (state, _, _) in known.items():
        job = server.queue.state.jobs.look(job_id)
        assert (job and job.state.name.lower()) == (None if job_id in gone else state)
    assert replayed(server) == list(server.queue.state.jobs)


def replayed(server: Server) -> list[int]:
    """Give the jobs that are there by the records alone."""
    newest = {image.job_id: image for image in server.log.images()}
    return sorted(job_id for job_id, image in newest.items() if image.state is not GONE)
