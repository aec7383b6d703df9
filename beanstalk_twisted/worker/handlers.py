"""How the function that does jobs runs, in a thread or in the reactor, and what it gives.

Coroutines that await what is asyncio's, `asyncio.sleep` and its like, need a task of asyncio's.
"""

import asyncio
from asyncio import isfuture
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator
from concurrent.futures import Future as ThreadFuture
from contextvars import ContextVar
from functools import partial
from inspect import isasyncgen, isawaitable, isclass, isgenerator
from io import IOBase
from queue import SimpleQueue
from subprocess import Popen
from threading import Thread
from types import coroutine
from typing import Any, Final, Protocol, TypeVar

from twisted.internet.defer import Deferred, execute
from twisted.python.failure import Failure

from beanstalk_twisted.worker.attempt import Attempt
from beanstalk_twisted.worker.policy import DELETE, NoResult, Verdict

T = TypeVar("T")

HINT: Final = (
    "asyncio's awaitables need Twisted's asyncio reactor: run beanstalk-work with "
    "--reactor asyncio, or install twisted.internet.asyncioreactor before anything imports "
    "twisted.internet.reactor"
)

_NO_LOOP: Final = "no running event loop"
"""What asyncio says, as a RuntimeError (asyncio.get_running_loop)."""

_EXITS: Final = (SystemExit, KeyboardInterrupt)
"""What asyncio does not keep in the task that raises it."""

_IS_OURS: Final = ContextVar("beanstalk_twisted.worker.on_asyncio", default=False)
"""Whether a task of ours is running, or one that such a task has made."""

# Threads.


class Threads(Protocol):
    """Runs what blocks."""

    def start(self) -> None:
        """Prepare for work."""

    def run(self, work: Callable[[], T]) -> Deferred[T]:
        """:return: the outcome of the work, in the reactor's thread."""

    def stop(self) -> None:
        """No more work will come."""


_Task = tuple[Callable[[], Any], Deferred[Any]]


class PoolThreads(Threads):
    """Real threads, as many as there is work for at the same time.

    They do not keep the process alive: one that hangs must not.
    """

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._running = 0
        self._made = 0
        self._given: SimpleQueue[_Task | None] = SimpleQueue()
        self._done: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._is_woken = False

    def start(self) -> None:
        # Threads of a former start that still work count as running, and end after that.
        self._given, self._made = SimpleQueue(), 0

    def run(self, work: Callable[[], T]) -> Deferred[T]:
        outcome: Deferred[T] = Deferred()
        self._running += 1
        if self._running > self._made:
            self._made += 1
            Thread(
                target=self._work, args=(self._given,), name="beanstalk-worker", daemon=True
            ).start()
        self._given.put((work, outcome))
        return outcome

    def _work(self, given: "SimpleQueue[_Task | None]") -> None:
        while (task := given.get()) is not None:
            work, outcome = task
            try:
                self._done.append((outcome.callback, work()))
            except BaseException:
                self._done.append((outcome.errback, Failure()))
            if not self._is_woken:  # One call is for all that have ended by then.
                self._is_woken = True
                self._reactor.callFromThread(self._tell)
            del task, work, outcome

    def _tell(self) -> None:
        # No callback of `outcome`: that would wait for a Deferred which the work has given, and
        # nobody could cancel it.
        self._is_woken = False
        while self._done:
            self._running -= 1
            end, result = self._done.popleft()
            end(result)

    def stop(self) -> None:
        """End the threads; one that still works ends after that."""
        for _ in range(self._made):
            self._given.put(None)
        self._made = 0


class InlineThreads(Threads):
    """None: the work is done in the thread that asks for it, before `run` returns.  For tests."""

    def start(self) -> None:
        pass

    def run(self, work: Callable[[], T]) -> Deferred[T]:
        done: Deferred[T] = execute(work)
        return done

    def stop(self) -> None:
        pass


# What a function gives.


def awaited(result: Any, attempt: Attempt[Any], reactor: Any) -> Any:
    """Wait, in the reactor's thread, for what is not there yet: a coroutine, a Deferred, a future.

    :return: a Deferred of it, which ends when the attempt is cancelled; or the result itself.
    """
    coming: Deferred[Any]
    if result is None:
        return None
    if isinstance(result, ThreadFuture):
        coming = _from_another_thread(result, reactor)
    elif not isawaitable(result):
        return result
    elif isinstance(result, Deferred):
        coming = result
    elif isfuture(result):
        coming = Deferred.fromFuture(result)
    elif (loop := running_loop(reactor)) is not None:
        coming = in_a_task(result, loop)
    else:
        coming = Deferred.fromCoroutine(without_asyncio(result))
    attempt.when_cancelled(coming.cancel)
    return coming


def _from_another_thread(future: "ThreadFuture[Any]", reactor: Any) -> Deferred[Any]:
    """Wait for what an executor does, of `concurrent.futures`."""

    def cancel(_: Deferred[Any]) -> None:
        future.cancel()

    coming: Deferred[Any] = Deferred(cancel)

    def end() -> None:
        if not coming.called:
            execute(future.result).chainDeferred(coming)

    # Called in whatever thread it ends, and immediately if it has.
    future.add_done_callback(lambda _: reactor.callFromThread(end))
    return coming


