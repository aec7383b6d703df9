"""Kill -9 of the driver while it follows a log under load."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.spark.history import Plan as History
from benchmarks.spark.history import make
from benchmarks.spark.kills import Outcome, Plan, main, records_of, rows_of
from benchmarks.spark.live import Outcome as LiveOutcome
from benchmarks.spark.live import killed
from tests.spark.conftest import need_java
from tests.spark.expected import rows_of as expected_rows


@pytest.mark.exhaustive
@pytest.mark.timeout(2400)
def test_each_row_is_in_its_table_once_however_often_the_driver_is_killed(tmp_path: Path) -> None:
    need_java()
    outcome = killed(tmp_path / "new", kills=1, rate=40, most_s=2)
    assert outcome.is_exact, outcome


@pytest.mark.exhaustive
@pytest.mark.timeout(2400)
def test_each_record_is_in_the_output_once_however_often_the_driver_is_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(tmp_path / "new"), "--kills", "1", "--rate", "200", "--most-s", "2"]
    assert main(words) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert outcome["kills"] == 1
    assert outcome["rows"] == outcome["records"] > 0


def test_one_row_too_few_or_too_many_is_a_failure() -> None:
    live, stream = LiveOutcome(1, 100, 100, 0), Outcome(3, 1, 9, 100, 100, 0, 0, 0, 1.0)
    assert live.is_exact and stream.is_exact
    assert not any(live._replace(**{field: 1}).is_exact for field in ("rows", "wrong"))
    wrong = ("missing", "doubled", "foreign")
    assert not any(stream._replace(**{field: 1}).is_exact for field in wrong)
    assert not stream._replace(records=0, rows=0).is_exact


@pytest.mark.exhaustive
def test_what_the_log_has_is_counted_as_the_second_reader_counts(tmp_path: Path) -> None:
    made = make(tmp_path / "new", History(jobs=300, restarts=1, fsync="never"))
    expected = Counter(
        (row["server"], row["lsn"])
        for path in sorted(Path(made.archive).glob("*/*.tql"))
        for row in expected_rows(path.read_bytes())
    )
    assert records_of(Path(made.archive)) == expected
    assert max(expected.values()) == 1
    table = pa.table({"server": ["a", "a"], "lsn": [1, 1]})
    pq.write_table(table, tmp_path / "rows.parquet")
    assert rows_of(tmp_path / "rows.parquet") == {("a", 1): 2}
    assert Plan().kills == 20
