"""A worker that stood still for longer than a TTR, and is given its own job once more."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from beanstalk_twisted.client import errors
from beanstalk_twisted.worker.attempt import Ending
from beanstalk_twisted.worker.policy import Delete, Release
from tests.worker.world import Shop, Slow, Stubborn


def stand_still(shop: Shop, seconds: float) -> None:
    """Let time pass for the server alone, and then for the worker all at once."""
    shop.world.server.advance(seconds)
    shop.world.clock.advance(seconds)
    shop.world.settle()


def busy_shop(connections: int) -> tuple[Shop, Stubborn, int]:
    """Have two jobs in hand, so that the worker polls, and stand still until the first has come
    again.
    """
    shop = Shop()
    stubborn = Stubborn()
    job = shop.put(ttr=2)
    shop.worker(stubborn, 3, connections=connections)
    shop.put(ttr=100)
    shop.world.advance(0.3)
    stand_still(shop, 3)
    return shop, stubborn, job


@pytest.mark.parametrize("connections", [1, 2, 3])
def test_the_earlier_attempt_is_cancelled_when_the_job_comes_again(connections: int) -> None:
    shop, stubborn, job = busy_shop(connections)
    assert [each.number for each in stubborn.begun if each.id == job] == [1, 2]
    first = stubborn.begun[0]
    assert stubborn.cancelled == [1]
    assert first.ending is not None and first.ending.is_loss
    shop.world.advance(10)
    assert shop.stats(job).reserves == 2
    assert shop.stats(job).timeouts == 1


@pytest.mark.parametrize("outcome", [None, Release(), RuntimeError("no")])
def test_the_earlier_attempt_can_take_nothing_from_the_later(outcome: Any) -> None:
    shop, stubborn, job = busy_shop(1)
    first, second = stubborn.waiting[0], stubborn.waiting[2]
    error_of(shop, stubborn.begun[0].touch(), errors.NotFound)
    if isinstance(outcome, Exception):
        first.errback(outcome)
    else:
        first.callback(outcome)
    shop.world.settle()
    assert shop.stats(job).state == "reserved"
    assert shop.commands("release") == shop.commands("delete") == 0
    assert shop.noted.named("lost") == [(job, Ending.TTR)]
    second.callback(None)
    shop.world.settle()
    assert shop.noted.named("ended") == [(job, Delete())]
    assert shop.jobs() == {"reserved": 1}


def error_of(shop: Shop, waited: Deferred[Any], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        shop.world.result(waited)


def test_a_release_on_its_way_ends_the_later_attempt_before_it_begins(shop: Shop) -> None:
    stubborn = Stubborn()
    job = shop.put(ttr=2)
    shop.worker(stubborn, 3, connections=1)
    shop.put(ttr=100)
    shop.world.advance(0.3)
    shop.world.server.advance(3)
    # Behind the poll that gives us the job anew, and before the answer to that.
    shop.world.clock.advance(0.9)
    stubborn.waiting[0].callback(Release(delay=50))
    shop.world.settle()
    assert shop.stats(job).state == "delayed"
    assert [each.number for each in stubborn.begun if each.id == job] == [1]
    assert shop.noted.named("ended") == [(job, Release(delay=50))]
    shop.world.advance(60)
    assert [each.number for each in stubborn.begun if each.id == job] == [1, 3]


# What is read late.


@pytest.mark.parametrize("touches", [True, False])
def test_a_job_that_was_read_late_has_the_time_that_the_server_says(touches: bool) -> None:
    shop = Shop()
    slow = Slow()
    shop.worker(slow, touches=touches)
    shop.producer.put(b"x", ttr=10)
    shop.world.server.advance(0)
    shop.links[0].wire.hold()
    shop.world.settle()
    shop.world.advance(7.5)
    shop.links[0].wire.release()
    shop.world.settle()
    (attempt,) = slow.begun
    if touches:
        assert shop.noted.named("touched") == [(attempt.id,)]
        shop.world.advance(100)
        assert shop.stats(attempt.id).timeouts == 0
    else:
        assert attempt.time_left_s() == 2
        shop.world.advance(2.1)
        assert slow.cancelled == [attempt.id]
