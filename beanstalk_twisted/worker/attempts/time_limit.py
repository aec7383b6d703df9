"""The time that an attempt may take."""

from collections.abc import Callable
from typing import Any, Final

from twisted.internet.interfaces import IDelayedCall

from beanstalk_twisted.client.deadline import cancel
from beanstalk_twisted.worker.attempts.attempt import Attempt, Ending
from beanstalk_twisted.worker.settings import Settings

STUCK_S: Final = 1.0
"""
From the end of the limit until a handler that has not ended is given up, seconds: one that heeds
its being cancelled ends at once, and whoever waits for the job waits for this too.
"""


class TimeLimit:
    """Cancels an attempt that takes too long, and gives it up if its handler does not end."""

    def __init__(
        self, settings: Settings[Any], attempt: Attempt[Any], give_up: Callable[[], object]
    ) -> None:
        """:param give_up: called when the handler has not ended ``stuck_s`` after the limit."""
        self._settings = settings
        self._attempt = attempt
        self._give_up = give_up
        self._timer: IDelayedCall | None = None

    def start(self) -> None:
        if self._settings.limit_s is not None:
            self._timer = self._settings.clock.callLater(self._settings.limit_s, self._is_over)

    def stop(self) -> None:
        cancel(self._timer)

    def _is_over(self) -> None:
        # Before it is cancelled: it may end at once, and stop this timer.
        self._timer = self._settings.clock.callLater(self._settings.stuck_s, self._give_up)
        self._attempt.cancel(Ending.LIMIT)
