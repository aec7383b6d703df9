"""Notices that a server is dead."""

from collections.abc import Callable
from typing import Any

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.core.dialogue import Dialogue


class Deadline:
    """Cuts a connection whose server was silent for longer than it may be.

    The timer is not moved with each command: it stays as long as it is due no later than the
    deadline, and when it is due it looks again.  So a quick exchange costs none.
    """

    def __init__(
        self, seconds: Callable[[], float], call_later: Callable[..., Any], grace_s: float,
        dialogue: Dialogue,
    ) -> None:  # fmt: skip
        """:param call_later: gives a timer, which has ``cancel``."""
        self._seconds = seconds
        self._call_later = call_later
        self._grace_s = grace_s
        self._dialogue = dialogue
        self._heard_s = 0.0
        self._due_s = 0.0
        self._timer: Any = None

    def heard(self) -> None:
        """Note that the server has given a sign of life, or begins to owe one."""
        self._heard_s = self._seconds()
        self._look()

    def stop(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _look(self) -> None:
        """See that the timer is due in time for what is asked now."""
        if self._timer is not None and self._due_s <= self._heard_s + self._grace_s:
            return
        patience_s = self._dialogue.exchange.patience_s(self._grace_s)
        if patience_s is None:
            return
        due_s = self._heard_s + patience_s
        if self._timer is None or due_s < self._due_s:
            self.stop()
            self._due_s = due_s
            # The clock advances: what was ahead a moment ago may be over.
            self._timer = self._call_later(max(0.0, due_s - self._seconds()), self._check)

    def _check(self) -> None:
        self._timer = None
        patience_s = self._dialogue.exchange.patience_s(self._grace_s)
        if patience_s is not None and self._heard_s + patience_s <= self._seconds():
            oldest = self._dialogue.exchange.unanswered[0].spec.name
            why = f"no answer to {oldest} in {patience_s:g} s; the connection was cut"
            self._dialogue.abort(errors.ServerSilent(why))
        else:
            self._look()
