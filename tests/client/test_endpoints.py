"""What names mean."""

from __future__ import annotations

import random
from importlib.util import find_spec
from typing import Any, cast

import pytest
from twisted.internet.endpoints import clientFromString

from beanstalk_twisted.client.endpoints import (
    FIRST_S,
    MOST_S,
    Backoff,
    connectable,
    endpoint,
)
from beanstalk_twisted.client.service import Client
from tests.conftest import the_reactor


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("queue.example", "tcp:queue.example:11300"), ("10.0.0.1:7", "tcp:10.0.0.1:7"),
        ("[::1]:7", "tcp:\\:\\:1:7"), ("::1", "tcp:\\:\\:1:11300"),
        ("unix:/run/bs.sock", "unix:/run/bs.sock"), ("tcp:host:1", "tcp:host:1"),
        ("tcp:host=h:port=65535", "tcp:host=h:port=65535"), ("unix:path=/s", "unix:path=/s"),
        ("tcp:\\:\\:1:7:timeout=5", "tcp:\\:\\:1:7:timeout=5"),
        ("fe80::1", "tcp:fe80\\:\\:1:11300"),
    ],
)  # fmt: skip
def test_a_server_may_be_named_in_short(text: str, meant: str) -> None:
    assert endpoint(text) == meant
    clientFromString(the_reactor(), meant)


@pytest.mark.parametrize(
    "text",
    [
        "", ":1", "host:0", "host:65536", "host:port", "tcp:", "tcp:x", "tcp:x:0", "tcp:x:65536",
        "tcp:x:y", "tcp:x:port=99999999", "tls:", "tls:x", "ssl:x:0", "ssl:x:1",
        "ssl:x:1:hostname=", "unix:", "unix:path=", "tls://", "tls://h:0", "tls://h?no=1",
        "name@host:1",
    ],
)  # fmt: skip
def test_what_names_no_server_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no server"):
        endpoint(text)


@pytest.mark.parametrize(
    "text", ["nothing:x:1", "tcp:x:1:no=1", "tcp:x:1:timeout=x", "unix:/s:timeout=x"]
)
def test_options_that_an_endpoint_does_not_take_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no server"):
        connectable(the_reactor(), text)


@pytest.mark.parametrize(
    "text", ["tls:x:1", "tls://x:1", "tls:x:1:timeout=3", "ssl:x:1:hostname=x"]
)
def test_tls_works_or_says_what_is_missing(text: str) -> None:
    if find_spec("OpenSSL") is None:
        with pytest.raises(ValueError, match="TLS needs more packages"):
            connectable(the_reactor(), text)
    else:
        connectable(the_reactor(), text)


@pytest.mark.parametrize("text", ["127.0.0.1:11300", "tcp:127.0.0.1:11300", "127.0.0.1"])
def test_a_client_takes_a_server_as_the_commands_do(text: str) -> None:
    made = cast(Any, Client(text))._logged_endpoint._endpoint
    assert (made._host, made._port) == ("127.0.0.1", 11300)


def test_a_kind_of_endpoint_that_a_plug_in_may_bring_is_left_to_twisted() -> None:
    assert endpoint("other:host:1") == "other:host:1"


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
