"""What becomes of a job that failed."""

from __future__ import annotations

import math
from typing import Any

import pytest

from beanstalk_twisted.client.stats import JobStats
from beanstalk_twisted.worker import policy
from beanstalk_twisted.worker.policy import (
    MAX_U32,
    Bury,
    Delete,
    Release,
    Retry,
    times_given_back,
)
from beanstalk_twisted.worker.reserver import POLL_FIRST_S, POLL_MOST_S, Demand
from beanstalk_twisted.worker.serialisers import Unreadable


def stats(**values: int) -> JobStats:
    counters = {"reserves": 1, "releases": 0, "timeouts": 0, "kicks": 0} | values
    lines = "".join(f"{key}: {value}\n" for key, value in counters.items())
    return JobStats(f"---\n{lines}".encode())


def after(retry: Retry, error: BaseException | None = None, **values: int) -> Any:
    return retry.after(stats(**values), error or RuntimeError(), 1.0)


def test_waits_grow_up_to_a_bound_and_then_the_attempts_are_used_up() -> None:
    retry = Retry(most_attempts=5, first_delay_s=2, factor=10, most_delay_s=100)
    found = [after(retry, reserves=number) for number in range(1, 7)]
    assert found == [Release(2), Release(20), Release(100), Release(100), Bury(), Bury()]


@pytest.mark.parametrize(("chance", "delay"), [(0.0, 50), (0.5, 75), (0.999, 100)])
def test_chance_cuts_a_wait_by_half_at_most(chance: float, delay: int) -> None:
    retry = Retry(first_delay_s=100)
    assert retry.after(stats(), RuntimeError(), chance) == Release(delay)


@pytest.mark.parametrize(("first_s", "delay"), [(0, 0), (0.1, 1), (1, 1)])
def test_a_short_wait_is_not_rounded_to_none(first_s: float, delay: int) -> None:
    assert Retry(first_delay_s=first_s).delay_s(1, 0.0) == delay


def test_a_very_old_job_has_the_longest_wait_at_once() -> None:
    assert Retry(most_attempts=10**9).delay_s(10**8, 1.0) == policy.MOST_DELAY_S
    assert Retry(factor=1).delay_s(10**8, 1.0) == policy.FIRST_DELAY_S


def test_exceptions_may_be_sorted_out() -> None:
    retry = Retry(bury=(LookupError,), delete=(ArithmeticError,))
    assert after(retry, KeyError()) == Bury()
    assert after(retry, ZeroDivisionError()) == Delete()
    assert after(retry, ValueError()) == Release(1)


@pytest.mark.parametrize(
    "options", [{}, {"bury": (LookupError,)}, {"bury": ()}, {"delete": (ValueError,)}]
)
def test_what_cannot_be_read_is_buried_whatever_else_is_sorted_out(options: Any) -> None:
    assert after(Retry(**options), Unreadable()) == Bury()


def test_what_cannot_be_read_has_a_verdict_of_its_own() -> None:
    assert after(Retry(unreadable=Delete()), Unreadable()) == Delete()
    assert after(Retry(unreadable=None), Unreadable()) == Release(1)
    assert after(Retry(unreadable=None, delete=(ValueError,)), Unreadable()) == Delete()


def test_a_job_that_is_only_released_by_choice_is_tried_for_ever() -> None:
    retry = Retry(most_attempts=3)
    assert retry.before(stats(reserves=1000, releases=999)) is None


def test_one_that_kills_its_workers_is_not_however_often_it_was_released() -> None:
    retry = Retry(most_attempts=3)
    assert retry.before(stats(reserves=13, releases=10)) is None
    assert retry.before(stats(reserves=14, releases=10)) == Bury()


def test_after_a_failure_releases_count_for_the_server_knows_no_difference() -> None:
    assert after(Retry(most_attempts=3), reserves=3, releases=2) == Bury()


def test_a_kick_allows_one_more_attempt() -> None:
    retry = Retry(most_attempts=3)
    assert after(retry, reserves=3) == Bury()
    assert retry.before(stats(reserves=4)) == Bury()
    assert retry.before(stats(reserves=4, kicks=1)) is None
    assert after(retry, reserves=4, kicks=1) == Bury()
    assert retry.before(stats(reserves=5, kicks=1)) == Bury()


def test_attempts_may_be_counted_without_those_whose_worker_was_ended() -> None:
    retry = Retry(most_attempts=3, count=times_given_back)
    assert retry.before(stats(reserves=50)) is None
    assert retry.before(stats(reserves=50, releases=2)) is None
    assert retry.before(stats(reserves=50, releases=2, timeouts=2)) is None
    assert retry.before(stats(reserves=50, releases=2, timeouts=3)) == Bury()
    assert after(retry, reserves=50, releases=1, timeouts=1) == Bury()


@pytest.mark.parametrize(
    "options",
    [
        {"most_attempts": 0}, {"first_delay_s": -1}, {"first_delay_s": 10, "most_delay_s": 9},
        {"most_delay_s": MAX_U32 + 1}, {"factor": 0.9}, {"factor": math.nan}, {"factor": math.inf},
        {"first_delay_s": math.nan}, {"most_delay_s": math.inf},
    ],
)  # fmt: skip
def test_numbers_that_make_no_sense_are_refused(options: Any) -> None:
    with pytest.raises(ValueError):
        Retry(**options)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"exhausted": "bury"}, r"is Bury\(\), Delete\(\), Release\(\) or Return\(\), not 'bury'"),
        ({"exhausted": Bury}, "exhausted is"), ({"exhausted": None}, "exhausted is"),
        ({"unreadable": "bury"}, "unreadable is"),
        ({"bury": ValueError}, "bury is a tuple of classes of exceptions"),
        ({"bury": ValueError()}, "bury is a tuple"), ({"bury": (ValueError(),)}, "is none"),
        ({"delete": [ValueError]}, "delete is a tuple"), ({"delete": (int,)}, "is none"),
        ({"count": 3}, "count is a function"), ({"most_attempts": 1.5}, "is a whole number"),
        ({"most_attempts": True}, "most_attempts is a whole number, not True"),
        ({"first_delay_s": "1"}, "first_delay_s is a number of seconds"),
        ({"factor": None}, "factor is a number, not None"),
    ],
)  # fmt: skip
def test_what_is_of_another_kind_is_refused_at_once(options: Any, wanted: str) -> None:
    with pytest.raises(TypeError, match=wanted):
        Retry(**options)


@pytest.mark.parametrize("value", [-1, MAX_U32 + 1, 0.5, 1.0, "1", True])
def test_a_verdict_has_only_numbers_of_the_protocol(value: Any) -> None:
    for make in (Release, lambda number: Release(0, number), Bury):
        with pytest.raises(ValueError):
            make(value)
    assert (Release(MAX_U32, 0).delay, Bury(MAX_U32).priority) == (MAX_U32, MAX_U32)
    with pytest.raises(ValueError):
        Release(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (Delete(), "deleted"), (Release(), "released"), (Release(5), "released for 5 s"),
        (Release(5, 0), "released for 5 s with priority 0"), (Bury(), "buried"),
        (Bury(9), "buried with priority 9"),
    ],
)  # fmt: skip
def test_a_verdict_is_written_in_words(verdict: Any, words: str) -> None:
    assert str(verdict) == words


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
