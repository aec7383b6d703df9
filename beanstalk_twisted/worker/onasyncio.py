"""
Coroutines that await what is asyncio's, `asyncio.sleep` and its like.

They need a task of asyncio's, on a loop that runs: Twisted's asyncio reactor has one, the others
have none.  On that reactor a coroutine may await Deferreds as well.
"""

import asyncio
from collections.abc import Awaitable, Generator
from types import coroutine
from typing import Any, Final

from twisted.internet.defer import Deferred

HINT: Final = (
    "asyncio's awaitables need Twisted's asyncio reactor: run beanstalk-work with "
    "--reactor asyncio, or install twisted.internet.asyncioreactor before anything imports "
    "twisted.internet.reactor"
)
"""What to do."""

_NO_LOOP: Final = "no running event loop"
"""What asyncio says, as a RuntimeError (asyncio.get_running_loop)."""


class NeedsAsyncio(Exception):
    """
    What a job fails with whose function awaits something of asyncio's on another reactor.
    """

    def __init__(self) -> None:
        super().__init__(HINT)


def running_loop(reactor: Any) -> asyncio.AbstractEventLoop | None:
    """
    Give the loop that a reactor runs on; None if it has none.
    """
    # By its name: to import that reactor would be wasted on all others.
    kinds = {kind.__name__ for kind in type(reactor).__mro__}
    if "AsyncioSelectorReactor" not in kinds:
        return None
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def in_a_task(awaitable: Awaitable[Any], loop: asyncio.AbstractEventLoop) -> Deferred[Any]:
    """
    Run a coroutine as a task of asyncio's, in which Deferreds may be awaited, too.

    :return: fires with its outcome; to cancel it cancels the task, or the Deferred that it awaits.
    """

    async def all_of_it() -> Any:
        return await awaitable

    return Deferred.fromFuture(loop.create_task(_with_deferreds(all_of_it(), loop)))


async def without_asyncio(awaitable: Awaitable[Any]) -> Any:
    """
    Run a coroutine in which only Deferreds may be awaited.

    :raise NeedsAsyncio: it has tried something else.
    """

    async def all_of_it() -> Any:
        return await awaitable

    try:
        return await _only_deferreds(all_of_it())
    except RuntimeError as error:
        if str(error) != _NO_LOOP:
            raise
        raise NeedsAsyncio from error


class _Steps:
    """
    Runs a coroutine from one `await` to the next.
    """

    def __init__(self, running: Any) -> None:
        self._running = running
        self._error: BaseException | None = None

    def next(self) -> Any:
        """
        Go on until it awaits something.

        :return: that.
        :raise StopIteration: it is over.
        """
        error, self._error = self._error, None
        return self._running.send(None) if error is None else self._running.throw(error)

    def fail(self, error: BaseException) -> None:
        """
        Let what it awaits end so.
        """
        self._error = error


@coroutine
def _with_deferreds(running: Any, loop: asyncio.AbstractEventLoop) -> Generator[Any, Any, Any]:
    steps = _Steps(running)
    while True:
        try:
            awaited = steps.next()
        except StopIteration as over:
            return over.value
        try:
            if isinstance(awaited, Deferred):
                yield from _fired(awaited, loop)
            else:
                yield awaited
        except BaseException as error:
            steps.fail(error)


def _fired(deferred: Deferred[Any], loop: asyncio.AbstractEventLoop) -> Generator[Any, Any, None]:
    """
    Wait until a Deferred has fired.  Its result stays with it: who awaits it takes it from there.
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


@coroutine
def _only_deferreds(running: Any) -> Generator[Any, Any, Any]:
    steps = _Steps(running)
    while True:
        try:
            awaited = steps.next()
        except StopIteration as over:
            return over.value
        if asyncio.isfuture(awaited):
            steps.fail(NeedsAsyncio())
            continue
        try:
            yield awaited
        except BaseException as error:
            steps.fail(error)
