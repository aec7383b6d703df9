"""Another connection is not the one before: its tubes are to be confirmed, and its numbers may be
other jobs'.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionLost

from beanstalk_twisted.client import errors
from beanstalk_twisted.testing.double import Beanstalk
from beanstalk_twisted.worker.attempt import Attempt, Ending
from beanstalk_twisted.worker.policy import (
    Delete,
    Release,
    Retry,
    TookTooLong,
)
from beanstalk_twisted.worker.reserver import POLL_MOST_S, REST_S
from beanstalk_twisted.worker.service import Worker
from tests.client.world import is_waiting
from tests.worker.world import TUBE, Noted, Shop, Slow


class Heedless:
    """Threads that work as slowly as a test wants, and cannot be cancelled; and what they do.

    :ivar waiting: what each waits for.
    :ivar attempts: what each was given.
    """

    def __init__(self) -> None:
        self.waiting: list[Deferred[Any]] = []
        self.attempts: list[Attempt[Any]] = []

    def __call__(self, attempt: Attempt[Any]) -> None:
        self.attempts.append(attempt)

    @property
    def begun(self) -> list[bytes]:
        return [attempt.body for attempt in self.attempts]

    def start(self) -> None:
        """See `Threads`."""

    def run(self, work: Callable[[], Any]) -> Deferred[Any]:
        work()
        self.waiting.append(Deferred())
        return self.waiting[-1]

    def stop(self) -> None:
        """See `Threads`."""


def restart(shop: Shop) -> None:
    """Let the server be killed, and another process begin, to which a producer comes first."""
    shop.world.kill()
    shop.world.restart()
    shop.producer = shop.world.client()
    shop.world.result(shop.producer.use(TUBE))


# Numbers.


@pytest.mark.parametrize("result", [None, Release(), Delete()])
def test_a_job_that_has_the_number_of_one_of_a_server_before_is_left_alone(result: Any) -> None:
    shop = Shop()
    heedless = Heedless()
    shop.worker(heedless, in_threads=heedless)
    old = shop.put(b"old")
    restart(shop)
    new = shop.put(b"new", delay=3600)
    assert new == old
    shop.world.advance(60)
    heedless.waiting[0].callback(result)
    shop.world.settle()
    assert shop.jobs() == {"delayed": 1}
    assert shop.noted.named("lost") == [(old, Ending.DISCONNECTED)]


def test_it_is_done_even_while_the_old_one_is(shop: Shop) -> None:
    heedless = Heedless()
    shop.worker(heedless, 2, in_threads=heedless)
    shop.put(b"old")
    restart(shop)
    shop.world.advance(60)
    shop.put(b"new", ttr=10)
    assert heedless.begun == [b"old", b"new"]
    heedless.waiting[0].callback(None)
    shop.world.advance(60)
    assert shop.jobs() == {"reserved": 1}
    heedless.waiting[1].callback(None)
    shop.world.settle()
    assert shop.jobs() == {}


def test_what_was_left_behind_gives_back_no_other_job_when_the_worker_stops(shop: Shop) -> None:
    heedless = Heedless()
    worker = shop.worker(heedless, 2, in_threads=heedless, connections=1, finish_s=5)
    shop.put(b"old")
    restart(shop)
    shop.world.advance(60)
    shop.put(b"new", ttr=3600)
    shop.world.advance(POLL_MOST_S)
    stopped = worker.stopService()
    shop.world.advance(4)
    heedless.waiting[1].callback(None)
    shop.world.advance(2)
    shop.world.result(stopped)
    assert shop.jobs() == {}
    assert shop.commands("release") == 0


def test_a_job_that_was_lost_is_touched_no_more(shop: Shop) -> None:
    heedless = Heedless()
    shop.worker(heedless, 2, in_threads=heedless, connections=1)
    shop.put(b"old", ttr=10)
    restart(shop)
    shop.world.advance(60)
    shop.put(b"new", ttr=3600)
    touched = shop.commands("touch")
    shop.world.advance(100)
    assert shop.commands("touch") == touched
    by_hand = heedless.attempts[0].touch()
    shop.world.settle()
    with pytest.raises(errors.NotCarriedOut):
        shop.world.result(by_hand)
    assert shop.commands("touch") == touched


def test_a_delete_without_an_answer_is_not_sent_to_another_server(shop: Shop, slow: Slow) -> None:
    shop.worker(slow)
    old = shop.put(b"old")
    shop.links[0].wire.cut_off()
    slow.finish(old)
    shop.world.settle()
    shop.links[0].transport.end(ConnectionLost())
    restart(shop)
    assert shop.put(b"new", delay=3600) == old
    shop.world.advance(60)
    assert shop.jobs() == {"delayed": 1}
    ((job, verdict, error),) = shop.noted.named("unsettled")
    assert (job, verdict) == (old, Delete()) and isinstance(error, errors.Unanswered)


def test_a_job_done_after_its_connection_was_lost_is_deleted_from_the_same_server() -> None:
    shop = Shop()
    heedless = Heedless()
    shop.worker(heedless, in_threads=heedless)
    job = shop.put(b"x")
    shop.links[0].transport.end(ConnectionLost())
    shop.links[0].wire.peer.hang_up()
    shop.world.settle()
    heedless.waiting[0].callback(None)
    shop.world.settle()
    assert shop.jobs() == {"ready": 1}
    shop.world.advance(60)
    assert shop.jobs() == {}
    assert shop.noted.named("ended") == [(job, Delete())]
    assert heedless.begun == [b"x"]


def test_a_worker_that_waits_for_a_server_to_delete_a_job_can_be_stopped(shop: Shop) -> None:
    heedless = Heedless()
    worker = shop.worker(heedless, in_threads=heedless, finish_s=5)
    job = shop.put(b"x")
    shop.world.kill()
    heedless.waiting[0].callback(None)
    shop.world.settle()
    stopped = worker.stopService()
    shop.world.advance(4.9)
    assert is_waiting(stopped)
    shop.world.advance(0.2)
    shop.world.result(stopped)
    assert worker.jobs_in_hand == 0
    ((unsettled, _, error),) = shop.noted.named("unsettled")
    assert unsettled == job and isinstance(error, errors.Closed)


# Tubes.


@pytest.mark.parametrize("command", ["watch", "ignore"])
@pytest.mark.parametrize("reply", ["OUT_OF_MEMORY", "INTERNAL_ERROR"])
def test_nothing_is_taken_before_the_server_has_confirmed_the_tubes(
    beanstalk: Beanstalk, command: str, reply: str
) -> None:
    beanstalk.put(b"not ours")
    beanstalk.put(b"ours", tube="mail")
    beanstalk.answer_next(command, reply)
    seen: list[tuple[str, bytes]] = []
    noted = Noted()
    worker: Worker[bytes] = Worker(
        beanstalk.endpoint, "mail", lambda attempt: seen.append((attempt.tube, attempt.body)),
        reactor=beanstalk.clock, hooks=[noted],
    )  # fmt: skip
    worker.startService()
    beanstalk.advance(REST_S / 2)
    assert seen == []
    assert len(noted.named("troubled")) == 1
    beanstalk.advance(REST_S)
    assert seen == [("mail", b"ours")]
    beanstalk.assert_jobs(ready=1)


def test_a_worker_whose_tubes_are_refused_can_be_stopped(beanstalk: Beanstalk) -> None:
    beanstalk.answer_next("watch", "OUT_OF_MEMORY")
    worker: Worker[bytes] = Worker(
        beanstalk.endpoint, "mail", print, reactor=beanstalk.clock, hooks=[]
    )
    worker.startService()
    beanstalk.settle()
    stopped = worker.stopService()
    beanstalk.advance(REST_S * 2)
    assert stopped.called
    assert not beanstalk.clock.getDelayedCalls()


def test_a_delete_makes_no_room_while_the_handler_is_stuck(shop: Shop) -> None:
    heedless = Heedless()
    policy = Retry(delete=(TookTooLong,))
    shop.worker(heedless, in_threads=heedless, limit_s=1, stuck_s=1, policy=policy)
    shop.put(b"hang")
    shop.put(b"next")
    shop.world.advance(60)
    assert heedless.begun == [b"hang"] and shop.jobs() == {"ready": 1}
