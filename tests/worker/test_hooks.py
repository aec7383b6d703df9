"""
Logs and counts.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.error import ConnectionLost
from twisted.logger import LogLevel, capturedLogs, formatEvent

from beanstalk_twisted.worker.hooks import Tally
from beanstalk_twisted.worker.policy import Retry
from beanstalk_twisted.worker.verdicts import Bury
from tests.worker.world import Shop, Slow


def fickle(attempt: Any) -> Any:
    """
    Fail, bury or do, as the body says.
    """
    if attempt.body == b"fail":
        raise RuntimeError("as told")
    return Bury() if attempt.body == b"bury" else None


def test_all_that_happens_is_counted() -> None:
    shop = Shop()
    tally = Tally()
    shop.worker(fickle, hooks=[tally], policy=Retry(first_delay_s=100))
    for body in (b"do", b"fail", b"bury", b"do"):
        shop.put(body)
    assert tally.counts == {"began": 4, "done": 2, "failed": 1, "released": 1, "buried": 1}


def test_losses_touches_and_time_are_counted() -> None:
    shop = Shop()
    tally = Tally()
    slow = Slow()
    shop.worker(slow, hooks=[tally])
    job = shop.put(ttr=10)
    shop.world.advance(6)
    shop.links[0].transport.end(ConnectionLost())
    shop.links[0].wire.peer.hang_up()
    shop.world.advance(2)
    slow.finish(job)
    shop.world.settle()
    assert tally.counts == {"began": 2, "touched": 1, "lost": 1, "disconnected": 1, "done": 1}
    assert 1.5 < tally.seconds < 2


def test_a_failure_is_a_warning_that_names_the_job() -> None:
    shop = Shop()
    shop.worker(fickle, hooks=[], policy=Retry(first_delay_s=100))
    with capturedLogs() as events:
        shop.put(b"fail")
        shop.put(b"do")
    warnings = [formatEvent(each) for each in events if each["log_level"] is LogLevel.warn]
    assert warnings == ["job 1 of work, attempt 1: failed: RuntimeError: as told"]
    told = [formatEvent(each) for each in events if each["log_level"] is LogLevel.info]
    assert told == [
        "job 1 of work, attempt 1: Release(delay_s=50, priority=None) after 0.000 s",
        "job 2 of work, attempt 1: Delete() after 0.000 s",
    ]


def told_of_a_failure(**options: Any) -> list[str]:
    """
    Run a worker whose job fails, and read its warnings.
    """
    shop = Shop()
    with capturedLogs() as events:
        shop.worker(fickle, policy=Retry(first_delay_s=100), **options)
        shop.put(b"fail")
    return [formatEvent(each) for each in events if each["log_level"] is LogLevel.warn]


def test_hooks_of_ones_own_take_nothing_away_from_the_log() -> None:
    tally = Tally()
    assert len(told_of_a_failure(hooks=[tally])) == 1 and tally.counts["failed"] == 1


def test_the_log_can_be_switched_off() -> None:
    assert told_of_a_failure(hooks=[], logs=False) == []
