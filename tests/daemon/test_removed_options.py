"""A start with options that were removed names all of them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from beanstalk_twisted.daemon.command_line import parse
from beanstalk_twisted.daemon.removed_options import REMOVED, removed_among
from beanstalk_twisted.tap import CommandOptions, Options
from tests.server_process import LIMIT_S, TWISTD
from tests.test_docs import ROOT

NAMES = sorted(REMOVED)


def sentence(name: str) -> str:
    """Give what is printed of one of them."""
    return f"--{name} was removed, leave it out: {REMOVED[name]}"


@pytest.mark.parametrize(
    ("words", "names"),
    [
        *((["--" + name, "7"], [name]) for name in NAMES),
        *(([f"--{name}=7"], [name]) for name in NAMES),
        *((["--" + name], [name]) for name in NAMES),
        (["--hub", "off", "--port=0", "--v1-ttr=9", "-b", "x"], ["hub", "v1-ttr"]),
        (["-p0", "--v1-ttr=9", "--http-write", "--hub", "off"], ["v1-ttr", "hub"]),
        (["--hub=off", "--hub=auto"], ["hub"]),
        (["--hub=off", "--no-such-option"], ["hub"]),
        (["--no-such-option", "--hub=off"], ["hub"]),
        (["--hub=off", "--port=99999"], ["hub"]),
        (["--" + name for name in NAMES], NAMES),
    ],
)
@pytest.mark.parametrize("kind", [Options, CommandOptions])
def test_a_line_for_each_and_exit_code_5(
    kind: type[Options], words: list[str], names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        kind().parseOptions(words)
    printed = capsys.readouterr()
    assert (exit_.value.code, printed.out) == (5, "")
    assert printed.err.splitlines() == [f"{kind.command}: {sentence(name)}" for name in names]


@pytest.mark.parametrize("words", [["--binlog", "--hub"], ["--tubes=--hub"], ["-b", "--hub=1"]])
def test_a_value_is_not_an_option(words: list[str]) -> None:
    parse(words)


@pytest.mark.parametrize(
    "command",
    [[str(TWISTD), "-n", "--pidfile=", "beanstalk"], [sys.executable, "-m", "beanstalk_twisted"]],
)
def test_both_commands_name_them(command: list[str]) -> None:
    command = [*command, "-p0", "--hub", "off", "--busy-poll=0", "--compaction-pace", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S)
    lines = [line.partition(": ")[2] for line in done.stderr.splitlines()]
    assert lines == [sentence(name) for name in ("hub", "busy-poll", "compaction-pace")]
    assert (done.returncode, done.stdout) == (5, "")


def test_options_that_are_there_are_not_among_them() -> None:
    assert removed_among(["--binlog", "--hub-2", "-hub", "hub", "--", "--listen-v1=x"]) == []
