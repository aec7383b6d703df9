"""No job is lost on its way from one tube into another: one by one, or moved by the server."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.sync import Client
from beanstalk_twisted.testing.memory_server import MemoryServer
from binlog_tools.queue.moving import BATCH_JOBS, Broken, DirectMover, Moved, Mover
from tests.tools.queue.lines import (
    STATES,
    MemoryLine,
    Raced,
    StockLine,
    broken_off,
    check_kept,
    filled,
    jobs_of,
    queue_at,
    queue_of,
)


def direct_mover(
    line: MemoryLine, keeps_buried: bool = True, batch_jobs: int = BATCH_JOBS
) -> DirectMover:
    """Make what has the server move into tube b."""
    queue = queue_of(line)
    return DirectMover(queue, b"b", keeps_buried, batch_jobs)


def one_by_one(line: MemoryLine, keeps_buried: bool = True, batch_jobs: int = 1) -> Mover:
    """Make what moves into tube b by commands of beanstalkd alone."""
    assert batch_jobs == 1
    return Mover(queue_of(line), b"b", keeps_buried)


MakeMover = Callable[..., Mover | DirectMover]
MOVERS: dict[str, tuple[MakeMover, int]] = {
    "one by one": (one_by_one, 1),
    **{f"by the server, {size} at once": (direct_mover, size) for size in (1, 2, 200)},
}
EACH_MOVER = pytest.mark.parametrize(("make", "batch_jobs"), MOVERS.values(), ids=MOVERS)


def moving(
    mover: Mover | DirectMover, source: bytes, state: str, most: int | None = None
) -> Iterator[Moved]:
    """Give each job of a tube when it was moved."""
    for each in mover.move_all(source, state, most):
        yield from [each] if isinstance(each, Moved) else each


def moved_all(mover: Mover | DirectMover, state: str) -> list[int]:
    """Move the jobs of tube a that are in a state; give their old ids."""
    return [each.old for each in moving(mover, b"a", state)]


def others_in_a(server: MemoryServer) -> Client:
    queue = queue_at(server)
    queue.use(b"a")
    return queue


@EACH_MOVER
@pytest.mark.parametrize("state", STATES)
def test_all_jobs_of_a_state_are_moved(make: MakeMover, batch_jobs: int, state: str) -> None:
    server = filled(state)
    server.advance(100.5)
    line = MemoryLine(server)
    moved = list(moving(make(line, batch_jobs=batch_jobs), b"a", state))
    assert [each.old for each in moved] == [1, 2, 3]
    assert jobs_of(server) == [("b", state, b"%d" % number) for number in range(3)]
    check_kept(queue_of(line), state, [each.new for each in moved])
    if make is direct_mover:
        assert [each.new for each in moved] == [1, 2, 3]
        assert not [each for each in line.requests if each.startswith((b"reserve", b"put-batch"))]
        assert queue_of(line).stats_job(2).age == 100


@EACH_MOVER
def test_a_count_is_kept_and_buried_jobs_are_kicked(make: MakeMover, batch_jobs: int) -> None:
    server = filled("buried")
    mover = make(MemoryLine(server), keeps_buried=False, batch_jobs=batch_jobs)
    assert len(list(moving(mover, b"a", "buried", 2))) == 2
    assert jobs_of(server) == [("b", "ready", b"0"), ("b", "ready", b"1"), ("a", "buried", b"2")]
    if isinstance(mover, DirectMover):
        assert mover.move_job(3).new == 3
        assert jobs_of(server)[2] == ("b", "ready", b"2")


@pytest.mark.parametrize(("pause_s", "passed_s", "left"), [(1000, 0, 1000), (10, 9.7, 0)])
def test_jobs_of_a_paused_tube_are_moved_also_in_the_last_moment_of_a_pause(
    pause_s: int, passed_s: float, left: int
) -> None:
    server = filled("ready")
    queue = queue_at(server)
    queue.pause_tube("a", pause_s)
    server.advance(passed_s)
    assert queue.stats_tube("a").pause_time_left == left
    assert moved_all(one_by_one(MemoryLine(server)), "ready") == [1, 2, 3]
    assert {tube for tube, _, _ in jobs_of(server)} == {"b"}


def test_it_ends_however_quickly_others_put() -> None:
    server = filled("ready")
    other = others_in_a(server)
    mover = one_by_one(MemoryLine(server))
    for moved in moving(mover, b"a", "ready"):
        assert moved.old <= 3
        other.put(b"late", priority=99, delay=0, ttr=100)
    assert len(jobs_of(server)) == 6
    assert mover.later is None


def test_a_job_that_a_worker_takes_is_left() -> None:
    server = filled("ready")
    worker = queue_at(server)
    assert moved_all(direct_mover(Raced(server, worker)), "ready") == [1, 3]
    with pytest.raises(errors.NotFound, match=r"move-job \(job 2\): NOT_FOUND"):
        direct_mover(MemoryLine(server)).move_job(2)
    worker.delete(2)
    assert [tube for tube, _, _ in jobs_of(server)] == ["b", "b"]


def test_a_reserved_job_is_left_to_its_worker() -> None:
    server = filled("ready")
    worker = queue_at(server)
    worker.watch_only("a")
    job = worker.reserve_with_timeout(0)
    with pytest.raises(errors.NotFound):
        one_by_one(MemoryLine(server)).move_job(job.id)
    worker.delete(job.id)


def test_an_empty_tube_is_looked_at_and_nothing_more() -> None:
    line = MemoryLine(filled("ready"))
    assert moved_all(one_by_one(line), "buried") == []
    assert line.requests == [b"stats-tube a\r\n"]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("is_heard", [False, True])
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(
    ("make", "batch_jobs", "twice"), [(one_by_one, 1, 1), (direct_mover, 2, 0)]
)
def test_wherever_it_breaks_off_each_job_is_there_and_at_most_one_twice(
    make: MakeMover, batch_jobs: int, twice: int, state: str, is_heard: bool
) -> None:
    def move(line: MemoryLine) -> None:
        assert moved_all(make(line, batch_jobs=batch_jobs), state) == [1, 2, 3]

    for problem, jobs in broken_off(state, is_heard, move, first=1 if make is one_by_one else 2):
        bodies = [body for *_, body in jobs]
        assert set(bodies) == {b"0", b"1", b"2"}
        assert len(bodies) <= 3 + twice
        if len(bodies) > 3 and not is_heard:
            assert isinstance(problem, Broken) and "may still be there too" in str(problem)
        if make is direct_mover:
            assert isinstance(problem, errors.ClientError)
            assert [job[1:] for job in jobs] == [(state, b"%d" % number) for number in range(3)]


@pytest.mark.parametrize("state", STATES)
def test_jobs_that_the_server_will_not_take_stay_as_they_were(state: str) -> None:
    server = filled(state)
    server.service.drain()
    with pytest.raises(errors.Draining):
        moved_all(one_by_one(MemoryLine(server)), state)
    assert jobs_of(server) == [("a", state, b"%d" % number) for number in range(3)]
    for number in range(3):
        stats = queue_at(server).stats_job(number + 1)
        assert stats.pri == 10 + number
        assert (stats.delay == 500) == (state == "delayed")


def test_a_job_is_reserved_and_buried_in_its_new_tube_by_one_piece_of_bytes() -> None:
    line = MemoryLine(filled("buried"))
    list(one_by_one(line).move_all(b"a", "buried", 1))
    assert b"reserve-job 5\r\nbury 5 10\r\n" in line.requests


@pytest.mark.parametrize("is_paused", [False, True])
@pytest.mark.parametrize("state", ["ready", "delayed"])
def test_it_stops_at_a_later_job_before_the_rest(state: str, is_paused: bool) -> None:
    server = filled(state)
    other = others_in_a(server)
    if is_paused:
        other.pause_tube("a", 1000)
    mover = one_by_one(MemoryLine(server))
    going = mover.move_all(b"a", state, None)
    assert next(going).old == 1
    late = other.put(b"late", priority=1, delay=5 if state == "delayed" else 0, ttr=100)
    assert list(going) == []
    assert mover.later == late
    left = [("a", state, b"1"), ("a", state, b"2"), ("a", state, b"late")]
    assert jobs_of(server) == [("b", state, b"0"), *left]
    assert other.stats_job(late).pri == 1
    assert [each.old for each in Mover(other, b"b").move_all(b"a", state, 2)] == [late, 2]


def test_what_is_put_before_it_counts_is_left_even_when_it_is_counted() -> None:
    server = filled("ready")
    other = others_in_a(server)

    class Late(MemoryLine):
        def send(self, request: bytes) -> None:
            super().send(request)
            if request.startswith(b"delete 4"):  # Our own, by which the end is known.
                other.put(b"late", priority=1, delay=0, ttr=100)

    mover = one_by_one(Late(server))
    assert list(mover.move_all(b"a", "ready", None)) == []
    assert mover.later == 5


class NoRoomForTwo(MemoryLine):
    """A server that does not move job 2."""

    def send(self, request: bytes) -> None:
        for line in request.splitlines(keepends=True):
            if line.startswith(b"move-job 2 "):
                self._replies += b"OUT_OF_MEMORY\r\n"
            else:
                super().send(line)


@pytest.mark.parametrize("ends_early", [False, True])
def test_a_server_without_room_is_told_at_the_end(ends_early: bool) -> None:
    going = direct_mover(NoRoomForTwo(filled("ready"))).move_all(b"a", "ready", None)
    assert [each.old for each in next(going)] == [1, 3]
    with pytest.raises(errors.OutOfMemory):
        going.close() if ends_early else next(going)


def test_what_is_needed_is_announced() -> None:
    ours, stock = (queue_of(kind(MemoryServer())) for kind in (MemoryLine, StockLine))
    assert ours.announces("move-job") and not stock.announces("move-job")


@pytest.mark.parametrize("source", [b"a", b"a" * 200])
def test_jobs_that_were_put_since_stay(source: bytes) -> None:
    server = MemoryServer()
    other = queue_at(server)
    other.use(source)
    for _ in range(3):
        other.put(b"", priority=10, delay=0, ttr=100)
    mover = direct_mover(MemoryLine(server), batch_jobs=1)
    going = moving(mover, source, "ready")
    assert next(going).old == 1
    late = other.put(b"late", priority=0, delay=0, ttr=100)
    rest = [each.old for each in going]
    # With a long name there is no cursor: only the first page is seen, and this job is all of it.
    assert (rest, mover.later) == (([2, 3], None) if source == b"a" else ([], late))
    assert other.stats_job(late).tube == source.decode()


def test_jobs_of_a_tube_with_a_long_name_are_moved() -> None:
    server = MemoryServer()
    queue = queue_at(server)
    queue.use(b"a" * 200)
    jobs = [queue.put(b"", priority=0, delay=0, ttr=100) for _ in range(5)]
    mover = direct_mover(MemoryLine(server), batch_jobs=2)
    assert [each.new for each in moving(mover, b"a" * 200, "ready")] == jobs
