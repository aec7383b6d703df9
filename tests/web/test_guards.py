"""Whom the endpoint answers."""

from __future__ import annotations

import pytest

from beanstalk_twisted.web.logins import CHALLENGE, host_is_ours, is_own_request


def test_a_challenge_is_of_one_scheme_as_chromium_asks_for_no_token_otherwise() -> None:
    scheme, _, parameters = CHALLENGE.partition(" ")
    assert scheme == "Basic"
    assert all("=" in parameter for parameter in parameters.split(","))


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:80", "localhost.", "127.0.0.1", "127.0.0.1:9300", "[::1]",
     "[::1]:9300", "10.1.2.3:1", "queue", "Queue:9300"],
)  # fmt: skip
def test_ip_addresses_localhost_and_given_names_are_ours(host: str) -> None:
    assert host_is_ours(host, {"queue"})


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:9300", "", ":9300", "127.0.0.1.evil.example", "localhost.evil",
     "evil@localhost", "127.0.0.1:x", "[::1", "[evil]:1", "queue:123456", "a queue",
     "queue,localhost"],
)  # fmt: skip
def test_other_hosts_are_not(host: str) -> None:
    assert not host_is_ours(host, {"queue"})


HOST = {"host": "localhost:9300"}
OURS = {**HOST, "x-beanstalk-request": "1"}


@pytest.mark.parametrize(
    ("headers", "is_own"),
    [
        (HOST, False),
        (OURS, True),
        ({**OURS, "sec-fetch-site": "same-origin"}, True),
        ({**OURS, "sec-fetch-site": "none"}, True),
        ({**OURS, "sec-fetch-site": "same-site"}, False),
        ({**OURS, "sec-fetch-site": "cross-site"}, False),
        ({**OURS, "origin": "http://localhost:9300"}, True),
        ({**OURS, "origin": "http://localhost:9301"}, False),
        ({**OURS, "origin": "https://evil.example"}, False),
        ({**OURS, "origin": "null"}, False),
    ],
)
def test_what_changes_something_comes_from_a_program_or_from_our_page(
    headers: dict[str, str], is_own: bool
) -> None:
    assert is_own_request(headers) is is_own
