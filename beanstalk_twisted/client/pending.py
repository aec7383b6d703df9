"""Requests with Deferreds, and those who wait until there is room for more."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, FirstError
from twisted.internet.interfaces import IDelayedCall
from twisted.python.failure import Failure

from beanstalk_twisted.client.core.requests import Request


def cancel(timer: IDelayedCall | None) -> None:
    """Cancel a timer, if there is one and it has not run."""
    if timer is not None and timer.active():
        timer.cancel()


def first_error(failure: Failure) -> BaseException | None:
    """Give the error with which a `gatherResults` has failed."""
    failure.trap(FirstError)
    assert isinstance(failure.value, FirstError)
    return failure.value.subFailure.value


class FlowControl:
    """Those who wait until there is room to send more."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[Deferred[None], None] = OrderedDict()

    @property
    def is_wanted(self) -> bool:
        return bool(self._waiting)

    def wait(self) -> Deferred[None]:
        """Give a Deferred that fires when there is room; it may be cancelled."""
        waiter: Deferred[None] = Deferred(lambda given_up: self._waiting.pop(given_up, None))
        self._waiting[waiter] = None
        return waiter

    def let_in(self, has_room: Callable[[], bool]) -> None:
        """Fire what waits, one by one, as long as there is room."""
        while self._waiting and has_room():
            self._waiting.popitem(last=False)[0].callback(None)

    def close(self, error: Exception) -> None:
        """There will be no room."""
        while self._waiting:
            self._waiting.popitem(last=False)[0].errback(error)


class DeferredRequest(Request):
    """A request whose outcome a Deferred gives; to cancel that is to forget it."""

    __slots__ = ("deferred",)

    def __init__(self, *asked: Any) -> None:
        super().__init__(*asked)
        self.deferred: Deferred[Any] = Deferred(self._cancelled)

    def succeed(self, result: Any) -> None:
        self.deferred.callback(result)

    def be_refused(self, error: Exception) -> None:
        self.deferred.errback(error)

    def _cancelled(self, deferred: Deferred[Any]) -> None:
        error = self.cancel()
        if error is not None:
            deferred.errback(error)
