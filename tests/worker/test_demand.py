"""When to ask for how many."""

from __future__ import annotations

import pytest

from beanstalk_twisted.worker.policy import POLL_FIRST_S, POLL_MOST_S, Demand


def test_as_long_as_jobs_come_twice_as_many_are_asked_for_up_to_the_room_there_is() -> None:
    demand = Demand(10)
    asked = [demand.at_once]
    for _ in range(5):
        demand.got()
        asked.append(demand.at_once)
    assert asked == [1, 2, 4, 8, 10, 10]
    demand.got_none(0.0)
    assert (demand.at_once, demand.is_dry) == (1, True)


def test_after_empty_answers_it_is_asked_later_and_later_up_to_a_bound() -> None:
    demand = Demand(10)
    waits = []
    for _ in range(6):
        demand.got_none(100.0)
        waits.append(demand.next_s - 100.0)
    assert waits[:2] == [pytest.approx(POLL_FIRST_S), pytest.approx(2 * POLL_FIRST_S)]
    assert waits[-1] == pytest.approx(POLL_MOST_S)
    demand.got()
    demand.got_none(100.0)
    assert demand.next_s - 100.0 == pytest.approx(POLL_FIRST_S)


def test_the_end_of_a_job_is_a_reason_to_ask() -> None:
    demand = Demand(10)
    demand.got_none(100.0)
    demand.ended(100.001)
    assert demand.next_s == 100.001
