"""What the manual of the tool says is what the tool does."""

import re
import shlex
from pathlib import Path

import click
import pytest

from binlog_tools.cli import commands, jobs
from binlog_tools.cli import dump as records
from binlog_tools.inspect.dumping import REASON_NAMES
from binlog_tools.inspect.measuring import FIELDS
from binlog_tools.logs.stored import TYPE_NAMES
from tests.binlog.make_golden import GOLDEN
from tests.tools.cli.running import documents, run

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MANUAL = (ROOT / "docs" / "inspect.md").read_text()


def section(title: str) -> str:
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", MANUAL, re.S | re.M)
    assert found is not None, title
    return found[1]


def named_in(text: str) -> set[str]:
    return set(re.findall(r"`([\w_-]+)`", text))


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_every_command_is_on_a_page(name: str) -> None:
    assert any(f"binlog-inspect {name}" in page.read_text() for page in PAGES)


def examples() -> list[str]:
    """All calls of the tool in the pages' blocks."""
    found = []
    for page in PAGES:
        for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.S | re.M):
            lines = block.replace("\\\n", " ").splitlines()
            found += [line for line in lines if "binlog-inspect " in line]
    return found


def test_every_example_is_a_call_that_the_tool_understands() -> None:
    assert len(examples()) > 25
    for line in examples():
        words = shlex.split(line[line.index("binlog-inspect ") :].split("|")[0].rstrip('")'))
        if words[1].startswith("-"):
            continue
        command = commands.cli.get_command(click.Context(commands.cli), words[1])
        assert command is not None, line
        options = {o for each in command.params for o in each.opts + each.secondary_opts}
        asked = {word for word in words[2:] if re.match("--?[a-z]", word)}
        assert asked - {"--help"} <= options, line


def test_the_fields_of_records_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| (`.*?) \|", section("dump"), re.M)
    fields = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert fields == list(records.COLUMNS)
    named = named_in(section("dump"))
    assert set(TYPE_NAMES.values()) <= named
    assert set(REASON_NAMES.values()) <= named


def test_the_fields_of_json_are_named() -> None:
    told = documents(run("dump", "--json", GOLDEN / "v1-every-kind"))
    fields = {name for document in told for name in document} - {"v"}
    assert fields <= named_in(section("dump")) | named_in(section("Common to all commands"))
    for command, title in (("check", "check"), ("stats", "stats"), ("jobs", "jobs")):
        for document in documents(run(command, "--json", GOLDEN / "v1-rotated")):
            assert document.keys() - {"v"} <= named_in(section(title)), command
    exported = documents(run("export", GOLDEN / "v1-every-kind"))
    fields = {name for document in exported for name in document} - {"v"}
    assert fields <= named_in(section("export and import"))


def test_the_fields_of_jobs_are_named() -> None:
    assert set(jobs.COLUMNS) - {"body"} <= named_in(section("jobs"))
    assert "`--ignore FIELD`" in section("diff")
    assert set(FIELDS) <= set(jobs.COLUMNS)
