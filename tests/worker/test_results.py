"""
What functions give that was meant otherwise, and whatever else is wrong with them.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from beanstalk_twisted.worker.attempt import Attempt
from beanstalk_twisted.worker.policy import Retry
from beanstalk_twisted.worker.threads import InlineThreads
from beanstalk_twisted.worker.verdicts import Bury, Decided, Delete, NoResult, Release
from tests.worker.world import Noted, Shop

Doer = Callable[[Attempt[Any]], Any]

THREADS = pytest.mark.parametrize("in_threads", [False, InlineThreads()])


def decorated(function: Doer) -> Doer:
    """
    Decorate as one does who has not thought of coroutines.
    """

    @functools.wraps(function)
    def wrapped(attempt: Attempt[Any]) -> Any:
        return function(attempt)

    return wrapped


@THREADS
def test_a_coroutine_behind_a_plain_decorator_is_run(in_threads: Any) -> None:
    done: list[bytes] = []
    later: Deferred[None] = Deferred()

    @decorated
    async def do(attempt: Attempt[Any]) -> None:
        await later
        done.append(attempt.body)

    shop = Shop()
    shop.worker(do, in_threads=in_threads)
    job = shop.put(b"x")
    assert shop.jobs() == {"reserved": 1}
    later.callback(None)
    shop.world.settle()
    assert done == [b"x"]
    assert shop.noted.named("ended") == [(job, Delete())]


def test_one_that_comes_out_of_a_thread_is_cancelled_with_its_attempt() -> None:
    cancelled: list[int] = []

    @decorated
    async def do(attempt: Attempt[Any]) -> None:
        try:
            await Deferred()
        except CancelledError:
            cancelled.append(attempt.id)
            raise

    shop = Shop()
    shop.worker(do, in_threads=InlineThreads(), limit_s=5)
    job = shop.put()
    shop.world.advance(6)
    assert cancelled == [job]


@THREADS
def test_any_other_thing_that_can_be_awaited_is(in_threads: Any) -> None:
    class Ready:
        def __await__(self) -> Iterator[Any]:
            yield from ()
            return Bury()  # type: ignore[return-value]

    shop = Shop()
    shop.worker(lambda attempt: Ready(), in_threads=in_threads)
    shop.put()
    assert shop.jobs() == {"buried": 1}


def test_a_future_is_awaited() -> None:
    loop = asyncio.new_event_loop()
    future: asyncio.Future[Any] = loop.create_future()
    shop = Shop()
    shop.worker(lambda attempt: future)
    shop.put()
    future.set_result(Bury())
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    shop.world.settle()
    assert shop.jobs() == {"buried": 1}


def generator(attempt: Attempt[Any]) -> Any:
    """
    Forget ``inlineCallbacks``.
    """
    yield Deferred()


async def asynchronous_generator(attempt: Attempt[Any]) -> Any:
    """
    The same with a coroutine.
    """
    yield Deferred()


def deciding(what: Any) -> Doer:
    """
    Raise `Decided`.
    """

    def do(attempt: Attempt[Any]) -> None:
        raise Decided(what)

    return do


def leaving(attempt: Attempt[Any]) -> None:
    """
    Raise what ends a coroutine.
    """
    raise GeneratorExit


async def leaving_later(attempt: Attempt[Any]) -> None:
    """
    The same, as a coroutine.
    """
    raise GeneratorExit


@THREADS
@pytest.mark.parametrize(
    ("doer", "kind"),
    [
        (generator, NoResult), (asynchronous_generator, NoResult),
        (lambda attempt: Release, NoResult), (lambda attempt: ValueError, NoResult),
        (lambda attempt: ValueError("no"), NoResult), (deciding(None), TypeError),
        (deciding("x"), TypeError), (deciding(Release), TypeError), (leaving, NoResult),
        (decorated(leaving_later), NoResult),
    ],
)  # fmt: skip
def test_what_cannot_have_been_meant_counts_as_failed(
    doer: Doer, kind: type[Exception], in_threads: Any
) -> None:
    shop = Shop()
    worker = shop.worker(doer, in_threads=in_threads, policy=Retry(first_delay_s=100))
    job = shop.put(ttr=5)
    assert [type(error) for _, error in shop.noted.named("failed")] == [kind]
    assert shop.jobs() == {"delayed": 1}
    assert worker.jobs_in_hand == 0
    shop.world.advance(20)
    assert shop.noted.named("touched") == []
    assert shop.stats(job).timeouts == 0


@pytest.mark.parametrize("result", [True, False, 0, "", [], {}, b"x", object(), int, 1.5])
def test_whatever_else_is_given_means_done(result: Any) -> None:
    shop = Shop()
    shop.worker(lambda attempt: result)
    shop.put()
    assert shop.jobs() == {}


# Faults beside the function.


def test_a_serialiser_that_raises_what_ends_a_coroutine_has_failed() -> None:
    class Leaving:
        def load(self, body: bytes) -> Any:
            raise GeneratorExit

        def dump(self, value: Any) -> bytes:
            return b""

    shop = Shop()
    worker = shop.worker(print, serialiser=Leaving(), policy=Retry(first_delay_s=100))
    shop.put()
    assert shop.jobs() == {"delayed": 1}
    assert worker.jobs_in_hand == 0


@pytest.mark.parametrize("kind", [GeneratorExit, SystemExit, asyncio.CancelledError])
@pytest.mark.parametrize("hook", ["began", "touched", "ended"])
def test_a_hook_may_raise_anything(
    hook: str, kind: type[BaseException], clean_reactor: list[Failure]
) -> None:
    class Faulty(Noted):
        pass

    def fault(self: Any, *facts: object) -> None:
        raise kind

    setattr(Faulty, hook, fault)
    shop = Shop()
    waiting: Deferred[None] = Deferred()
    worker = shop.worker(lambda attempt: waiting, hooks=[Faulty()])
    shop.put(ttr=10)
    shop.world.advance(6)
    waiting.callback(None)
    shop.world.settle()
    assert shop.jobs() == {}
    assert worker.jobs_in_hand == 0
    assert clean_reactor and all(failure.check(kind) for failure in clean_reactor)
    clean_reactor.clear()


def test_a_fault_of_the_workers_own_gives_the_job_back_later(clean_reactor: list[Failure]) -> None:
    shop = Shop()
    worker = shop.worker(lambda attempt: None, chance=lambda: 1 / 0)
    shop.put(ttr=3600)
    assert shop.jobs() == {"delayed": 1}
    assert worker.jobs_in_hand == 0
    assert clean_reactor.pop().check(ZeroDivisionError)
    assert not clean_reactor


@pytest.mark.parametrize("junk", [None, "x", Release, 1])
@pytest.mark.parametrize("method", ["before", "after"])
def test_a_policy_that_says_nothing_buries(
    method: str, junk: Any, clean_reactor: list[Failure]
) -> None:
    class Odd(Retry):
        def before(self, stats: Any) -> Any:
            return junk if method == "before" else None

        def after(self, stats: Any, error: BaseException, chance: float) -> Any:
            return junk

    def do(attempt: Attempt[Any]) -> None:
        raise RuntimeError

    shop = Shop()
    shop.worker(do, policy=Odd())
    shop.put()
    assert shop.jobs() == {"buried": 1}
    assert shop.noted.named("lost") == []
    assert clean_reactor.pop().check(TypeError)
    assert not clean_reactor
