"""Behind which turns the sockets are looked at for a while, and when that is given up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanstalk_twisted.server.connections.epoll_reader import (
    MOST_POINTS,
    REST,
    SEVERAL,
    BusyPollPolicy,
)

ONE, OTHER = 7, 8


def looks(policy: BusyPollPolicy, turns: int, has_found: bool) -> int:
    """So many turns of one socket, of which all looks end like this."""
    count = 0
    for _ in range(turns):
        if policy.take(ONE):
            count += 1
            policy.note(has_found)
    return count


def test_the_second_turn_of_one_socket_is_the_first_that_is_followed_by_a_look() -> None:
    policy = BusyPollPolicy()
    assert [policy.take(ONE) for _ in range(3)] == [False, True, True]


def test_who_takes_turns_with_another_is_not_alone() -> None:
    policy = BusyPollPolicy()
    assert not any(policy.take(socket) for socket in [ONE, OTHER] * 20)
    assert [policy.take(socket) for socket in (ONE, ONE, SEVERAL, ONE, ONE)] == [
        False, True, False, False, True
    ]  # fmt: skip


@pytest.mark.parametrize(("limit_us", "is_open"), [(0, False), (1, True), (1000, True)])
def test_a_limit_of_0_is_never(limit_us: int, is_open: bool) -> None:
    policy = BusyPollPolicy(limit_us)
    assert policy.limit_us == limit_us
    assert [policy.take(ONE) for _ in range(2)] == [False, is_open]


def test_who_is_quick_is_looked_for_each_time() -> None:
    policy = BusyPollPolicy()
    policy.take(ONE)
    assert looks(policy, 1000, has_found=True) == 1000


@pytest.mark.parametrize("rests", [0, 1, 5])
def test_for_who_thinks_long_there_is_one_trial_in_so_many_turns(rests: int) -> None:
    policy = BusyPollPolicy()
    policy.take(ONE)
    assert looks(policy, MOST_POINTS + rests * REST, has_found=False) == MOST_POINTS + rests


def test_who_becomes_quick_is_found_out_by_one_trial() -> None:
    policy = BusyPollPolicy()
    policy.take(ONE)
    looks(policy, MOST_POINTS, has_found=False)
    assert looks(policy, REST - 1, has_found=True) == 0
    assert looks(policy, 1000, has_found=True) == 1000


def test_who_is_quick_most_times_is_looked_for_each_time() -> None:
    policy = BusyPollPolicy()
    policy.take(ONE)
    count = 0
    for turn in range(3000):
        if policy.take(ONE):
            count += 1
            policy.note(turn % 3 != 0)
    assert count == 3000


@given(st.lists(st.booleans(), max_size=2000))
def test_looks_in_vain_are_few_beside_others_and_turns(found: list[bool]) -> None:
    policy = BusyPollPolicy()
    policy.take(ONE)
    vain = good = 0
    for has_found in found:
        if policy.take(ONE):
            policy.note(has_found)
            vain, good = vain + (not has_found), good + has_found
    assert vain <= MOST_POINTS + good + len(found) // REST
