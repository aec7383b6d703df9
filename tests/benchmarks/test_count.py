"""Counting instructions: one short count, and how the table judges its rows."""

import re
import shutil

import pytest

from benchmarks.count import Counts, Row, main, table

ROW = Row("memory", 50, "put")


@pytest.mark.exhaustive
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_two_servers_need_the_same_instructions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--repeats", "2", "--commands", "50", "--mode", "memory"]) == 0
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
    *_, line = table(base, {ROW: counts})
    assert line.endswith(f"| {change} | {spread} |")
