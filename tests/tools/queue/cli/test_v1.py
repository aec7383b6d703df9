"""The command ``beanstalk --dialect v1`` as it is called, on a port of our server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from beanstalk_twisted.wire import v1
from binlog_tools.queue.cli.commands import COMMANDS, COMMANDS_V1, DIALECTS, cli
from tests.server_process import LIMIT_S, Connection, ServerProcess, ours

MAX_JOB_BYTES = 1000
TTR_S = 2
NOBODY = "127.0.0.1:1"
"""Where no server listens."""

MAIN = "from binlog_tools.queue.cli.main import main; main()"


def call(address: str, *words: object, typed: bytes = b"") -> Result:
    """Call the command."""
    environment = {"BEANSTALK_SERVER": address}
    words = ("--dialect", "v1", *words)
    return CliRunner().invoke(cli, [*map(str, words)], input=typed, env=environment)


def refused(*words: object) -> str:
    """Call it wrongly, which it says before it asks any server."""
    result = call(NOBODY, *words)
    assert result.exit_code == 2, result.output
    return result.stderr


class Server:
    """A server with a port for each dialect, and the command that asks the old one."""

    def __init__(self, process: ServerProcess) -> None:
        self.process = process
        self.address = f"127.0.0.1:{process.port_v1()}"
        self.modern = Connection(process.port())

    def result(self, *words: object, typed: bytes = b"") -> Result:
        """Call it."""
        return call(self.address, *words, typed=typed)

    def run(self, *words: object, typed: bytes = b"", code: int = 0) -> str:
        """Call it; it must end with that code."""
        result = self.result(*words, typed=typed)
        assert result.exit_code == code, result.output
        return result.stdout

    def job(self, number: int) -> dict[str, str]:
        """Say what the server knows of a job."""
        lines = self.modern.ask(b"stats-job %d\r\n" % number).decode().splitlines()
        return dict(line.split(": ") for line in lines if ": " in line)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """Serve both dialects on free ports."""
    options = (
        "-p0", "--listen-v1", "tcp:0:interface=127.0.0.1", "-z", MAX_JOB_BYTES, "--v1-ttr", TTR_S,
    )  # fmt: skip
    with ServerProcess(ours(*options), tmp_path) as process:
        one = Server(process)
        yield one
        one.modern.close()


def test_a_job_goes_through(server: Server) -> None:
    assert server.run("put", "-p", 5, "hello") == "1 job put\n"
    assert server.job(1)["pri"] == "5"
    assert server.run("reserve", "--delete") == "hello\n"
    assert server.modern.ask(b"peek 1\r\n") == b"NOT_FOUND\r\n"


@pytest.mark.exhaustive
def test_an_empty_input_is_a_job_only_if_that_is_meant(server: Server) -> None:
    result = server.result("put", typed=b"")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "the input is empty, nothing was put" in result.stderr
    assert server.run("put", "--empty", typed=b"") == "1 job put\n"


@pytest.mark.exhaustive
def test_each_line_of_the_input_is_a_job_and_one_that_is_too_big_is_told(server: Server) -> None:
    lines = b"a\n" + b"x" * (MAX_JOB_BYTES + 1) + b"\r\n\nb\n"
    result = server.result("put", "--lines", typed=lines)
    assert (result.exit_code, result.stdout) == (4, "3 jobs put\n")
    assert "line 2 of the input was not put: the server says NOT_INSERTED" in result.stderr
    assert server.run("put", typed=b"all of\nit") == "1 job put\n"
    bodies = [server.modern.ask(b"peek %d\r\n" % number).split(b"\r\n")[1] for number in (1, 2, 3)]
    assert bodies == [b"a", b"", b"b"]
    assert json.loads(server.run("put", "x", "--json"))["put"] == 1


@pytest.mark.exhaustive
def test_a_signal_ends_put_which_tells_how_many_were(server: Server) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "--dialect", "v1", "-s", server.address, "put", "-l"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdin and process.stdout and process.stderr
    process.stdin.write("a\n" + "x" * (MAX_JOB_BYTES + 1) + "\nb\nhalf a line")
    process.stdin.flush()
    assert "line 2 of the input was not put" in process.stderr.readline()
    while b"current-jobs-ready: 2" not in server.modern.ask(b"stats\r\n"):
        pass
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=LIMIT_S) == 143
    assert process.stdout.read() == "2 jobs put\n"
    assert process.stderr.read() == "beanstalk: SIGTERM: stopped after 2 jobs put\n"
    process.stdin.close()


@pytest.mark.exhaustive
def test_thousands_of_jobs_are_put_at_once(server: Server) -> None:
    lines = b"".join(b"%d\n" % number for number in range(3000))
    assert server.run("put", "--lines", typed=lines) == "3000 jobs put\n"


@pytest.mark.exhaustive
def test_a_server_that_goes_away_is_told_with_what_is_certain(server: Server) -> None:
    server.process.kill()
    result = server.result("put", "x")
    assert result.exit_code == 4
    assert server.address in result.stderr


def test_body_and_lines_exclude_each_other() -> None:
    assert "leave out BODY" in refused("put", "--lines", "x")


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("flag", "state", "pri"), [("--release", "ready", "7"), ("--bury", "buried", "7")]
)
def test_a_job_keeps_its_priority(flag: str, state: str, pri: str, server: Server) -> None:
    server.run("put", "-p", 7, "hello")
    shown = json.loads(server.run("reserve", flag, "--json"))
    assert (shown["id"], shown["body"], shown["priority"]) == (1, "hello", 7)
    assert (server.job(1)["state"], server.job(1)["pri"]) == (state, pri)


def test_a_command_gets_the_job_and_says_what_becomes_of_it(server: Server, tmp_path: Path) -> None:
    server.run("put", "-p", 9, "hello")
    out = tmp_path / "out"
    says = f'cat > {out}; echo " $BEANSTALK_JOB_ID $BEANSTALK_PRIORITY $BEANSTALK_TUBE" >> {out}'
    server.run("reserve", "--exec", f"{says}; exit 3", code=3)
    assert out.read_text() == "hello 1 9 default\n"
    assert (server.job(1)["state"], server.job(1)["pri"]) == ("ready", "9")
    server.run("reserve", "--exec", "exit 65", code=65)
    assert server.job(1)["state"] == "buried"
    assert server.run("kick", "-n", 1) == "1 job kicked\n"
    server.run("reserve", "--exec", "true")
    assert server.modern.ask(b"peek 1\r\n") == b"NOT_FOUND\r\n"


@pytest.mark.exhaustive
def test_a_command_that_runs_longer_than_the_ttr_is_ended(server: Server) -> None:
    server.run("put", "hello")
    result = server.result("reserve", "--exec", "sleep 60")
    assert result.exit_code == 4
    assert "job 1 is not ours any more, the command was ended" in result.stderr
    assert (server.job(1)["state"], server.job(1)["timeouts"]) == ("ready", "1")


@pytest.mark.exhaustive
def test_a_reserve_waits_until_there_is_a_job_or_it_is_interrupted(server: Server) -> None:
    def start() -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", MAIN, "--dialect", "v1", "reserve", "--delete"], text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, "BEANSTALK_SERVER": server.address},
        )  # fmt: skip
        while b"current-waiting: 1\n" not in server.modern.ask(b"stats\r\n"):
            assert process.poll() is None
        return process

    first = start()
    server.modern.ask(b"put 0 0 60 5\r\nhello\r\n")
    assert first.communicate(timeout=LIMIT_S) == ("hello\n", "")
    assert first.returncode == 0
    second = start()
    second.send_signal(signal.SIGINT)
    second.communicate(timeout=LIMIT_S)
    assert second.returncode == 130


@pytest.mark.exhaustive
def test_jobs_are_deleted(server: Server) -> None:
    server.run("put", "--lines", typed=b"a\nb\nc\n")
    server.run("delete", 1, 3)
    assert "there is no job 1" in server.result("delete", 1, 2).stderr
    assert server.job(1) == {}
    server.run("put", "d")
    shown = [json.loads(line) for line in server.run("delete", 4, 5, "--json", code=4).splitlines()]
    assert [(each["id"], each["deleted"]) for each in shown] == [(4, True), (5, False)]


@pytest.mark.exhaustive
def test_nothing_to_kick_is_exit_code_1(server: Server) -> None:
    assert server.run("kick", "-n", 5, code=1) == "0 jobs kicked\n"
    server.run("put", "hello")
    server.run("reserve", "--bury")
    assert json.loads(server.run("kick", "-n", 5, "--json"))["kicked"] == 1


@pytest.mark.exhaustive
def test_statistics_are_those_of_the_dialect(server: Server) -> None:
    server.run("put", "hello")
    shown = dict(line.split("\t") for line in server.run("stats").splitlines())
    assert len(shown) == 15
    assert (shown["current-jobs-ready"], shown["cmd-put"]) == ("1", "1")
    of_the_job = json.loads(server.run("stats", "-j", 1, "--json"))
    assert (of_the_job["id"], of_the_job["state"]) == (1, "ready")
    assert "there is no job 9" in server.result("stats", "-j", 9).stderr
    server.run("stats", "-j", 9, code=4)


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - COMMANDS_V1.keys()))
def test_any_other_subcommand_is_refused_with_2(name: str) -> None:
    said = refused(name, "1")
    assert f"protocol v1 has no {name}, only put, reserve, delete, kick, stats" in said


@pytest.mark.parametrize(
    "words",
    [
        ["put", "-t", "a", "x"], ["put", "--ttr", "5", "x"], ["put", "-d", "5", "x"],
        ["reserve", "-t", "a", "--delete"], ["reserve", "--timeout", "1", "--delete"],
        ["reserve", "-d", "1", "--release"], ["reserve"], ["reserve", "--delete", "--bury"],
        ["reserve", "--raw", "--exec", "true"], ["delete"], ["delete", "--all"],
        ["delete", "-t", "a", "--state", "ready", "--all", "--yes"],
        ["kick"], ["kick", "1"], ["kick", "--all"], ["kick", "-n", "0"], ["stats", "-t", "default"],
        ["nonesuch"],
    ],
)  # fmt: skip
def test_what_the_dialect_cannot_do_is_wrong_usage(words: list[str]) -> None:
    refused(*words)


def test_the_dialects_are_those_of_the_server() -> None:
    assert DIALECTS == v1.DIALECTS
    assert {row.name for row in v1.dialect().rows} >= COMMANDS_V1.keys()


def test_a_dialect_that_there_is_not_is_wrong_usage() -> None:
    result = CliRunner().invoke(cli, ["--dialect", "v2", "stats"])
    assert result.exit_code == 2
    assert "'v2' is not one of 'modern', 'v1'" in result.stderr


def test_each_subcommand_has_its_help() -> None:
    for name in COMMANDS_V1:
        result = CliRunner().invoke(cli, ["--dialect", "v1", name, "--help"])
        assert result.exit_code == 0
        assert "Usage: cli" in result.output
    assert "v1" in CliRunner().invoke(cli, ["--help"]).output
