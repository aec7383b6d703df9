"""Coroutines that await what is asyncio's, `asyncio.sleep` and its like.

They need a task of asyncio's, on a loop that runs: Twisted's asyncio reactor has one, the others
have none.  On that reactor a coroutine may await Deferreds as well.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import ContextVar
from functools import partial
from types import coroutine
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from beanstalk_twisted.worker.policy import NoResult

HINT: Final = (
    "asyncio's awaitables need Twisted's asyncio reactor: run beanstalk-work with "
    "--reactor asyncio, or install twisted.internet.asyncioreactor before anything imports "
    "twisted.internet.reactor"
)
"""What to do."""

_NO_LOOP: Final = "no running event loop"
"""What asyncio says, as a RuntimeError (asyncio.get_running_loop)."""


_EXITS: Final = (SystemExit, KeyboardInterrupt)
"""What asyncio does not keep in the task that raises it."""

_IS_OURS: Final = ContextVar("beanstalk_twisted.worker.on_asyncio", default=False)
"""Whether a task of ours is running, or one that such a task has made."""


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


def in_a_task(awaitable: Awaitable[Any], loop: asyncio.AbstractEventLoop) -> Deferred[Any]:
    """Run a coroutine as a task of asyncio's, in which Deferreds may be awaited, too.

    A task that raises SystemExit or KeyboardInterrupt ends the loop, and so the reactor with all
    its jobs: here it does not.  Nor does a task that this one makes; that fails with `NoResult`.

    :return: fires with its outcome; to cancel it cancels the task, or the Deferred that it awaits.
    """

    async def all_of_it() -> Any:
        return await awaitable

    async def without_exit() -> Any:
        _IS_OURS.set(True)
        try:
            return await _stepped(all_of_it(), partial(_also_deferred, loop=loop))
        except _EXITS:
            return Failure()

    if not isinstance(loop.get_task_factory(), _Tasks):
        loop.set_task_factory(_Tasks(loop.get_task_factory()))
    # What it gives goes through a callback: there a Failure is one.
    return Deferred.fromFuture(loop.create_task(without_exit()))


async def without_asyncio(awaitable: Awaitable[Any]) -> Any:
    """Run a coroutine in which only Deferreds may be awaited.

    :raise NeedsAsyncio: it has tried something else.
    """

    async def all_of_it() -> Any:
        return await awaitable

    try:
        return await _stepped(all_of_it(), _no_future)
    except RuntimeError as error:
        if str(error) != _NO_LOOP:
            raise
        raise NeedsAsyncio from error


class _Tasks:
    """Makes the tasks of a loop: those that ours make get a guard, all others are as they were."""

    def __init__(self, before: Callable[..., Any] | None) -> None:
        """:param before: what made them until now; None for what asyncio does by itself."""
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
    running: Any, wait: Callable[[Any], Generator[Any, Any, Any]]
) -> Generator[Any, Any, Any]:
    """Run a coroutine from one `await` to the next.

    :param wait: waits for what it awaits, or raises what that is to end with.
    """
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


def _passed_on(awaited: Any) -> Generator[Any, Any, None]:
    """Leave it to who runs us."""
    yield awaited


def _no_future(awaited: Any) -> Generator[Any, Any, None]:
    if asyncio.isfuture(awaited):
        raise NeedsAsyncio
    return _passed_on(awaited)


def _also_deferred(awaited: Any, loop: asyncio.AbstractEventLoop) -> Generator[Any, Any, None]:
    return _fired(awaited, loop) if isinstance(awaited, Deferred) else _passed_on(awaited)


def _fired(deferred: Deferred[Any], loop: asyncio.AbstractEventLoop) -> Generator[Any, Any, None]:
    """Wait until a Deferred has fired.  Its result stays with it: who awaits it takes it from
    there.
    """
    woken: asyncio.Future[None] = loop.create_future()

    def wake(result: Any) -> Any:
        if not woken.done():
            woken.set_result(None)
        return result

    deferred.addBoth(wake)
    try:
        yield from woken
    except asyncio.CancelledError:
        deferred.cancel()  # As anywhere on Twisted, who awaits it hears so from the Deferred.
