"""What a process that runs a task gives to its worker."""

from __future__ import annotations

import pickle

import pytest

from beanstalk_twisted.tasks import ProcessFailed
from beanstalk_twisted.tasks.child import pickled
from tests.tasks.world import NESTED


class Odd(Exception):
    """Cannot be made again from its text."""

    def __init__(self, number: int, why: str) -> None:
        super().__init__(why)


@pytest.mark.parametrize(
    ("outcome", "kind", "text"),
    [
        ((True, KeyError("raise")), KeyError, "'raise'"),
        ((True, Odd(3, "it is odd")), ProcessFailed, "Odd: it is odd"),
        ((False, NESTED), ProcessFailed, "returned [[["),
        ((False, lambda: 0), ProcessFailed, "returned <function"),
    ],
)
def test_what_cannot_be_pickled_is_a_failure_with_its_text(
    outcome: tuple[bool, object], kind: type[Exception], text: str
) -> None:
    is_error, value = pickle.loads(pickled(outcome))
    assert is_error and type(value) is kind and str(value).startswith(text)


def test_a_result_comes_as_it_is() -> None:
    assert pickle.loads(pickled((False, {"a": 1}))) == (False, {"a": 1})
