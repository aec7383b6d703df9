"""Deleting the jobs that are there now, and no others: one by one, and many at once."""

from __future__ import annotations

from itertools import count

import pytest

from beanstalk_twisted.testing.memory_server import MemoryServer
from binlog_tools.queue.cli.delete import BatchPurge, StateResult, TubePurge, purge_of
from binlog_tools.queue.extensions import Extensions
from binlog_tools.queue.moving import BATCH_JOBS
from binlog_tools.queue.server import STATES, Queue, Refused
from tests.tools.queue.lines import MemoryLine, StockLine, filled, jobs_of


def single(line: MemoryLine, *states: str) -> TubePurge:
    """Begin to empty tube a by commands of beanstalkd alone."""
    return TubePurge(Queue(line), b"a", states)


def batched(line: MemoryLine, *states: str, batch_jobs: int = BATCH_JOBS) -> BatchPurge:
    queue = Queue(line)
    return BatchPurge(queue, Extensions(queue), b"a", states, batch_jobs)


def purge(line: MemoryLine, batch_jobs: int | None, *states: str) -> TubePurge | BatchPurge:
    """Begin to empty tube a, job by job or in batches of so many."""
    if batch_jobs is None:
        return single(line, *states)
    return batched(line, *states, batch_jobs=batch_jobs)


def others(server: MemoryServer) -> Queue:
    queue = Queue(MemoryLine(server))
    queue.use(b"a")
    return queue


EACH_WAY = pytest.mark.parametrize("batch_jobs", [None, BATCH_JOBS])


@pytest.mark.parametrize(
    ("batch_jobs", "steps"), [(None, [1, 2, 3]), (1, [1, 1, 1]), (2, [2, 1]), (200, [3])]
)
@pytest.mark.parametrize("state", STATES)
def test_only_jobs_of_a_state_go(state: str, batch_jobs: int | None, steps: list[int]) -> None:
    server = filled(state)
    queue = others(server)
    queue.use(b"b")
    queue.put(b"other tube", 0, 500 if state == "delayed" else 0, 100)
    asked = [other for other in STATES if other != state]
    running = purge(MemoryLine(server), batch_jobs, *asked).run()
    assert list(running) == [StateResult(each, 0, 0, None) for each in asked]
    found = purge(MemoryLine(server), batch_jobs, state)
    assert found.counts == {state: 3}
    assert list(found.run()) == [*steps, StateResult(state, 3, 3, None)]
    assert found.deleted == 3
    assert [body for _, _, body in jobs_of(server)] == [b"other tube"]


@pytest.mark.parametrize("state", ["ready", "delayed"])
def test_what_is_put_later_stays_even_if_it_stands_before_the_rest(state: str) -> None:
    server = filled(state)
    running = single(MemoryLine(server), state).run()
    assert next(running) == 1
    late = others(server).put(b"late", 0, 1 if state == "delayed" else 0, 100)
    # The second was the first of the tube when the first was deleted.
    assert list(running) == [2, StateResult(state, 3, 2, late)]
    assert [body for _, _, body in jobs_of(server)] == [b"2", b"late"]


@pytest.mark.parametrize("state", ["ready", "delayed"])
def test_a_batch_passes_over_what_is_put_later(state: str) -> None:
    server = filled(state)
    found = batched(MemoryLine(server), state, batch_jobs=1)
    others(server).put(b"later", 0, 1 if state == "delayed" else 0, 100)
    running = found.run()
    assert next(running) == 1
    others(server).put(b"last", 0, 1 if state == "delayed" else 0, 100)
    assert list(running) == [1, 1, StateResult(state, 3, 3, None)]
    assert [body for _, _, body in jobs_of(server)] == [b"last", b"later"]


def test_it_ends_however_many_others_put() -> None:
    server = filled("ready")
    producer = others(server)
    deleted = 0
    for each in single(MemoryLine(server), "ready").run():
        deleted += isinstance(each, int)
        producer.put(b"late", 100, 0, 100)
    assert deleted == 3
    assert {body for _, _, body in jobs_of(server)} == {b"late"}


def test_what_comes_while_somebody_is_asked_stays() -> None:
    server = filled("ready")
    found = single(MemoryLine(server), "ready")
    late = others(server).put(b"late", 0, 0, 100)
    assert list(found.run()) == [StateResult("ready", 3, 0, late)]


@pytest.mark.parametrize(("batch_jobs", "steps"), [(None, [1, 3]), (BATCH_JOBS, [2])])
def test_a_job_that_a_worker_takes_is_left(batch_jobs: int | None, steps: list[int]) -> None:
    server = filled("ready")
    worker = Queue(MemoryLine(server))

    class Raced(MemoryLine):
        def send(self, request: bytes) -> None:
            if request.startswith((b"delete-batch", b"delete 2")):
                worker.reserve_job(2)
            super().send(request)

    found = purge(Raced(server), batch_jobs, "ready")
    assert list(found.run()) == [*steps, StateResult("ready", 3, 2, None)]
    assert found.deleted == 2
    worker.delete(2)


@pytest.mark.parametrize("is_heard", [False, True])
@pytest.mark.parametrize("batch_jobs", [None, 2])
def test_where_it_breaks_off_the_rest_stays(batch_jobs: int | None, is_heard: bool) -> None:
    for breaks_at in count(1 if batch_jobs is None else 2):
        server = filled("buried")
        line = MemoryLine(server)
        line.breaks_at, line.is_heard = breaks_at, is_heard
        try:
            found = purge(line, batch_jobs, "buried")
            list(found.run())
        except OSError:
            left = [job for job in jobs_of(server) if job[0] == "a"]
            assert left == [("a", "buried", b"%d" % number) for number in range(3)][3 - len(left) :]
        else:
            assert found.deleted == 3 and breaks_at > 7
            return


@EACH_WAY
def test_no_job_is_ever_reserved(batch_jobs: int | None) -> None:
    line = MemoryLine(filled("buried"))
    list(purge(line, batch_jobs, *STATES).run())
    assert not [request for request in line.requests if b"reserve" in request]


def test_a_server_that_takes_no_jobs_any_more_can_be_emptied() -> None:
    server = filled("ready")
    server.service.drain()
    running = single(MemoryLine(server), "ready").run()
    assert list(running) == [1, 2, 3, StateResult("ready", 3, 3, None)]


@EACH_WAY
def test_an_empty_tube_is_looked_at_and_nothing_more(batch_jobs: int | None) -> None:
    line = MemoryLine(filled("ready"))
    assert purge(line, batch_jobs, "buried").total == 0
    assert [request for request in line.requests if request != b"capabilities\r\n"] == [
        b"stats-tube a\r\n"
    ]
    with pytest.raises(Refused, match="there is no tube nowhere"):
        TubePurge(Queue(line), b"nowhere", ["buried"])


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
