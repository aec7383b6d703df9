"""No job is lost on its way from one tube into another, however many go at once."""

from __future__ import annotations

import pytest

from beanstalk_twisted.testing.memory_server import MemoryServer
from binlog_tools.queue.extensions import MAX_BATCH_BYTES, Extensions
from binlog_tools.queue.moving import BATCH_JOBS, BatchMover, Broken, Moved, Mover, can_batch
from binlog_tools.queue.server import Queue, Refused
from tests.tools.queue.lines import (
    STATES,
    MemoryLine,
    Raced,
    StockLine,
    broken_off,
    check_kept,
    filled,
    jobs_of,
)


def mover_of(
    line: MemoryLine, keeps_buried: bool = True, batch_jobs: int = BATCH_JOBS
) -> BatchMover:
    """Make what moves into tube b."""
    queue = Queue(line)
    return BatchMover(queue, Extensions(queue), Mover(queue, b"b", keeps_buried), batch_jobs)


def moved_all(line: MemoryLine, state: str, batch_jobs: int = BATCH_JOBS) -> list[Moved]:
    """Move the jobs of tube a that are in a state."""
    batches = list(mover_of(line, batch_jobs=batch_jobs).move_all(b"a", state, None))
    return [moved for batch in batches for moved in batch]


@pytest.mark.parametrize("batch_jobs", [1, 2, 200])
@pytest.mark.parametrize("state", STATES)
def test_all_jobs_of_a_state_are_moved_with_what_they_are(state: str, batch_jobs: int) -> None:
    server = filled(state)
    queue = Queue(MemoryLine(server))
    server.advance(100.5)
    moved = moved_all(MemoryLine(server), state, batch_jobs=batch_jobs)
    assert [each.old for each in moved] == [1, 2, 3]
    assert jobs_of(server) == [("b", state, b"%d" % number) for number in range(3)]
    check_kept(queue, state, [each.new for each in moved])


def test_a_batch_is_deleted_when_it_was_put_and_not_before() -> None:
    line = MemoryLine(filled("ready"))
    moved_all(line, "ready", batch_jobs=2)
    asked = [request.split()[0] for request in line.requests[-8:]]
    page = [b"list-jobs", b"reserve-job", b"reserve-job", b"put-batch", b"delete-batch"]
    assert asked[:4] == page[1:] and asked[4:] == [page[0], page[1], *page[3:]]


def test_buried_jobs_may_be_made_ready() -> None:
    server = filled("buried")
    mover = mover_of(MemoryLine(server), keeps_buried=False)
    assert [len(batch) for batch in mover.move_all(b"a", "buried", 2)] == [2]
    assert jobs_of(server) == [("b", "ready", b"0"), ("b", "ready", b"1"), ("a", "buried", b"2")]


def test_jobs_of_a_paused_tube_are_moved_too() -> None:
    server = filled("ready")
    Queue(MemoryLine(server)).pause(b"a", 1000)
    assert len(moved_all(MemoryLine(server), "ready")) == 3


@pytest.mark.parametrize("state", ["ready", "delayed"])
def test_jobs_that_were_put_since_are_passed_over(state: str) -> None:
    server = filled(state)
    other = Queue(MemoryLine(server))
    other.use(b"a")
    moving = mover_of(MemoryLine(server), batch_jobs=1).move_all(b"a", state, None)
    assert [each.old for each in next(moving)] == [1]
    late = other.put(b"late", 0, 1 if state == "delayed" else 0, 100)
    assert [each.old for batch in moving for each in batch] == [2, 3]
    assert ("a", state, b"late") in jobs_of(server)
    stats = other.stats_job(late)
    assert (stats["reserves"], stats["releases"]) == ("0", "0")


def test_it_ends_however_quickly_others_put() -> None:
    server = filled("ready")
    other = Queue(MemoryLine(server))
    other.use(b"a")
    for _ in mover_of(MemoryLine(server), batch_jobs=1).move_all(b"a", "ready", None):
        other.put(b"late", 99, 0, 100)
    assert len(jobs_of(server)) == 6


def test_a_job_that_a_worker_takes_meanwhile_is_left_to_him() -> None:
    server = filled("ready")
    worker = Queue(MemoryLine(server))
    assert [each.old for each in moved_all(Raced(server, worker), "ready")] == [1, 3]
    worker.delete(2)
    assert [tube for tube, _, _ in jobs_of(server)] == ["b", "b"]


