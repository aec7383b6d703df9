"""The test-suite of greenstalk 2.1.1 (see LICENSE), as it is, on the blocking client."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server_process import LIMIT_S, real_beanstalkd

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
MOST_LINES = 80

FAILS = "test_stats"
"""It counts a connection's commands: ours begins with a `use`, by which it knows the server."""

OF_ITS_PARSER = "buried_error or unknown_response or chunk or crlf or unexpected_eof"


def test_the_adapter_is_short() -> None:
    assert len((HERE / "adapter.py").read_text().splitlines()) <= MOST_LINES


@pytest.mark.exhaustive
def test_it_passes(tmp_path: Path) -> None:
    (tmp_path / "greenstalk.py").write_bytes((HERE / "adapter.py").read_bytes())
    suite = tmp_path / "test_greenstalk.py"
    suite.write_bytes((HERE / "test_greenstalk.py.txt").read_bytes())
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist",
         "-c", os.devnull, "--rootdir", tmp_path, "-k", f"not ({OF_ITS_PARSER})", suite],
        cwd=tmp_path, capture_output=True, text=True, timeout=10 * LIMIT_S,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}",
             "BEANSTALKD_PATH": real_beanstalkd()},
    )  # fmt: skip
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    assert failed == [f"FAILED {suite.name}::{FAILS} - assert 1 == 0"], done.stdout
    assert "1 failed, 37 passed" in done.stdout
