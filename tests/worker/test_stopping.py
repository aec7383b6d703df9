"""A worker that stops takes nothing more: what it gives back is for others."""

from __future__ import annotations

from typing import Any

import pytest

from beanstalk_twisted.testing.double import Beanstalk
from beanstalk_twisted.worker.policy import Release, Retry, Return
from beanstalk_twisted.worker.reserver import LAST_ANSWER_S
from beanstalk_twisted.worker.service import Worker
from tests.client.world import is_waiting, result
from tests.worker.world import TUBE, Noted, Shop, Slow


@pytest.mark.parametrize("concurrency", [2, 3])
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_job_that_is_given_back_does_not_come_to_its_other_connection(
    concurrency: int, jobs: int, shop: Shop, slow: Slow
) -> None:
    worker = shop.worker(slow, concurrency, finish_s=0.5)
    numbers = [shop.put() for _ in range(jobs)]
    shop.world.advance(1)
    stopped = worker.stopService()
    shop.world.advance(0.6)
    shop.world.result(stopped)
    for job in numbers:
        stats = shop.stats(job)
        assert (stats.state, stats.reserves, stats.releases) == ("ready", 0, 0)


def test_nor_does_one_that_fails_meanwhile_and_is_released_at_once(shop: Shop, slow: Slow) -> None:
    worker = shop.worker(slow, 3, policy=Retry(first_delay_s=0))
    job = shop.put()
    stopped = worker.stopService()
    slow.fail(job, RuntimeError())
    shop.world.settle()
    shop.world.result(stopped)
    assert (shop.stats(job).state, shop.stats(job).reserves) == ("ready", 1)


def test_a_job_put_while_it_stops_is_left_to_others(shop: Shop, slow: Slow) -> None:
    worker = shop.worker(slow, 3)
    first = shop.put()
    stopped = worker.stopService()
    shop.world.settle()
    second = shop.put()
    shop.world.advance(5)
    assert (shop.stats(second).state, shop.stats(second).reserves) == ("ready", 0)
    slow.finish(first)
    shop.world.settle()
    shop.world.result(stopped)
    assert len(slow.begun) == 1


def test_a_job_that_was_on_its_way_is_given_back_with_its_priority_and_not_begun() -> None:
    shop = Shop()
    slow = Slow()
    worker = shop.worker(slow, 3, connections=1)
    first = shop.put()
    shop.world.advance(1)
    link = shop.links[0]
    asked = link.transport.drain
    while b"reserve-with-timeout 0" not in (sent := asked()):
        shop.world.clock.advance(0.01)
    late = shop.put(priority=7)
    link.wire.send(sent)
    stopped = worker.stopService()
    shop.world.settle()
    stats = shop.stats(late)
    assert (stats.state, stats.reserves, stats.pri) == ("ready", 0, 7)
    assert is_waiting(stopped)
    slow.finish(first)
    shop.world.settle()
    shop.world.result(stopped)
    assert [attempt.id for attempt in slow.begun] == [first]


def test_what_is_returned_waits_for_the_last_answer(beanstalk: Beanstalk) -> None:
    slow, noted = Slow(), Noted()
    worker: Worker[Any] = Worker(
        beanstalk.endpoint, TUBE, slow, 3, reactor=beanstalk.clock, hooks=[noted], finish_s=0
    )
    worker.startService()
    job = beanstalk.put(b"x", tube=TUBE)
    beanstalk.settle()
    blocking = beanstalk.network.links[1]
    blocking.wire.cut_off()  # The server does not see that it is to end.
    stopped = worker.stopService()
    beanstalk.advance(LAST_ANSWER_S - 0.1)
    assert noted.named("ended") == [] and is_waiting(stopped)
    beanstalk.advance(0.2)
    assert noted.named("ended") == [(job, Return())]


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_verdict_that_takes_two_commands_is_waited_for(
    is_answered: bool, shop: Shop, slow: Slow
) -> None:
    worker = shop.worker(slow, finish_s=0.5)
    job = shop.put()
    stopped = worker.stopService()
    slow.fail(job, RuntimeError())  # Whether the tube has a backoff is asked first.
    if not is_answered:
        shop.links[0].wire.cut_off()
    shop.world.clock.advance(0.6)
    assert is_waiting(stopped)
    shop.world.advance(LAST_ANSWER_S if is_answered else 60)
    shop.world.result(stopped)
    if is_answered:
        assert shop.noted.named("ended") == [(job, Release(delay=1))]


def test_a_worker_that_has_stopped_so_can_be_started_again(shop: Shop, slow: Slow) -> None:
    worker = shop.worker(slow, 3, finish_s=0.5)
    job = shop.put()
    stopped = worker.stopService()
    shop.world.advance(1)
    shop.world.result(stopped)
    worker.startService()
    shop.world.settle()
    slow.finish(job)
    shop.put()
    assert [attempt.number for attempt in slow.begun] == [1, 1, 1]


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_worker_that_is_started_while_it_stops_takes_jobs_again(concurrency: int) -> None:
    shop = Shop()
    slow = Slow()
    worker = shop.worker(slow, concurrency)
    first = shop.put()
    stopped = worker.stopService()
    worker.startService()
    second = shop.put()
    shop.world.advance(5)
    # It still stops: what is in hand is finished first.
    assert is_waiting(stopped)
    assert [attempt.id for attempt in slow.begun] == [first]
    slow.finish(first)
    shop.world.settle()
    result(stopped)
    shop.world.advance(1)
    assert [attempt.id for attempt in slow.begun] == [first, second]
    slow.finish(second)
    shop.world.settle()
    assert shop.jobs() == {}


def test_one_that_is_started_and_stopped_while_it_stops_is_stopped(shop: Shop, slow: Slow) -> None:
    worker = shop.worker(slow)
    first = shop.put()
    stopped = worker.stopService()
    worker.startService()
    again = worker.stopService()
    slow.finish(first)
    shop.world.settle()
    result(stopped)
    result(again)
    shop.put()
    shop.world.advance(60)
    assert [attempt.id for attempt in slow.begun] == [first]
    assert not worker.running
