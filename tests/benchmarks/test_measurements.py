"""Measurements, each on few jobs: what they check is what they say, and what they refuse."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from benchmarks import batches, count, extended, ready, scaling
from benchmarks.bigger import __main__ as bigger
from benchmarks.bigger.__main__ import Figures, Measured, Plan, command_of, limited
from benchmarks.count import Counts, Row
from benchmarks.speed import __main__ as speed
from benchmarks.turns import Meter, Pauses


def test_the_figures_stand_side_by_side() -> None:
    figures = Figures(*range(1000, 1000 + len(Figures._fields)))
    rows = bigger.table(
        [Measured(name, "", figures, [], []) for name in ("log", "memory")]
    ).splitlines()
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
def test_a_backlog_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--jobs", "4000", "--body-bytes", "500", "--workers", "5", "--body-cache", "20000"]
    words += ["--memory-limit", str(1 << 29), "--only", "log", "--output", str(tmp_path)]
    assert bigger.main([*words, "--directory", str(tmp_path)]) == 0
    assert "bigger-drain-rate" in capsys.readouterr().out
    told = json.loads((tmp_path / "bigger.json").read_text())
    assert (told["plan"]["jobs"], told["log"]["name"]) == (4000, "log")
    assert told["log"]["figures"]["peak_anonymous_mb"] > 1


@pytest.mark.exhaustive
def test_a_start_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert ready.main(["--jobs", "1500", "--body-bytes", "16", "--rounds", "1"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("1,500 jobs of 16 bytes, a log of ")
    assert "ready after " in said and "medians of 1" in said


@pytest.mark.exhaustive
def test_batches_are_measured_beside_single_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert batches.main(["--jobs", "100", "--rounds", "1", "--disk", "memory"]) == 0
    said = capsys.readouterr().out
    assert [f"| ours, {way} |" in said for way in ("single", "pipelined", "batches")] == [True] * 3
    ratios = re.search(r"memory: batches beside single commands, jobs/s: put ([\d.]+)", said)
    assert ratios is not None and float(ratios[1]) > 0


@pytest.mark.parametrize("jobs", ["0", "50", "150"])
def test_jobs_come_by_whole_batches(jobs: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        batches.main(["--jobs", jobs])
    assert ended.value.code == 2
    assert "multiple of 100" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("main", "words"),
    [
        *((scaling.main, words) for words in (
            "--rounds 0", "--seconds 0", "--seconds nan", "--seconds 1e9", "--processes 1",
            "--processes 51", "--only all",
        )),
        *((speed.main, words) for words in (
            "--publish --quick", "--publish --only rt1", "--publish --rounds 1", "--rounds 0",
            "--only rt49", "--rounds many",
        )),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_in_one_line(
    main: Callable[[Sequence[str]], int], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        main(words.split())
    assert refused.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_each_says_what_it_has_found(capsys: pytest.CaptureFixture[str]) -> None:
    extended.main(["--scale", "1000", "--only", "flush,listing,shares"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["- flush", "- listing", "- shares"]
    assert lines[-1].endswith("off by 12.00% at most (aim 2%)")


def test_one_that_is_missed_is_told() -> None:
    # Of 100 reserves no tube of weight 1 can have its 6.25.
    assert extended.main(["--scale", "1000", "--only", "shares"]) == 1
    assert extended.main(["--scale", "50", "--only", "shares"]) == 0


def test_a_long_turn_is_a_miss() -> None:
    meter = Meter(Pauses())
    meter.longest_s = 0.021
    found = extended.longest(meter, "flushed")
    assert found.is_missed and found.what.endswith("the longest 21.0 ms (aim 20)")
    meter.longest_s = 0.02
    assert not extended.longest(meter, "flushed").is_missed


ROW = Row("memory", 50, "put")


@pytest.mark.exhaustive
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_two_servers_need_the_same_instructions(capsys: pytest.CaptureFixture[str]) -> None:
    assert count.main(["--repeats", "2", "--commands", "50", "--mode", "memory"]) == 0
    rows = capsys.readouterr().out.splitlines()[2:]
    counts = [int(re.findall(r"[\d,]{4,}", row)[0].replace(",", "")) for row in rows]
    assert len(counts) == 16
    assert min(counts) > 1000
    # The machine's own timers are some 1 % of so few commands.
    assert max(float(row.split("|")[-2].split()[0]) for row in rows) < 3


@pytest.mark.parametrize(
    ("counts", "change", "spread"),
    [
        ([990.0, 990.0], "-1.00", "0.00"),
        ([1000.0, 1005.0], "+0.25", "0.50"),
        ([1000.0, 1006.0], "+0.30", "0.60 (not used)"),
    ],
)
def test_a_row_that_spreads_is_marked(counts: list[float], change: str, spread: str) -> None:
    base: Counts = {ROW: [1000.0, 1000.0]}
    *_, line = count.table(base, {ROW: counts})
    assert line.endswith(f"| {change} | {spread} |")
