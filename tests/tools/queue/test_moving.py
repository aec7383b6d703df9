"""
No job is lost on its way from one tube into another.
"""

from __future__ import annotations

import pytest

from beanstalk_twisted.testing.memory_server import MemoryServer
from binlog_tools.queue.moving import Broken, Mover
from binlog_tools.queue.server import Queue, Refused
from tests.tools.queue.lines import MemoryLine, jobs_of

STATES = ["ready", "delayed", "buried"]


def filled(state: str) -> MemoryServer:
    """
    Make a server with three jobs of a state in tube a.
    """
    server = MemoryServer()
    queue = Queue(MemoryLine(server))
    queue.use(b"a")
    for number in range(3):
        job = queue.put(b"%d" % number, 10 + number, 500 if state == "delayed" else 0, 100)
        if state == "buried":
            queue.reserve_job(job)
            queue.bury(job, 10 + number)
    return server


@pytest.mark.parametrize("state", STATES)
def test_all_jobs_of_a_state_are_moved_with_what_they_are(state: str) -> None:
    server = filled(state)
    queue = Queue(MemoryLine(server))
    server.advance(100.5)
    moved = list(Mover(queue, b"b").move_all(b"a", state, None))
    assert [each.old for each in moved] == [1, 2, 3]
    assert jobs_of(server) == [("b", state, b"%d" % number) for number in range(3)]
    for number, each in enumerate(moved):
        stats = queue.stats_job(each.new)
        assert (stats["pri"], stats["ttr"]) == (str(10 + number), "100")
        if state == "delayed":
            assert 398 <= int(stats["time-left"]) <= 400


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
    assert b"reserve-job 4\r\nbury 4 10\r\n" in line.requests


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


@pytest.mark.parametrize("is_heard", [False, True])
@pytest.mark.parametrize("state", STATES)
def test_wherever_it_breaks_off_each_job_is_there_at_least_once(state: str, is_heard: bool) -> None:
    requests = 0
    while True:
        server = filled(state)
        line = MemoryLine(server)
        requests += 1
        line.breaks_at, line.is_heard = requests, is_heard
        try:
            moved = list(Mover(Queue(line), b"b").move_all(b"a", state, None))
        except (OSError, Broken) as problem:
            bodies = [body for _, _, body in jobs_of(server)]
            assert set(bodies) == {b"0", b"1", b"2"}
            assert len(bodies) <= 4
            if len(bodies) == 4 and not is_heard:
                assert isinstance(problem, Broken) and "may still be there too" in str(problem)
        else:
            assert len(moved) == 3 and requests > 9
            return


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
