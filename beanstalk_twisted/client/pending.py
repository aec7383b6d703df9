"""Requests with Deferreds, what becomes of them when a connection ends, and the deadline of it."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred, FirstError
from twisted.internet.interfaces import IDelayedCall
from twisted.python.failure import Failure

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.commands import specs
from beanstalk_twisted.client.commands.calls import Args
from beanstalk_twisted.client.commands.specs import CommandSpec
from beanstalk_twisted.client.exchange import Request
from beanstalk_twisted.client.tubes import TubeChoice, UsedTube


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


class Pending(Request):
    """A request with a Deferred.

    :ivar tube: the one in which it is to be carried out; None if that does not matter.
    :ivar choice: for a `use` only, where it was noted.
    :ivar reserved_on: the only connection to send it on; None for any.
    :ivar forget: called with it when it is cancelled.
    :ivar repeat_until_s: until then, by the reactor's clock, it may be sent again although it was
        sent before: a put with a unique key that is remembered for longer.
    :ivar lost: why it has lost its first answer, if it was sent again, or waits for that.  Whatever
        it fails with then, it may have been carried out.
    """

    __slots__ = (
        "choice", "deferred", "forget", "lost", "repeat_until_s", "reserved_on", "tube",
    )  # fmt: skip

    def __init__(
        self, forget: Callable[["Pending"], None], spec: CommandSpec, args: Args,
        body: bytes | None = None,
    ) -> None:  # fmt: skip
        super().__init__(spec, args, body)
        self.forget = forget
        self.tube: bytes | None = None
        self.reserved_on: object = None
        self.repeat_until_s = 0.0
        self.lost: BaseException | None = None
        self.choice: UsedTube | None = None
        self.deferred: Deferred[Any] = Deferred(self._cancelled)

    def mean(self, choice: UsedTube, tube: bytes | None) -> None:
        """Note for which tube it is meant: the one that it names itself, or the one in use."""
        self.tube = choice.of(self, self.spec, self.args, tube)
        if self.spec is specs.USE:
            self.choice = choice

    def _cancelled(self, deferred: Deferred[Any]) -> None:
        self.forget(self)
        if self.lost is not None:
            deferred.errback(errors.Unanswered(self.spec.name, self.job_id, self.lost))

    def fail(self, error: Exception) -> None:
        if self.choice is not None:
            self.choice.take_back(self)
        if self.lost is not None and not isinstance(error, errors.Unanswered):
            error = errors.Unanswered(self.spec.name, self.job_id, error)
        self.deferred.errback(error)

    def lose(self, reason: BaseException) -> errors.ClientError | None:
        """Give the error for the end of the connection; None if it was wanted, or is forgotten."""
        if self.is_forgotten:
            return None
        if self.spec is specs.QUIT and self.is_sent:
            self.deferred.callback(None)
            return None
        may_be_done = self.is_sent or self.lost is not None
        kind = errors.Unanswered if may_be_done else errors.NotCarriedOut
        return kind(self.spec.name, self.job_id, reason)


class Implicit(Pending):
    """A command that the application has not asked for; it is not sent again."""

    __slots__ = ()


class Ended(NamedTuple):
    """:ivar left: what has no answer, oldest first.
    :ivar reserved: the jobs reserved on it; the server makes them ready again.
    """

    reason: BaseException
    left: list[Pending]
    reserved: tuple[int, ...]
    tubes: TubeChoice


def lose_all(ended: Ended) -> None:
    """Fail all that has no answer."""
    for request in ended.left:
        error = request.lose(ended.reason)
        if error is not None:
            request.fail(error)


def reservation_lost(spec: CommandSpec, args: Args) -> errors.ReservationLost:
    """Give the error of a command about a job of another connection."""
    over = errors.Closed("the connection that had reserved it has ended")
    return errors.ReservationLost(spec.name, spec.job_id(args), over)
