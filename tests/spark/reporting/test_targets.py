"""Targets, and whether they were kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from binlog_tools.spark.reporting.findings import findings
from binlog_tools.spark.reporting.readings import Wish, read
from binlog_tools.spark.reporting.sections import content_of
from binlog_tools.spark.reporting.series import ALWAYS, Period
from tests.spark.reporting.some_tables import MICROS, START_S, minute, write, write_minutes

INTS = (
    "wait_target_ns", "waits", "waits_within", "run_target_ns", "runs", "runs_within", "oldest_ns",
)  # fmt: skip
SCHEMA = pa.schema([
    ("server", pa.string()), ("tube", pa.string()), ("hour", MICROS),
    *((name, pa.int64()) for name in INTS), ("wait_share", pa.float64()),
    ("run_share", pa.float64()), ("is_breached", pa.bool_()),
])  # fmt: skip


def hour(at: int, tube: str, waits: int, within: int, breached: bool) -> dict[str, Any]:
    share = within / waits if waits else None
    return {
        "server": "a", "tube": tube, "hour": (START_S + 3600 * at) * 1_000_000, "waits": waits,
        "wait_target_ns": 5 * 10**9, "waits_within": within, "wait_share": share, "runs": 7,
        "is_breached": breached,
    }  # fmt: skip


def tables(place: Path) -> Path:
    write_minutes(place, [minute(0), minute(7200)])
    rows = [hour(0, "mail", 100, 80, True), hour(1, "mail", 100, 100, False),
            hour(2, "mail", 0, 0, False), hour(1, "other", 10, 10, False)]  # fmt: skip
    write(place / "sla", pa.Table.from_pylist(rows, SCHEMA))
    return place


def test_shares_are_added_up_by_tube_and_the_worst_hours_listed(tmp_path: Path) -> None:
    content = content_of(read(Wish(str(tables(tmp_path)))), "x")
    shown = {table.key: table.rows for table in content.tables}
    assert shown["sla"] == [
        ["mail", "5 s", "90.0 %", None, None, 3, 1], ["other", "5 s", "100.0 %", None, None, 1, 0],
    ]  # fmt: skip
    assert shown["missed"] == [["mail", "2025-11-24 00:00", "80.0 %", None]]


def test_a_missed_target_is_told_and_one_that_was_kept_is_not(tmp_path: Path) -> None:
    place = tables(tmp_path)
    (found,) = findings(read(Wish(str(place))))
    assert (found.figure, found.tube) == ("sla", "mail")
    assert "in 1 of 3 hours: 90.0 % of its waits were within it" in found.text
    assert findings(read(Wish(str(place), None, Period(START_S + 3600, ALWAYS.end)))) == []


def test_an_hour_counts_if_the_period_has_something_of_it(tmp_path: Path) -> None:
    place = str(tables(tmp_path))
    targets = read(Wish(place, None, Period(START_S + 3540, START_S + 3600))).targets
    assert targets is not None
    assert {name: kept.hours for name, kept in targets.tubes.items()} == {"mail": 1}
    targets = read(Wish(place, None, Period(START_S + 3540, START_S + 3660))).targets
    assert targets is not None and targets.tubes["mail"].hours == 2


def test_without_targets_nothing_is_missing(tmp_path: Path) -> None:
    write_minutes(tmp_path, [minute(0)])
    readings = read(Wish(str(tmp_path)))
    assert readings.targets is None and "sla" not in readings.absent


def test_a_table_of_no_targets_is_not_shown(tmp_path: Path) -> None:
    write_minutes(tmp_path, [minute(0)])
    write(tmp_path / "sla", SCHEMA.empty_table())
    content = content_of(read(Wish(str(tmp_path))), "x")
    assert not {"sla", "missed"} & {table.key for table in content.tables}
