"""Errors under ``--json``, and hints at what was meant."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from click.testing import CliRunner, Result

from binlog_tools.queue.cli.commands import COMMANDS, cli
from tests.ports import free_ports
from tests.server_process import ServerProcess, theirs

FIELDS = {"v", "level", "code", "exit", "what", "where", "hint"}

USAGE = [
    ("lst", "No such command 'lst'. Did you mean list?"),
    ("chekc", "No such command 'chekc'."),
    ("kick-dead", "No such command 'kick-dead'. Did you mean kick or dead?"),
    ("tube-policy", "No such command 'tube-policy'. Did you mean policy?"),
    ("dead-letters", "No such command 'dead-letters'. Did you mean dead?"),
    ("put --lines body", "--lines reads the input; leave out BODY"),
    ("list x --limit 0", "Invalid value for '-n' / '--limit': 0 is not in the range x>=1."),
    ("stats --job x", "Invalid value for '-j' / '--job': 'x' is not the number of a job."),
    ("delete", "give the numbers of jobs, or --all"),
    ("--no-such-option tubes", "No such option"),
    ("access check /nonexistent", "/nonexistent: it cannot be read: No such file or directory"),
    ("put x --token-file /nonexistent", "--token-file /nonexistent: No such file or directory"),
    *((f"{name} --no-such-option", "No such option")
      for name in COMMANDS if name not in ("doctor", "access")),
]  # fmt: skip

REFUSED = [
    ("delete 404", 4, "REFUSED", "0 jobs deleted, 1 not"),
    ("stats --job 404", 4, "NOT_FOUND", "stats-job (job 404): NOT_FOUND: there is no job 404"),
    ("peek 404", 4, "NOT_FOUND", "peek (job 404): NOT_FOUND: there is no job 404"),
    ("reserve -t empty --timeout 0 --delete", 1, "NOTHING", "no job came in time"),
    ("delete -t mail --all --state ready", 2, "USAGE", "1 ready job of mail would be deleted"),
    ("put -t mail", 1, "NOTHING", "the input is empty, nothing was put"),
    ("put -t mail --lines", 1, "NOTHING", "the input is empty, nothing was put"),
    pytest.param(f"put {'x' * 170_000}", 4, "REFUSED", "0 jobs put, 1 not", id="put too big"),
    ("move attic --from mail --state buried", 1, "NOTHING", "0 jobs moved into attic"),
]


def run(words: str, address: str = "127.0.0.1:1") -> Result:
    environment = {"BEANSTALK_SERVER": address}
    return CliRunner().invoke(cli, shlex.split(words), input=b"", env=environment)


def told(result: Result) -> dict[str, Any]:
    """The last object on stderr, on which there is nothing else than objects."""
    documents = [json.loads(line) for line in result.stderr.splitlines()]
    assert all(each["v"] == 1 and each["level"] in ("error", "warning") for each in documents)
    assert documents[-1].keys() == FIELDS, result.stderr
    assert documents[-1]["exit"] == result.exit_code
    last: dict[str, Any] = documents[-1]
    return last


@pytest.fixture(scope="module", params=["ours", "beanstalkd"])
def address(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    with ExitStack() as stack:
        if request.param == "ours":
            address = request.getfixturevalue("server").address
        else:
            folder = tmp_path_factory.mktemp("server")
            server = stack.enter_context(ServerProcess(theirs(), folder))
            server.connect().close()
            address = f"127.0.0.1:{server.port()}"
        assert run("put -t mail hello", address).exit_code == 0
        yield address


@pytest.mark.parametrize(("words", "what"), USAGE)
def test_wrong_usage_is_an_object_too(words: str, what: str) -> None:
    result = run(f"{words} --json")
    assert (result.exit_code, result.stdout) == (2, "")
    error = told(result)
    assert error["code"] == "USAGE"
    assert error["what"].startswith(what)
    if "/nonexistent" not in words:
        assert error["hint"].startswith("beanstalk") and error["hint"].endswith("--help")
    before = run(f"--json {words}")
    assert (before.exit_code, before.stdout, before.stderr) == (2, "", result.stderr)


def test_without_it_an_error_is_a_line() -> None:
    result = run("stats")
    assert result.stderr == "beanstalk: 127.0.0.1:1: Connection refused\n"


def test_before_the_subcommand_it_is_for_that(address: str) -> None:
    for words in ("tubes", "stats -t mail"):
        shown = run(f"{words} --json", address).stdout
        assert run(f"--json {words}", address).stdout == shown != run(words, address).stdout


def test_behind_two_hyphens_it_is_an_argument() -> None:
    assert run("put a b -- --json").stderr.startswith("Usage:")


@pytest.mark.parametrize(("words", "code", "word", "what"), REFUSED)
def test_what_a_server_refuses_is_an_object(
    words: str, code: int, word: str, what: str, address: str
) -> None:
    result = run(f"{words} --json", address)
    assert result.exit_code == code
    error = told(result)
    assert (error["code"], error["where"]) == (word, address)
    assert error["what"].startswith(what)


def test_a_server_that_is_not_there_is_an_object_that_names_it() -> None:
    [port] = free_ports(1)
    error = told(run("stats --json", f"127.0.0.1:{port}"))
    assert error == {
        "v": 1, "level": "error", "code": "NO_SERVER", "exit": 4,
        "what": "Connection refused", "where": f"127.0.0.1:{port}", "hint": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [
        "stats -t mial",
        "kick -t mial --all",
        "move attic --from mial",
        "pause mial 3",
        "delete -t mial --all --state ready --yes",
        "peek -t mial",
        "peek -t mial --state buried",
        "list mial",
    ],
)
def test_a_tube_that_is_spelled_alike_is_named(words: str, address: str) -> None:
    result = run(words, address)
    if "this server has no" in result.stderr:
        pytest.skip("beanstalkd lacks it")
    assert result.exit_code in (1, 4)
    assert result.stderr.endswith("; did you mean mail?\n"), result.stderr
    assert told(run(f"{words} --json", address))["hint"] == "did you mean mail?"


def test_a_tube_that_is_to_be_emptied_and_is_not_there_is_doubted(address: str) -> None:
    result = run("flush mial", address)
    if result.exit_code == 5:
        pytest.skip("beanstalkd lacks it")
    assert result.exit_code == 1
    assert result.stderr == "beanstalk: there is no tube mial; did you mean mail?\n"


def test_no_tube_is_named_where_none_is_alike_or_the_tube_is_there(address: str) -> None:
    assert "did you mean" not in run("stats -t zzz", address).stderr
    assert "did you mean" not in run("peek -t mail --state buried", address).stderr
    assert run("peek -t mail --state buried", address).exit_code == 1


def test_a_tube_that_is_made_by_a_put_is_never_doubted(address: str) -> None:
    result = run("put -t mial hello", address)
    assert (result.exit_code, result.stderr) == (0, "")
    assert run("delete -t mial --all --state ready --yes", address).exit_code == 0
