"""A report is of whole minutes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from binlog_tools.cli.commands import USAGE
from binlog_tools.spark.report import command
from binlog_tools.spark.reporting.sections import taken
from binlog_tools.spark.reporting.series import ALWAYS, Period
from tests.spark.reporting import some_tables as some


def seconds(start: float, end: float) -> Period:
    return Period(some.START_S + start, some.START_S + end)


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    place = tmp_path / "tables"
    some.write_minutes(place, (
        some.minute(60 * at, puts=10**at, ready=at) for at in range(4)
    ))  # fmt: skip
    some.write(place / "lifetimes", some.lifetimes(
        ("dead", "t", "expired", 30), ("dead", "t", "expired", 70), ("alive", None, None, None),
    ))  # fmt: skip
    some.write_workers(place, [some.worker(at, first=60 * at) for at in range(4)])
    return place


def report(tables: Path, *words: str) -> tuple[Result, Any]:
    out = tables.parent / "r.json"
    done = CliRunner().invoke(command, [str(tables), "-o", str(out), *words])
    return done, json.loads(out.read_text()) if done.exit_code == 0 else None


def between(start: str, end: str) -> tuple[str, ...]:
    return "--from", f"2025-11-24T{start}Z", "--to", f"2025-11-24T{end}Z"


@pytest.mark.parametrize(
    ("asked", "whole"),
    [((0, 60), (0, 60)), ((1, 60), (0, 60)), ((0, 61), (0, 120)), ((59.9, 60.1), (0, 120)),
     ((10, 20), (0, 60))],
)  # fmt: skip
def test_all_minutes_are_taken_that_have_something_of_the_period(
    asked: tuple[float, float], whole: tuple[float, float]
) -> None:
    period, text = taken(seconds(*asked))
    assert period == seconds(*whole) and bool(text) == (asked != whole)


def test_a_period_without_an_end_has_none() -> None:
    assert taken() == (ALWAYS, "")
    assert taken(Period(some.START_S + 1.0))[1].endswith("from 2025-11-24 00:00 was taken")
    assert taken(Period(end=some.START_S + 1.0))[1].endswith("up to 2025-11-24 00:01 was taken")


def test_every_tile_is_of_the_minutes_that_were_taken_and_all_outputs_say_so(
    tables: Path,
) -> None:
    done, made = report(tables, *between("00:00:30", "00:01:30"))
    said = "igures are by the minute: 2025-11-24 00:00 to 2025-11-24 00:02 was taken"
    assert f"report: f{said}\n" in done.stderr and f"F{said}." in made["text"]
    tiles = {what: number for number, what in made["tiles"]}
    assert tiles["jobs put"] == "11" and tiles["worker connections"] == "2"
    assert tiles["jobs still there at the end"] == "1" and tiles["dead letters"] == "2"
    # Half of a minute has all of it, too.
    _, inside = report(tables, *between("00:00:40", "00:00:50"))
    numbers = {what: number for number, what in inside["tiles"]}
    for what in ("jobs put", "worker connections", "dead letters"):
        assert numbers[what] == "1"


def test_what_is_no_period_is_refused_in_one_line(tables: Path) -> None:
    done, _ = report(tables, *between("00:01:00", "00:01:00"))
    assert done.exit_code == USAGE
    assert done.stderr.startswith("report: --from is not before --to")
    assert done.stderr.count("\n") == 1


def test_weeks_before_now_end_at_whole_minutes(tables: Path) -> None:
    done, _ = report(tables, "--from", "-7d", "--to", "now")
    assert done.exit_code == 0 and "figures are by the minute" not in done.stderr
