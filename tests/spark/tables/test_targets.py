"""Targets as a file says them."""

from __future__ import annotations

from pathlib import Path

import pytest

from binlog_tools.spark.definitions.errors import TableError
from binlog_tools.spark.histories.sla import Target
from binlog_tools.spark.tables.targets import MAX_BYTES, MAX_SECONDS, read_targets


def test_targets_are_read_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "targets.toml"
    path.write_text(
        f'[[target]]\ntube = "mail-*"\nwait_s = 0.5\nshare = 0.99\n'
        f'[[target]]\ntube = "*"\nrun_s = {MAX_SECONDS}\n'
    )
    assert read_targets(str(path)) == [
        ("mail-*", Target(500_000_000, None, 0.99)),
        ("*", Target(None, MAX_SECONDS * 10**9, 1.0)),
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has to consist of"), ("target = 3", "has to consist of"), ("[[target", "no TOML"),
        ('[[target]]\nwait_s = 1', "target 1: tube"),
        ('[[target]]\ntube = "a"', "neither wait_s nor run_s"),
        ('[[target]]\ntube = "a"\nwait_s = -1', "wait_s has to be"),
        (f'[[target]]\ntube = "a"\nwait_s = {MAX_SECONDS + 1}', "wait_s has to be"),
        ('[[target]]\ntube = "a"\nrun_s = true', "run_s has to be"),
        ('[[target]]\ntube = "a"\nrun_s = 1\nshare = 0', "share has to be"),
        ('[[target]]\ntube = "a"\nrun = 1', "run is not one of"),
        (" " * (MAX_BYTES + 1), "larger than"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_targets_is_said_in_one_line(
    tmp_path: Path, text: str, why: str
) -> None:
    path = tmp_path / "targets.toml"
    path.write_text(text)
    with pytest.raises(TableError, match=why) as raised:
        read_targets(str(path))
    assert "\n" not in str(raised.value) and str(path) in str(raised.value)


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="No such file"):
        read_targets(str(tmp_path / "none.toml"))
