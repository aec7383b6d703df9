"""An interrupt is 130 without a word, whenever it comes."""

from __future__ import annotations

import configparser
import subprocess
import sys
from pathlib import Path

import pytest

from tests.binlog.make_golden import GOLDEN
from tests.server_process import LIMIT_S

ROOT = Path(__file__).parents[2]
INSPECT, QUEUE = "binlog_tools.cli.main", "binlog_tools.queue.cli.main"
WORK = "beanstalk_twisted.work"

INTERRUPTED_IMPORT = """
import os, signal, sys
from importlib import import_module
from importlib.abc import MetaPathFinder

class Interrupt(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == wanted:
            os.kill(os.getpid(), signal.SIGINT)

wanted, script = sys.argv.pop(1), sys.argv.pop(1)
main = import_module(script).main
sys.meta_path.insert(0, Interrupt())
main()
"""


def python(code: str, *arguments: str) -> tuple[int, str, str]:
    """Run some code; give its exit code and what it has printed."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=LIMIT_S
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("script", "module"),
    [
        *((INSPECT, module) for module in (
            "click", "binlog_tools.cli.commands", "binlog_tools.cli.rewriting",
            "binlog_tools.rewrite.undeleting",
        )),
        *((QUEUE, module) for module in (
            "click", "binlog_tools.queue.cli.commands", "binlog_tools.queue.cli.tubes",
        )),
        *((WORK, module) for module in (
            "click", "twisted.internet", "beanstalk_twisted.worker.service",
        )),
    ],
)  # fmt: skip
def test_an_interrupt_while_modules_are_imported(script: str, module: str) -> None:
    inspecting = ("undelete", str(GOLDEN / "v1-torn"), "--since", "0")
    words = inspecting if script == INSPECT else ("stats", "-h")
    assert python(INTERRUPTED_IMPORT, module, script, *words) == (130, "", "")


@pytest.mark.parametrize("script", [INSPECT, QUEUE, WORK])
def test_little_is_imported_before_an_interrupt_is_answered(script: str) -> None:
    code = f"import sys; before = set(sys.modules); import {script};"
    _, said, _ = python(f"{code} print(sorted(set(sys.modules) - before))")
    names = {
        "_signal", "binlog_tools", "binlog_tools.console", "binlog_tools.console.interrupts",
        "binlog_tools.cli", "binlog_tools.queue", "binlog_tools.queue.cli", "beanstalk_twisted",
        script,
    }  # fmt: skip
    assert set(eval(said)) <= names


def test_the_console_scripts_are_those_that_answer_interrupts() -> None:
    scripts = configparser.ConfigParser()
    scripts.read(ROOT / "setup.cfg")
    points = scripts["options.entry_points"]["console_scripts"].split("\n")
    for name, script in (
        ("beanstalk", QUEUE),
        ("beanstalk-work", WORK),
        ("binlog-inspect", INSPECT),
    ):
        assert f"{name} = {script}:main" in points


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
    status, _, problems = python(code, "check")
    assert status == 130
    assert "Traceback" not in problems


def test_behind_nohup_an_interrupt_stays_ignored() -> None:
    code = "import os, signal; signal.signal(signal.SIGINT, signal.SIG_IGN);"
    code += "import binlog_tools.console.interrupts as i; i.INTERRUPTS.end_at_once();"
    code += "i.INTERRUPTS.tell_the_command(); os.kill(os.getpid(), signal.SIGINT); print('on')"
    assert python(code)[:2] == (0, "on\n")


def test_an_interrupt_whose_exception_went_no_further_shows_in_the_exit_code() -> None:
    # As one that comes in the middle of a ``__del__``.
    code = "import sys; from binlog_tools.cli import commands;"
    code += "sys.argv = ['binlog-inspect', '--version'];"
    code += "commands.INTERRUPTS.have_come = True; sys.exit(commands.called())"
    assert python(code)[0] == 130
