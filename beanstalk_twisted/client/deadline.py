"""Noticing that a server is dead: one timer for a connection, seldom touched."""

from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IDelayedCall


def cancel(timer: IDelayedCall | None) -> None:
    """Cancel a timer, if there is one and it has not run."""
    if timer is not None and timer.active():
        timer.cancel()


class Deadline:
    """Calls when a server was silent for longer than it may be.

    The timer is not moved with each command.  It is left where it is as long as it is due no later
    than the deadline, and when it is due it looks again.  So a quick exchange costs none.
    """

    def __init__(
        self, clock: Any, grace_s: float, patience_s: Callable[[float], float | None],
        passed: Callable[[float], None],
    ) -> None:  # fmt: skip
        """:param patience_s: says for how long the server may be silent from its last sign of life
            on, given the grace; at least the grace, None if for ever.
        :param passed: called with that time when it is over.
        """
        self._clock = clock
        self._grace_s = grace_s
        self._patience_s = patience_s
        self._passed = passed
        self._heard_s = 0.0
        self._due_s = 0.0
        self._timer: IDelayedCall | None = None

    def heard(self) -> None:
        """The server has given a sign of life, or begins to owe us one."""
        self._heard_s = self._clock.seconds()
        self.look()

    def look(self) -> None:
        """What is asked has changed: see that the timer is due in time."""
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
