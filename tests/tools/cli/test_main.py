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


@pytest.mark.parametrize(
    "arguments", [("check",), ("check", "/nonexistent"), ("chekc", "/"), ("check", "--fix", "/"),
                  ("dump", "/", "--since", "yesterday"), ("dump", "/", "--job", "x"),
                  ("dump", "/", "--type", "putt"), ("dump", "/", "--lsn", "9..1")],
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


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_examples(name: str) -> None:
    result = run(name, "--help")
    assert result.exit_code == 0
    assert f"binlog-inspect {name}" in result.stdout.split("Options:")[0].split("Usage:")[1]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_in_the_help_are_commands_that_exist(name: str) -> None:
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
    names = ", ".join(COMMANDS.values())
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


INTERRUPTED_IMPORT = """
import os, signal, sys
from importlib.abc import MetaPathFinder
import binlog_tools.cli.main

class Interrupt(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == wanted:
            os.kill(os.getpid(), signal.SIGINT)

wanted = sys.argv.pop(1)
sys.meta_path.insert(0, Interrupt())
binlog_tools.cli.main.main()
"""


@pytest.mark.parametrize(
    "module", ["binlog_tools.cli.commands", "click", "binlog_tools.cli.rewriting",
               "binlog_tools.rewrite.undeleting"],
)  # fmt: skip
def test_an_interrupt_while_modules_are_imported_is_130_without_a_word(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IMPORT, module, "undelete", str(GOLDEN / "v1-torn"),
         "--since", "0"], capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_an_interrupt_that_comes_out_as_something_else_is_130_all_the_same() -> None:
    code = """
import os, signal
from binlog_tools.cli import commands, main, options
import click

class Field:
    def __set_name__(self, owner, name):
        os.kill(os.getpid(), signal.SIGINT)

@click.command("check", cls=options.Command)
def command():
    type("Record", (), {"field": Field()})

commands.Commands.get_command = lambda self, ctx, name: command
main.main()
"""
    done = subprocess.run([sys.executable, "-c", code, "check"], capture_output=True, text=True)
    assert done.returncode == 130
    assert "Traceback" not in done.stderr


def test_behind_nohup_an_interrupt_stays_ignored() -> None:
    code = "import os, signal; signal.signal(signal.SIGINT, signal.SIG_IGN);"
    code += "import binlog_tools.console.interrupts as i; i.INTERRUPTS.end_at_once();"
    code += "i.INTERRUPTS.tell_the_command(); os.kill(os.getpid(), signal.SIGINT); print('on')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "on\n")


def test_an_interrupt_whose_exception_went_no_further_shows_in_the_exit_code() -> None:
    # As one that comes in the middle of a ``__del__``.
    code = "import sys; from binlog_tools.cli import commands;"
    code += "sys.argv = ['binlog-inspect', '--version'];"
    code += "commands.INTERRUPTS.have_come = True; sys.exit(commands.called())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 130, done.stderr


def test_little_is_imported_before_an_interrupt_is_answered() -> None:
    code = "import sys; before = set(sys.modules); import binlog_tools.cli.main;"
    code += "print(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    names = ["_signal", "binlog_tools", "binlog_tools.cli", "binlog_tools.console",
             "binlog_tools.console.interrupts",
             "binlog_tools.cli.main"]  # fmt: skip
    assert set(eval(done.stdout)) <= set(names)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_each_shell(shell: str) -> None:
    result = run("completion", shell)
    assert result.exit_code == 0
    assert f"_BINLOG_INSPECT_COMPLETE={shell}_complete" in result.stdout.replace('"', "")


def test_the_script_completes_commands() -> None:
    environment = {
        **os.environ, "_BINLOG_INSPECT_COMPLETE": "bash_complete",
        "COMP_WORDS": "binlog-inspect che", "COMP_CWORD": "1",
    }  # fmt: skip
    done = subprocess.run([sys.executable, "-c", MAIN], env=environment, capture_output=True,
                          text=True)  # fmt: skip
    assert done.stdout == "plain,check\n"
