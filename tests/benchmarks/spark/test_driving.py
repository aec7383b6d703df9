"""Drivers that are run until they have done something."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.spark.driving import CHANGED, drive

DRIVER = """
import sys, time
from pathlib import Path
count, said = Path(sys.argv[1]), sys.argv[2]
runs = int(count.read_text()) + 1
count.write_text(str(runs))
if runs < 3:
    sys.exit(said)
Path(sys.argv[3]).touch()
time.sleep(600)
"""
"""Ends at once twice, and says this; then it does something, and goes on."""


def run(folder: Path, said: str) -> int:
    """Run it.

    :return: how often it was started.
    """
    count, done = folder / "count", folder / "done"
    count.write_text("0")
    command = [sys.executable, "-c", DRIVER, str(count), said, str(done)]
    drive(command, folder / "said", lambda: int(done.exists()), 0.0)
    return int(count.read_text())


def test_one_that_a_restarted_server_has_ended_is_started_again(tmp_path: Path) -> None:
    assert run(tmp_path, f"{CHANGED.decode()} 3.tql: it is another file") == 3


def test_one_that_ends_otherwise_has_failed(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="the driver finishes nothing"):
        run(tmp_path, "[BINLOG_DAMAGED] 3.tql: offset 5")
