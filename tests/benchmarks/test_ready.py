"""The measurement of a start on a full log, on a small one."""

import pytest

from benchmarks.ready import main


@pytest.mark.exhaustive
def test_a_start_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--jobs", "1500", "--body-bytes", "16", "--rounds", "1"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("1,500 jobs of 16 bytes, a log of ")
    assert "ready after " in said and "medians of 1" in said
