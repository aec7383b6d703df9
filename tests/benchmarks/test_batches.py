"""The measurement of batches, on few jobs."""

import re

import pytest

from benchmarks.batches import main


@pytest.mark.exhaustive
def test_batches_are_measured_beside_single_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--jobs", "100", "--rounds", "1", "--disk", "memory"]) == 0
    said = capsys.readouterr().out
    assert [f"| ours, {way} |" in said for way in ("single", "pipelined", "batches")] == [True] * 3
    ratios = re.search(r"memory: batches beside single commands, jobs/s: put ([\d.]+)", said)
    assert ratios is not None and float(ratios[1]) > 0


@pytest.mark.parametrize("jobs", ["0", "50", "150"])
def test_jobs_come_by_whole_batches(jobs: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--jobs", jobs])
    assert ended.value.code == 2
    assert "multiple of 100" in capsys.readouterr().err
