"""The measurements of the extensions, on few jobs: what they check is what they say."""

import pytest

from benchmarks import extended
from benchmarks.extended import main
from benchmarks.turns import Meter, Pauses


def test_each_says_what_it_has_found(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--scale", "1000", "--only", "flush,listing,shares"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["- flush", "- listing", "- shares"]
    assert lines[-1].endswith("off by 12.00% at most (aim 2%)")


def test_one_that_is_missed_is_told() -> None:
    # Of 100 reserves no tube of weight 1 can have its 6.25.
    assert main(["--scale", "1000", "--only", "shares"]) == 1
    assert main(["--scale", "50", "--only", "shares"]) == 0


def test_a_long_turn_is_a_miss() -> None:
    meter = Meter(Pauses())
    meter.longest_s = 0.021
    found = extended.longest(meter, "flushed")
    assert found.is_missed and found.what.endswith("the longest 21.0 ms (aim 20)")
    meter.longest_s = 0.02
    assert not extended.longest(meter, "flushed").is_missed
