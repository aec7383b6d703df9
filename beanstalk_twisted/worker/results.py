"""
What a function that does jobs has given, and what that says about the job.
"""

from asyncio import isfuture
from inspect import isasyncgen, isawaitable, isclass, isgenerator
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from beanstalk_twisted.worker.attempt import Attempt
from beanstalk_twisted.worker.onasyncio import in_a_task, running_loop, without_asyncio
from beanstalk_twisted.worker.verdicts import Delete, NoResult, Verdict


def awaited(result: Any, attempt: Attempt[Any], reactor: Any) -> Any:
    """
    Wait, in the reactor's thread, for what is not there yet: a coroutine, a Deferred, a future.

    :return: a Deferred of it, which ends when the attempt is cancelled; or the result itself.
    """
    if not isawaitable(result):
        return result
    coming: Deferred[Any]
    if isinstance(result, Deferred):
        coming = result
    elif isfuture(result):
        coming = Deferred.fromFuture(result)
    elif (loop := running_loop(reactor)) is not None:
        coming = in_a_task(result, loop)
    else:
        coming = Deferred.fromCoroutine(without_asyncio(result))
    attempt.when_cancelled(coming.cancel)
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
    if isclass(result) and issubclass(result, Verdict | BaseException):
        raise NoResult(f"gave the class {result.__name__}: an object of it was meant")
    if isinstance(result, BaseException):
        raise NoResult(f"gave {result!r}: it is to be raised") from result
    return Delete()


def no_exit(failure: Failure) -> Failure:
    """
    A function that raises GeneratorExit has failed as any other; it must not end us.
    """
    if failure.check(GeneratorExit):
        raise NoResult("raised GeneratorExit") from failure.value
    return failure
