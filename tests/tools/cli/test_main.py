"""What all commands have in common: usage, exit codes, help, signals."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import pytest

from beanstalk_twisted.version import VERSION
from binlog_tools.cli.commands import COMMANDS, cli
from tests.binlog.make_golden import GOLDEN
from tests.binlog.test_directory import exit_code_without_rights
from tests.tools.cli.running import MAIN, run

ONE = f"{1:020d}.tql"


def test_a_file_that_cannot_be_read_is_4() -> None:
    with TemporaryDirectory() as path:
        os.chmod(path, 0o755)
        segment = Path(path) / ONE
        segment.write_bytes((GOLDEN / "v1-torn" / ONE).read_bytes())
        assert exit_code_without_rights(lambda: cli(["check", path])) == 1
        segment.chmod(0)
        assert exit_code_without_rights(lambda: cli(["check", path])) == 4


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_examples(name: str) -> None:
    result = run(name, "--help")
    assert result.exit_code == 0
    assert f"binlog-inspect {name}" in result.stdout.split("Options:")[0].split("Usage:")[1]
    # They are commands that exist.
    command = cli.get_command(click.Context(cli), name)
    assert command is not None and command.help is not None
    for line in command.help.splitlines():
        words = line.strip().split()
        if words[:1] != ["binlog-inspect"]:
            continue
        known = cli.get_command(click.Context(cli), words[1])
        assert known is not None, line
        options = {option for each in known.params for option in each.opts + each.secondary_opts}
        asked = {
            word.split("=")[0] for word in words[2 : _end(words)] if re.match("--?[a-z]", word)
        }
        assert asked <= options, line


def _end(words: list[str]) -> int:
    """Where the next command of a line of shell begins."""
    return min([n for n, word in enumerate(words) if word in ("|", "&&", ">", ";")] + [len(words)])


def test_help_names_the_exit_codes() -> None:
    text = " ".join(run("--help").stdout.split())
    assert "0 sound, 1 torn tail only, 2 wrong usage, 3 damaged, 4 cannot be read" in text


def test_the_version_is_the_servers() -> None:
    assert run("--version").stdout == f"binlog-inspect, version {VERSION}\n"


def test_no_command_imports_twisted() -> None:
    names = ", ".join(f"binlog_tools.cli.{each}" for each in COMMANDS.values())
    code = f"import sys, {names}; print([m for m in sys.modules if m[:7] == 'twisted'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_reader_that_goes_away_ends_it_silently() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [sys.executable, "-c", MAIN, "check", str(GOLDEN / "v1-torn")],
        stdout=write_end, stderr=subprocess.PIPE,
    )  # fmt: skip
    os.close(write_end)
    assert done.stderr == b""
    assert done.returncode == -signal.SIGPIPE, "a shell shows 141"


def test_the_script_completes_commands() -> None:
    environment = {
        **os.environ, "_BINLOG_INSPECT_COMPLETE": "bash_complete",
        "COMP_WORDS": "binlog-inspect che", "COMP_CWORD": "1",
    }  # fmt: skip
    done = subprocess.run([sys.executable, "-c", MAIN], env=environment, capture_output=True,
                          text=True)  # fmt: skip
    assert done.stdout == "plain,check\n"
