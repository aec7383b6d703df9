"""
Coroutines that await both kinds: asyncio's and Twisted's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred, succeed

from beanstalk_twisted.worker.attempt import Attempt
from beanstalk_twisted.worker.onasyncio import NeedsAsyncio, in_a_task
from beanstalk_twisted.worker.policy import Retry
from tests.worker.world import Shop


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """
    A loop of the test's own.
    """
    made = asyncio.new_event_loop()
    yield made
    made.close()


def outcome(loop: asyncio.AbstractEventLoop, running: Deferred[Any]) -> Any:
    """
    Run the loop until a Deferred has fired.
    """
    return loop.run_until_complete(running.asFuture(loop))


async def asking(later: Deferred[Any], told: list[Any]) -> Any:
    """
    Await one of each, in turn.
    """
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


def test_what_a_deferred_fails_with_is_raised_where_it_is_awaited(
    loop: asyncio.AbstractEventLoop,
) -> None:
    later: Deferred[str] = Deferred()
    running = in_a_task(asking(later, []), loop)
    loop.call_later(0.001, later.errback, LookupError("no"))
    with pytest.raises(LookupError, match="no"):
        outcome(loop, running)


@pytest.mark.parametrize("awaits_twisted", [False, True])
def test_to_cancel_it_cancels_what_it_awaits(
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
    """
    Await what is asyncio's.
    """
    await asyncio.sleep(0.001)


def awaiting_a_future(made: asyncio.Future[None]) -> Any:
    """
    Make a handler that awaits a future of a loop that does not run.
    """

    async def do(attempt: Attempt[Any]) -> None:
        await made

    return do


@pytest.mark.parametrize("kind", ["sleep", "future"])
def test_on_another_reactor_the_job_fails_and_says_what_is_missing(
    loop: asyncio.AbstractEventLoop, kind: str
) -> None:
    shop = Shop()
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
