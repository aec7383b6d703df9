"""The page on several processes: its units are ones that systemd takes, and its options ours."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.server_process import LIMIT_S
from tests.test_docs import ROOT, blocks, names_in, table

PAGE = ROOT / "docs" / "scaling.md"
PROGRAM = "/opt/beanstalk-twisted/bin/beanstalk-twisted"


def units() -> dict[str, str]:
    found = {}
    for block in blocks(PAGE, "ini"):
        head, _, unit = block.partition("\n")
        found[Path(head.removeprefix("# ")).name] = unit
    return found


def test_systemd_takes_the_units_of_the_page(tmp_path: Path) -> None:
    verify, stand_in = shutil.which("systemd-analyze"), shutil.which("true")
    if verify is None or stand_in is None:
        pytest.skip("systemd-analyze is not installed")
    assert set(units()) == {"beanstalk-twisted@.service", "beanstalk-twisted.target"}
    for name, unit in units().items():
        (tmp_path / name).write_text(unit.replace(PROGRAM, stand_in))
    files = [tmp_path / "beanstalk-twisted@11301.service", tmp_path / "beanstalk-twisted.target"]
    done = subprocess.run(
        [verify, "verify", "--man=no", *map(str, files)],
        capture_output=True, text=True, timeout=LIMIT_S,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_each_instance_has_a_port_and_a_log_of_its_own() -> None:
    service = units()["beanstalk-twisted@.service"]
    (command,) = re.findall(r"^ExecStart=(.*)$", service.replace("\\\n", ""), re.MULTILINE)
    assert command.startswith(PROGRAM)
    assert "tcp:%i:" in command and "/%i" in command.partition("--binlog")[2]
    assert "StateDirectory=beanstalk-twisted/%i\n" in service


def test_the_keys_to_look_at_are_keys_of_stats() -> None:
    known = names_in(table(ROOT / "docs" / "protocol.md", "stats"))
    keys = re.findall(r"`((?:current|binlog|rusage|total|cmd)-[\w-]+)`", PAGE.read_text())
    assert len(set(keys)) >= 6
    assert [key for key in keys if key not in known] == []
