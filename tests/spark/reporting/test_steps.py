"""The axis of time has steps that people count in, and no more of them than there is room for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from binlog_tools.spark.reporting.page import WIDTHS, width_for, width_text

DAY = 86_400


@pytest.mark.parametrize(
    ("seconds", "steps", "least", "width"),
    [(60, 1500, 1, 1), (1499, 1500, 1, 1), (1500, 1500, 1, 2), (60, 1500, 60, 60),
     (1499 * 60, 1500, 60, 60), (1499 * 60 + 1, 1500, 60, 120), (7 * DAY, 1500, 60, 600),
     (365 * DAY, 1500, 60, 21_600), (365 * DAY, 196, 60, 2 * DAY), (3650 * DAY, 1500, 60, 7 * DAY)],
)  # fmt: skip
def test_steps_fit_the_history(seconds: int, steps: int, least: int, width: int) -> None:
    assert width_for(seconds, steps, least) == width


@given(st.integers(1, 10**11), st.integers(2, 2000))
def test_wherever_it_begins_there_are_no_more_steps_than_asked_for(
    seconds: int, steps: int
) -> None:
    width = width_for(seconds, steps)
    assert -(-seconds // width) + 1 <= steps


def test_widths_are_said_in_the_largest_unit() -> None:
    assert [width_text(width) for width in (1, 30, 60, 600, 3600, 7200, DAY, 7 * DAY)] == [
        "1-second", "30-second", "1-minute", "10-minute", "1-hour", "2-hour", "1-day", "7-day",
    ]  # fmt: skip
    assert list(WIDTHS) == sorted(WIDTHS)
