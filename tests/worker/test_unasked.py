"""Attempts of a policy that need not know how often a job was tried."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.error import ConnectionLost

from beanstalk_twisted.client import errors
from beanstalk_twisted.worker.attempt import LOOK_S, Attempt, Ending
from beanstalk_twisted.worker.policy import Bury, Delete, Release, Retry, Return
from tests.worker.world import Shop, Slow

UNLIMITED = Retry(most_attempts=None)


def test_the_server_is_not_asked_about_a_job_that_is_done_quickly(shop: Shop) -> None:
    shop.worker(lambda attempt: None, policy=UNLIMITED)
    job = shop.put()
    assert shop.noted.told == [("began", job), ("ended", job, Delete())]
    assert shop.commands("stats-job") == 0 and shop.jobs() == {}


def test_it_is_asked_after_a_while_and_the_job_is_touched(shop: Shop, slow: Slow) -> None:
    shop.worker(slow, policy=UNLIMITED)
    job = shop.put(ttr=10)
    (attempt,) = slow.begun
    assert repr(attempt) == f"<Attempt job {job}>"
    with pytest.raises(RuntimeError, match="the server was not asked"):
        attempt.number  # noqa: B018
    assert attempt.time_left_s() == 1
    shop.world.advance(LOOK_S)
    assert (attempt.number, attempt.stats.ttr, attempt.time_left_s()) == (1, 10, 10 - LOOK_S)
    shop.world.advance(60)
    assert shop.jobs() == {"reserved": 1} and shop.commands("stats-job") == 1
    slow.finish(job)
    shop.world.settle()
    assert shop.jobs() == {}


def test_without_touches_its_ttr_is_the_limit(shop: Shop, slow: Slow) -> None:
    shop.worker(slow, policy=UNLIMITED, touches=False)
    job = shop.put(ttr=10)
    shop.world.advance(9.9)
    assert slow.cancelled == []
    shop.world.advance(0.1)
    assert slow.cancelled == [job] and slow.begun[0].ending is Ending.TTR


def test_a_job_that_fails_is_tried_later_and_later_without_end(shop: Shop) -> None:
    def fail(attempt: Attempt[Any]) -> None:
        raise ValueError

    shop.worker(fail, policy=Retry(most_attempts=None, most_delay_s=10))
    job = shop.put(priority=7)
    shop.world.advance(200)
    stats = shop.stats(job)
    assert stats.state == "delayed" and stats.reserves > 10 and stats.pri == 7
    assert [verdict for _, verdict in shop.noted.named("ended")][:4] == [
        Release(each) for each in (1, 2, 4, 5)
    ]


@pytest.mark.parametrize(
    ("verdict", "state"), [(Release(60), "delayed"), (Return(60), "delayed"), (Bury(), "buried")]
)
def test_a_verdict_keeps_the_priority(verdict: Any, state: str, shop: Shop) -> None:
    shop.worker(lambda attempt: verdict, policy=UNLIMITED)
    job = shop.put(priority=7)
    assert (shop.stats(job).state, shop.stats(job).pri) == (state, 7)


def test_a_limit_that_ends_before_it_is_asked_counts(shop: Shop) -> None:
    slow = Slow()
    shop.worker(slow, policy=Retry(most_attempts=None, first_delay_s=60), limit_s=0.1)
    job = shop.put()
    shop.world.advance(0.1)
    assert shop.stats(job).state == "delayed" and shop.stats(job).delay == 30


@pytest.mark.parametrize("result", [None, RuntimeError()])
def test_one_that_was_cancelled_is_noticed(result: Exception | None, shop: Shop) -> None:
    slow = Slow()
    shop.worker(slow, policy=UNLIMITED)
    job = shop.put()
    shop.world.result(shop.producer.cancel_job(job))
    shop.world.advance(LOOK_S if result is None else 0)
    slow.fail(job, result) if result else None
    shop.world.settle()
    assert shop.noted.told == [("began", job), ("cancelled", job)]


def test_one_that_fails_as_the_connection_is_lost_comes_again(shop: Shop) -> None:
    slow = Slow()
    shop.worker(slow, policy=UNLIMITED)
    job = shop.put()
    shop.links[0].wire.cut_off()
    slow.fail(job, ValueError())
    shop.world.settle()
    shop.links[0].transport.end(ConnectionLost())
    shop.links[0].wire.peer.hang_up()
    shop.world.advance(60)
    assert [attempt.id for attempt in slow.begun] == [job, job]
    ((_, _, error),) = shop.noted.named("unsettled")
    assert isinstance(error, errors.NotCarriedOut)
