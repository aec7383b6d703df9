"""Coroutines that await both kinds: asyncio's and Twisted's."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from beanstalk_twisted.client.commands.specs import Job
from beanstalk_twisted.worker.attempt import Attempt
from beanstalk_twisted.worker.handlers import NeedsAsyncio, PoolThreads, in_a_task
from beanstalk_twisted.worker.policy import NoResult, Retry
from tests.conftest import the_reactor
from tests.worker.world import Shop


@pytest.fixture
def threads() -> Iterator[PoolThreads]:
    made = PoolThreads(the_reactor())
    made.start()
    yield made
    made.stop()


async def test_an_outcome_comes_back(threads: PoolThreads) -> None:
    assert await threads.run(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await threads.run(lambda: 1 // 0)


async def test_a_deferred_out_of_a_thread_is_given_on_at_once(threads: PoolThreads) -> None:
    given: Deferred[None] = Deferred()
    came: list[Any] = []
    threads.run(lambda: given).addCallback(lambda result: came.append(result))
    while not came:
        await deferLater(the_reactor(), 0.01, lambda: None)
    assert came == [given]


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


def outcome(loop: asyncio.AbstractEventLoop, running: Deferred[Any]) -> Any:
    return loop.run_until_complete(running.asFuture(loop))


async def asking(later: Deferred[Any], told: list[Any]) -> Any:
    await asyncio.sleep(0)
    told.append(await succeed("at once"))
    async with asyncio.timeout(60):
        told.append(await later)
    await asyncio.sleep(0.001)
    return "done"


def test_both_kinds_give_what_they_have(loop: asyncio.AbstractEventLoop) -> None:
    later: Deferred[str] = Deferred()
    told: list[Any] = []
    running = in_a_task(asking(later, told), loop)
    loop.call_later(0.001, later.callback, "later")
    assert outcome(loop, running) == "done"
    assert told == ["at once", "later"]


def test_a_deferreds_failure_is_raised_where_it_is_awaited(loop: asyncio.AbstractEventLoop) -> None:
    later: Deferred[str] = Deferred()
    running = in_a_task(asking(later, []), loop)
    loop.call_later(0.001, later.errback, LookupError("no"))
    with pytest.raises(LookupError, match="no"):
        outcome(loop, running)


@pytest.mark.parametrize("awaits_twisted", [False, True])
def test_cancelling_goes_to_what_is_awaited(
    loop: asyncio.AbstractEventLoop, awaits_twisted: bool
) -> None:
    told: list[str] = []

    async def do() -> None:
        try:
            await (Deferred() if awaits_twisted else asyncio.sleep(600))
        except (CancelledError, asyncio.CancelledError) as error:
            told.append(type(error).__module__.partition(".")[0])
            raise

    running = in_a_task(do(), loop)
    loop.call_later(0.001, running.cancel)
    with pytest.raises((CancelledError, asyncio.CancelledError)):
        outcome(loop, running)
    assert told == ["twisted" if awaits_twisted else "asyncio"]


async def sleeping(attempt: Attempt[Any]) -> None:
    await asyncio.sleep(0.001)


def awaiting_a_future(made: asyncio.Future[None]) -> Any:
    """Make a handler that awaits a future of a loop that does not run."""

    async def do(attempt: Attempt[Any]) -> None:
        await made

    return do


@pytest.mark.parametrize("kind", ["sleep", "future"])
def test_on_another_reactor_the_job_fails_and_says_what_is_missing(
    loop: asyncio.AbstractEventLoop, kind: str, shop: Shop
) -> None:
    doer = sleeping if kind == "sleep" else awaiting_a_future(loop.create_future())
    shop.worker(doer, policy=Retry(first_delay_s=100))
    shop.put()
    ((_, error),) = shop.noted.named("failed")
    assert isinstance(error, NeedsAsyncio)
    assert "--reactor asyncio" in str(error)


def test_a_runtime_error_of_its_own_stays_what_it_is() -> None:
    async def do(attempt: Attempt[Any]) -> None:
        raise RuntimeError("another one")

    shop = Shop()
    shop.worker(do, policy=Retry(first_delay_s=100))
    shop.put()
    ((_, error),) = shop.noted.named("failed")
    assert str(error) == "another one"


@pytest.mark.parametrize("exits", [SystemExit(3), KeyboardInterrupt()])
@pytest.mark.parametrize("awaits", [False, True])
def test_what_would_end_the_process_only_fails(
    loop: asyncio.AbstractEventLoop, exits: BaseException, awaits: bool
) -> None:
    async def do() -> None:
        if awaits:
            await asyncio.sleep(0)
        raise exits

    failed: list[Failure] = []
    in_a_task(do(), loop).addErrback(failed.append)
    # The loop goes on, and does what else there is.
    assert loop.run_until_complete(asyncio.sleep(0.001, "another one")) == "another one"
    assert [failure.value for failure in failed] == [exits]


@pytest.mark.parametrize("exits", [SystemExit(3), KeyboardInterrupt()])
def test_nor_does_it_in_a_task_of_it(loop: asyncio.AbstractEventLoop, exits: BaseException) -> None:
    async def inner() -> None:
        await asyncio.sleep(0)
        raise exits

    async def do() -> None:
        await asyncio.gather(inner())

    running = in_a_task(do(), loop)
    with pytest.raises(NoResult, match=type(exits).__name__):
        outcome(loop, running)


def test_tasks_of_others_on_the_loop_are_as_they_were(loop: asyncio.AbstractEventLoop) -> None:
    made: list[Any] = []

    def make(loop: asyncio.AbstractEventLoop, running: Any, **options: Any) -> Any:
        made.append(running)
        return asyncio.Task(running, loop=loop, **options)

    async def nothing() -> str:
        return "done"

    loop.set_task_factory(make)
    in_a_task(nothing(), loop)
    mine = nothing()
    task = loop.create_task(mine, name="mine")
    assert loop.run_until_complete(task) == "done"
    assert made[-1] is mine and task.get_name() == "mine"
    assert len(made) == 2


def test_a_task_that_is_cancelled_before_its_first_step_leaves_nothing_behind(
    loop: asyncio.AbstractEventLoop, recwarn: pytest.WarningsRecorder
) -> None:
    async def inner() -> None:
        await asyncio.sleep(600)

    async def do() -> str:
        task = asyncio.create_task(inner())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return "done"

    assert outcome(loop, in_a_task(do(), loop)) == "done"
    gc.collect()
    assert [str(each.message) for each in recwarn] == []


async def test_a_function_in_a_thread_learns_of_its_job_when_it_wants_to(
    threads: PoolThreads,
) -> None:
    attempt: Attempt[Any] = Attempt(the_reactor(), Job(7, b"x"))
    known = Attempt.of(number=3).stats

    async def ask() -> None:
        attempt.learn(known, 0.0)

    attempt.begin(lambda: succeed(None), lambda: Deferred.fromCoroutine(ask()))
    with pytest.raises(RuntimeError, match="was not asked"):
        str(attempt.number)
    assert str(attempt) == "job 7"
    assert await threads.run(lambda: attempt.number) == 3
