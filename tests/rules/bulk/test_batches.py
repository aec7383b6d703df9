"""Batches: one command deletes or reserves several jobs."""

from __future__ import annotations

from typing import Final

import pytest

from beanstalk_twisted.binlog.records.jobs import Kind
from beanstalk_twisted.rules.batches import (
    AT_ONCE_BYTES,
    AT_ONCE_JOBS,
    BATCH_SLICE_BYTES,
    BATCH_SLICE_JOBS,
    MAX_REPLY_BYTES,
)
from beanstalk_twisted.rules.bulk import RUN_JOBS
from beanstalk_twisted.rules.workqueue import WorkQueue
from beanstalk_twisted.wire.grammar import MAX_BATCH_JOBS
from tests.rules.conversation import Client, Server
from tests.rules.recording_log import full_disk


def delete(ids: range | list[int]) -> str:
    """Give the line that deletes these jobs."""
    return f"delete-batch {' '.join(map(str, ids))}"


def batch(reply: str | None) -> list[int]:
    """Read the ids of a batch of jobs without line ends in their bodies."""
    assert reply is not None
    head, *rows = reply.split("\r\n")
    ids = [int(row.split()[1]) for row in rows[::2]]
    assert head == f"RESERVED_BATCH {len(ids)}"
    return ids


def puts(client: Client, count: int, body: bytes = b"x") -> range:
    """Put so many jobs, and give their ids, which begin with 1."""
    return range(1, [client.put(body) for _ in range(count)][-1] + 1)


def a_server_at_work(jobs: int) -> tuple[Server, Client]:
    """Give a server in the middle of a large kick of these jobs, which are ids 1 and following, and
    another client of it.
    """
    server = Server()
    kicker, client = server.connect(), server.connect()
    for _ in range(jobs):
        kicker.put(delay=99)
    assert kicker.says("kick 99999") is None
    return server, client


# Deleting.


def test_the_reply_to_a_deletion_waits_for_all_of_it_and_for_what_was_not_found() -> None:
    server = Server()
    client = server.connect()
    puts(client, 3)
    client.says("delete-batch 2 3")
    assert client.last is not None
    assert client.last[1] == server.log.committed_lsn() == server.log.committed_lsn(3)
    client.says("delete-batch 3")
    assert client.last[1] == server.log.committed_lsn()
    deleted = [image.job_id for image in server.log.images() if image.kind is Kind.DELETE]
    assert deleted == [2, 3]


LARGE: Final = 60_000
"""Bytes of a body."""


def test_large_jobs_are_deleted_at_once(server: Server, client: Client) -> None:
    jobs = BATCH_SLICE_BYTES // LARGE + 2
    ids = [client.put(bytes(LARGE)) for _ in range(jobs)]
    assert client.says(delete(ids)) == f"DELETED_BATCH {jobs} 0"
    assert not client.session.is_blocked
    assert client.last is not None
    assert client.last[1] == server.log.committed_lsn()


def test_the_largest_deletion_is_whole(server: Server, client: Client) -> None:
    client.says("use mail")
    puts(client, MAX_BATCH_JOBS - 1)
    client.says("use default")
    ids = range(1, client.put() + 1)
    assert client.says(delete(ids)) is None
    assert len(server.queue.state.jobs) == MAX_BATCH_JOBS
    assert server.finish_slices() == 1
    assert client.hears() == f"DELETED_BATCH {MAX_BATCH_JOBS} 0"
    assert not server.queue.state.jobs
    last = len(server.log.records)
    assert server.log.wholes[-1] == (last - MAX_BATCH_JOBS + 1, last)
    assert client.last is not None and client.last[1] == last


@pytest.mark.parametrize("past", [0, 1])
def test_a_slice_of_jobs_is_deleted_at_once_and_more_in_the_next_tick(past: int) -> None:
    server = Server()
    client = server.connect()
    reply = client.says(delete(puts(client, BATCH_SLICE_JOBS + past)))
    assert (reply is None) is bool(past)
    assert server.finish_slices() == past
    assert (client.hears() if past else reply) == f"DELETED_BATCH {BATCH_SLICE_JOBS + past} 0"


@pytest.mark.parametrize("command", ["delete", "reserve"])
@pytest.mark.parametrize(("jobs", "is_at_once"), [(AT_ONCE_JOBS, True), (AT_ONCE_JOBS + 1, False)])
def test_a_batch_waits_for_its_turn_behind_other_large_work_unless_it_is_small(
    command: str, jobs: int, is_at_once: bool
) -> None:
    server, client = a_server_at_work(4 * RUN_JOBS)
    is_delete = command == "delete"
    line = delete(range(1, jobs + 1)) if is_delete else f"reserve-batch {jobs}"
    reply = client.says(line)
    assert (reply is not None) is is_at_once
    if not is_at_once:
        server.finish_slices()
        reply = client.hears()
    if is_delete:
        assert reply == f"DELETED_BATCH {jobs} 0"
    else:
        assert len(batch(reply)) == jobs


def test_the_first_job_of_a_batch_that_waits_for_its_turn_is_reserved_at_once() -> None:
    server, client = a_server_at_work(4 * RUN_JOBS)
    assert client.says(f"reserve-batch {MAX_BATCH_JOBS} 5") is None
    assert list(client.session.reserved) == [1]
    assert server.connect().says(f"reserve-batch {AT_ONCE_JOBS}") is not None
    empty = server.connect()
    empty.says("watch none")
    empty.says("ignore default")
    assert empty.says(f"reserve-batch {MAX_BATCH_JOBS}") == "RESERVED_BATCH 0"
    server.finish_slices()
    assert batch(client.hears())[0] == 1


