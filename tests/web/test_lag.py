"""How late the reactor calls."""

from __future__ import annotations

from typing import Any, cast

from twisted.internet.task import Clock

from beanstalk_twisted.web.overview import PERIOD_S, ReactorLag


def test_a_timer_that_is_late_is_noted_and_one_in_time_too() -> None:
    clock = Clock()
    lag = ReactorLag(cast(Any, clock))
    lag.start()
    clock.advance(PERIOD_S)
    clock.advance(PERIOD_S + 0.03)
    assert sum(lag.lags.counts) == 2
    assert abs(lag.lags.total - 30_000_000) < 1000
    lag.stop()
    assert not clock.getDelayedCalls()
