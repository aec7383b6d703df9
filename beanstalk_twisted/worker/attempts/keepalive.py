"""Keeping a reservation: touching in time, and noticing that it was too late."""

from collections.abc import Callable
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.python.failure import Failure

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.deadline import cancel
from beanstalk_twisted.worker.attempts.attempt import Attempt, Ending
from beanstalk_twisted.worker.settings import Settings

EARLIEST: Final = 0.5
"""Share of the TTR before a touch: each touch is a command, and is written to the log."""

LATEST: Final = 0.65
"""
The same at the latest: a third is left for the way, and more than the last second, in which the
server says DEADLINE_SOON.  Chance decides in between, so that touches spread.
"""

AGAIN: Final = 0.5
"""Of the time left, before another try when the server has refused one for another reason."""

LEAST_S: Final = 0.1
"""Less than this before another try, seconds, and there is none."""

ANSWER_S: Final = 1.0
"""For the answer to a touch that is late already, seconds: the server knows better than we do."""


class KeepAlive:
    """Looks after the reservation of one attempt."""

    def __init__(
        self, settings: Settings[Any], attempt: Attempt[Any], touch: Callable[[], Deferred[None]]
    ) -> None:
        """
        :param settings: ``touches`` is False to touch only when the application does.
        :param touch: asks the server.
        """
        self._settings = settings
        self._clock = settings.clock
        self._attempt = attempt
        self._ask = touch
        self._touches = settings.touches
        self._is_over = False
        self._timer: IDelayedCall | None = None

    def start(self) -> None:
        """Begin, at the attempt's deadline as it is."""
        self._plan()

    def stop(self) -> None:
        self._is_over = True
        cancel(self._timer)
        self._timer = None

    def touch(self) -> Deferred[None]:
        """Ask for the whole TTR once more."""
        # It begins anew when the server reads this, so not before now.
        deadline_s = self._clock.seconds() + self._ttr_s
        return self._ask().addCallback(self._agreed, deadline_s).addErrback(self._refused)

    @property
    def _ttr_s(self) -> int:
        return max(1, self._attempt.stats.ttr)

    def _plan(self) -> None:
        if self._touches:
            share = EARLIEST + (LATEST - EARLIEST) * self._settings.chance()
            self._set(self._attempt.time_left_s() - self._ttr_s * (1 - share), self._touch_now)
        else:
            self._set(self._attempt.time_left_s(), self._end_of_ttr)

    def _set(self, wait_s: float, then: Callable[[], object]) -> None:
        cancel(self._timer)
        self._timer = self._clock.callLater(max(0.0, wait_s), then)

    def _touch_now(self) -> None:
        # Until there is an answer, it ends with the TTR: other workers have other connections.
        left_s = self._attempt.time_left_s()
        self._set(left_s if left_s > LEAST_S else ANSWER_S, self._end_of_ttr)
        self.touch().addErrback(lambda failure: None)

    def _agreed(self, _: None, deadline_s: float) -> None:
        if not self._is_over:
            self._attempt.deadline_s = max(deadline_s, self._attempt.deadline_s)
            self._plan()
            self._settings.hooks.call("touched", self._attempt)

    def _refused(self, failure: Failure) -> Failure:
        if not self._is_over:
            if failure.check(errors.NotFound):
                self._attempt.cancel(Ending.NOT_OURS)
            elif failure.check(errors.ErrorReply) and self._touches:
                self._try_again(self._attempt.time_left_s() * AGAIN)
        return failure

    def _try_again(self, wait_s: float) -> None:
        if wait_s >= LEAST_S:
            self._set(wait_s, self._touch_now)

    def _end_of_ttr(self) -> None:
        self._attempt.cancel(Ending.TTR)
