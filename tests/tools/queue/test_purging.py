"""Deleting the jobs that are there now, and no others: one by one, and many at once; and how lines
are divided among the requests that put them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.sync import Client, Pipeline
from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.wire.grammar import MAX_BATCH_JOBS
from binlog_tools.logs.quantities import NS
from binlog_tools.queue.asking import MAX_BATCH_BYTES, STATES
from binlog_tools.queue.cli.delete import BatchPurge, StateResult, TubePurge, purge_of
from binlog_tools.queue.cli.put import Batches, moment_s, one_by_one
from binlog_tools.queue.moving import BATCH_JOBS
from tests.tools.queue.lines import MemoryLine, StockLine, filled, jobs_of, queue_at, queue_of


def single(line: MemoryLine, *states: str) -> TubePurge:
    """Begin to empty tube a by commands of beanstalkd alone."""
    return TubePurge(queue_of(line), b"a", states)


def batched(line: MemoryLine, *states: str, batch_jobs: int = BATCH_JOBS) -> BatchPurge:
    queue = queue_of(line)
    return BatchPurge(queue, b"a", states, batch_jobs)


def purge(line: MemoryLine, batch_jobs: int | None, *states: str) -> TubePurge | BatchPurge:
    """Begin to empty tube a, job by job or in batches of so many."""
    if batch_jobs is None:
        return single(line, *states)
    return batched(line, *states, batch_jobs=batch_jobs)


def others(server: MemoryServer) -> Client:
    queue = queue_at(server)
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
    queue.put(b"other tube", priority=0, delay=500 if state == "delayed" else 0, ttr=100)
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
    late = others(server).put(b"late", priority=0, delay=1 if state == "delayed" else 0, ttr=100)
    # The second was the first of the tube when the first was deleted.
    assert list(running) == [2, StateResult(state, 3, 2, late)]
    assert [body for _, _, body in jobs_of(server)] == [b"2", b"late"]


@pytest.mark.parametrize("state", ["ready", "delayed"])
def test_a_batch_passes_over_what_is_put_later(state: str) -> None:
    server = filled(state)
    found = batched(MemoryLine(server), state, batch_jobs=1)
    others(server).put(b"later", priority=0, delay=1 if state == "delayed" else 0, ttr=100)
    running = found.run()
    assert next(running) == 1
    others(server).put(b"last", priority=0, delay=1 if state == "delayed" else 0, ttr=100)
    assert list(running) == [1, 1, StateResult(state, 3, 3, None)]
    assert [body for _, _, body in jobs_of(server)] == [b"last", b"later"]


def test_it_ends_however_many_others_put() -> None:
    server = filled("ready")
    producer = others(server)
    deleted = 0
    for each in single(MemoryLine(server), "ready").run():
        deleted += isinstance(each, int)
        producer.put(b"late", priority=100, delay=0, ttr=100)
    assert deleted == 3
    assert {body for _, _, body in jobs_of(server)} == {b"late"}


def test_what_comes_while_somebody_is_asked_stays() -> None:
    server = filled("ready")
    found = single(MemoryLine(server), "ready")
    late = others(server).put(b"late", priority=0, delay=0, ttr=100)
    assert list(found.run()) == [StateResult("ready", 3, 0, late)]


@pytest.mark.parametrize(("batch_jobs", "steps"), [(None, [1, 3]), (BATCH_JOBS, [2])])
def test_a_job_that_a_worker_takes_is_left(batch_jobs: int | None, steps: list[int]) -> None:
    server = filled("ready")
    worker = queue_at(server)

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
        except errors.ClientError:
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
    with pytest.raises(errors.NotFound, match=r"stats-tube \(tube nowhere\)"):
        TubePurge(queue_of(line), b"nowhere", ["buried"])


def test_the_quickest_way_that_a_server_has_is_taken() -> None:
    server = filled("ready")
    assert type(purge_of(queue_at(server), b"a", ["ready"])) is BatchPurge
    found = purge_of(queue_of(StockLine(server)), b"a", ["ready"])
    assert type(found) is TubePurge
    assert list(found.run()) == [1, 2, 3, StateResult("ready", 3, 3, None)]
    long = queue_at(server)
    long.use(b"x" * 200)
    assert type(purge_of(long, b"x" * 200, ["ready"])) is TubePurge
    assert type(purge_of(queue_of(MemoryLine(MemoryServer())), b"default", STATES)) is BatchPurge


LARGEST = 5 << 20
VALUES = {"priority": 5, "delay": 6, "ttr": 7}


class Told(Pipeline):
    """Keeps what it is to send."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send(self, spec: Any, args: Any = (), body: Any = None, *rest: Any) -> Any:
        self.sent.append((spec.name, body))


def told(send: Callable[[Pipeline], Any]) -> Any:
    pipe = Told()
    send(pipe)
    return pipe.sent[0]


SMALL = b"x"
BIG = b"x" * (LARGEST + 1)
HALF = b"x" * (MAX_BATCH_BYTES // 2)


@pytest.mark.parametrize(
    ("bodies", "divided"),
    [
        ([], []),
        ([SMALL], [("put", 1)]),
        ([b"", b""], [("put-batch", 2)]),
        ([SMALL] * MAX_BATCH_JOBS, [("put-batch", MAX_BATCH_JOBS)]),
        ([SMALL] * (MAX_BATCH_JOBS + 1), [("put-batch", MAX_BATCH_JOBS), ("put", 1)]),
        ([HALF, HALF, SMALL], [("put-batch", 2), ("put", 1)]),
        ([SMALL, HALF, HALF, SMALL], [("put-batch", 2), ("put-batch", 2)]),
        ([SMALL, SMALL, BIG, SMALL], [("put-batch", 2), ("put", 1), ("put", 1)]),
        ([BIG, BIG], [("put", 1), ("put", 1)]),
    ],
    ids=lambda value: str(len(value)),
)
def test_lines_are_divided_in_order(bodies: list[bytes], divided: list[tuple[str, int]]) -> None:
    requests = list(Batches(VALUES, LARGEST)(bodies))
    sent = [told(each.send) for each in requests]
    assert [
        (word, len(each.sizes)) for (word, *_), each in zip(sent, requests, strict=True)
    ] == divided
    assert [size for each in requests for size in each.sizes] == list(map(len, bodies))


def test_the_values_are_those_of_the_options() -> None:
    (batch,) = Batches(VALUES, LARGEST)([b"a", b"\r\n"])
    assert told(batch.send) == ("put-batch", b"5 6 7 1\r\na\r\n5 6 7 2\r\n\r\n")
    (single,) = Batches(VALUES, LARGEST)([b"a"])
    assert told(single.send) == ("put", b"a")


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("now", 1000), ("7", 7), ("+2h", 8200), ("1960-01-01", 0), ("1970-01-01T00:00:01.5Z", 2),
        ("2106-02-07T06:44:55Z", 1000 + (1 << 32) - 1),
    ],
)  # fmt: skip
def test_a_moment_that_is_past_is_one_that_can_be_sent(text: str, moment: int) -> None:
    assert moment_s(text, 1000 * NS) == moment


def test_a_moment_is_no_later_than_a_delay_can_say() -> None:
    with pytest.raises(ValueError, match="136 years"):
        moment_s("2106-02-07T06:44:56Z", 1000 * NS)


def test_without_batches_each_body_is_a_request() -> None:
    requests = list(one_by_one(lambda pipe, body: pipe.put(body))([b"a", b"bc"]))
    assert [(list(each.sizes), told(each.send)) for each in requests] == [
        ([1], ("put", b"a")), ([2], ("put", b"bc"))
    ]  # fmt: skip
