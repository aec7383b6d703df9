"""A server that refuses what the worker tells it."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.logger import capturedLogs, formatEvent

from beanstalk_twisted.access.rules import AccessRules
from beanstalk_twisted.client import errors
from beanstalk_twisted.client.endpoints import MOST_S, SERVER_LOG
from beanstalk_twisted.testing.double import Beanstalk
from beanstalk_twisted.worker.attempt import Attempt
from beanstalk_twisted.worker.policy import Bury, Release
from beanstalk_twisted.worker.service import Worker
from tests.server.access.meeting import TOKEN, InlineHashing, rules
from tests.worker.world import TUBE, Noted, Shop

MOST = 60
"""`reserve`s in ten seconds, at most: four a second, and some around a burst."""


def working(
    beanstalk: Beanstalk, doer: Any, concurrency: int = 1, **options: Any
) -> tuple[Worker[Any], Noted]:
    noted = Noted()
    worker: Worker[Any] = Worker(
        beanstalk.endpoint, "t", doer, concurrency, reactor=beanstalk.clock, hooks=[noted],
        **options,
    )  # fmt: skip
    worker.startService()
    return worker, noted


@pytest.mark.parametrize("concurrency", [1, 2])
@pytest.mark.parametrize("connections", [1, 2])
@pytest.mark.parametrize(
    ("command", "result"), [("delete", None), ("release", Release()), ("bury", Bury())]
)
def test_a_job_that_could_not_be_given_back_makes_no_busy_loop(
    beanstalk: Beanstalk, command: str, result: Any, concurrency: int, connections: int
) -> None:
    beanstalk.network.max_rounds = 3000
    seen: list[float] = []

    def do(attempt: Attempt[Any]) -> Any:
        seen.append(beanstalk.clock.seconds())
        return result if len(seen) == 1 else None

    beanstalk.put(b"x", tube="t", ttr=10)
    beanstalk.answer_next(command, "OUT_OF_MEMORY")
    working(beanstalk, do, concurrency, connections=connections)
    beanstalk.advance(9.9)
    assert len(seen) == 1
    assert beanstalk.counts()["reserve-with-timeout"] < MOST
    beanstalk.advance(0.5)
    assert len(seen) == 2
    beanstalk.assert_no_jobs()


def test_after_that_a_new_job_is_begun_within_a_wait_of_polls(beanstalk: Beanstalk) -> None:
    beanstalk.put(b"x", tube="t", ttr=10)
    beanstalk.answer_next("delete", "OUT_OF_MEMORY")
    seen: list[bytes] = []
    working(beanstalk, lambda attempt: seen.append(attempt.body))
    beanstalk.advance(9.3)
    beanstalk.put(b"y", tube="t")
    beanstalk.advance(0.3)
    assert seen == [b"x", b"y"]


def test_a_job_of_which_the_server_tells_nothing_is_asked_about_again(beanstalk: Beanstalk) -> None:
    beanstalk.put(b"x", tube="t", ttr=3600)
    beanstalk.answer_next("stats-job", "OUT_OF_MEMORY")
    seen: list[bytes] = []
    _, noted = working(beanstalk, lambda attempt: seen.append(attempt.body))
    beanstalk.settle()
    assert seen == [b"x"]
    ((error,),) = noted.named("troubled")
    assert isinstance(error, errors.OutOfMemory)


def test_and_given_back_if_that_is_in_vain(beanstalk: Beanstalk) -> None:
    beanstalk.put(b"x", tube="t", ttr=3600)
    beanstalk.answer_next("stats-job", "OUT_OF_MEMORY")
    beanstalk.answer_next("stats-job", "OUT_OF_MEMORY")
    seen: list[bytes] = []
    worker, _ = working(beanstalk, lambda attempt: seen.append(attempt.body))
    beanstalk.settle()
    assert worker.jobs_in_hand == 0
    assert seen == []
    beanstalk.assert_jobs(delayed=1)
    beanstalk.advance(2)
    assert seen == [b"x"]
    beanstalk.assert_no_jobs()


def test_a_worker_whose_token_is_nobodys_says_so_once_and_works_when_the_server_knows_it() -> None:
    shop = Shop()
    done: list[bytes] = []
    shop.world.server.service.require_access(AccessRules(), InlineHashing())
    with capturedLogs() as events:
        shop.worker(lambda attempt: done.append(attempt.body), token=TOKEN.decode())
        for _ in range(3):
            shop.world.advance(MOST_S)
        told = [event for event in events if event["log_namespace"] == SERVER_LOG]
        assert len(told) == 1 and "UNAUTHORIZED" in str(formatEvent(told[0]))
    shop.world.server.service.require_access(rules(it={"admin": "*"}), InlineHashing())
    shop.world.advance(MOST_S)
    producer = shop.world.client(token=TOKEN.decode())
    shop.world.result(producer.put(b"x", tube=TUBE))
    shop.world.advance(MOST_S)
    assert done == [b"x"]
