"""Noticing that a server is dead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IDelayedCall
from twisted.internet.task import Clock

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.core.deadline import Deadline
from tests.client.world import Line

GRACE_S = 10.0


def watched(clock: Clock) -> tuple[Deadline, Line]:
    """Give a deadline, and a connection on which the server owes an answer."""
    line = Line()
    line.connection.kick(1)
    dialogue = line.connection.dialogue
    return Deadline(clock.seconds, clock.callLater, GRACE_S, dialogue), line


def test_a_quick_exchange_touches_no_timer() -> None:
    clock = Clock()
    deadline, _ = watched(clock)
    for _ in range(50):
        deadline.heard()
        (timer,) = clock.getDelayedCalls()
        clock.advance(0.1)
    assert timer.getTime() == GRACE_S


class GoesOn(Clock):
    """Time passes while it is asked for, and a reactor takes no call for what has been."""

    def callLater(
        self, delay: float, callable: Callable[..., Any], *args: object, **kw: object
    ) -> IDelayedCall:
        assert delay >= 0
        return super().callLater(delay, callable, *args, **kw)

    def seconds(self) -> float:
        now_s = super().seconds()
        self.rightNow += 1e-6
        return now_s


def test_a_deadline_that_passes_while_it_is_looked_at_is_told() -> None:
    clock = GoesOn()
    deadline, line = watched(clock)
    deadline.heard()
    # The call comes a moment too early, as a reactor's may.
    (timer,) = clock.getDelayedCalls()
    timer.cancel()
    clock.rightNow = deadline._heard_s + GRACE_S - 0.5e-6
    deadline._check()
    clock.advance(0.001)
    assert isinstance(line.connection.dialogue.reason, errors.ServerSilent)
