"""What names mean."""

from __future__ import annotations

import random
from importlib.util import find_spec
from typing import Any, cast

import pytest

from beanstalk_twisted.client.endpoints import (
    FIRST_S,
    MOST_S,
    Backoff,
    way_to,
)
from beanstalk_twisted.client.service import Client
from tests.conftest import the_reactor


def test_tls_works_or_says_what_is_missing() -> None:
    if find_spec("OpenSSL") is None:
        with pytest.raises(ValueError, match="TLS needs more packages"):
            way_to(the_reactor(), "tls://x:1")
    else:
        way_to(the_reactor(), "tls://x:1")


@pytest.mark.parametrize("text", ["127.0.0.1:11300", "tcp:127.0.0.1:11300", "127.0.0.1"])
def test_a_client_takes_a_server_as_the_commands_do(text: str) -> None:
    made = cast(Any, Client(text))._logged_endpoint._endpoint
    assert (made._host, made._port) == ("127.0.0.1", 11300)


def test_a_unix_socket_is_a_server_too() -> None:
    way = way_to(the_reactor(), "unix:/run/bs.sock")
    assert (cast(Any, way.endpoint)._path, way.name) == ("/run/bs.sock", "unix:/run/bs.sock")


@pytest.mark.parametrize("place", [None, 11300, ("127.0.0.1", 11300)])
def test_what_can_be_no_server_is_refused_at_once(place: Any) -> None:
    with pytest.raises(TypeError, match="a server is HOST:PORT or an endpoint"):
        Client(place)


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


def test_who_was_turned_away_waits_as_long_as_ever_until_an_answer() -> None:
    backoff = Backoff(lambda: 1.0)
    backoff.turned_away()
    assert backoff(1) == MOST_S
    backoff.succeeded()
    assert backoff(1) == FIRST_S
