"""What stands out is said, at its threshold and not before, with the figure that shows it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from binlog_tools.spark.reporting.findings import (
    FEW_LENGTHS,
    FEW_RUNS,
    LONG_WAIT_S,
    MANY_READY,
    MAX_NAMED,
    findings,
)
from binlog_tools.spark.reporting.readings import DeadLetters, Mark, Readings, Selection, read
from tests.spark.reporting import some_tables as some

SECOND = 10**9


def of(tmp_path: Path, rows: Iterable[dict[str, Any]], name: str = "t") -> Readings:
    some.write_minutes(tmp_path / name, rows)
    return read(Selection(str(tmp_path / name)))


def told(readings: Readings) -> list[tuple[str, str, str]]:
    return [(found.figure, found.tube, found.text) for found in findings(readings)]


@pytest.mark.parametrize(("runs", "failed", "count"), [(100, 5, 1), (100, 4, 0), (19, 19, 0)])
def test_a_tube_whose_runs_fail(tmp_path: Path, runs: int, failed: int, count: int) -> None:
    assert FEW_RUNS == 20
    found = told(of(tmp_path, [some.minute(0, reserves=runs, timeouts=failed)]))
    assert len(found) == count
    if found:
        assert found[0][:2] == ("flow", "mail")
        assert "5.0 % of 100 runs failed, 5 by timeouts: the TTR is too short" in found[0][2]


@pytest.mark.parametrize(
    ("wait_s", "run_s", "count"),
    [(LONG_WAIT_S, 1, 1), (LONG_WAIT_S - 1, 1, 0), (LONG_WAIT_S, 60, 0), (LONG_WAIT_S, None, 1)],
)
def test_a_tube_that_lacks_workers(
    tmp_path: Path, wait_s: float, run_s: float | None, count: int
) -> None:
    runs = [] if run_s is None else [(int(run_s * SECOND), 3)]
    row = some.minute(0, wait_histogram=[(int(wait_s * SECOND), 20)], run_histogram=runs)
    found = told(of(tmp_path, [row]))
    assert [place[:2] for place in found] == [("wait", "mail")] * count
    if found and run_s:
        assert "waits 1 min or longer for a worker, and runs no longer than 1 s:" in found[0][2]


@pytest.mark.parametrize(("waits", "count"), [(20, 1), (19, 0)])
def test_of_a_few_waits_no_rule_is_made(tmp_path: Path, waits: int, count: int) -> None:
    assert FEW_LENGTHS == 20
    row = some.minute(0, wait_histogram=[(86_400 * SECOND, waits)])
    assert len(told(of(tmp_path, [row]))) == count


@pytest.mark.parametrize(("last", "count"), [(MANY_READY, 1), (MANY_READY - 1, 0)])
def test_a_tube_that_fills(tmp_path: Path, last: int, count: int) -> None:
    rows = [some.minute(60 * at, ready=last * at // 19) for at in range(20)]
    found = told(of(tmp_path, rows))
    assert [place[:2] for place in found] == [("depth", "mail")] * count


def test_a_tube_that_was_emptied_again_does_not_fill(tmp_path: Path) -> None:
    rows = [
        some.minute(60 * at, ready=1000 if at == 5 else 500 if at > 9 else 0) for at in range(20)
    ]
    assert told(of(tmp_path, rows)) == []


def test_a_kind_of_jobs_that_is_most_of_the_failures() -> None:
    assert [found[0] for found in told(Readings(kinds=[some.kind(6), some.kind(6)]))] == ["kinds"]
    assert told(Readings(kinds=[some.kind(6), some.kind(4), some.kind(4)])) == []
    assert told(Readings(kinds=[some.kind(9)])) == []


def test_a_kind_without_a_sample_says_how_to_get_one() -> None:
    ((_, _, text),) = told(Readings(kinds=[some.kind(10, sample="{}")]))
    assert text.startswith("One kind of jobs, in tube") and text.endswith("what they are.")
    ((_, _, text),) = told(Readings(kinds=[some.kind(10, fingerprint=None)]))
    assert text.startswith("Tube ") and "sample says" not in text
    assert text.endswith("python -m binlog_tools.spark events LOG -o EVENTS --body.")


def test_dead_letters_wait_for_somebody() -> None:
    dead = {("mail", "expired"): DeadLetters(3, None, None)}
    ((figure, _, text),) = told(Readings(dead=dead))
    assert figure == "dead" and text.startswith("3 dead letters there, 3 of tube mail by expired")


@pytest.mark.parametrize(("runs", "failures", "count"), [(20, 3, 1), (20, 2, 0), (19, 19, 0)])
def test_one_worker_that_fails_more_than_the_others(
    tmp_path: Path, runs: int, failures: int, count: int
) -> None:
    # All together fail 4.9 of 100; three times that are 14.7.
    readings = of(tmp_path, [some.minute(0, reserves=1000, timeouts=49)])
    readings.workers = [some.worker(7, runs=runs, timeouts=failures, releases=0)]
    assert [found[0] for found in told(readings)] == ["workers"] * count


def test_many_restarts_in_a_day(tmp_path: Path) -> None:
    readings = of(tmp_path, [some.minute(0), some.minute(86_400)])
    marks = [Mark(some.START_S + at, "stop", "x") for at in range(3)]
    assert told(Readings(flow=readings.flow, marks=marks[:2])) == []
    ((figure, _, text),) = told(Readings(flow=readings.flow, marks=marks))
    assert figure == "marks" and "restarted 3 times in 1 d, 0 of them after a kill" in text
    marks[0] = marks[0]._replace(kind="kill")
    ((_, _, text),) = told(Readings(flow=readings.flow, marks=marks))
    assert " 1 of them after a kill or crash, " in text


def test_a_rule_has_one_line_however_many_tubes_break_it(tmp_path: Path) -> None:
    rows = [
        some.minute(0, f"tube{at}", reserves=100, releases=10 + at) for at in range(MAX_NAMED + 3)
    ]
    ((figure, tube, text),) = told(of(tmp_path, rows))
    assert (figure, tube) == ("flow", "tube7")
    assert text.endswith("back. Likewise: tube6, tube5, tube4, tube3, tube2 and 2 more.")
    readings = of(tmp_path, [some.minute(0, reserves=1000, timeouts=49)], "w")
    readings.workers = [some.worker(at, runs=20, timeouts=10, releases=0) for at in (7, 8)]
    ((figure, _, text),) = told(readings)
    assert figure == "workers"
    assert text.endswith("Likewise: connection 8 of start 1 of aaaaaaaa.")
