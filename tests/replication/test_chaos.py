"""A short run of chaos; `make chaos` runs an hour."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.replication.chaos.__main__ import too_low
from tests.replication.chaos.clients import Journal
from tests.replication.chaos.unsynced import MESSAGES

SECONDS = 45


def run(folder: Path, seconds: int, *options: str) -> tuple[int, str]:
    """:return: the exit code, and what was said."""
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
def test_a_loss_of_power_loses_nothing(tmp_path: Path) -> None:
    """Six servers stop at one moment and start with what their disks were given until then
    (`tests.replication.chaos.disks` says what that is, and what it is not).
    """
    code, said = run(tmp_path, 8, "--seed", "3", "--clients", "8", "--only", "all lose power")
    if code == 2:
        pytest.skip(said.splitlines()[-1])
    assert "all lose power" in said, said
    assert code == 0 and "nothing is wrong" in said, said


@pytest.mark.exhaustive
@pytest.mark.parametrize(("sync_interval", "left"), [("always", MESSAGES), ("2m", 0)])
def test_a_loss_of_power_loses_what_nats_has_not_synced(
    tmp_path: Path, sync_interval: str, left: int
) -> None:
    """So the disks lose what they should; what a queue does on such a stream is left to chance."""
    command = [sys.executable, "-m", "tests.replication.chaos.unsynced", "--folder", str(tmp_path)]
    done = subprocess.run(
        [*command, "--sync-interval", sync_interval], capture_output=True, text=True, timeout=240,
        check=False,
    )  # fmt: skip
    if done.returncode == 2:
        pytest.skip(done.stdout.splitlines()[-1])
    assert done.stdout == f"{left} of {MESSAGES}\n", done.stdout + done.stderr


def test_counters_below_what_was_acknowledged_are_found() -> None:
    journal = Journal()
    journal.counts["reserves"][7] = 3
    counts = {7: {"reserves": 3, "releases": 0, "buries": 0}}
    assert too_low(journal, counts) == []
    journal.counts["reserves"][7] = 4
    assert too_low(journal, counts) == ["job 7: 4 reserves were acknowledged, and 3 are counted"]
