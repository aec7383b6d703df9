"""``beanstalk doctor`` as it is called: its table, its JSON, its exit codes."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from beanstalk_twisted.daemon.removed_options import removed_among
from binlog_tools.doctor.command import CODES
from binlog_tools.queue.cli.commands import cli

OF_EVERY_MACHINE = [
    "python", "twisted", "options", "ports", "user", "descriptors", "backlog", "memory",
]  # fmt: skip
OF_FILES = ["access file", "tubes file", "tls files"]
OF_A_LOG = ["clock", "directory", "file system", "space", "disk"]


def doctor(*words: object) -> Result:
    return CliRunner().invoke(cli, ["doctor", *map(str, words)])


@pytest.mark.exhaustive
def test_all_checks_are_made_and_the_worst_is_the_exit_code(tmp_path: Path) -> None:
    # Only root may become somebody else.
    user = () if os.getuid() else ("--user", "nobody")
    result = doctor("--json", "--", "--binlog", tmp_path / "bs", "--port", "0", *user)
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [each["check"] for each in found] == [*OF_EVERY_MACHINE, *OF_A_LOG]
    assert all(each.keys() == {"v", "check", "level", "what", "advice"} for each in found)
    assert result.exit_code == max(CODES[each["level"]] for each in found)
    # Nothing was made.
    assert list(tmp_path.iterdir()) == []


@pytest.mark.exhaustive
def test_in_a_pipe_a_finding_is_a_line(tmp_path: Path) -> None:
    result = doctor("--", "-b", tmp_path)
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    assert {len(row) for row in rows} == {4}
    assert ["options", "ok", f"binlog {tmp_path}", "-"] in rows


@pytest.mark.exhaustive
def test_what_keeps_a_server_from_starting_is_a_problem(tmp_path: Path) -> None:
    for words in (["--port", "99999999"], ["--binlog", tmp_path / "no" / "bs"]):
        result = doctor("--", *words)
        assert result.exit_code == 4
        assert "\tproblem\t" in result.stdout


def test_files_and_ports_that_refuse_a_start_are_problems(tmp_path: Path) -> None:
    (tmp_path / "tubes.toml").write_text("[mail]\nmax-fun = 1\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = doctor(
            "--json", "--", "--binlog", tmp_path / "bs", "--access", tmp_path / "none.toml",
            "--tubes", tmp_path / "tubes.toml", "--port", port,
            "--http", f"tls:0:{tmp_path}/none",
        )  # fmt: skip
    found = {each["check"]: each for each in map(json.loads, result.stdout.splitlines())}
    problems = [name for name in (*OF_FILES, "ports") if found[name]["level"] == "problem"]
    assert problems == [*OF_FILES, "ports"]
    assert "none.toml: it cannot be read" in found["access file"]["what"]
    assert "line 2" in found["tubes file"]["what"]
    assert f"{tmp_path}/none: it cannot be read" in found["tls files"]["what"]
    assert f"cannot listen on 127.0.0.1:{port}" in found["ports"]["what"]
    assert result.exit_code == 4


@pytest.mark.exhaustive
def test_without_a_log_no_disk_is_measured() -> None:
    result = doctor("--", "--port", "0")
    assert result.exit_code == 1
    assert "jobs are in memory only" in result.stdout
    assert "\ndisk" not in result.stdout


def test_removed_options_are_a_problem_each_in_the_words_of_a_start() -> None:
    result = doctor("--json", "--", "--port", "0", "--hub", "off", "--v1-ttr=9")
    found = [json.loads(line) for line in result.stdout.splitlines()]
    problems = [each for each in found if each["check"] == "options"]
    assert [each["what"] for each in problems] == removed_among(["--hub", "--v1-ttr"])
    assert {each["level"] for each in problems} == {"problem"} and result.exit_code == 4
