"""What a worker gives back uncounted, and how it hears of a job that was cancelled."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from beanstalk_twisted.wire.replies import UNKNOWN_COMMAND
from beanstalk_twisted.worker.attempt import Attempt, Ending
from beanstalk_twisted.worker.hooks import Tally
from beanstalk_twisted.worker.policy import Decided, Release, Retry, Return
from tests.client.world import is_waiting
from tests.worker.world import Shop, Slow


@pytest.mark.parametrize("is_raised", [True, False])
@pytest.mark.parametrize("delay", [0, 60])
def test_a_handler_returns_its_job(delay: int, is_raised: bool) -> None:
    shop = Shop()
    numbers: list[int] = []

    def not_now(attempt: Attempt[Any]) -> Return:
        numbers.append(attempt.number)
        if len(numbers) > 2:
            raise Decided(Release(600))
        if is_raised:
            raise Decided(Return(delay))
        return Return(delay)

    tally = Tally()
    shop.worker(not_now, policy=Retry(most_attempts=1), hooks=[shop.noted, tally])
    job = shop.put(priority=3)
    shop.world.advance(130)
    assert numbers == [1, 1, 1]
    stats = shop.stats(job)
    assert (stats.state, stats.pri, stats.reserves, stats.releases) == ("delayed", 3, 1, 1)
    assert shop.noted.named("ended")[:2] == [(job, Return(delay))] * 2
    assert shop.noted.named("failed") == []
    assert (tally.counts["returned"], tally.counts["released"]) == (2, 1)


@pytest.mark.parametrize("delay", [-1, 1 << 32, 1.5, True, "1"])
def test_a_delay_that_cannot_be_is_refused(delay: Any) -> None:
    with pytest.raises(ValueError, match="delay is a whole number"):
        Return(delay)


def shop_of_a_server_without_it() -> Shop:
    """A shop whose server announces nothing, as beanstalkd."""
    shop = Shop()
    shop.world.server.service.context.methods["capabilities"] = lambda session, now_ns: (
        UNKNOWN_COMMAND, 0
    )  # fmt: skip
    return shop


def test_a_server_without_it_is_sent_a_release() -> None:
    shop = shop_of_a_server_without_it()
    shop.worker(lambda attempt: Return(60))
    job = shop.put(priority=3)
    stats = shop.stats(job)
    assert (stats.state, stats.pri, stats.reserves, stats.releases) == ("delayed", 3, 1, 1)
    assert shop.noted.named("ended") == [(job, Release(60))]


@pytest.mark.parametrize("finish_s", [0, 5])
def test_so_it_is_when_the_worker_stops(finish_s: float) -> None:
    shop = shop_of_a_server_without_it()
    slow = Slow()
    worker = shop.worker(slow, finish_s=finish_s)
    job = shop.put(priority=3)
    stopped = worker.stopService()
    shop.world.advance(finish_s + 0.1)
    shop.world.result(stopped)
    stats = shop.stats(job)
    assert (stats.state, stats.pri, stats.reserves, stats.releases) == ("ready", 3, 1, 1)
    assert shop.noted.named("ended") == [(job, Release())]


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_cancelled_job_is_noticed_at_the_next_touch(concurrency: int) -> None:
    shop = Shop()
    slow, tally = Slow(), Tally()
    shop.worker(slow, concurrency, hooks=[shop.noted, tally])
    job, next_job = shop.put(ttr=10), 0
    shop.world.advance(1)
    shop.world.result(shop.producer.cancel_job(job))
    shop.world.settle()
    assert slow.cancelled == []
    shop.world.advance(6)
    assert slow.cancelled == [job]
    assert slow.begun[0].ending is Ending.CANCELLED
    assert shop.noted.named("cancelled") == [(job,)]
    assert {name for name, *_ in shop.noted.told} == {"began", "cancelled"}
    assert tally.counts == {"began": 1, "cancelled": 1}
    next_job = shop.put()
    assert slow.begun[-1].id == next_job


def test_the_handlers_own_touch_tells_it() -> None:
    shop = Shop()
    slow = Slow()
    shop.worker(slow)
    job = shop.put(ttr=100)
    shop.world.result(shop.producer.cancel_job(job))
    touched: Deferred[None] = slow.begun[0].touch()
    touched.addErrback(lambda failure: None)
    shop.world.settle()
    assert not is_waiting(touched)
    assert slow.cancelled == [job]
    assert shop.noted.named("cancelled") == [(job,)]


def test_one_that_is_done_before_it_hears_is_told_as_cancelled() -> None:
    shop = Shop()
    slow = Slow()
    shop.worker(slow)
    job = shop.put(ttr=100)
    shop.world.result(shop.producer.cancel_job(job))
    slow.finish(job)
    shop.world.settle()
    assert shop.noted.named("cancelled") == [(job,)]
    assert shop.noted.named("ended") == shop.noted.named("lost") == []


def test_one_that_fails_before_it_hears_fails_and_is_told_as_cancelled() -> None:
    shop = Shop()
    slow = Slow()
    shop.worker(slow)
    job = shop.put(ttr=100)
    shop.world.result(shop.producer.cancel_job(job))
    slow.fail(job, RuntimeError())
    shop.world.settle()
    assert len(shop.noted.named("failed")) == 1
    assert shop.noted.named("cancelled") == [(job,)]
    assert shop.noted.named("ended") == []


def test_one_cancelled_while_the_worker_stops_does_not_hold_it_up() -> None:
    shop = Shop()
    slow = Slow()
    worker = shop.worker(slow, finish_s=5)
    job = shop.put(ttr=100)
    shop.world.result(shop.producer.cancel_job(job))
    stopped = worker.stopService()
    shop.world.advance(5.1)
    shop.world.result(stopped)
    assert slow.cancelled == [job]
    # What became of it is not asked any more.
    assert shop.noted.named("lost") == [(job, Ending.NOT_OURS)]
