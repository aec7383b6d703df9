"""
A short run of chaos; `make chaos` runs an hour.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.replication.chaos.__main__ import too_low
from tests.replication.chaos.clients import Journal

SECONDS = 60


@pytest.mark.exhaustive
def test_a_queue_under_faults_has_the_history_of_a_queue(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.replication.chaos", "--seconds", str(SECONDS)]
    done = subprocess.run(
        [*command, "--seed", os.environ.get("CHAOS_SEED", "7"), "--folder", str(tmp_path)],
        capture_output=True, text=True, timeout=6 * SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing is wrong" in done.stdout


def test_counters_below_what_was_acknowledged_are_found() -> None:
    journal = Journal()
    journal.counts["reserves"][7] = 3
    counts = {7: {"reserves": 3, "releases": 0, "buries": 0}}
    assert too_low(journal, counts) == []
    journal.counts["reserves"][7] = 4
    assert too_low(journal, counts) == ["job 7: 4 reserves were acknowledged, and 3 are counted"]
