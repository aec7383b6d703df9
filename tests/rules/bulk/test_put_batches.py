"""Jobs that are put together, and for a moment of the wall clock."""

from __future__ import annotations

import pytest

from beanstalk_twisted.binlog.records.jobs import Kind
from beanstalk_twisted.binlog.records.others import TubeDef
from beanstalk_twisted.binlog.space_budget import new_job_bytes, whole_bytes
from beanstalk_twisted.binlog.tags import Tags
from beanstalk_twisted.rules.put_batches import SOON_JOBS
from tests.rules.conversation import NS, START_NS, Client, Server
from tests.rules.memory import Scarce
from tests.rules.test_puts import Place

START_S = START_NS // NS
THREE = ((5, 0, 60, b"five"), (1, 0, 60, b"one"), (9, 2, 60, b"nine"))


def inserted(first: int, count: int) -> str:
    """Give the reply to a batch."""
    lines = [f"INSERTED {job_id}" for job_id in range(first, first + count)]
    return "\r\n".join([f"INSERTED_BATCH {count}", *lines])


# Batches.


def test_a_batch_is_logged_as_a_whole_behind_its_tube(server: Server, client: Client) -> None:
    client.says("use mail")
    client.puts_batch(*THREE)
    tube, *jobs = server.log.records
    assert isinstance(tube, TubeDef) and tube.name == b"mail"
    assert [job.kind for job in jobs] == [Kind.PUT] * 3
    assert server.log.wholes == [(2, 4)]
    assert client.last is not None and client.last[1] == 4, "all of it is waited for"
    client.puts_batch((0, 0, 1, b""))
    assert len(server.log.records) == 5, "the tube is known"
    assert client.last[1] == 5


@pytest.mark.parametrize(
    ("count", "size", "is_at_once"),
    [(SOON_JOBS, 1, True), (SOON_JOBS + 1, 1, False), (40, 100_000, True), (42, 100_000, False)],
)
def test_many_or_large_jobs_are_put_in_a_later_turn(
    server: Server, client: Client, count: int, size: int, is_at_once: bool
) -> None:
    other = server.connect()
    reply = client.puts_batch(*[(0, 0, 60, bytes(size))] * count)
    assert (reply is not None) is is_at_once
    if not is_at_once:
        assert client.session.is_blocked
        server.tick()
        assert not server.queue.state.jobs, "this may be the turn in which they have come"
        other.put()
        assert server.finish_slices() == 1
        reply = client.hears()
    assert reply == inserted(1 if is_at_once else 2, count)
    assert not client.session.is_blocked


def test_a_batch_is_not_put_if_its_session_ends_before_that_turn() -> None:
    server = Server()
    client = server.connect()
    client.puts_batch(*[(0, 0, 60, b"x")] * (SOON_JOBS + 1))
    server.tick()
    client.leaves()
    server.finish_slices()
    assert not server.queue.state.jobs


def test_a_batch_may_wait_for_room_in_that_turn() -> None:
    place = Place()
    place.budget.largest = None
    client = place.server.connect()
    client.puts_batch(*[(0, 0, 60, b"x")] * (SOON_JOBS + 1))
    place.server.finish_slices()
    assert client.session.is_blocked
    assert client.hears() is None
    place.budget.largest = 1 << 20
    place.change()
    assert client.hears() == inserted(1, SOON_JOBS + 1)


def test_a_batch_waits_for_room_for_all_of_it() -> None:
    place = Place()
    place.budget.largest = size = whole_bytes(3, sum(len(body) for *_, body in THREE))
    place.budget.largest -= 1
    client, other = place.server.connect(), place.server.connect()
    assert client.puts_batch(*THREE) is None
    assert client.session.is_blocked
    assert other.put() == 1
    assert place.server.queue.demand().largest == new_job_bytes(size)
    place.change()
    assert client.hears() is None
    place.budget.largest = size
    place.change()
    assert client.hears() == inserted(2, 3)
    assert not client.session.is_blocked


def test_the_deletion_of_each_job_has_room_too() -> None:
    place = Place()
    client = place.server.connect()
    client.put()
    client.puts_batch(*THREE)
    assert place.budget.asked[-1] == (whole_bytes(3, 11), 3), "one job, and two of the batch"
    place.budget.largest = None
    place.waits()
    client.puts_batch(*THREE)
    assert place.server.queue.demand().jobs == 4 + 2


def test_a_batch_without_room_on_a_full_disk_puts_nothing() -> None:
    place = Place()
    place.budget.largest, place.budget.is_short = 10, True
    client = place.server.connect()
    assert client.puts_batch(*THREE) == "OUT_OF_MEMORY"
    assert not place.job_ids and not place.server.log.records
    place.budget.largest = 1000
    assert client.puts_batch(*THREE) == inserted(1, 3), "no id was used up"


def test_no_memory_puts_nothing(server: Server) -> None:
    server.queue.puts.memory = Scarce(100)
    client = server.connect()
    assert client.puts_batch((0, 0, 1, b"x" * 60), (0, 0, 1, b"x" * 60)) == "OUT_OF_MEMORY"
    assert not server.log.records


# Moments.


def test_the_moment_is_one_of_the_wall_clock(server: Server) -> None:
    server.queue.tell_wall_clock(lambda: -100 * NS)
    client = server.connect()
    client.says(f"put-at 0 {START_S} 60 1", b"x")
    assert client.asks("stats-job 1")["time-left"] == "100"
    client.says(f"put-at 0 {START_S - 100} 60 1", b"x")
    assert client.asks("stats-job 2")["state"] == "ready"


# Tags.


def test_a_job_with_tags_is_put_as_any_other(server: Server) -> None:
    plain, tagged = server.connect(), server.connect()
    plain.put(b"x", pri=3, delay=2, ttr=9)
    assert tagged.says("put 3 2 9 1 idp:a con:b:2", b"x") == "INSERTED 2"
    assert tagged.says(f"put-at 3 {START_S + 2} 9 1 grp:g", b"x") == "INSERTED 3"
    first, *others = server.log.images()
    assert [image.tags for image in others] == [
        Tags(unique_key=b"a", concurrency_key=b"b", concurrency_limit=2), Tags(group=b"g"),
    ]  # fmt: skip
    assert [
        image._replace(job_id=1, connection=first.connection, tags=None) for image in others
    ] == [first] * 2
    stats = tagged.asks("stats")
    assert (stats["cmd-put"], stats["total-jobs"], stats["current-producers"]) == ("2", "3", "2")
