"""How long a client waits before it tries again."""

from __future__ import annotations

import random

from beanstalk_twisted.client.endpoints import FACTOR, FIRST_S, MOST_S, Backoff


def test_each_wait_is_longer_up_to_a_bound() -> None:
    backoff = Backoff(lambda: 1.0)
    waits = [backoff() for _ in range(20)]
    assert waits[:4] == [FIRST_S, 2 * FIRST_S, 4 * FIRST_S, 8 * FIRST_S]
    assert waits == sorted(waits)
    assert waits[-1] == MOST_S


def test_chance_spreads_waits_between_half_and_all_of_what_is_due() -> None:
    lowest, highest = Backoff(lambda: 0.0), Backoff(lambda: 1.0)
    spread = Backoff(random.Random(1).random)
    for _ in range(12):
        low, wait, high = lowest(), spread(), highest()
        assert 0 < low == high / 2 < wait < high


def test_it_begins_anew_when_a_server_has_answered() -> None:
    backoff = Backoff(lambda: 1.0)
    for _ in range(9):
        backoff(1)
    backoff.succeeded()
    assert backoff(1) == FIRST_S


def test_who_was_turned_away_waits_as_long_as_ever_until_an_answer() -> None:
    backoff = Backoff(lambda: 1.0)
    backoff.turned_away()
    assert backoff(1) == MOST_S
    backoff.succeeded()
    assert backoff(1) == FIRST_S


def test_what_was_no_server_after_all_is_waited_for_longer_and_longer() -> None:
    backoff = Backoff(lambda: 1.0)
    waits = []
    for _ in range(4):
        backoff.succeeded()
        backoff.disappointed()
        waits.append(backoff(1))
    assert waits == [FIRST_S * FACTOR**tries for tries in range(4)]
