"""Noticing that a server is dead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import CancelledError
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.task import Clock

from beanstalk_twisted.client.errors import Closed
from beanstalk_twisted.client.pending import Deadline, FlowControl
from tests.client.world import error, is_waiting, result

GRACE_S = 10.0


class Watched:
    """A deadline whose patience the test sets."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.extra_s: float | None = 0.0
        self.passed: list[float] = []
        self.deadline = Deadline(self.clock, GRACE_S, self.patience_s, self.passed.append)

    def patience_s(self, grace_s: float) -> float | None:
        return None if self.extra_s is None else self.extra_s + grace_s


def test_silence_past_the_deadline_is_told_once() -> None:
    watched = Watched()
    watched.deadline.heard()
    watched.clock.advance(GRACE_S - 0.001)
    assert watched.passed == []
    watched.clock.advance(0.001)
    watched.clock.advance(100)
    assert watched.passed == [GRACE_S]


def test_a_quick_exchange_touches_no_timer() -> None:
    watched = Watched()
    for _ in range(50):
        watched.deadline.heard()
        (timer,) = watched.clock.getDelayedCalls()
        watched.clock.advance(0.1)
    assert timer.getTime() == GRACE_S


def test_the_timer_looks_again_when_there_were_signs_of_life() -> None:
    watched = Watched()
    watched.deadline.heard()
    watched.clock.advance(9)
    watched.deadline.heard()
    watched.clock.advance(9.9)
    assert watched.passed == []
    watched.clock.advance(0.1)
    assert watched.passed == [GRACE_S]


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
    watched = Watched()
    watched.clock = GoesOn()
    watched.deadline = Deadline(watched.clock, GRACE_S, watched.patience_s, watched.passed.append)
    watched.deadline.heard()
    # The call comes a moment too early, as a reactor's may.
    (timer,) = watched.clock.getDelayedCalls()
    timer.cancel()
    watched.clock.rightNow = watched.deadline._heard_s + GRACE_S - 0.5e-6
    watched.deadline._check()
    watched.clock.advance(0.001)
    assert watched.passed == [GRACE_S]


def test_less_patience_moves_the_timer_nearer() -> None:
    watched = Watched()
    watched.extra_s = 1000.0
    watched.deadline.heard()
    watched.extra_s = 0.0
    watched.clock.advance(1)
    watched.deadline.heard()
    watched.clock.advance(GRACE_S)
    assert watched.passed == [GRACE_S]


def test_patience_for_ever_needs_no_timer_and_its_end_one() -> None:
    watched = Watched()
    watched.extra_s = None
    watched.deadline.heard()
    assert not watched.clock.getDelayedCalls()
    watched.clock.advance(1000)
    watched.extra_s = 0.0
    watched.deadline.heard()
    watched.clock.advance(GRACE_S)
    assert watched.passed == [GRACE_S]


def test_after_the_end_nothing_is_left() -> None:
    watched = Watched()
    watched.deadline.stop()
    watched.deadline.heard()
    watched.deadline.stop()
    assert not watched.clock.getDelayedCalls()


def test_they_are_let_in_in_their_order_as_long_as_there_is_room() -> None:
    flow = FlowControl()
    waiting = [flow.wait() for _ in range(3)]
    rooms = iter([True, True, False])
    flow.let_in(lambda: next(rooms))
    assert [result(each) for each in waiting[:2]] == [None, None]
    assert is_waiting(waiting[2])


def test_who_gives_up_takes_nobodys_place() -> None:
    flow = FlowControl()
    first, second = flow.wait(), flow.wait()
    first.cancel()
    error(first, CancelledError)
    rooms = iter([True])
    flow.let_in(lambda: next(rooms, False))
    assert result(second) is None


def test_when_there_will_be_no_room_all_are_told() -> None:
    flow = FlowControl()
    waiting = [flow.wait() for _ in range(2)]
    flow.close(Closed("over"))
    for each in waiting:
        error(each, Closed)
