"""What names mean."""

from __future__ import annotations

import json

import pytest

from beanstalk_twisted.worker.loading import load


def test_a_function_is_found_by_its_name() -> None:
    assert load("json:dumps") is json.dumps
    assert load("json:JSONEncoder.encode") is json.JSONEncoder.encode


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("json", "is not MODULE:NAME"), (":f", "is not MODULE:NAME"),
        ("json:", "is not MODULE:NAME"), ("no.such:f", "No module named 'no'"),
        ("json:nothing", "there is no 'nothing' in json"), ("json:loads.no", "there is no 'no'"),
    ],
)  # fmt: skip
def test_what_is_not_found_is_said(name: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        load(name)
