"""Deleting the jobs that are there now, and no others."""

from __future__ import annotations

import pytest

from beanstalk_twisted.testing.memory_server import MemoryServer
from binlog_tools.queue.cli.delete import StateResult, TubePurge
from binlog_tools.queue.server import STATES, Queue, Refused
from tests.tools.queue.lines import MemoryLine, filled, jobs_of


def purge(server: MemoryServer, *states: str) -> TubePurge:
    """Begin to empty tube a."""
    return TubePurge(Queue(MemoryLine(server)), b"a", states)


def others(server: MemoryServer) -> Queue:
    """Connect somebody else, who puts into tube a."""
    queue = Queue(MemoryLine(server))
    queue.use(b"a")
    return queue


@pytest.mark.parametrize("state", STATES)
def test_the_jobs_of_a_state_are_deleted_and_no_others(state: str) -> None:
    server = filled(state)
    queue = others(server)
    queue.use(b"b")
    queue.put(b"other tube", 0, 500 if state == "delayed" else 0, 100)
    asked = [other for other in STATES if other != state]
    assert list(purge(server, *asked).run()) == [StateResult(each, 0, 0, None) for each in asked]
    found = purge(server, state)
    assert found.counts == {state: 3}
    assert list(found.run()) == [1, 2, 3, StateResult(state, 3, 3, None)]
    assert found.deleted == 3
    assert [body for _, _, body in jobs_of(server)] == [b"other tube"]


@pytest.mark.parametrize("state", ["ready", "delayed"])
def test_what_is_put_later_stays_even_if_it_stands_before_the_rest(state: str) -> None:
    server = filled(state)
    found = purge(server, state)
    running = found.run()
    assert next(running) == 1
    late = others(server).put(b"late", 0, 1 if state == "delayed" else 0, 100)
    # The second was the first of the tube when the first was deleted.
    assert list(running) == [2, StateResult(state, 3, 2, late)]
    assert [body for _, _, body in jobs_of(server)] == [b"2", b"late"]


def test_it_ends_however_many_others_put() -> None:
    server = filled("ready")
    producer = others(server)
    count = 0
    for each in purge(server, "ready").run():
        count += isinstance(each, int)
        producer.put(b"late", 100, 0, 100)
    assert count == 3
    assert {body for _, _, body in jobs_of(server)} == {b"late"}


def test_what_comes_while_somebody_is_asked_stays() -> None:
    server = filled("ready")
    found = purge(server, "ready")
    late = others(server).put(b"late", 0, 0, 100)
    assert list(found.run()) == [StateResult("ready", 3, 0, late)]


def test_a_job_that_a_worker_takes_meanwhile_is_left_to_him() -> None:
    server = filled("ready")
    worker = Queue(MemoryLine(server))
    worker.watch_only([b"a"])
    running = purge(server, "ready").run()
    assert next(running) == 1
    job = worker.reserve(0)
    assert job is not None and job.id == 2
    assert list(running) == [3, StateResult("ready", 3, 2, None)]
    worker.delete(2)


@pytest.mark.parametrize("is_heard", [False, True])
def test_wherever_it_breaks_off_the_rest_is_as_it_was(is_heard: bool) -> None:
    requests = 0
    while True:
        server = filled("buried")
        line = MemoryLine(server)
        requests += 1
        line.breaks_at, line.is_heard = requests, is_heard
        deleted: list[int] = []
        try:
            running = TubePurge(Queue(line), b"a", ["buried"]).run()
            deleted += [each for each in running if isinstance(each, int)]
        except OSError:
            left = [job for job in jobs_of(server) if job[0] == "a"]
            assert left == [("a", "buried", b"%d" % number) for number in range(3)][3 - len(left) :]
        else:
            assert deleted == [1, 2, 3] and requests > 7
            return


def test_no_job_is_ever_reserved() -> None:
    server = filled("buried")
    line = MemoryLine(server)
    list(TubePurge(Queue(line), b"a", STATES).run())
    assert not [request for request in line.requests if b"reserve" in request]


def test_a_server_that_takes_no_jobs_any_more_can_be_emptied() -> None:
    server = filled("ready")
    server.service.drain()
    assert list(purge(server, "ready").run()) == [1, 2, 3, StateResult("ready", 3, 3, None)]


def test_an_empty_tube_is_looked_at_and_nothing_more() -> None:
    server = filled("ready")
    line = MemoryLine(server)
    assert TubePurge(Queue(line), b"a", ["buried"]).total == 0
    assert line.sent == 1
    with pytest.raises(Refused, match="there is no tube nowhere"):
        TubePurge(Queue(line), b"nowhere", ["buried"])
