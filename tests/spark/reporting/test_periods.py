"""A report is of whole minutes: all of the time that was asked for, and it says so if that is
more.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from binlog_tools.cli.commands import USAGE
from binlog_tools.spark.report import command
from binlog_tools.spark.reporting.making import PeriodError, Request, make, taken
from binlog_tools.spark.reporting.series import ALWAYS, Period
from tests.spark.reporting.some_tables import (
    START_S,
    lifetimes,
    minute,
    worker,
    write,
    write_minutes,
    write_workers,
)


def seconds(start: float, end: float) -> Period:
    return Period(START_S + start, START_S + end)


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    place = tmp_path / "tables"
    write_minutes(place, (
        minute(60 * at, puts=10**at, ready=at) for at in range(4)
    ))  # fmt: skip
    write(place / "lifetimes", lifetimes(
        ("dead", "t", "expired", 30), ("dead", "t", "expired", 70), ("alive", None, None, None),
    ))  # fmt: skip
    write_workers(place, [worker(at, first=60 * at) for at in range(4)])
    return place


def report(tables: Path, *words: str) -> tuple[Result, Any]:
    out = tables.parent / "r.json"
    done = CliRunner().invoke(command, [str(tables), "-o", str(out), *words])
    return done, json.loads(out.read_text()) if done.exit_code == 0 else None


def between(start: str, end: str) -> tuple[str, ...]:
    return "--from", f"2025-11-24T{start}Z", "--to", f"2025-11-24T{end}Z"


def versus(start: str) -> tuple[str, ...]:
    return "--versus", f"2025-11-24T{start}Z"


@pytest.mark.parametrize(
    ("asked", "whole"),
    [((0, 60), (0, 60)), ((1, 60), (0, 60)), ((0, 61), (0, 120)), ((59.9, 60.1), (0, 120)),
     ((10, 20), (0, 60))],
)  # fmt: skip
def test_all_minutes_are_taken_that_have_something_of_the_period(
    asked: tuple[float, float], whole: tuple[float, float]
) -> None:
    found = taken(seconds(*asked))
    assert found.period == seconds(*whole) and found.other is None
    assert bool(found.text) == (asked != whole)


def test_a_period_without_an_end_has_none() -> None:
    assert taken() == (ALWAYS, None, "")
    assert taken(Period(START_S + 1.0)).text.endswith("from 2025-11-24 00:00 was taken")
    assert taken(Period(end=START_S + 1.0)).text.endswith("up to 2025-11-24 00:01 was taken")


def test_a_period_is_compared_with_one_that_is_as_long() -> None:
    found = taken(seconds(300, 360), START_S + 30)
    assert (found.period, found.other) == (seconds(300, 420), seconds(0, 120))
    assert found.text == (
        "figures are by the minute: 2025-11-24 00:05 to 2025-11-24 00:07 was taken, compared with "
        "2025-11-24 00:00 to 2025-11-24 00:02"
    )


@pytest.mark.parametrize("other", [-60, 60])
def test_two_periods_may_touch_and_not_overlap(other: int) -> None:
    assert taken(seconds(0, 60), START_S + other).text == ""
    with pytest.raises(PeriodError, match="overlap"):
        taken(seconds(0, 60), START_S + other * 59 / 60)


def test_every_tile_is_of_the_minutes_that_were_taken_and_all_outputs_say_so(
    tables: Path,
) -> None:
    done, made = report(tables, *between("00:00:30", "00:01:30"))
    said = "igures are by the minute: 2025-11-24 00:00 to 2025-11-24 00:02 was taken"
    assert f"report: f{said}\n" in done.stderr and f"F{said}." in made["text"]
    tiles = {what: (number, then) for number, what, then in made["tiles"]}
    assert tiles["jobs put"] == ("11", "") and tiles["worker connections"] == ("2", "")
    assert tiles["jobs still there at the end"] == ("1", "")
    assert tiles["dead letters"] == ("2", "")
    # Half of a minute has all of it, too.
    _, inside = report(tables, *between("00:00:40", "00:00:50"))
    numbers = {what: number for number, what, _ in inside["tiles"]}
    for what in ("jobs put", "worker connections", "dead letters"):
        assert numbers[what] == "1"


def test_the_other_period_has_the_same_tiles(tables: Path) -> None:
    done, made = report(tables, *between("00:02:30", "00:03:30"), *versus("00:00:00"))
    assert done.stderr.count("\n") == 2, "the period, and tables that are missing"
    tiles = {what: (number, then) for number, what, then in made["tiles"]}
    assert tiles["jobs put"] == ("1,100", "11")
    assert tiles["worker connections"] == ("2", "2")
    assert tiles["jobs still there at the end"] == ("3", "1")
    assert tiles["dead letters"] == ("0", "2")


def test_figures_lie_over_each_other_by_what_was_asked_for(tables: Path) -> None:
    """The tables begin behind the other period's beginning."""
    request = Request(str(tables), "x", seconds(120, 240), START_S - 60)
    (block,) = re.findall('id="content">(.*?)</script>', make(request).page, re.DOTALL)
    periods = json.loads(block)["periods"]
    assert [each["begin"] - START_S for each in periods] == [120, -60]
    assert [each["whole"]["start"] - START_S for each in periods] == [120, 0]


@pytest.mark.parametrize(
    ("words", "said"),
    [((*between("00:00:30", "00:01:30"), *versus("00:01:00")), "the two periods overlap"),
     (between("00:01:00", "00:01:00"), "--from is not before --to")],
)  # fmt: skip
def test_what_is_no_period_is_refused_in_one_line(
    tables: Path, words: tuple[str, ...], said: str
) -> None:
    done, _ = report(tables, *words)
    assert done.exit_code == USAGE
    assert done.stderr.startswith(f"report: {said}") and done.stderr.count("\n") == 1


def test_weeks_before_now_touch_at_whole_minutes(tables: Path) -> None:
    done, _ = report(tables, "--from", "-7d", "--to", "now", "--versus", "-14d")
    assert done.exit_code == 0 and "figures are by the minute" not in done.stderr
