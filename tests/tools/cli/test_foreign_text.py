"""Names and bodies in a log are of others: on a terminal all of them is shown, none of it
obeyed.
"""

from __future__ import annotations

import ast
import csv
import io
import shutil
from pathlib import Path

import pytest

from beanstalk_twisted.binlog.records.others import Pause, TubeDef
from tests.binlog.scribe import DEFAULT_TUBE, T0, Scribe, delete, put
from tests.tools.cli.running import ended_on_a_terminal, run
from tests.tools.folders import written

ROOT = Path(__file__).parents[3]
HARM = "\x1b]0;owned\x07\x9b2J\u202e\u2028\x7f"
"""A new title for the window, a screen that is cleared, a line that is turned round."""
BODY = HARM.encode() + b"\xff\tend"
SHOWN = "\\x1b]0;owned\\x07\\u009b2J\\u202e\\u2028\\x7f"
OF_TERMINALS = set("\n\r\x1b")
"""What a table and a bar are drawn with."""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    scribe = Scribe(opening=[TubeDef(1, HARM.encode(), T0)])
    scribe.write(put(1, BODY), put(2, BODY), Pause(1, 60, T0, T0 + 10**18), delete(2))
    return written(tmp_path_factory.mktemp("harmful") / "log", scribe.files())


ON_A_TERMINAL = {
    "dump": ("dump",), "dump json": ("dump", "--json"), "dump csv": ("dump", "--format", "csv"),
    "jobs": ("jobs", "--bodies", "text"), "jobs json": ("jobs", "--json", "--bodies", "text"),
    "explain": ("jobs", "--explain", "1"), "body": ("jobs", "--body", "1"),
    "stats": ("stats",), "export": ("export",), "export -": ("export", "-o", "-"),
    "undelete": ("undelete", "--since", "2020-01-01"), "salvage": ("salvage",),
    "diff": ("diff",), "filter": ("filter", "--drop", "--job", "1", "--dry-run"),
    "export-v7": ("export-v7",),
}  # fmt: skip


@pytest.mark.one_in(4)
@pytest.mark.parametrize("words", ON_A_TERMINAL.values(), ids=ON_A_TERMINAL)
def test_a_terminal_obeys_no_log(log: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1))
    other = written(tmp_path / "other", scribe.files())
    more = [other] if words[0] == "diff" else []
    command, *options = words
    code, shown = ended_on_a_terminal(command, log, *more, *options, columns=400)
    assert code in (0, 1, 3), shown
    strange = {each for each in shown if not each.isprintable()} - OF_TERMINALS
    assert not strange, shown
    assert "\x1b]" not in shown
    if words[0] not in ("salvage", "export-v7"):
        assert "owned" in shown


def test_a_body_is_shown_so_that_it_can_be_had_back_and_raw_if_that_is_asked_for(log: Path) -> None:
    _, shown = ended_on_a_terminal("jobs", log, "--body", "1")
    assert shown.rstrip("\r\n") == SHOWN + "\\xff\\tend"
    raw = run("jobs", log, "--body", "1", "--raw").stdout_bytes
    assert raw == run("jobs", log, "--body", "1").stdout_bytes == BODY


def test_a_path_is_no_markup_of_a_progress_bar(log: Path, tmp_path: Path) -> None:
    path = tmp_path / "[" / "red]"
    shutil.copytree(log, path)
    code, shown = ended_on_a_terminal("jobs", path)
    assert code == 0, shown
    assert f"reading {path}" in shown


def test_raw_is_for_a_body(log: Path) -> None:
    assert run("jobs", log, "--raw").exit_code == 2


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@sum", "\t=1", "\r=1"])
def test_a_spreadsheet_takes_no_cell_for_a_formula(tmp_path: Path, name: str) -> None:
    scribe = Scribe(opening=[TubeDef(1, name.encode(), T0)])
    scribe.write(put(1, name.encode()))
    log = written(tmp_path / "log", scribe.files())
    found = run("dump", log, "--format", "csv", "--type", "put").stdout
    (row,) = csv.DictReader(io.StringIO(found))
    for field in ("tube", "body"):
        assert row[field][0] not in "=+-@\t\r"
        assert row[field].removeprefix("'").endswith(name[1:])
    assert row["priority"] == "1024"


PRINTING = {
    "binlog_tools/console/errors.py", "binlog_tools/console/output.py",
    "binlog_tools/queue/cli/top.py",
    "binlog_tools/spark/errors.py", "binlog_tools/spark/session.py",
}  # fmt: skip
"""What prints by itself, and escapes what it has of others."""


def test_all_that_is_said_goes_through_one_place() -> None:
    found = set()
    for path in sorted((ROOT / "binlog_tools").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in (
                "click.echo", "click.secho", "print",
            ):  # fmt: skip
                found.add(str(path.relative_to(ROOT)))
    assert found == PRINTING
