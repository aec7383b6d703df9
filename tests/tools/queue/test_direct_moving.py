"""A server that moves jobs by itself is never asked to put one anew."""

from __future__ import annotations

import pytest

from beanstalk_twisted.testing.memory_server import MemoryServer
from binlog_tools.queue.extensions import Extensions
from binlog_tools.queue.moving import DirectMover
from binlog_tools.queue.server import Queue, Refused
from tests.tools.queue.lines import (
    STATES,
    MemoryLine,
    Raced,
    StockLine,
    broken_off,
    filled,
    jobs_of,
)


def mover_of(line: MemoryLine, keeps_buried: bool = True, batch_jobs: int = 200) -> DirectMover:
    """Make what moves into tube b."""
    queue = Queue(line)
    return DirectMover(queue, Extensions(queue), b"b", keeps_buried, batch_jobs)


def moved_all(mover: DirectMover, source: bytes, state: str, most: int | None = None) -> list[int]:
    """Move the jobs of a tube; give their ids."""
    return [each.new for batch in mover.move_all(source, state, most) for each in batch]


@pytest.mark.parametrize("batch_jobs", [1, 2, 200])
@pytest.mark.parametrize("state", STATES)
def test_all_jobs_of_a_state_are_moved_with_what_they_are(state: str, batch_jobs: int) -> None:
    server = filled(state)
    server.advance(100.5)
    line = MemoryLine(server)
    assert moved_all(mover_of(line, batch_jobs=batch_jobs), b"a", state) == [1, 2, 3]
    assert jobs_of(server) == [("b", state, b"%d" % number) for number in range(3)]
    assert not [each for each in line.requests if each.startswith((b"reserve", b"put-batch"))]
    stats = Queue(line).stats_job(2)
    assert (stats["pri"], stats["age"]) == ("11", "100")
    if state == "delayed":
        assert 398 <= int(stats["time-left"]) <= 400


def test_a_count_is_kept_and_buried_jobs_may_be_made_ready() -> None:
    server = filled("buried")
    mover = mover_of(MemoryLine(server), keeps_buried=False)
    assert moved_all(mover, b"a", "buried", 2) == [1, 2]
    assert jobs_of(server) == [("b", "ready", b"0"), ("b", "ready", b"1"), ("a", "buried", b"2")]
    assert mover.move_job(3).new == 3
    assert jobs_of(server)[2] == ("b", "ready", b"2")


@pytest.mark.parametrize("source", [b"a", b"a" * 200])
def test_jobs_that_were_put_since_stay(source: bytes) -> None:
    server = MemoryServer()
    other = Queue(MemoryLine(server))
    other.use(source)
    for _ in range(3):
        other.put(b"", 10, 0, 100)
    mover = mover_of(MemoryLine(server), batch_jobs=1)
    moving = mover.move_all(source, "ready", None)
    assert [each.old for each in next(moving)] == [1]
    late = other.put(b"late", 0, 0, 100)
    rest = [each.old for batch in moving for each in batch]
    if source == b"a":
        assert (rest, mover.later) == ([2, 3], None)
    else:
        # Without a cursor only the first page is seen, and this job is all of it.
        assert (rest, mover.later) == ([], late)
    assert other.stats_job(late)["tube"] == source.decode()


def test_jobs_of_a_tube_with_a_long_name_are_moved() -> None:
    server = MemoryServer()
    queue = Queue(MemoryLine(server))
    queue.use(b"a" * 200)
    jobs = [queue.put(b"", 0, 0, 100) for _ in range(5)]
    assert moved_all(mover_of(MemoryLine(server), batch_jobs=2), b"a" * 200, "ready") == jobs


def test_a_job_that_a_worker_takes_meanwhile_is_left_to_him() -> None:
    server = filled("ready")
    worker = Queue(MemoryLine(server))
    assert moved_all(mover_of(Raced(server, worker)), b"a", "ready") == [1, 3]
    with pytest.raises(Refused, match="move-job 2: the server says NOT_FOUND"):
        mover_of(MemoryLine(server)).move_job(2)


class NoRoomForTwo(MemoryLine):
    """A server that has no room for job 2."""

    def send(self, request: bytes) -> None:
        """See `Line`."""
        if request.startswith(b"move-job 2 "):
            self._replies += b"OUT_OF_MEMORY\r\n"
        else:
            super().send(request)


@pytest.mark.parametrize("ends_early", [False, True])
def test_a_server_without_room_is_told_behind_what_was_moved(ends_early: bool) -> None:
    moving = mover_of(NoRoomForTwo(filled("ready"))).move_all(b"a", "ready", None)
    assert [each.old for each in next(moving)] == [1, 3]
    with pytest.raises(Refused, match="move-job 2: the server says OUT_OF_MEMORY"):
        moving.close() if ends_early else next(moving)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("is_heard", [False, True])
@pytest.mark.parametrize("state", STATES)
def test_wherever_it_breaks_off_each_job_is_there_once(state: str, is_heard: bool) -> None:
    def move(line: MemoryLine) -> None:
        assert moved_all(mover_of(line, batch_jobs=2), b"a", state) == [1, 2, 3]

    for problem, jobs in broken_off(state, is_heard, move, first=2):
        assert isinstance(problem, OSError)
        assert [job[1:] for job in jobs] == [(state, b"%d" % number) for number in range(3)]


def test_what_is_needed_is_announced() -> None:
    assert Extensions(Queue(MemoryLine(MemoryServer()))).has("move-job")
    assert not Extensions(Queue(StockLine(MemoryServer()))).has("move-job")
