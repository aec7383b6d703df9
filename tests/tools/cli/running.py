"""Calling ``binlog-inspect``, and reading what it says."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from binlog_tools.cli.commands import cli

MAIN = "from beanstalk_twisted.programs import binlog_inspect; binlog_inspect()"
"""What the console script runs."""


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def rows(result: Result) -> list[list[str]]:
    return [line.split("\t") for line in result.stdout.splitlines()]


def documents(result: Result) -> list[dict[str, Any]]:
    """The JSON, of which each document says its version."""
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert all(next(iter(each.items())) == ("v", 1) for each in found)
    return found


def warnings(result: Result) -> str:
    """What stderr says with ``--json``, as it is without."""
    told = [json.loads(line) for line in result.stderr.splitlines()]
    return "".join(f"binlog-inspect: {each['what']}\n" for each in told)


def on_a_terminal(*arguments: str | Path, code: str = MAIN, columns: int = 160) -> str:
    """Call it in a process whose output is a terminal.

    :return: what it showed, without the escape sequences being taken out.
    """
    return ended_on_a_terminal(*arguments, code=code, columns=columns)[1]


def ended_on_a_terminal(
    *arguments: str | Path, code: str = MAIN, columns: int = 160, term: str = "xterm"
) -> tuple[int, str]:
    """The same, and before it the exit code.

    :param term: what the terminal is called.
    """
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": term, "NO_COLOR": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=environment,
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:
            break
        if not part:
            break
        shown += part
    os.close(ours)
    return process.wait(timeout=30), shown.decode()
