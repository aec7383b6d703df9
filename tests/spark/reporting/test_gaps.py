"""What is not known is said, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from binlog_tools.spark.errors import TableError
from binlog_tools.spark.reporting.readings import Selection, read
from binlog_tools.spark.reporting.sections import gaps
from binlog_tools.spark.reporting.series import Period
from tests.spark.reporting import some_tables as some

HOUR = [some.minute(60 * at, puts=1) for at in range(60)]


def whole(place: Path) -> Path:
    some.write_minutes(place, HOUR)
    some.write(place / "lifetimes", some.lifetimes(("done", None, None, None)))
    some.write(place / "poison", pa.Table.from_pylist([some.kind(3)]))
    some.write_workers(place, [some.worker(1)])
    some.write_attempts(place, [])
    return place


def said(place: Path, period: Period = Period(), events: Path | None = None) -> list[str]:  # noqa: B008
    return list(gaps(read(Selection(str(place), str(events) if events else None, period))))


def test_of_what_is_whole_nothing_is_missing(tmp_path: Path) -> None:
    assert said(whole(tmp_path)) == []
    assert said(tmp_path, Period(some.START_S, some.START_S + 3600)) == []


def test_tables_that_are_not_there_are_named(tmp_path: Path) -> None:
    some.write_workers(tmp_path, [some.worker(1)])
    (gap,) = said(tmp_path)
    assert gap.endswith("is not shown: tube_minutes, lifetimes, poison, attempts.")


def test_a_period_that_the_tables_do_not_cover(tmp_path: Path) -> None:
    place = whole(tmp_path)
    early, late = said(place, Period(some.START_S - 7200, some.START_S + 7200))
    assert "begin at 2025-11-24 00:00, after" in early
    assert "end at 2025-11-24 01:00, before" in late
    (nothing,) = said(place, Period(some.START_S + 90_000, some.START_S + 99_000))
    assert nothing.startswith("tube_minutes has no row in this period")


def test_a_server_whose_log_ends_before_the_others(tmp_path: Path) -> None:
    some.write_minutes(
        tmp_path, [*HOUR, *(some.minute(60 * at, server="b" * 32) for at in range(57))]
    )
    assert [gap for gap in said(tmp_path) if "server bbbbbbbb" in gap] != []


@pytest.mark.parametrize(("silent", "count"), [(10, 1), (9, 0)])
def test_a_long_time_without_a_record(tmp_path: Path, silent: int, count: int) -> None:
    rows = [some.minute(60 * at, puts=0 if 20 <= at < 20 + silent else 1) for at in range(100)]
    some.write_minutes(tmp_path, rows)
    found = [gap for gap in said(tmp_path) if "nothing was logged" in gap]
    assert len(found) == count
    if found:
        assert "From 2025-11-24 00:20 to 2025-11-24 00:30 (10 min)" in found[0]


def test_jobs_put_before_the_log_begins_and_runs_without_an_end(tmp_path: Path) -> None:
    some.write(
        tmp_path / "lifetimes", some.lifetimes(("alive", None, None, 9), ("done", None, None, None))
    )
    some.write_workers(tmp_path, [some.worker(1, lost=2), some.worker(2)])
    _, begun, runs = said(tmp_path)
    assert "begins in the middle: 1 job had been put" in begun
    assert runs.startswith("2 runs of workers had no end")


def test_damage_is_counted_in_the_events_and_samples_are_taken_of_them(tmp_path: Path) -> None:
    place = whole(tmp_path / "tables")
    some.write(tmp_path / "events", pa.table({
        "server": ["a" * 32, None, "b" * 32], "event": ["put", "damage", "put"],
        "job": [1234567, None, 1234567], "body": [b"one of them\x1b", None, b"another"],
    }))  # fmt: skip
    readings = read(Selection(str(place), str(tmp_path / "events")))
    assert readings.damages == 1 and readings.kinds[0]["sample"] == "one of them\\x1b"
    assert "1 place that could not be read" in next(gaps(readings))
    with pytest.raises(TableError, match="no events table"):
        read(Selection(str(place), str(tmp_path / "nothing")))