def test_an_empty_tube_is_looked_at_and_nothing_more() -> None:
    line = MemoryLine(filled("ready"))
    assert moved_all(line, "buried") == []
    assert line.requests == [b"capabilities\r\n", b"stats-tube a\r\n"]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("is_heard", [False, True])
@pytest.mark.parametrize("state", STATES)
def test_wherever_it_breaks_off_each_job_is_there_at_least_once(state: str, is_heard: bool) -> None:
    def move(line: MemoryLine) -> None:
        assert len(moved_all(line, state, batch_jobs=2)) == 3

    for problem, jobs in broken_off(state, is_heard, move, first=2):
        bodies = [body for *_, body in jobs]
        assert set(bodies) == {b"0", b"1", b"2"}
        assert len(bodies) <= 5
        if len(bodies) > 3 and not is_heard:
            assert isinstance(problem, Broken) and "may still be there too" in str(problem)


@pytest.mark.parametrize("state", STATES)
def test_jobs_that_the_server_will_not_take_stay_as_they_were(state: str) -> None:
    server = filled(state)
    server.service.drain()
    with pytest.raises(Refused, match="put: the server says DRAINING"):
        moved_all(MemoryLine(server), state)
    assert jobs_of(server) == [("a", state, b"%d" % number) for number in range(3)]
    stats = Queue(MemoryLine(server)).stats_job(2)
    assert stats["pri"] == "11" and (stats["delay"] == "500") == (state == "delayed")


class NoRoomForTwo(MemoryLine):
    """A server that puts the body `1` neither in a batch nor alone."""

    def send(self, request: bytes) -> None:
        """See `Line`."""
        is_put = request.startswith((b"put-batch", b"put "))
        if is_put and b"\r\n1\r\n" in request and not request.startswith(b"put 4294967295"):
            self.requests.append(request)
            self._replies += b"OUT_OF_MEMORY\r\n"
            return
        super().send(request)


@pytest.mark.parametrize("state", STATES)
def test_of_a_batch_that_is_refused_the_jobs_before_the_reason_are_moved(state: str) -> None:
    server = filled(state)
    moving = mover_of(NoRoomForTwo(server)).move_all(b"a", state, None)
    assert [each.old for each in next(moving)] == [1]
    with pytest.raises(Refused, match="put: the server says OUT_OF_MEMORY"):
        next(moving)
    assert jobs_of(server) == [("b", state, b"0"), ("a", state, b"1"), ("a", state, b"2")]


def test_who_leaves_early_hears_what_went_wrong() -> None:
    moving = mover_of(NoRoomForTwo(filled("ready"))).move_all(b"a", "ready", None)
    next(moving)
    with pytest.raises(Refused):
        moving.close()


def test_a_job_whose_ttr_ends_meanwhile_and_that_another_reserves_is_told() -> None:
    server = filled("ready")
    worker = Queue(MemoryLine(server))

    class Slow(MemoryLine):
        def send(self, request: bytes) -> None:
            if request.startswith(b"delete-batch"):
                server.advance(101)
                worker.reserve_job(2)
            super().send(request)

    moving = mover_of(Slow(server)).move_all(b"a", "ready", None)
    assert [each.old for each in next(moving)] == [1, 3]
    with pytest.raises(Broken, match="job 2 is job 6 of b now, but may still be there too"):
        next(moving)
    assert len(jobs_of(server)) == 4


def test_bodies_that_are_large_together_go_in_several_batches() -> None:
    size = MAX_BATCH_BYTES // 3 + 1
    server = MemoryServer(max_job_bytes=3 * size)
    queue = Queue(MemoryLine(server))
    queue.use(b"a")
    bodies = [b"1" * size, b"2" * size, b"3" * size, b"4" * (3 * size), b"5"]
    for body in bodies:
        queue.put(body, 0, 0, 100)
    line = MemoryLine(server)
    assert len(moved_all(line, "ready")) == 5
    batches = [r.split()[1] for r in line.requests if r.startswith(b"put-batch")]
    assert batches == [b"2", b"1", b"1", b"1"]
    assert [body for _, _, body in jobs_of(server)] == bodies


def test_what_is_needed_is_announced() -> None:
    queue = Queue(MemoryLine(MemoryServer()))
    assert can_batch(Extensions(queue), b"a") and not can_batch(Extensions(queue), b"a" * 200)
    assert not can_batch(Extensions(Queue(StockLine(MemoryServer()))), b"a")
