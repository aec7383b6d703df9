"""The measurement of a backlog larger than memory, on a small one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.bigger import Figures, Measured, Plan, command_of, limited, main, table


def test_the_figures_stand_side_by_side() -> None:
    figures = Figures(*range(1000, 1000 + len(Figures._fields)))
    rows = table([Measured(name, "", figures, [], []) for name in ("log", "memory")]).splitlines()
    assert rows[:3] == [
        "|  | log | memory |", "| --- | ---: | ---: |", "| bigger-put-rate | 1,000 | 1,000 |",
    ]  # fmt: skip
    assert len(rows) == 2 + len(Figures._fields)


@pytest.mark.parametrize(("name", "cache"), [("log", "77"), ("memory", str(1 << 60))])
def test_ours_differ_in_where_bodies_are_only(name: str, cache: str) -> None:
    assert command_of(name, Plan(body_cache=77), Path("/log"))[-2:] == ["--body-cache", cache]


def test_without_a_limit_nothing_holds_one() -> None:
    with limited(0) as (held_by, enter):
        assert (held_by, enter) == ("", None)


@pytest.mark.exhaustive
def test_a_backlog_is_put_and_drained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--jobs", "4000", "--body-bytes", "500", "--workers", "5", "--body-cache", "20000"]
    words += ["--memory-limit", str(1 << 29), "--only", "log", "--output", str(tmp_path)]
    assert main([*words, "--directory", str(tmp_path)]) == 0
    assert "bigger-drain-rate" in capsys.readouterr().out
    told = json.loads((tmp_path / "bigger.json").read_text())
    assert (told["plan"]["jobs"], told["log"]["name"]) == (4000, "log")
    assert told["log"]["figures"]["peak_anonymous_mb"] > 1
