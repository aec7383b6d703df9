"""Requests with Deferreds, who waits until there is room for more, and a connection's deadline."""

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


class Deadline:
    """Calls when a server was silent for longer than it may be.

    The timer is not moved with each command: it stays as long as it is due no later than the
    deadline, and when it is due it looks again.  So a quick exchange costs none.
    """

    def __init__(
        self, clock: Any, grace_s: float, patience_s: Callable[[float], float | None],
        passed: Callable[[float], None],
    ) -> None:  # fmt: skip
        """:param patience_s: gives the seconds of silence after the last sign of life, given the
        grace; at least the grace, None if for ever.
        """
        self._clock = clock
        self._grace_s = grace_s
        self._patience_s = patience_s
        self._passed = passed
        self._heard_s = 0.0
        self._due_s = 0.0
        self._timer: IDelayedCall | None = None

    def heard(self) -> None:
        """Note that the server has given a sign of life, or begins to owe one."""
        self._heard_s = self._clock.seconds()
        self.look()

    def look(self) -> None:
        """See that the timer is due in time for what is asked now."""
        if self._timer is not None and self._due_s <= self._heard_s + self._grace_s:
            return
        patience_s = self._patience_s(self._grace_s)
        if patience_s is None:
            return
        due_s = self._heard_s + patience_s
        # The clock goes on: what was ahead a moment ago may be over.
        left_s = max(0.0, due_s - self._clock.seconds())
        if self._timer is None:
            self._due_s = due_s
            self._timer = self._clock.callLater(left_s, self._check)
        elif due_s < self._due_s:
            self._due_s = due_s
            self._timer.reset(left_s)

    def stop(self) -> None:
        cancel(self._timer)

    def _check(self) -> None:
        self._timer = None
        patience_s = self._patience_s(self._grace_s)
        if patience_s is not None and self._heard_s + patience_s <= self._clock.seconds():
            self._passed(patience_s)
        else:
            self.look()


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
