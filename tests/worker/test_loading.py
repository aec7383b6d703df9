"""What names mean."""

from __future__ import annotations

import json

import pytest

from beanstalk_twisted.worker.command import load


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
