"""
What `benchmarks.live --kills` counts as exact.
"""

from __future__ import annotations

import pytest

from benchmarks.live import Outcome


@pytest.mark.parametrize("field", ["rows", "wrong"])
def test_one_row_too_few_or_too_many_is_a_failure(field: str) -> None:
    exact = Outcome(1, 100, 100, 0)
    assert exact.is_exact
    assert not exact._replace(**{field: 1}).is_exact
