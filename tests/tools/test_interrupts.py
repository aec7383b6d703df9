"""An interrupt is 130 without a word, whenever it comes."""

from __future__ import annotations

import configparser
import subprocess
import sys
from pathlib import Path

import pytest

from beanstalk_twisted import programs
from tests.binlog.make_golden import GOLDEN
from tests.server_process import LIMIT_S

ROOT = Path(__file__).parents[2]
INSPECT, QUEUE, WORK = "binlog_inspect", "beanstalk", "beanstalk_work"

INTERRUPTED_IMPORT = """
import os, signal, sys
from importlib import import_module
from importlib.abc import MetaPathFinder

class Interrupt(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == wanted:
            os.kill(os.getpid(), signal.SIGINT)

wanted, script = sys.argv.pop(1), sys.argv.pop(1)
main = import_module("beanstalk_twisted.programs")
sys.meta_path.insert(0, Interrupt())
getattr(main, script)()
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


def test_little_is_imported_before_an_interrupt_is_answered() -> None:
    code = "import sys; before = set(sys.modules); import beanstalk_twisted.programs;"
    _, said, _ = python(f"{code} print(sorted(set(sys.modules) - before))")
    ours = {f"beanstalk_twisted{name}" for name in ("", ".exports", ".programs")}
    assert set(eval(said)) <= {"_signal", *ours}


def test_all_console_scripts_have_one_beginning_and_one_end() -> None:
    scripts = configparser.ConfigParser()
    scripts.read(ROOT / "setup.cfg")
    points = scripts["options.entry_points"]["console_scripts"].split("\n")
    own = {"beanstalk-twisted": "__main__:main"}
    wanted = {
        f"{name} = beanstalk_twisted.{own.get(name, 'programs:' + name.replace('-', '_'))}"
        for name in programs.PROGRAMS
        if not name.startswith("python -m ")
    }
    assert wanted == set(points[1:])
    for path in ("beanstalk_twisted/__main__.py", "binlog_tools/spark/__main__.py"):
        assert "from beanstalk_twisted.programs import main as run" in (ROOT / path).read_text()


def test_an_interrupt_that_comes_out_as_something_else_is_130_all_the_same() -> None:
    code = """
import os, signal
from binlog_tools.cli import commands, options
from beanstalk_twisted import programs
import click

class Field:
    def __set_name__(self, owner, name):
        os.kill(os.getpid(), signal.SIGINT)

@click.command("check", cls=options.Command)
def command():
    type("Record", (), {"field": Field()})

commands.Commands.get_command = lambda self, ctx, name: command
programs.binlog_inspect()
"""
    status, _, problems = python(code, "check")
    assert status == 130
    assert "Traceback" not in problems


def test_behind_nohup_an_interrupt_stays_ignored() -> None:
    code = "import os, signal; signal.signal(signal.SIGINT, signal.SIG_IGN);"
    code += "import beanstalk_twisted.programs as i; i.INTERRUPTS.end_at_once();"
    code += "i.INTERRUPTS.tell_the_command(); os.kill(os.getpid(), signal.SIGINT); print('on')"
    assert python(code)[:2] == (0, "on\n")


def test_an_interrupt_whose_exception_went_no_further_shows_in_the_exit_code() -> None:
    # As one that comes in the middle of a ``__del__``.
    code = "import sys; from beanstalk_twisted import programs;"
    code += "sys.argv = ['binlog-inspect', '--version'];"
    code += "programs.INTERRUPTS.have_come = True; programs.binlog_inspect()"
    assert python(code)[0] == 130
