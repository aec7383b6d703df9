"""What a worker gives back uncounted, and how it hears of a job that was cancelled."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionLost
from twisted.logger import LogLevel, capturedLogs, formatEvent

from beanstalk_twisted.client.stats import JobStats
from beanstalk_twisted.wire.replies import UNKNOWN_COMMAND
from beanstalk_twisted.worker.attempt import Attempt, Ending
from beanstalk_twisted.worker.hooks import Event, Tally
from beanstalk_twisted.worker.policy import Bury, Decided, Release, Retry, Return
from tests.client.world import is_waiting
from tests.worker.world import TUBE, Shop, Slow


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


def test_a_server_without_policies_is_sent_the_workers_own_delay() -> None:
    shop = shop_of_a_server_without_it()
    shop.worker(lambda attempt: 1 / 0)
    job = shop.put()
    assert shop.noted.named("ended") == [(job, Release(1))]


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


class Endings:
    """Keeps what a cancelled attempt looks like in its hook."""

    def __init__(self) -> None:
        self.seen: list[tuple[Ending | None, bool]] = []

    def __call__(self, event: Event) -> None:
        if event.name == "cancelled":
            assert event.attempt is not None
            self.seen.append((event.attempt.ending, event.attempt.is_cancelled))


@pytest.mark.parametrize("options", [{}, {"touches": False}, {"policy": Retry(most_attempts=1)}])
@pytest.mark.parametrize("result", [None, Return(), Release(5), Bury(), RuntimeError("too late")])
def test_one_whose_handler_ends_before_it_hears_is_cancelled_and_nothing_else(
    result: Any, options: Any
) -> None:
    shop = Shop()
    slow, tally, endings = Slow(), Tally(), Endings()
    shop.worker(slow, hooks=[shop.noted, tally, endings], **options)
    job = shop.put(ttr=100)
    late: list[str] = []
    slow.begun[0].when_cancelled(lambda: late.append("called"))
    shop.world.result(shop.producer.cancel_job(job))
    if isinstance(result, Exception):
        slow.fail(job, result)
    else:
        slow.finish(job, result)
    shop.world.settle()
    assert shop.noted.told == [("began", job), ("cancelled", job)]
    assert tally.counts == {"began": 1, "cancelled": 1}
    assert endings.seen == [(Ending.CANCELLED, True)]
    assert late == []  # There is nothing left to cancel.


def test_its_exception_is_logged_for_debugging_only() -> None:
    shop = Shop()
    job = 0

    def fail_cancelled(attempt: Attempt[Any]) -> None:
        shop.world.result(shop.producer.cancel_job(attempt.id))
        raise RuntimeError("too late")

    for logs in (True, False):
        with capturedLogs() as events:
            worker = shop.worker(fail_cancelled, hooks=[], logs=logs)
            job = shop.put(ttr=100)
            shop.world.result(worker.stopService())
        lines = [(each["log_level"], str(formatEvent(each))) for each in events]
        name = f"job {job} of work, attempt 1"
        found = [text for level, text in lines if level is LogLevel.debug and "too late" in text]
        assert [text.splitlines()[0] for text in found] == logs * [
            f"{name}: failed, but was cancelled: RuntimeError: too late"
        ]
        assert all("in fail_cancelled" in text for text in found)
        assert [text for level, text in lines if "too late" in text] == found
        assert ((LogLevel.info, f"{name}: cancelled") in lines) is logs


def test_one_that_was_cancelled_when_its_limit_is_over_has_not_taken_too_long() -> None:
    shop = Shop()
    slow, endings = Slow(), Endings()
    shop.worker(slow, hooks=[shop.noted, endings], limit_s=5)
    job = shop.put(ttr=100)
    shop.world.result(shop.producer.cancel_job(job))
    shop.world.advance(6)
    assert slow.cancelled == [job]
    assert shop.noted.told == [("began", job), ("cancelled", job)]
    assert endings.seen == [(Ending.CANCELLED, True)]


def test_one_that_is_not_to_be_tried_and_is_cancelled_meanwhile_has_not_failed() -> None:
    shop = Shop()

    class Used(Retry):
        def before(self, stats: JobStats) -> Bury:
            shop.world.result(shop.producer.cancel_job(stats.id))
            return Bury()

    shop.worker(Slow(), policy=Used())
    job = shop.put()
    assert shop.noted.told == [("cancelled", job)]


def test_a_job_that_fails_and_that_somebody_else_has_by_now_has_failed_and_is_lost() -> None:
    shop = Shop()
    slow = Slow()
    shop.worker(slow)
    job, error = shop.put(ttr=10), RuntimeError()
    other = shop.world.client()
    shop.world.result(other.watch(TUBE))
    reserve = other.reserve()
    shop.world.settle()
    # The server's clock runs away: to it, the TTR is over.
    shop.world.server.advance(11)
    shop.world.result(reserve)
    slow.fail(job, error)
    shop.world.settle()
    assert shop.noted.told == [
        ("began", job), ("failed", job, error), ("lost", job, Ending.NOT_OURS)
    ]  # fmt: skip


def test_a_job_that_fails_and_whose_verdict_is_not_answered_has_failed_and_is_unsettled() -> None:
    shop = Shop()
    slow = Slow()
    shop.worker(slow)
    job, error = shop.put(), RuntimeError()
    slow.fail(job, error)
    link = shop.links[0]
    link.transport.end(ConnectionLost())
    link.wire.peer.hang_up()
    shop.world.settle()
    names = [name for name, *_ in shop.noted.told]
    assert names[:4] == ["began", "disconnected", "failed", "unsettled"]
    assert shop.noted.named("failed") == [(job, error)]


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
    assert shop.noted.named("cancelled") == [(job,)]
