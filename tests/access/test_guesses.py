"""What wrong tokens cost."""

from __future__ import annotations

import pytest

from beanstalk_twisted.server.access_control import (
    FIRST_S,
    FORGET_S,
    MAX_ADDRESSES,
    Guesses,
)
from beanstalk_twisted.server.connections.accepting import place_of


def test_an_address_is_forgotten_after_a_while_without_one() -> None:
    guesses = Guesses()
    for _ in range(5):
        guesses.wrong("a", 0.0)
    assert guesses.wait_s("a", FORGET_S - 0.001) == 0 and len(guesses) == 1
    assert guesses.wait_s("a", FORGET_S) == 0 and len(guesses) == 0
    for _ in range(5):
        guesses.wrong("b", 0.0)
    guesses.wrong("b", FORGET_S)
    assert guesses.wait_s("b", FORGET_S) == FIRST_S


def test_of_too_many_addresses_the_one_with_the_oldest_guess_is_forgotten() -> None:
    guesses = Guesses()
    for number in range(MAX_ADDRESSES):
        guesses.wrong(str(number), 1.0)
    guesses.wrong("0", 1.0)
    assert len(guesses) == MAX_ADDRESSES and guesses.wait_s("1", 1.0)
    guesses.wrong("one more", 1.0)
    assert len(guesses) == MAX_ADDRESSES
    assert guesses.wait_s("0", 1.0) == 2 * FIRST_S and not guesses.wait_s("1", 1.0)


@pytest.mark.parametrize(
    ("host", "place"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("uid 1000", "uid 1000"),
        ("", ""),
    ],
)
def test_what_one_host_has_is_one_place(host: str, place: str) -> None:
    assert place_of(host) == place
