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


def run(folder: Path, seconds: int, *options: str) -> tuple[int, str]:
    """
    :return: the exit code, and what was said.
    """
    command = [sys.executable, "-m", "tests.replication.chaos", "--seconds", str(seconds)]
    done = subprocess.run(
        [*command, "--folder", str(folder), *options], capture_output=True, text=True,
        timeout=240 + seconds, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.mark.exhaustive
def test_a_queue_under_faults_has_the_history_of_a_queue(tmp_path: Path) -> None:
    code, said = run(tmp_path, SECONDS, "--seed", os.environ.get("CHAOS_SEED", "7"))
    assert code == 0 and "nothing is wrong" in said, said


@pytest.mark.exhaustive
@pytest.mark.parametrize("sync_interval", ["always", "3s"])
def test_a_loss_of_power_loses_what_nats_has_not_synced_and_nothing_else(
    tmp_path: Path, sync_interval: str
) -> None:
    """
    Six servers stop at one moment and start with what their disks were given until then
    (`tests.replication.chaos.disks` says what that is, and what it is not).
    """
    faults = ("--only", "all lose power", "--sync-interval", sync_interval)
    code, said = run(tmp_path, 8, "--seed", "3", "--clients", "8", *faults)
    if code == 2:
        pytest.skip(said.splitlines()[-1])
    assert "all lose power" in said, said
    if sync_interval == "always":
        assert code == 0 and "nothing is wrong" in said, said
    else:
        assert code == 1 and "an acknowledged job is gone" in said, said


def test_counters_below_what_was_acknowledged_are_found() -> None:
    journal = Journal()
    journal.counts["reserves"][7] = 3
    counts = {7: {"reserves": 3, "releases": 0, "buries": 0}}
    assert too_low(journal, counts) == []
    journal.counts["reserves"][7] = 4
    assert too_low(journal, counts) == ["job 7: 4 reserves were acknowledged, and 3 are counted"]
