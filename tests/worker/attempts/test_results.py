"""What functions give that was meant otherwise, and whatever else is wrong with them."""

from __future__ import annotations

import asyncio
import functools
import io
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future as ThreadFuture
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from beanstalk_twisted.client.commands.specs import Job
from beanstalk_twisted.worker import handlers
from beanstalk_twisted.worker.attempt import Attempt, Ending
from beanstalk_twisted.worker.handlers import InlineThreads
from beanstalk_twisted.worker.hooks import Event
from beanstalk_twisted.worker.policy import Bury, Decided, Delete, NoResult, Release, Retry
from tests.client.world import error, is_waiting, result
from tests.worker.world import Shop

Doer = Callable[[Attempt[Any]], Any]

THREADS = pytest.mark.parametrize("in_threads", [False, InlineThreads()])


def decorated(function: Doer) -> Doer:
    """Decorate as one does who has not thought of coroutines."""

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


class Threaded(Clock):
    """A reactor that is called from threads, as far as a result needs it."""

    def callFromThread(self, call: Callable[[], object]) -> None:
        self.callLater(0, call)


def given(future: ThreadFuture[Any]) -> tuple[Attempt[Any], Deferred[Any], Threaded]:
    reactor = Threaded()
    attempt: Attempt[Any] = Attempt(reactor, Job(1, b"x"))
    return attempt, handlers.awaited(future, attempt, reactor), reactor


@pytest.mark.parametrize("is_done_before", [False, True])
def test_a_future_of_an_executor_is_awaited(is_done_before: bool) -> None:
    future: ThreadFuture[Any] = ThreadFuture()
    if is_done_before:
        future.set_result("done")
    _, coming, reactor = given(future)
    assert is_waiting(coming)
    if not is_done_before:
        future.set_result("done")
    reactor.advance(0)
    assert result(coming) == "done"


def test_one_that_fails_has_failed() -> None:
    future: ThreadFuture[Any] = ThreadFuture()
    _, coming, reactor = given(future)
    future.set_exception(LookupError("no"))
    reactor.advance(0)
    error(coming, LookupError)


def test_one_that_has_not_begun_is_cancelled_with_its_attempt() -> None:
    future: ThreadFuture[Any] = ThreadFuture()
    attempt, coming, reactor = given(future)
    attempt.cancel(Ending.LIMIT)
    error(coming, CancelledError)
    reactor.advance(0)
    assert future.cancelled()


def test_a_real_executor_tells_in_another_thread() -> None:
    with ThreadPoolExecutor(1) as pool:
        _, coming, reactor = given(pool.submit(threading.get_ident))
    reactor.advance(0)
    assert result(coming) != threading.get_ident()


def generator(attempt: Attempt[Any]) -> Any:
    yield Deferred()


async def asynchronous_generator(attempt: Attempt[Any]) -> Any:
    yield Deferred()


def ended_process(attempt: Attempt[Any]) -> Any:
    """Begin a process, and do not wait for it in the function."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process


def deciding(what: Any) -> Doer:
    def do(attempt: Attempt[Any]) -> None:
        raise Decided(what)

    return do


def leaving(attempt: Attempt[Any]) -> None:
    raise GeneratorExit


async def leaving_later(attempt: Attempt[Any]) -> None:
    raise GeneratorExit


@THREADS
@pytest.mark.parametrize(
    ("doer", "kind"),
    [
        (generator, NoResult), (asynchronous_generator, NoResult),
        (lambda attempt: Release, NoResult), (lambda attempt: ValueError, NoResult),
        (lambda attempt: ValueError("no"), NoResult), (deciding(None), TypeError),
        (deciding("x"), TypeError),
        (lambda attempt: map(str, [1]), NoResult), (lambda attempt: filter(None, [1]), NoResult),
        (lambda attempt: iter([1]), NoResult), (lambda attempt: [Deferred()], NoResult),
        (lambda attempt: (1, ThreadFuture()), NoResult), (ended_process, NoResult),
        (deciding(Release), TypeError), (leaving, NoResult),
        (decorated(leaving_later), NoResult),
    ],
)  # fmt: skip
def test_what_cannot_have_been_meant_counts_as_failed(
    doer: Doer, kind: type[Exception], in_threads: Any, shop: Shop
) -> None:
    worker = shop.worker(doer, in_threads=in_threads, policy=Retry(first_delay_s=100))
    job = shop.put(ttr=5)
    assert [type(error) for _, error in shop.noted.named("failed")] == [kind]
    assert shop.jobs() == {"delayed": 1}
    assert worker.jobs_in_hand == 0
    shop.world.advance(20)
    assert shop.noted.named("touched") == []
    assert shop.stats(job).timeouts == 0


@pytest.mark.parametrize(
    "result", [True, False, 0, "", [], [1], (1,), {}, b"x", object(), int, 1.5, io.StringIO()]
)
def test_whatever_else_is_given_means_done(result: Any, shop: Shop) -> None:
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
def test_hooks_may_raise(
    hook: str, kind: type[BaseException], clean_reactor: list[Failure]
) -> None:
    def fault(event: Event) -> None:
        if event.name == hook:
            raise kind

    shop = Shop()
    waiting: Deferred[None] = Deferred()
    worker = shop.worker(lambda attempt: waiting, hooks=[fault])
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
    worker = shop.worker(lambda attempt: Deferred(), chance=lambda: 1 / 0)
    shop.put(ttr=3600)
    assert shop.jobs() == {"delayed": 1}
    assert worker.jobs_in_hand == 0
    assert clean_reactor.pop().check(ZeroDivisionError)
    assert not clean_reactor


@pytest.mark.parametrize("junk", [None, "x", Release, 1, ZeroDivisionError()])
@pytest.mark.parametrize("method", ["before", "after"])
def test_a_policy_that_gives_no_verdict_or_raises_buries(
    method: str, junk: Any, clean_reactor: list[Failure]
) -> None:
    class Odd(Retry):
        def before(self, stats: Any) -> Any:
            return self.after() if method == "before" else None

        def after(self, *facts: Any) -> Any:
            if isinstance(junk, Exception):
                raise junk
            return junk

    def do(attempt: Attempt[Any]) -> None:
        raise RuntimeError

    shop = Shop()
    shop.worker(do, policy=Odd())
    shop.put()
    assert shop.jobs() == {"buried": 1}
    assert shop.noted.named("lost") == []
    assert clean_reactor.pop().check(
        ZeroDivisionError if isinstance(junk, Exception) else TypeError
    )
    assert not clean_reactor
