"""Calls of ``binlog-inspect`` on small logs: how each ends, and what it says.

What goes wrong before there is anything to show leaves stdout empty and writes nothing.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.binlog.make_golden import GOLDEN
from tests.tools.cli.running import run
from tests.tools.folders import contents

ONE = f"{1:020d}.tql"
PLACES = {
    "every": GOLDEN / "v1-every-kind", "rotated": GOLDEN / "v1-rotated",
    "torn": GOLDEN / "v1-torn", "damaged": GOLDEN / "v1-damaged",
    "tagged": GOLDEN / "v1.1-extensions",
}  # fmt: skip

USAGE, CANNOT, DAMAGED, TORN, SOUND = 2, 4, 3, 1, 0
NO_LOG = "there is no log here"
WRONG_SIZES = ("8191", "1073741825", "much")
SELECTING = ("jobs {every}", "dump {every}", "filter {every} --drop --dry-run")

CALLS = [
    # What is no call.
    *((words, USAGE, "Usage: ") for words in (
        "check", "check /nonexistent", "chekc /", "check --fix /", "dump / --since yesterday",
        "dump / --job x", "dump / --type putt", "dump / --lsn 9..1", "undelete {every}",
        "salvage", "salvage /nonexistent",
        "salvage --accept-gap x /", "salvage --doubtful perhaps /", "salvage --in-place {file}",
        *(f"{command}{more}" for command in ("import-v7", "export-v7")
          for more in ("", " /nonexistent", " {tmp} {tmp}", " --fix /")),
        *(f"compact {{every}} -o {{new}} --segment-size {size}" for size in WRONG_SIZES),
        "jobs {every} --as-of someday",
    )),
    *((f"{words} --job {ids}", USAGE, "numbers begin with 1")
      for words in SELECTING for ids in ("0", "0-5", "7,0")),
    *((f"filter {{every}} {pair} --job 1 -o {{new}}", USAGE, "--drop and --keep exclude each other")
      for pair in ("--drop --keep", "--keep --drop")),
    *((f"filter {{every}} {words}", USAGE, "say ") for words in (
        "--drop --in-place", "--tube mail --in-place", "--drop --tube mail",
        "--drop --tube mail --in-place --dry-run", "--drop --tube mail --in-place -o x",
    )),
    ("salvage --in-place -o {new} {every}", USAGE, ""),
    ("jobs {every} -o x", USAGE, "-o goes with --body"),
    ("jobs {every} --body 9 --json", USAGE, "--body does not go with --json."),
    ("jobs {every} --body 9 --bodies none", USAGE, "--body does not go with --bodies."),
    ("jobs {every} --explain 9 --tube x", USAGE, "--explain does not go with --tube."),
    ("jobs {every} --explain 9 --body 9", USAGE, "--body does not go with --explain."),
    *((f"jobs {{tagged}} --tag '{tag}'", USAGE, "idp, con, grp, aft")
      for tag in ("group", "grp:", ":import", "")),
    ("dump -f {every} {torn}", USAGE, ""),
    ("dump {every} --format parquet", USAGE, "name a file with -o"),
    *((f"dump {{every}} --frame 4096 {more}", USAGE, "--frame does not go with -")
      for more in ("--json", "--format csv", "-n 1", "-o x")),
    ("dump {rotated} --frame 4096", USAGE, "say which: --frame SEQ:4096"),
    ("dump {rotated} --frame 9:0", USAGE, "no segment 9"),
    *((f"dump {{rotated}} --frame {place}", USAGE, "wants OFFSET") for place in ("x", "2:")),
    ("replay {every} --to nowhere:x", USAGE, ""),
    ("check nats://127.0.0.1", USAGE, "is its name"),
    ("check nats://u:hunter2@127.0.0.1/q", USAGE, "creds=FILE"),
    *((f"{command} {{every}} -o nats://127.0.0.1/q", USAGE, "a stream is written by a server alone")
      for command in ("compact", "salvage", "dump")),
    ("check s3://key:word@b", USAGE, "credentials belong in the environment"),
    # What cannot be done.
    *((f"{command} {{tmp}}", CANNOT, NO_LOG) for command in ("check", "import-v7", "salvage")),
    ("archive-verify {tmp}", CANNOT, "there is no archive here"),
    ("archive-verify nats://127.0.0.1/q", CANNOT, "no archive"),
    *((f"dump {{every}}/{ONE} --frame={place}", CANNOT, f"{ONE}: offset {place}: {why}")
      for place, why in (
          ("0", "no frame: the segment's header; the next frame begins at 4096"),
          ("4104", "no frame begins here: this is within the frame from 4096 to "),
          ("6864", "no frame: the last one ends at 6"), ("99999999", "the file has "),
          ("-8", "the file has "),
      )),
    # What is damaged.
    *((f"{command} {{damaged}} -o {{new}}", DAMAGED, "") for command in ("compact", "merge")),
    ("stats {damaged}", DAMAGED, ""),
    ("jobs {damaged}", DAMAGED, "binlog-inspect check"),
]  # fmt: skip

ANSWERS = [
    ("check {torn} {rotated}", TORN, "log\ttorn"),
    ("check {torn} {rotated} {damaged}", DAMAGED, "log\tdamaged"),
    ("jobs {damaged} --explain 3", DAMAGED, "perhaps more, but"),
    ("undelete {damaged} --since 2025-01-01", DAMAGED, "perhaps more, but"),
    ("dump {damaged} --frame 4096", DAMAGED, "record 1, LSN 2, put"),
    ("dump {damaged} --frame 4096", DAMAGED,
     "the checksum of its bodies is wrong; the next frame begins at 4424"),
    ("dump {every} --frame 0x1000", SOUND, "a good frame, LSN 1 to 5"),
    ("dump {rotated} --frame 2:4096", SOUND, f"{2:020d}.tql: offset 4096: a good frame"),
    *((f"jobs {{every}} --as-of {early}", SOUND,
       "there were no jobs yet: the log begins at 2025-11-20T12:00:00")
      for early in ("2025-01-01", "0")),
    # A torn tail is nothing to a list and 1 to a story.
    *((f"{command} {{torn}}", SOUND, "") for command in ("jobs", "stats", "export")),
    *((f"{command} {{torn}}", TORN, "")
      for command in ("jobs --explain 1", "dump", "undelete --since 2025-01-01")),
]  # fmt: skip


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Path]:
    """Where the logs are, an empty folder, a file, and what is not there."""
    paths = {name: tmp_path / name for name in ("tmp", "file", "new")}
    paths["tmp"].mkdir()
    paths["file"].write_text("")
    return PLACES | paths


@pytest.mark.parametrize(("words", "code", "said"), CALLS)
def test_what_is_refused_says_why_and_writes_nothing(
    words: str, code: int, said: str, places: dict[str, Path], tmp_path: Path
) -> None:
    before = contents(tmp_path)
    result = run(*shlex.split(words.format(**places)))
    assert (result.exit_code, result.stdout) == (code, ""), result.output
    assert said in " ".join(result.stderr.split()) + " "
    assert "Traceback" not in result.stderr and "hunter2" not in result.stderr
    assert contents(tmp_path) == before


@pytest.mark.parametrize(("words", "code", "said"), ANSWERS)
def test_what_is_answered(words: str, code: int, said: str, places: dict[str, Path]) -> None:
    result = run(*shlex.split(words.format(**places)))
    assert result.exit_code == code, result.output
    assert said.format(**places) in result.output


ERRORS = [
    ("chekc {every}", USAGE, "USAGE", "No such command 'chekc'. Did you mean check?", None),
    ("check /nonexistent", USAGE, "USAGE", "Invalid value for 'LOG...'", None),
    ("check --fix {every}", USAGE, "USAGE", "No such option", None),
    ("jobs {every} --body 9", USAGE, "USAGE", "--body does not go with --json.", None),
    ("check {tmp}", CANNOT, "CANNOT_READ", "there is no log here", "{tmp}"),
    ("import {file}/x -o {new}", USAGE, "USAGE", "Invalid value for 'FILE'", None),
    ("jobs {damaged}", DAMAGED, "DAMAGED", "", None),
    ("stats {damaged}", DAMAGED, "DAMAGED", "", None),
    ("replay {every} --to 127.0.0.1:1 --journal {new}", CANNOT, "CANNOT_READ",
     "127.0.0.1:1: Connection refused", None),
]  # fmt: skip


@pytest.mark.parametrize(("words", "exit_code", "code", "what", "where"), ERRORS)
def test_with_json_what_is_wrong_is_an_object(
    words: str, exit_code: int, code: str, what: str, where: str | None, places: dict[str, Path]
) -> None:
    result = run(*shlex.split(words.format(**places)), "--json")
    assert (result.exit_code, result.stdout) == (exit_code, ""), result.output
    *_, error = [json.loads(line) for line in result.stderr.splitlines()]
    assert (error["v"], error["level"], error["code"], error["exit"]) == (
        1,
        "error",
        code,
        exit_code,
    )
    assert error["what"].startswith(what)
    assert where is None or error["where"] == where.format(**places)
