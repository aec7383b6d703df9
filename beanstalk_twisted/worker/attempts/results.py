"""What a function that does jobs has given, and what that says about the job."""

from asyncio import isfuture
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future as ThreadFuture
from inspect import isasyncgen, isawaitable, isclass, isgenerator
from io import IOBase
from subprocess import Popen
from typing import Any

from twisted.internet.defer import Deferred, execute
from twisted.python.failure import Failure

from beanstalk_twisted.worker.attempts.attempt import Attempt
from beanstalk_twisted.worker.attempts.verdicts import Delete, NoResult, Verdict
from beanstalk_twisted.worker.on_asyncio import in_a_task, running_loop, without_asyncio


def awaited(result: Any, attempt: Attempt[Any], reactor: Any) -> Any:
    """
    Wait, in the reactor's thread, for what is not there yet: a coroutine, a Deferred, a future.

    :return: a Deferred of it, which ends when the attempt is cancelled; or the result itself.
    """
    coming: Deferred[Any]
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

    # Called in whatever thread it ends, and at once if it has.
    future.add_done_callback(lambda _: reactor.callFromThread(end))
    return coming


def verdict_of(result: Any) -> Verdict:
    """
    Say what is to become of a job.

    :raise NoResult: this cannot have been meant: nothing was done, or it has failed.
    """
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
    return Delete()


def _is_begun_or_lazy(result: Any) -> bool:
    """
    Whether this still runs, or has not begun: an iterator such as `map`'s, a process, or a list of
    what can be awaited.  A file is an iterator, too, and may well be given.
    """
    if isinstance(result, list | tuple | set):
        return any(isawaitable(each) or isinstance(each, ThreadFuture) for each in result)
    is_lazy = isinstance(result, Iterator | AsyncIterator) and not isinstance(result, IOBase)
    return is_lazy or isinstance(result, Popen)


def no_exit(failure: Failure) -> Failure:
    """A function that raises GeneratorExit has failed as any other; it must not end us."""
    if failure.check(GeneratorExit):
        raise NoResult("raised GeneratorExit") from failure.value
    return failure
