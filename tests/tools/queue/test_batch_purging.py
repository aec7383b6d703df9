"""Deleting the jobs that are there now, and no others, many at once."""

from __future__ import annotations

import pytest

from beanstalk_twisted.testing.memory_server import MemoryServer
from binlog_tools.queue.cli.delete import BatchPurge, StateResult, TubePurge, purge_of
from binlog_tools.queue.extensions import Extensions
from binlog_tools.queue.moving import BATCH_JOBS
from binlog_tools.queue.server import STATES, Queue
from tests.tools.queue.lines import MemoryLine, StockLine, filled, jobs_of
from tests.tools.queue.test_purging import others


def purge(line: MemoryLine, *states: str, batch_jobs: int = BATCH_JOBS) -> BatchPurge:
    """Begin to empty tube a."""
    queue = Queue(line)
    return BatchPurge(queue, Extensions(queue), b"a", states, batch_jobs)


@pytest.mark.parametrize(("batch_jobs", "steps"), [(1, [1, 1, 1]), (2, [2, 1]), (200, [3])])
@pytest.mark.parametrize("state", STATES)
def test_the_jobs_of_a_state_are_deleted_and_no_others(
    state: str, batch_jobs: int, steps: list[int]
) -> None:
    server = filled(state)
    queue = others(server)
    queue.use(b"b")
    queue.put(b"other tube", 0, 500 if state == "delayed" else 0, 100)
    asked = [other for other in STATES if other != state]
    running = purge(MemoryLine(server), *asked).run()
    assert list(running) == [StateResult(each, 0, 0, None) for each in asked]
    found = purge(MemoryLine(server), state, batch_jobs=batch_jobs)
    assert found.counts == {state: 3}
    assert list(found.run()) == [*steps, StateResult(state, 3, 3, None)]
    assert found.deleted == 3
    assert [body for _, _, body in jobs_of(server)] == [b"other tube"]


@pytest.mark.parametrize("state", ["ready", "delayed"])
def test_what_is_put_later_is_passed_over(state: str) -> None:
    server = filled(state)
    found = purge(MemoryLine(server), state, batch_jobs=1)
    others(server).put(b"later", 0, 1 if state == "delayed" else 0, 100)
    running = found.run()
    assert next(running) == 1
    others(server).put(b"last", 0, 1 if state == "delayed" else 0, 100)
    assert list(running) == [1, 1, StateResult(state, 3, 3, None)]
    assert [body for _, _, body in jobs_of(server)] == [b"last", b"later"]


def test_a_job_that_a_worker_takes_meanwhile_is_left_to_him() -> None:
    server = filled("ready")
    worker = Queue(MemoryLine(server))

    class Raced(MemoryLine):
        def send(self, request: bytes) -> None:
            if request.startswith(b"delete-batch"):
                worker.reserve_job(2)
            super().send(request)

    found = purge(Raced(server), "ready")
    assert list(found.run()) == [2, StateResult("ready", 3, 2, None)]
    assert found.deleted == 2
    worker.delete(2)


@pytest.mark.parametrize("is_heard", [False, True])
def test_wherever_it_breaks_off_the_rest_is_as_it_was(is_heard: bool) -> None:
    requests = 1
    while True:
        server = filled("buried")
        line = MemoryLine(server)
        requests += 1
        line.breaks_at, line.is_heard = requests, is_heard
        try:
            list(purge(line, "buried", batch_jobs=2).run())
        except OSError:
            left = [job for job in jobs_of(server) if job[0] == "a"]
            assert left == [("a", "buried", b"%d" % number) for number in range(3)][3 - len(left) :]
        else:
            assert requests > 7
            return


def test_no_job_is_ever_reserved() -> None:
    line = MemoryLine(filled("buried"))
    list(purge(line, *STATES).run())
    assert not [request for request in line.requests if b"reserve" in request]


def test_an_empty_tube_is_looked_at_and_nothing_more() -> None:
    line = MemoryLine(filled("ready"))
    assert purge(line, "buried").total == 0
    assert line.requests == [b"capabilities\r\n", b"stats-tube a\r\n"]


def test_the_quickest_way_that_a_server_has_is_taken() -> None:
    server = filled("ready")
    assert type(purge_of(Queue(MemoryLine(server)), b"a", ["ready"])) is BatchPurge
    found = purge_of(Queue(StockLine(server)), b"a", ["ready"])
    assert type(found) is TubePurge
    assert list(found.run()) == [1, 2, 3, StateResult("ready", 3, 3, None)]
    long = Queue(MemoryLine(server))
    long.use(b"x" * 200)
    assert type(purge_of(long, b"x" * 200, ["ready"])) is TubePurge
    assert type(purge_of(Queue(MemoryLine(MemoryServer())), b"default", STATES)) is BatchPurge
