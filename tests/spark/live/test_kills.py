"""Kill -9 of the driver that keeps live tables of a server under load: `benchmarks.spark.live`."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.spark.live import Outcome, killed
from tests.spark.conftest import need_java


@pytest.mark.exhaustive
@pytest.mark.timeout(2400)
def test_each_row_is_in_its_table_once_however_often_the_driver_is_killed(tmp_path: Path) -> None:
    need_java()
    outcome = killed(tmp_path / "new", kills=1, rate=40, most_s=2)
    assert outcome.is_exact, outcome


@pytest.mark.parametrize("field", ["rows", "wrong"])
def test_one_row_too_few_or_too_many_is_a_failure(field: str) -> None:
    exact = Outcome(1, 100, 100, 0)
    assert exact.is_exact
    assert not exact._replace(**{field: 1}).is_exact