def test_a_deletion_goes_on_when_its_client_has_gone(server: Server, client: Client) -> None:
    ids = puts(client, BATCH_SLICE_JOBS + 1)
    for _ in ids:
        client.takes()
    assert client.says(delete(ids)) is None
    client.leaves()
    server.finish_slices()
    assert not server.queue.state.jobs


def test_jobs_that_are_given_back_in_slices_may_be_deleted_meanwhile() -> None:
    server = Server()
    client = server.connect()
    ids = puts(client, 3 * RUN_JOBS)
    large = [client.put(bytes(LARGE)) for _ in range(BATCH_SLICE_BYTES // LARGE + 2)]
    for _ in (*large, *ids):
        client.takes()
    gone = [*large, *reversed(ids)][:MAX_BATCH_JOBS]
    assert client.says(delete(gone)) is None
    client.leaves()
    server.finish_slices()
    left = len(large) + len(ids) - len(gone)
    assert server.connect().asks("stats")["current-jobs-ready"] == str(left)
    assert not server.queue.state.sessions.get(client.session.number)


# Reserving.


def test_a_half_close_ends_the_wait_but_no_batch(server: Server) -> None:
    client, other, producer = server.connect(), server.connect(), server.connect()
    client.says("reserve-batch 2 60")
    other.says("reserve-batch 2 60")
    client.half_closes()
    assert client.hears() == "RESERVED_BATCH 0"
    puts(producer, 2)
    other.half_closes()
    server.finish_slices()
    assert batch(other.hears()) == [1, 2]
    assert client.hears() is None


def test_who_leaves_while_its_batch_grows_gives_all_back(server: Server, client: Client) -> None:
    producer = server.connect()
    count = len(puts(producer, 3 * BATCH_SLICE_JOBS))
    assert client.says(f"reserve-batch {count}") is None
    server.tick()
    assert len(client.session.reserved) == 2 * BATCH_SLICE_JOBS
    client.leaves()
    server.finish_slices()
    stats = producer.asks("stats")
    assert (stats["current-jobs-ready"], stats["current-jobs-reserved"]) == (str(count), "0")


def test_a_job_whose_ttr_ends_between_two_slices_is_no_part_of_the_batch(server: Server) -> None:
    client, other = server.connect(), server.connect()
    client.put(ttr=1)
    client.says("watch a")
    client.says("use a")
    for _ in range(2 * BATCH_SLICE_JOBS):
        client.put()
    assert client.says(f"reserve-batch {MAX_BATCH_JOBS}") is None
    assert other.says("reserve") is None
    server.stall(2)
    server.finish_slices()
    assert batch(client.hears()) == list(range(2, 2 * BATCH_SLICE_JOBS + 2))
    assert other.hears() == "RESERVED 1 1\r\nx"


@pytest.mark.parametrize(("jobs", "ticks"), [(BATCH_SLICE_JOBS, 0), (BATCH_SLICE_JOBS + 1, 1)])
def test_more_than_a_slice_is_reserved_in_several(jobs: int, ticks: int) -> None:
    server = Server()
    client = server.connect()
    ids = puts(client, jobs)
    reply = client.says(f"reserve-batch {jobs}")
    if ticks:
        assert reply is None
        assert server.finish_slices() == ticks
        reply = client.hears()
    assert batch(reply) == list(ids)


@pytest.mark.parametrize(("size", "jobs"), [(60_000, BATCH_SLICE_BYTES // 60_000 + 1)])
def test_a_slice_ends_with_so_many_bytes_too(size: int, jobs: int) -> None:
    server = Server()
    client = server.connect()
    puts(client, jobs + 1, b"x" * size)
    assert client.says(f"reserve-batch {jobs + 1}") is None
    assert len(client.session.reserved) == jobs
    server.finish_slices()
    assert len(batch(client.hears())) == jobs + 1


@pytest.mark.parametrize(
    ("size", "is_at_once"), [(AT_ONCE_BYTES, True), (AT_ONCE_BYTES + 1, False)]
)
def test_a_large_answer_is_delivered(client: Client, size: int, is_at_once: bool) -> None:
    puts(client, 1, b"x" * size)
    reply = client.says("reserve-batch 1")
    assert (reply is not None) is is_at_once
    assert batch(reply if is_at_once else client.hears()) == [1]


def test_on_a_full_disk_jobs_are_reserved_and_deleted(server: Server, client: Client) -> None:
    ids = puts(client, BATCH_SLICE_JOBS + 1)
    server.log.budget = full_disk()
    assert client.says(f"reserve-batch {len(ids)}") is None
    server.finish_slices()
    assert batch(client.hears()) == list(ids)
    assert client.says(delete(ids)) is None
    server.finish_slices()
    assert client.hears() == f"DELETED_BATCH {len(ids)} 0"
    assert not server.log.wholes, "there may be no room for all in one piece"


def put_large(queue: WorkQueue, client: Client, size: int) -> None:
    """Put a job larger than the server takes from its clients."""
    session, now_ns = client.session, 0
    queue.puts.put(session, now_ns, queue.puts.begin(session, now_ns), 0, 0, 60, bytes(size))


@pytest.mark.parametrize("past", [0, 1])
def test_the_bodies_of_a_batch_have_a_limit_but_for_a_lone_one(past: int) -> None:
    server = Server()
    client = server.connect()
    for size in (MAX_REPLY_BYTES - 1, 1 + past, MAX_REPLY_BYTES + 1):
        put_large(server.queue, client, size)
    sizes = []
    for _ in range(3):
        client.says("reserve-batch 3")
        server.finish_slices()
        sizes.append(len(client.session.reserved))
        client.late.clear()
    assert sizes == ([1, 2, 3] if past else [2, 3, 3])
