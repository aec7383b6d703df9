"""Histograms of plain integers."""

from __future__ import annotations

import pytest

from beanstalk_twisted.jobs.figures import Histogram


@pytest.mark.parametrize(("value", "place"), [(0, 0), (10, 0), (11, 1), (20, 1), (21, 2)])
def test_a_bound_is_of_the_values_below_it(value: int, place: int) -> None:
    values = Histogram((10, 20))
    values.note(value)
    assert [at for at, count in enumerate(values.counts) if count] == [place]
    assert values.total == value
