"""
What names mean.
"""

from __future__ import annotations

import json

import pytest
from twisted.internet.endpoints import clientFromString

from beanstalk_twisted.worker.loading import endpoint, load
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
    ],
)  # fmt: skip
def test_a_server_may_be_named_in_short(text: str, meant: str) -> None:
    assert endpoint(text) == meant
    clientFromString(the_reactor(), meant)


@pytest.mark.parametrize("text", ["", ":1", "host:0", "host:65536", "host:port"])
def test_what_names_no_server_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no server"):
        endpoint(text)