def verdict_of(result: Any) -> Verdict:
    """:raise NoResult: this cannot have been meant: nothing was done, or it has failed."""
    if result is None:
        return DELETE
    if isinstance(result, Verdict):
        return result
    if isgenerator(result) or isasyncgen(result) or isawaitable(result):
        raise NoResult(f"gave {result!r}, which nobody runs: is a decorator or an await missing?")
    if _is_begun_or_lazy(result):
        raise NoResult(f"gave {result!r}, which nobody waits for: wait for its end")
    if isclass(result) and issubclass(result, Verdict | BaseException):
        raise NoResult(f"gave the class {result.__name__}: an object of it was meant")
    if isinstance(result, BaseException):
        raise NoResult(f"gave {result!r}: it is to be raised") from result
    return DELETE


def _is_begun_or_lazy(result: Any) -> bool:
    """Return True if it still runs, or has not begun: an iterator such as `map`'s, a process, or a
    list of what can be awaited.  A file is an iterator, too, and may well be given.
    """
    if isinstance(result, list | tuple | set):
        return any(isawaitable(each) or isinstance(each, ThreadFuture) for each in result)
    is_lazy = isinstance(result, Iterator | AsyncIterator) and not isinstance(result, IOBase)
    return is_lazy or isinstance(result, Popen)


# Coroutines.


class NeedsAsyncio(Exception):
    """What a job fails with whose function awaits something of asyncio's on another reactor."""

    def __init__(self) -> None:
        super().__init__(HINT)


def running_loop(reactor: Any) -> asyncio.AbstractEventLoop | None:
    """Give the loop that a reactor runs on; None if it has none."""
    # By its name: to import that reactor would be wasted on all others.
    kinds = {kind.__name__ for kind in type(reactor).__mro__}
    if "AsyncioSelectorReactor" not in kinds:
        return None
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def _all_of(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def in_a_task(awaitable: Awaitable[Any], loop: asyncio.AbstractEventLoop) -> Deferred[Any]:
    """Run a coroutine as a task of asyncio's, in which Deferreds may be awaited, too.

    A task that raises SystemExit or KeyboardInterrupt ends the loop, and so the reactor with all
    its jobs: here it does not.  Nor does a task that this one makes; that fails with `NoResult`.

    :return: fires with its outcome; to cancel it cancels the task, or the Deferred that it awaits.
    """

    async def without_exit() -> Any:
        _IS_OURS.set(True)
        try:
            return await _stepped(_all_of(awaitable), partial(_also_deferred, loop=loop))
        except _EXITS:
            return Failure()

    if not isinstance(loop.get_task_factory(), _Tasks):
        loop.set_task_factory(_Tasks(loop.get_task_factory()))
    # What it gives goes through a callback: there a Failure is one.
    return Deferred.fromFuture(loop.create_task(without_exit()))


async def without_asyncio(awaitable: Awaitable[Any]) -> Any:
    """:raise NeedsAsyncio: the coroutine awaits something else than Deferreds."""
    try:
        return await _stepped(_all_of(awaitable), _no_future)
    except RuntimeError as error:
        if str(error) != _NO_LOOP:
            raise
        raise NeedsAsyncio from error


class _Tasks:
    """Makes the tasks of a loop: those that ours make get a guard, all others are as they were."""

    def __init__(self, before: Callable[..., Any] | None) -> None:
        """:param before: the factory until now; None for asyncio's own."""
        self._before = before

    def __call__(self, loop: asyncio.AbstractEventLoop, running: Any, **options: Any) -> Any:
        if _IS_OURS.get() and asyncio.iscoroutine(running):
            running = _Guarded(running)
        if self._before is not None:
            return self._before(loop, running, **options)
        return asyncio.Task(running, loop=loop, **options)


class _Guarded(Coroutine[Any, Any, Any]):
    """A coroutine that fails where it would end the process.

    No coroutine around it, for one whose task is cancelled before its first step is never begun.
    """

    def __init__(self, running: Coroutine[Any, Any, Any]) -> None:
        self._running = running

    def __getattr__(self, name: str) -> Any:
        return getattr(self._running, name)

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._running.__await__()

    def send(self, value: Any) -> Any:
        return self._without_exit(self._running.send, value)

    def throw(self, *error: Any) -> Any:
        return self._without_exit(self._running.throw, *error)

    def close(self) -> None:
        self._running.close()

    def _without_exit(self, step: Callable[..., Any], *args: Any) -> Any:
        try:
            return step(*args)
        except _EXITS as error:
            raise NoResult(f"a task that it made raised {error!r}") from error


@coroutine
def _stepped(
    running: Any, wait: Callable[[Any], Generator[Any, Any, None]]
) -> Generator[Any, Any, Any]:
    """Run a coroutine; ``wait`` waits for what it awaits, or raises what that ends with."""
    error: BaseException | None = None
    while True:
        try:
            awaited = running.send(None) if error is None else running.throw(error)
        except StopIteration as over:
            return over.value
        error = None
        try:
            yield from wait(awaited)
        except BaseException as problem:
            error = problem


def _no_future(awaited: Any) -> Generator[Any, Any, None]:
    if asyncio.isfuture(awaited):
        raise NeedsAsyncio
    yield awaited


def _also_deferred(awaited: Any, loop: asyncio.AbstractEventLoop) -> Generator[Any, Any, None]:
    """Wait, of a Deferred only until it has fired: who awaits it takes its result from there."""
    if not isinstance(awaited, Deferred):
        yield awaited
        return
    woken: asyncio.Future[None] = loop.create_future()

    def wake(result: Any) -> Any:
        if not woken.done():
            woken.set_result(None)
        return result

    awaited.addBoth(wake)
    try:
        yield from woken
    except asyncio.CancelledError:
        awaited.cancel()  # As anywhere on Twisted, who awaits it hears so from the Deferred.
