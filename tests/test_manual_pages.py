"""The pages for man(1): every command and option is in them, and groff has no complaint."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from beanstalk_twisted.daemon.options import OPTIONS
from beanstalk_twisted.worker.command import cli as beanstalk_work
from binlog_tools.cli.commands import cli as binlog_inspect
from binlog_tools.queue.cli.commands import cli as beanstalk
from tests.server_process import LIMIT_S

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("beanstalk", "beanstalk-twisted", "beanstalk-work", "binlog-inspect")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("man") / "man1"
    subprocess.run(
        [sys.executable, "docs/manual_pages.py", str(folder)], cwd=ROOT, check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=LIMIT_S,
    )  # fmt: skip
    assert {path.name for path in folder.iterdir()} == {f"{name}.1" for name in NAMES}
    return folder


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NAMES)
def test_groff_prints_each_page_without_a_complaint(pages: Path, name: str) -> None:
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("groff is not installed")
    command = [groff, "-man", "-Tutf8", "-Kutf8", "-ww", str(pages / f"{name}.1")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{name.upper()}(1)" in done.stdout


def test_every_option_of_the_server_is_there(pages: Path) -> None:
    page = (pages / "beanstalk-twisted.1").read_text().replace("\\-", "-")
    assert [word for option in OPTIONS for word in option.opts if word not in page] == []
    assert "SIGTERM" in page


def test_every_option_of_the_worker_is_there(pages: Path) -> None:
    page = (pages / "beanstalk-work.1").read_text().replace("\\-", "-")
    options = [option for param in beanstalk_work.params for option in param.opts]
    assert [word for word in options if word.startswith("-") and word not in page] == []


@pytest.mark.parametrize(
    ("name", "group"), [("beanstalk", beanstalk), ("binlog-inspect", binlog_inspect)]
)
def test_every_command_is_there_with_its_options(
    pages: Path, name: str, group: click.Group
) -> None:
    page = (pages / f"{name}.1").read_text().replace("\\-", "-")
    parts = dict(part.split("\n", 1) for part in page.split("\n.SS ")[1:])
    described = {usage.split()[0]: text for usage, text in parts.items()}
    context = click.Context(group)
    assert list(described) == group.list_commands(context)
    for each, text in described.items():
        command = group.get_command(context, each)
        assert command is not None
        options = [option for param in command.params for option in param.opts]
        assert [word for word in options if word.startswith("-") and word not in text] == []
