"""
What names mean.
"""

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest
from twisted.internet.endpoints import clientFromString

from beanstalk_twisted.worker.loading import connectable, endpoint, load
from tests.conftest import the_reactor


def test_a_function_is_found_by_its_name() -> None:
    assert load("json:dumps") is json.dumps
    assert load("json:JSONEncoder.encode") is json.JSONEncoder.encode


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("json", "is not MODULE:FUNCTION"), (":f", "is not MODULE:FUNCTION"),
        ("json:", "is not MODULE:FUNCTION"), ("no.such:f", "No module named 'no'"),
        ("json:nothing", "there is no 'nothing' in json"), ("json:__doc__", "cannot be called"),
    ],
)  # fmt: skip
def test_what_is_not_found_is_said(name: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        load(name)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("queue.example", "tcp:queue.example:11300"), ("10.0.0.1:7", "tcp:10.0.0.1:7"),
        ("[::1]:7", "tcp:\\:\\:1:7"), ("::1", "tcp:\\:\\:1:11300"),
        ("unix:/run/bs.sock", "unix:/run/bs.sock"), ("tcp:host:1", "tcp:host:1"),
        ("tcp:host=h:port=65535", "tcp:host=h:port=65535"), ("unix:path=/s", "unix:path=/s"),
        ("tcp:\\:\\:1:7:timeout=5", "tcp:\\:\\:1:7:timeout=5"),
    ],
)  # fmt: skip
def test_a_server_may_be_named_in_short(text: str, meant: str) -> None:
    assert endpoint(text) == meant
    clientFromString(the_reactor(), meant)


@pytest.mark.parametrize(
    "text",
    [
        "", ":1", "host:0", "host:65536", "host:port", "tcp:", "tcp:x", "tcp:x:0", "tcp:x:65536",
        "tcp:x:y", "tcp:x:port=99999999", "tls:", "tls:x", "ssl:x:0", "unix:", "unix:path=",
    ],
)  # fmt: skip
def test_what_names_no_server_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no server"):
        endpoint(text)


@pytest.mark.parametrize("text", ["tcp:x:1:no=1", "tcp:x:1:timeout=x", "unix:/s:timeout=x"])
def test_options_that_an_endpoint_does_not_take_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no server"):
        connectable(the_reactor(), endpoint(text))


@pytest.mark.parametrize("text", ["tls:x:1", "ssl:x:1"])
def test_tls_works_or_says_what_is_missing(text: str) -> None:
    if find_spec("OpenSSL") is None:
        with pytest.raises(ValueError, match="TLS needs more packages"):
            connectable(the_reactor(), text)
    else:
        connectable(the_reactor(), text)
