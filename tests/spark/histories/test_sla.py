"""Who was served within a target, against a plain count."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from binlog_tools.spark.histories.entries import MINUTE_NS, rounded
from binlog_tools.spark.histories.increments import tables_of
from binlog_tools.spark.histories.minutes import all_minutes
from binlog_tools.spark.histories.sla import Target, sla_of, target_of
from binlog_tools.spark.histories.starts import Starts, starts_table
from tests.spark.histories.test_histories import in_order, servers_of
from tests.spark.tables import queue_model

HOUR_NS = 60 * MINUTE_NS
TARGETS = (("mail", Target(wait_ns=2 * 10**9, share=0.5)), ("th*", Target(run_ns=10**9)))


@pytest.mark.parametrize(
    ("tube", "pattern", "fits"),
    [("mail", "mail", True), ("mail2", "mail", False), ("mail", "*", True), ("mail", "m*l", True),
     ("mail", "m*a*l", True), ("mail", "*ail*", True), ("mail", "ma*ail", False),
     ("mail", "*x*", False), ("mail", "m**l", True), ("a-b-c", "*-*-*", True)],
)  # fmt: skip
def test_patterns_of_tubes(tube: str, pattern: str, fits: bool) -> None:
    assert (target_of(tube, [(pattern, Target(1))]) is not None) == fits


def test_the_first_target_that_fits_counts() -> None:
    assert target_of("mail", [("x", Target(1)), ("m*", Target(2)), ("*", Target(3))]) == Target(2)


def test_shares_are_those_of_the_attempts() -> None:
    rows = [row for part in servers_of((3, 5, 9)).values() for row in part]
    events = queue_model.table(rows)
    starts = Starts(starts_table(events))
    tables = tables_of(in_order(events), starts)
    minutes = all_minutes(tables["entries"], starts.last_ns)
    found = sla_of(minutes, TARGETS).to_pylist()
    assert {row["tube"] for row in found} == {"mail", "thumbs"}
    waits: Counter[tuple[str, int]] = Counter()
    within: Counter[tuple[str, int]] = Counter()
    for row in tables["attempts"].to_pylist():
        if row["tube"] == "mail" and row["wait_ns"] is not None and row["started_ns"]:
            hour = row["server"], row["started_ns"] // HOUR_NS
            waits[hour] += 1
            within[hour] += row["wait_ns"] <= 2 * 10**9
    for row in found:
        hour = row["server"], int(row["hour"].timestamp()) // 3600
        if row["tube"] == "mail":
            assert (row["waits"], row["waits_within"]) == (waits[hour], within[hour])
            share = row["wait_share"]
            assert row["is_breached"] == (share is not None and share < 0.5)
            assert row["run_share"] is row["runs_within"] is None
        else:
            assert row["wait_share"] is row["wait_target_ns"] is None
            assert row["is_breached"] == (row["runs_within"] < row["runs"])
    assert any(row["is_breached"] for row in found)


def test_a_length_at_the_target_is_within_and_one_digit_past_it_is_not() -> None:
    target = int(rounded(pa.array([1_234_567]).to_numpy())[0])
    for length, count in ((target, 1), (target + 10_000, 0)):
        rows = {"server": "s", "tube": "t", "minute": 0, "wait_histogram": [(length, 1)]}
        minutes = queue_minutes(rows)
        assert sla_of(minutes, [("t", Target(1_234_567))])["waits_within"].to_pylist() == [count]


def queue_minutes(row: dict[str, object]) -> pa.Table:
    """A row of minutes with what matters here."""
    from binlog_tools.spark.histories.tables import TUBE_MINUTES

    return pa.Table.from_pylist([{"run_histogram": [], **row}], TUBE_MINUTES)
