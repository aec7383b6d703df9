"""The page on the command says what the command does."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import click
import pytest

from beanstalk_twisted.client.addresses import Address
from beanstalk_twisted.programs import INTERRUPTED
from beanstalk_twisted.wire.grammar import MAX_BATCH_JOBS
from binlog_tools.queue import moving as direct_moving
from binlog_tools.queue.asking import MARK_TUBE
from binlog_tools.queue.cli import commands, exits
from binlog_tools.queue.cli import reserve as execution
from binlog_tools.queue.cli import reserve as wait
from binlog_tools.queue.cli.options import LISTED
from binlog_tools.queue.moving import BATCH_JOBS
from tests.test_docs import blocks, names_in, section, table

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "cli.md"


def test_all_commands_are_listed_in_the_order_of_the_help() -> None:
    assert names_in(table(PAGE, "beanstalk")) == list(commands.COMMANDS)


def calls() -> list[str]:
    """All calls of the command in the pages' blocks."""
    found = []
    for page in (PAGE, ROOT / "README.md"):
        for block in blocks(page, "sh"):
            lines = block.splitlines()
            found += [line for line in lines if re.search(r"\bbeanstalk [-a-z]", line)]
    return found


def test_there_are_examples_of_all_commands() -> None:
    call = r"beanstalk (?:-s \S+ )?([\w-]+)"
    named = {found[1] for line in calls() if (found := re.search(call, line))}
    assert named >= set(commands.COMMANDS) - {"bury"}


@pytest.mark.parametrize("line", calls())
def test_every_example_is_a_call_that_the_command_understands(line: str) -> None:
    call = line[re.search(r"\bbeanstalk ", line).start() :]  # type: ignore[union-attr]
    words = shlex.split(re.split(r" \|\| | < |\|", call)[0])
    if "twistd" in line:
        return
    if words[1] == "-s":
        Address.parse(words[2])
        del words[1:3]
    command = commands.cli.get_command(click.Context(commands.cli), words[1])
    assert command is not None, line
    command.make_context(words[1], words[2:])


def test_the_exit_codes_are_those_of_the_code() -> None:
    rows = table(PAGE, "Common to all commands")
    codes = [
        exits.DONE, exits.NOTHING, exits.USAGE, exits.BURIED, exits.REFUSED, exits.MISSING,
        exits.TIMED_OUT, INTERRUPTED, 141,
    ]  # fmt: skip
    assert [int(row[0]) for row in rows] == codes


def test_the_outcomes_of_a_wait_are_those_of_the_code() -> None:
    rows = table(PAGE, "wait")
    told = {name: int(row[1]) for name, row in zip(names_in(rows), rows, strict=True)}
    assert told == wait.CODES


def test_the_numbers_and_names_of_the_text_are_those_of_the_code() -> None:
    assert f"{execution.USELESS}: buried" in section(PAGE, "reserve")
    for part in ("move", "peek, delete, bury, kick"):
        assert f"{BATCH_JOBS} jobs at once" in section(PAGE, part)
    assert f"asks for {direct_moving.BATCH_JOBS} jobs at once" in section(PAGE, "move")
    assert f"up to {MAX_BATCH_JOBS:,} at once" in section(PAGE, "put")
    assert all(f"`{state}`" in section(PAGE, "list") for state in LISTED[1:])
    assert f"`{MARK_TUBE}`" in section(PAGE, "peek, delete, bury, kick")


def test_the_table_of_commands_is_that_of_the_help() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "cli.py"))["page"](PAGE.read_text())
    assert made == PAGE.read_text(), "run: python docs/cli.py"
