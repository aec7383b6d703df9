"""
``binlog-inspect`` as it is called: what it prints, and how it ends.
"""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from click.testing import CliRunner, Result

from beanstalk_twisted import __version__
from binlog_tools.cli.main import cli
from tests.binlog.make_golden import GOLDEN, STORES
from tests.binlog.scribe import Files
from tests.binlog.test_directory import exit_code_without_rights

ONE = "00000000000000000001.tql"


def run(*arguments: str | Path) -> Result:
    """
    Call it.
    """
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def contents(path: Path) -> Files:
    """
    All files below a folder.
    """
    return {
        str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()
    }


@pytest.mark.parametrize("name", STORES)
def test_check_ends_with_its_verdict_and_changes_nothing(name: str) -> None:
    before = contents(GOLDEN)
    result = run("check", GOLDEN / name)
    assert result.exit_code == {"v1-torn": 1, "v1-damaged": 3}.get(name, 0)
    assert result.stderr == ""
    assert contents(GOLDEN) == before


def test_check_lists_the_segments_and_says_what_is_wrong() -> None:
    result = run("check", GOLDEN / "v1-torn")
    row, verdict, detail = result.stdout.splitlines()
    assert row == f"{ONE}\tLSN 1 to 2\t2 frames\t4400 bytes"
    assert verdict.startswith("torn tail: ")
    assert detail.startswith(f"  {ONE}: ")


def test_check_of_a_directory_without_a_log_says_so(tmp_path: Path) -> None:
    result = run("check", tmp_path)
    assert (result.exit_code, result.stdout) == (4, "")
    assert result.stderr == f"binlog-inspect: {tmp_path}: there is no log here\n"


def test_check_of_a_log_of_beanstalkd_names_the_command_to_run(tmp_path: Path) -> None:
    (tmp_path / "binlog.1").write_bytes(b"\7\0\0\0")
    result = run("check", tmp_path)
    assert result.exit_code == 3
    assert f"import-v7 {tmp_path} -o" in result.stdout


@pytest.mark.parametrize(
    "arguments", [("check",), ("check", "/nonexistent"), ("check", __file__), ("chekc", "/"),
                  ("check", "/", "/"), ("check", "--fix", "/")],
)  # fmt: skip
def test_wrong_usage_is_2(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Usage: " in result.stderr


def test_a_file_that_cannot_be_read_is_4() -> None:
    with TemporaryDirectory() as path:
        os.chmod(path, 0o755)
        segment = Path(path) / ONE
        segment.write_bytes((GOLDEN / "v1-torn" / ONE).read_bytes())
        assert exit_code_without_rights(lambda: cli(["check", path])) == 1
        segment.chmod(0)
        assert exit_code_without_rights(lambda: cli(["check", path])) == 4


def test_help_names_the_exit_codes() -> None:
    result = run("check", "-h")
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    assert "0 sound, 1 torn tail only, 2 wrong usage, 3 damaged, 4 cannot be read" in text


def test_the_version_is_the_servers() -> None:
    assert run("--version").stdout == f"binlog-inspect, version {__version__}\n"


def test_it_does_not_import_twisted() -> None:
    code = (
        "import sys, binlog_tools.cli.main; print([m for m in sys.modules if m[:7] == 'twisted'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_reader_that_goes_away_ends_it_silently() -> None:
    code = "from binlog_tools.cli.main import main; main()"
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [sys.executable, "-c", code, "check", str(GOLDEN / "v1-torn")],
        stdout=write_end, stderr=subprocess.PIPE,
    )  # fmt: skip
    os.close(write_end)
    assert done.stderr == b""
    assert done.returncode < 0, "a signal, as with any Unix tool"
