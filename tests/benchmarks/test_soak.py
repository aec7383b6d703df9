"""The soak: what it lets pass, what it calls broken, and that it measures a real server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from beanstalk_twisted.binlog.segments.format import segment_name
from benchmarks.releasing import Measured, Plan, Sample, sizes
from benchmarks.soak import main, problems_of

PLAN = Plan(seconds=10, connections=1, jobs=10, body_bytes=20, segment_bytes=4000, fsync="always")
LIVE = 1000
BOUND = 2 * LIVE + 2 * 4000
CEILING = 4 * LIVE + 2 * 4000


def measured(*log_bytes: int, rest_bytes: int = BOUND, deleted: int = 1) -> Measured:
    """Make samples of a log that was as large as that."""
    samples = [
        Sample(float(second), size, size, size, 1 + deleted * second, 9, 0, 0, 0)
        for second, size in enumerate(log_bytes)
    ]
    return Measured(PLAN, samples, rest_bytes)


def test_a_log_that_keeps_to_its_bounds_is_sound() -> None:
    assert PLAN.live_bytes == LIVE
    assert problems_of(measured(0, 0, CEILING, BOUND, BOUND, CEILING)) == []


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (measured(CEILING + 1, 0, 0, 0), "above the ceiling of 12,000"),
        (measured(0, 0, 0, BOUND + 1, BOUND + 1, BOUND), "half of the time, above 10,000"),
        (measured(0, 0, rest_bytes=BOUND + 1), "stays at 10,001 bytes"),
        (measured(0, 0, deleted=0), "nothing is shown"),
    ],
)
def test_a_log_that_does_not_has_one_problem(found: Measured, why: str) -> None:
    (problem,) = problems_of(found)
    assert why in problem


def test_what_is_allocated_ahead_is_no_part_of_the_log_but_of_the_files(tmp_path: Path) -> None:
    (tmp_path / segment_name(1)).write_bytes(b"a" * 100 + b"\0" * 10)
    (tmp_path / segment_name(2)).write_bytes(b"b" * 70 + b"\0" * 30)
    (tmp_path / "spare.3.tmp").write_bytes(b"\0" * 50)
    assert sizes(tmp_path) == (180, 210, 260)


@pytest.mark.exhaustive
def test_a_real_server_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--seconds=3", "--jobs=40", "--body-bytes=100", "--segment-bytes=16777216"]
    assert main([*words, f"--output={tmp_path}"]) == 1
    said = capsys.readouterr().out
    assert "FAILED: nothing is shown" in said
    content = json.loads((tmp_path / "soak.json").read_text())
    assert [each[:16] for each in content["problems"]] == ["nothing is shown"]
    assert content["plan"]["jobs"] == 40
    first, *_, last = content["samples"]
    assert (len(content["samples"]), last["oldest"], last["newest"]) == (3, 1, 1)
    assert last["releases"] > 0
    # Each release is two records, and something around them.
    growth = last["log_bytes"] - first["log_bytes"]
    assert 160 <= growth / (last["releases"] - first["releases"]) <= 400
    assert (tmp_path / "soak.svg").is_file() != ("no plot" in said)
