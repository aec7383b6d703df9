"""No job is lost on its way from one tube into another."""

from __future__ import annotations

import pytest

from binlog_tools.queue.moving import Broken, Mover
from binlog_tools.queue.server import Queue, Refused
from tests.tools.queue.lines import STATES, MemoryLine, broken_off, check_kept, filled, jobs_of


@pytest.mark.parametrize("state", STATES)
def test_all_jobs_of_a_state_are_moved_with_what_they_are(state: str) -> None:
    server = filled(state)
    queue = Queue(MemoryLine(server))
    server.advance(100.5)
    moved = list(Mover(queue, b"b").move_all(b"a", state, None))
    assert [each.old for each in moved] == [1, 2, 3]
    assert jobs_of(server) == [("b", state, b"%d" % number) for number in range(3)]
    check_kept(queue, state, [each.new for each in moved])


def test_buried_jobs_may_be_made_ready() -> None:
    server = filled("buried")
    moved = list(Mover(Queue(MemoryLine(server)), b"b", False).move_all(b"a", "buried", 2))
    assert len(moved) == 2
    assert jobs_of(server) == [("b", "ready", b"0"), ("b", "ready", b"1"), ("a", "buried", b"2")]


def test_jobs_of_a_paused_tube_are_moved_too() -> None:
    server = filled("ready")
    queue = Queue(MemoryLine(server))
    queue.pause(b"a", 1000)
    assert len(list(Mover(queue, b"b").move_all(b"a", "ready", None))) == 3
    assert {tube for tube, _, _ in jobs_of(server)} == {"b"}


def test_jobs_are_moved_in_the_last_moment_of_a_pause_too() -> None:
    server = filled("ready")
    queue = Queue(MemoryLine(server))
    queue.pause(b"a", 10)
    server.advance(9.7)
    assert queue.stats_tube(b"a")["pause-time-left"] == "0"
    assert len(list(Mover(queue, b"b").move_all(b"a", "ready", None))) == 3


def test_a_job_is_reserved_and_buried_in_its_new_tube_by_one_piece_of_bytes() -> None:
    server = filled("buried")
    line = MemoryLine(server)
    list(Mover(Queue(line), b"b").move_all(b"a", "buried", 1))
    assert b"reserve-job 5\r\nbury 5 10\r\n" in line.requests


def test_jobs_that_come_meanwhile_are_left() -> None:
    server = filled("ready")
    line = MemoryLine(server)
    moving = Mover(Queue(line), b"b").move_all(b"a", "ready", None)
    next(moving)
    other = Queue(MemoryLine(server))
    other.use(b"a")
    other.put(b"late", 99, 0, 100)
    assert len(list(moving)) == 2
    assert jobs_of(server)[-1] == ("a", "ready", b"late")


@pytest.mark.parametrize("is_paused", [False, True])
@pytest.mark.parametrize("state", ["ready", "delayed"])
def test_it_stops_at_a_job_that_was_put_since_and_stands_before_the_rest(
    state: str, is_paused: bool
) -> None:
    server = filled(state)
    other = Queue(MemoryLine(server))
    other.use(b"a")
    if is_paused:
        other.pause(b"a", 1000)
    mover = Mover(Queue(MemoryLine(server)), b"b")
    moving = mover.move_all(b"a", state, None)
    assert next(moving).old == 1
    late = other.put(b"late", 1, 5 if state == "delayed" else 0, 100)
    assert list(moving) == []
    assert mover.later == late
    left = [("a", state, b"1"), ("a", state, b"2"), ("a", state, b"late")]
    assert jobs_of(server) == [("b", state, b"0"), *left]
    assert other.stats_job(late)["pri"] == "1"
    assert [each.old for each in Mover(other, b"b").move_all(b"a", state, 2)] == [late, 2]


def test_it_ends_however_quickly_others_put() -> None:
    server = filled("ready")
    other = Queue(MemoryLine(server))
    other.use(b"a")
    mover = Mover(Queue(MemoryLine(server)), b"b")
    for moved in mover.move_all(b"a", "ready", None):
        other.put(b"late", 99, 0, 100)
        assert moved.old <= 3
    assert mover.later is None and len(jobs_of(server)) == 6


def test_what_is_put_before_it_counts_is_left_even_when_it_is_counted() -> None:
    server = filled("ready")
    other = Queue(MemoryLine(server))
    other.use(b"a")

    class Raced(MemoryLine):
        def send(self, request: bytes) -> None:
            super().send(request)
            if request.startswith(b"delete 4"):  # Our own, by which the end is known.
                other.put(b"late", 1, 0, 100)

    mover = Mover(Queue(Raced(server)), b"b")
    assert list(mover.move_all(b"a", "ready", None)) == []
    assert mover.later == 5


def test_an_empty_tube_is_looked_at_and_nothing_more() -> None:
    server = filled("ready")
    line = MemoryLine(server)
    assert list(Mover(Queue(line), b"b").move_all(b"a", "buried", None)) == []
    assert line.requests == [b"stats-tube a\r\n"]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("is_heard", [False, True])
@pytest.mark.parametrize("state", STATES)
def test_wherever_it_breaks_off_each_job_is_there_at_least_once(state: str, is_heard: bool) -> None:
    def move(line: MemoryLine) -> None:
        assert len(list(Mover(Queue(line), b"b").move_all(b"a", state, None))) == 3

    for problem, jobs in broken_off(state, is_heard, move):
        bodies = [body for *_, body in jobs]
        assert set(bodies) == {b"0", b"1", b"2"}
        assert len(bodies) <= 4
        if len(bodies) == 4 and not is_heard:
            assert isinstance(problem, Broken) and "may still be there too" in str(problem)


@pytest.mark.parametrize("state", STATES)
def test_a_job_that_the_server_will_not_take_stays_as_it_was(state: str) -> None:
    server = filled(state)
    server.service.drain()
    queue = Queue(MemoryLine(server))
    with pytest.raises(Refused, match="DRAINING"):
        list(Mover(queue, b"b").move_all(b"a", state, None))
    assert jobs_of(server) == [("a", state, b"%d" % number) for number in range(3)]
    assert queue.stats_job(1)["pri"] == "10"


def test_a_reserved_job_is_left_to_its_worker() -> None:
    server = filled("ready")
    worker = Queue(MemoryLine(server))
    worker.watch_only([b"a"])
    job = worker.reserve(0)
    assert job is not None
    with pytest.raises(Refused, match="NOT_FOUND"):
        Mover(Queue(MemoryLine(server)), b"b").move_job(job.id)
    worker.delete(job.id)
