"""The command ``beanstalk`` as it is called, on our server and on the real one."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from beanstalk_twisted.client.stats import ServerStats
from beanstalk_twisted.replication.membership import ACTIVE, STANDBY, Identity, Presence, Situation
from beanstalk_twisted.replication.stream.interface import Copies
from beanstalk_twisted.wire.layouts import REPLICATED
from binlog_tools.queue.cli.commands import COMMANDS, cli
from binlog_tools.queue.cli.draining import replication_words
from binlog_tools.queue.cli.top import ENTER, LEAVE
from tests.end_to_end.test_client import ours
from tests.script_server import Listener, answer
from tests.server_process import LIMIT_S, Connection, ServerProcess, theirs

MAX_JOB_BYTES = 100_000
STATES = ("ready", "reserved", "delayed", "buried")
MAIN = "from beanstalk_twisted.programs import beanstalk; beanstalk()"


class Server:
    """A server, and the command that asks it.

    :ivar is_ours: whether it has more commands than beanstalkd.
    """

    def __init__(self, process: ServerProcess, is_ours: bool = True) -> None:
        process.connect().close()
        self.is_ours = is_ours
        self.process = process
        self.address = f"127.0.0.1:{process.port()}"

    def run(self, *words: object, typed: bytes = b"", code: int = 0) -> str:
        """Call it; it must end with that code."""
        result = self.result(*words, typed=typed)
        assert result.exit_code == code, result.output
        return result.stdout

    def result(self, *words: object, typed: bytes = b"") -> Result:
        environment = {"BEANSTALK_SERVER": self.address}
        return CliRunner().invoke(cli, list(map(str, words)), input=typed, env=environment)

    def documents(self, *words: object, **options: Any) -> list[dict[str, Any]]:
        lines = self.run(*words, "--json", **options).splitlines()
        return [json.loads(line) for line in lines]

    def start(self, *words: object, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", MAIN, *map(str, words)], text=True, stdin=stdin,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, "BEANSTALK_SERVER": self.address},
        )  # fmt: skip

    def shell(self, words: str) -> tuple[int, str]:
        """Call it from a shell, which may redirect; give its exit code and what it says."""
        done = subprocess.run(
            f'"{sys.executable}" -c "{MAIN}" {words}', shell=True, text=True,
            stderr=subprocess.PIPE, env={**os.environ, "BEANSTALK_SERVER": self.address},
            timeout=LIMIT_S,
        )  # fmt: skip
        return done.returncode, done.stderr

    def state(self, job: object) -> str:
        (stats,) = self.documents("stats", "--job", job)
        return str(stats["state"])


@pytest.fixture(scope="module", params=[ours, theirs], ids=["ours", "beanstalkd"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """Run a server that the tests share; each has tubes of its own."""
    command = request.param("-p", 0, "-z", MAX_JOB_BYTES)
    with ServerProcess(command, tmp_path_factory.mktemp("server")) as running:
        yield Server(running, request.param is ours)


def on_a_terminal(
    server: Server, *words: str, lines: int = 50, columns: int = 80
) -> tuple[int, subprocess.Popen[bytes]]:
    """Begin a process of it whose streams are a terminal; give the terminal's other end too."""
    screen, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, *words], stdin=terminal, stdout=terminal, stderr=terminal,
        env={
            **os.environ, "LINES": str(lines), "COLUMNS": str(columns),
            "BEANSTALK_SERVER": server.address,
        },
    )  # fmt: skip
    os.close(terminal)
    return screen, process


def read_to_the_end(screen: int) -> bytes:
    shown = b""
    try:
        while part := os.read(screen, 1 << 16):
            shown += part
    except OSError:
        pass  # A terminal ends like this.
    os.close(screen)
    return shown


@pytest.mark.exhaustive
def test_a_job_is_an_argument_the_input_or_each_line_of_it(server: Server) -> None:
    first = server.run("put", "-t", "in", "an argument").strip()
    (second,) = server.documents("put", "-t", "in", typed=b"all of\nthe input\n\xff")
    lines = server.run("put", "-t", "in", "--lines", typed=b"one\n\r\ntwo").splitlines()
    assert len(lines) == 3
    assert server.run("peek", first, "--raw") == "an argument"
    assert server.documents("peek", second["id"])[0]["body_base64"]
    assert [server.run("peek", job) for job in lines] == ["one\n", "\n", "two\n"]


@pytest.mark.exhaustive
def test_a_job_has_priority_delay_and_ttr(server: Server) -> None:
    job = server.run("put", "x", "-p", 3, "-d", 60, "--ttr", 7).strip()
    (stats,) = server.documents("stats", "-j", job)
    assert (stats["pri"], stats["state"], stats["ttr"]) == (3, "delayed", 7)
    assert stats["tube"] == "default" and stats["id"] == int(job)


@pytest.mark.exhaustive
def test_what_is_refused_is_told_and_the_rest_put(server: Server) -> None:
    big = b"x" * (MAX_JOB_BYTES + 1)
    result = server.result("put", "-t", "big", "--lines", typed=b"a\n" + big + b"\nb\n")
    assert result.exit_code == 4
    assert len(result.stdout.splitlines()) == 2
    assert (
        "line 2 of the input of 100,001 bytes was not put: the server says JOB_TOO_BIG"
        in result.stderr
    )
    assert "the server takes jobs of up to 100,000 bytes" in result.stderr
    result = server.result("put", "-t", "big", big.decode())
    assert (
        "beanstalk: the job of 100,001 bytes was not put: the server says JOB_TOO_BIG\n"
        in result.stderr
    )


@pytest.mark.one_in(2)
def test_thousands_of_lines_are_put_in_their_order(server: Server) -> None:
    numbers = b"".join(b"%d\n" % number for number in range(3000))
    jobs = server.run("put", "-t", "many", "-l", typed=numbers).split()
    assert len(jobs) == 3000
    assert server.run("peek", jobs[-1]) == "2999\n"
    assert server.documents("stats", "-t", "many")[0]["current-jobs-ready"] == 3000


@pytest.mark.one_in(3)
@pytest.mark.parametrize("form", [[], ["--json"]], ids=str)
def test_each_line_is_answered_before_the_next(server: Server, form: list[str]) -> None:
    process = server.start("put", "-t", "slowly", "-l", *form, stdin=subprocess.PIPE)
    assert process.stdin and process.stdout and process.stderr
    for body in ("a", "b"):
        process.stdin.write(f"{body}\n")
        process.stdin.flush()
        shown = process.stdout.readline()
        assert server.run("peek", json.loads(shown)["id"] if form else shown.strip()) == f"{body}\n"
    process.stdin.write("x" * (MAX_JOB_BYTES + 1) + "\nhalf")
    process.stdin.flush()
    assert "line 3 of the input of 100,001 bytes was not put" in process.stderr.readline()
    rest, said = process.communicate("done", timeout=LIMIT_S)
    assert process.returncode == 4 and len(rest.splitlines()) == 1 and "-z" in said


@pytest.mark.one_in(5)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=str)
def test_a_signal_ends_put_with_all_its_numbers(server: Server, number: signal.Signals) -> None:
    tube = f"stopped-{number}"
    process = server.start("put", "-t", tube, "-l", stdin=subprocess.PIPE)
    assert process.stdin and process.stdout and process.stderr
    process.stdin.write("x\n" * 300 + "half a line")
    process.stdin.flush()
    first = process.stdout.readline()
    process.send_signal(number)
    rest, said = process.stdout.read(), process.stderr.read()
    assert process.wait(timeout=LIMIT_S) == 128 + number
    put = len((first + rest).split())
    assert said == f"beanstalk: {number.name}: stopped after {put} job{'s' * (put > 1)} put\n"
    (found,) = server.documents("stats", "-t", tube)
    assert found["current-jobs-ready"] == put
    process.stdin.close()


@pytest.mark.exhaustive
def test_a_server_that_takes_no_more_ends_put_though_the_input_goes_on(tmp_path: Path) -> None:
    with ServerProcess(ours("-p", 0), tmp_path) as running:
        server = Server(running)
        process = server.start("put", "-l", stdin=subprocess.PIPE)
        assert process.stdin and process.stdout and process.stderr
        process.stdin.write("a\n")
        process.stdin.flush()
        assert process.stdout.readline() == "1\n"
        watcher = Connection(running.port())
        running.process.send_signal(signal.SIGUSR1)
        while b"draining: true" not in watcher.ask(b"stats\r\n"):
            pass
        watcher.close()
        process.stdin.write("b\n")
        process.stdin.flush()
        assert process.wait(timeout=LIMIT_S) == 4
        assert "line 2 of the input was not put: the server says DRAINING" in process.stderr.read()
        process.stdin.close()


@pytest.mark.exhaustive
def test_a_server_that_goes_ends_put_though_the_input_goes_on(tmp_path: Path) -> None:
    with ServerProcess(ours("-p", 0), tmp_path) as running:
        process = Server(running).start("put", "-l", stdin=subprocess.PIPE)
        assert process.stdin and process.stdout and process.stderr
        process.stdin.write("a\n")
        process.stdin.flush()
        assert process.stdout.readline() == "1\n"
    assert process.wait(timeout=LIMIT_S) == 4
    assert "; 1 job put, and up to 0 more may be\n" in process.stderr.read()
    process.stdin.close()


@pytest.mark.parametrize(
    ("option", "state"), [("--release", "ready"), ("--bury", "buried"), ("--delete", None)], ids=str
)
def test_a_job_is_shown_and_then_ended(server: Server, option: str, state: str | None) -> None:
    tube = f"then{option}"
    job = server.run("put", "-t", tube, "-p", 9, "x").strip()
    assert server.run("reserve", "-t", tube, "--release") == "x\n"
    found = server.documents("reserve", "-t", tube, option)
    assert found == [{"v": 1, "id": int(job), "tube": tube, "body": "x"}]
    if state is None:
        server.run("peek", job, code=4)
        server.run("reserve", "-t", tube, option, "--timeout", 0, code=1)
    else:
        (stats,) = server.documents("stats", "-j", job)
        assert (stats["state"], stats["pri"]) == (state, 9)
        server.run("delete", job)


def test_a_job_that_could_not_be_shown_is_not_deleted(server: Server) -> None:
    job = server.run("put", "-t", "unread", "x" * 90_000).strip()
    process = server.start("reserve", "-t", "unread", "--delete")
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.wait(timeout=LIMIT_S) == -signal.SIGPIPE
    process.stderr.close()
    while server.state(job) == "reserved":
        pass  # The server has not noticed yet that the connection is over.
    assert server.state(job) == "ready"
    server.run("delete", job)


@pytest.mark.parametrize(("code", "state"), [(0, None), (3, "delayed"), (65, "buried")])
def test_the_exit_code_of_a_command_says_what_becomes_of_the_job(
    server: Server, tmp_path: Path, code: int, state: str | None
) -> None:
    tube, noted = f"exec-{code}", tmp_path / "noted"
    job = server.run("put", "-t", tube, "body").strip()
    script = f'cat > {noted}; echo "$BEANSTALK_JOB_ID" >> {noted}; exit {code}'
    server.run("reserve", "-t", tube, "-d", 60, "--exec", script, code=code)
    assert noted.read_text() == f"body{job}\n"
    if state is None:
        server.run("peek", job, code=4)
    else:
        assert server.state(job) == state


@pytest.mark.exhaustive
def test_the_job_is_touched_while_a_command_runs(server: Server) -> None:
    job = server.run("put", "-t", "slow", "--ttr", 2, "x").strip()
    server.run("reserve", "-t", "slow", "--exec", "sleep 2.5")
    server.run("peek", job, code=4)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("size", "command"), [(99_000, "true"), (5, "exec 0<&-")], ids=str)
def test_a_command_need_not_read_its_input(server: Server, size: int, command: str) -> None:
    tube = f"unread-{size}"
    job = server.run("put", "-t", tube, "x" * size).strip()
    process = server.start("reserve", "-t", tube, "--exec", command)
    _, said = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, said) == (0, "")
    server.run("peek", job, code=4)


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=str)
def test_a_signal_ends_the_command_and_its_children(server: Server, number: signal.Signals) -> None:
    tube = f"signal-{number}"
    job = server.run("put", "-t", tube, "x").strip()
    process = server.start("reserve", "-t", tube, "--exec", "sleep 600 & echo $!; wait; echo no")
    assert process.stdout is not None
    sleeper = int(process.stdout.readline())
    process.send_signal(number)
    # The pipe is closed only when the last who has it is gone.
    shown, said = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, shown) == (128 + number, "")
    assert said == f"beanstalk: {number.name}: the command was ended, job {job} was given back\n"
    with pytest.raises(ProcessLookupError):
        os.kill(sleeper, 0)
    assert server.state(job) == "ready"


def test_a_command_that_finishes_its_job_in_spite_of_a_signal_has_done_it(server: Server) -> None:
    job = server.run("put", "-t", "stubborn", "x").strip()
    script = "trap 'echo finished; exit 0' TERM; echo begun; while :; do sleep 0.05; done"
    process = server.start("reserve", "-t", "stubborn", "--exec", script)
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGTERM)
    shown, said = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, shown) == (143, "finished\n")
    assert f"job {job} was deleted" in said
    server.run("peek", job, code=4)


@pytest.mark.parametrize(("number", "name"), [(9, "SIGKILL"), (35, "signal 35")])
def test_a_killed_command_gives_its_job_back(server: Server, number: int, name: str) -> None:
    tube = f"killed-{number}"
    job = server.run("put", "-t", tube, "x").strip()
    result = server.result("reserve", "-t", tube, "--exec", f"kill -{number} $$")
    assert result.exit_code == 128 + number
    assert result.stderr == (
        f"beanstalk: the command has failed, ended by {name}: job {job} was given back\n"
    )


def test_peek_looks_at_the_first_of_a_state(server: Server) -> None:
    for state, options in (("ready", ()), ("delayed", ("-d", 99))):
        server.run("put", "-t", "look", state, *options)
        assert server.run("peek", "-t", "look", "--state", state) == f"{state}\n"
    result = server.result("peek", "-t", "look", "--state", "buried")
    assert (result.exit_code, result.stderr) == (1, "beanstalk: look has no buried job\n")


@pytest.mark.parametrize("tube", ["007", "1.5", "true", "2026-11-29", "1e3", "null", "0_17"])
def test_a_tube_is_shown_by_its_name_whatever_that_looks_like(server: Server, tube: str) -> None:
    job = server.run("put", "-t", tube, "x").strip()
    for command in ("peek", "stats -j"):
        (found,) = server.documents(*command.split(), job)
        assert (found["tube"], found["id"], found["pri"]) == (tube, int(job), 65536)
    assert [each["name"] for each in server.documents("tubes")].count(tube) == 1
    assert any(line.startswith(f"{tube}\t1\t") for line in server.run("tubes").splitlines())
    server.run("delete", job)


@pytest.mark.parametrize("tube", ["unwatched", "default"])
def test_a_kick_where_nobody_works_is_told(server: Server, tube: str) -> None:
    told = f"beanstalk: no connection watches {tube}: nobody works on these jobs now\n"
    for is_watched in False, True:
        job = server.run("put", "-t", tube, "x").strip()
        server.run("bury", job)
        with closing(Connection(server.process.port())) as worker:
            worker.ask(b"watch %s\r\n" % (tube if is_watched else "other").encode())
            if not is_watched:
                worker.ask(b"ignore default\r\n")
            result = server.result("kick", "-t", tube, "--all")
        assert (result.exit_code, result.stdout) == (0, "1 job kicked\n")
        assert result.stderr == ("" if is_watched else told)
        server.run("delete", job)


def test_jobs_are_buried_kicked_and_deleted_by_number(server: Server) -> None:
    jobs = server.run("put", "-t", "by-number", "-p", 8, "-l", typed=b"1\n2\n3\n").split()
    server.run("bury", *jobs)
    assert [server.state(job) for job in jobs] == ["buried"] * 3
    assert server.documents("stats", "-j", jobs[0])[0]["pri"] == 8
    server.run("kick", jobs[1])
    assert [server.state(job) for job in jobs] == ["buried", "ready", "buried"]
    assert server.run("kick", "-t", "by-number", "-n", 1) == "1 job kicked\n"
    assert server.run("kick", "-t", "by-number", "--all", "--json") == '{"v":1,"kicked":1}\n'
    server.run("kick", "-t", "by-number", "--all", code=1)
    result = server.result("delete", jobs[0], 999_999, jobs[1])
    assert result.exit_code == 4
    assert "delete (job 999999): NOT_FOUND" in result.stderr
    assert "2 jobs deleted, 1 not" in result.stderr
    assert server.state(jobs[2]) == "ready"


def test_what_is_done_to_jobs_and_tubes_is_told_in_json_too(server: Server) -> None:
    job = int(server.run("put", "-t", "json", "x"))
    assert server.documents("bury", job) == [{"v": 1, "id": job, "buried": True}]
    assert server.documents("kick", job) == [{"v": 1, "id": job, "kicked": True}]
    assert (
        server.documents("kick", job, job, code=4)
        == [{"v": 1, "id": job, "kicked": False, "reply": "NOT_FOUND"}] * 2
    )
    assert server.documents("pause", "json", 0) == [{"v": 1, "tube": "json", "seconds": 0}]
    assert server.documents("delete", job) == [{"v": 1, "id": job, "deleted": True}]


def test_every_command_has_json() -> None:
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        ends = command.commands.values() if isinstance(command, click.Group) else [command]
        for end in ends:
            assert "--json" in [word for each in end.params for word in each.opts], name


def filled(server: Server, tube: str) -> dict[str, list[str]]:
    """Put two jobs of each state into a tube, and one that is reserved."""
    jobs = {}
    for state in ("ready", "delayed", "buried"):
        delay = 500 if state == "delayed" else 0
        put = server.run("put", "-t", tube, "-d", delay, "-l", typed=b"1\n2\n")
        jobs[state] = put.split()
    server.run("bury", *jobs["buried"])
    return jobs


def test_a_tube_is_emptied_of_the_states_that_are_named(server: Server) -> None:
    jobs = filled(server, "full")
    worker = Connection(server.process.port())
    worker.ask(b"watch full\r\n")
    assert worker.ask(b"reserve\r\n").startswith(b"RESERVED %b " % jobs["ready"][0].encode())
    delete = ("delete", "-t", "full", "--all", "--yes")
    assert server.run(*delete, "--state", "buried") == "2 jobs deleted\n"
    assert server.documents("stats", "-t", "full")[0]["current-jobs-buried"] == 0
    result = server.result(*delete, "--state", "buried")
    assert (result.exit_code, result.stdout) == (1, "0 jobs deleted\n")
    states = ("--state", "ready", "--state", "delayed")
    assert server.documents(*delete, *states) == [{"v": 1, "deleted": 3}]
    assert server.state(jobs["ready"][0]) == "reserved"
    assert worker.ask(b"delete %b\r\n" % jobs["ready"][0].encode()) == b"DELETED\r\n"
    worker.close()
    result = server.result("delete", "-t", "nowhere", "--all", "--yes", "--state", "ready")
    assert result.exit_code == 4 and "there is no tube nowhere" in result.stderr


def test_a_paused_tube_is_emptied_too(server: Server) -> None:
    filled(server, "paused-full")
    server.run("pause", "paused-full", 1000)
    delete = ("delete", "-t", "paused-full", "--all", "-y", "--state", "ready")
    assert server.run(*delete) == "2 jobs deleted\n"


def test_without_a_terminal_nothing_is_deleted_unless_yes_is_said(server: Server) -> None:
    filled(server, "asked")
    result = server.result("delete", "-t", "asked", "--all", "--state", "buried")
    assert result.exit_code == 2
    assert result.stderr == (
        "beanstalk: 2 buried jobs of asked would be deleted; nobody is there to be asked, so give "
        "--yes\n"
    )
    assert server.documents("stats", "-t", "asked")[0]["current-jobs-buried"] == 2


def answered(server: Server, words: str, question: str, typed: bytes) -> tuple[int, str]:
    """Answer a command's question on a terminal; give its exit code and what was shown."""
    screen, process = on_a_terminal(server, *words.split())
    shown = shown_until(screen, "[y/N]")
    assert question in shown
    os.write(screen, typed)
    shown += read_to_the_end(screen).decode()
    return process.wait(timeout=LIMIT_S), shown


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("typed", "code", "left"), [(b"y\n", 0, 0), (b"n\n", 1, 2), (b"\n", 1, 2), (b"\x04", 130, 2)]
)
def test_on_a_terminal_it_asks_first(server: Server, typed: bytes, code: int, left: int) -> None:
    tube = f"typed-{typed.hex()}"
    filled(server, tube)
    words = f"delete -t {tube} --all --state buried --state delayed"
    question = f"Delete 2 buried and 2 delayed jobs of {tube}?"
    ended, shown = answered(server, words, question, typed)
    assert (ended, "4 jobs deleted" in shown) == (code, code == 0), shown
    assert server.documents("stats", "-t", tube)[0]["current-jobs-buried"] == left


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", [signal.SIGTERM], ids=str)
def test_a_signal_ends_emptying_between_two_jobs(server: Server, number: signal.Signals) -> None:
    tube, count = f"emptied-{number}", 20_000
    server.run("put", "-t", tube, "-l", typed=b"x\n" * count)
    process = server.start("delete", "-t", tube, "--all", "--yes", "--state", "ready")
    watcher = Connection(server.process.port())
    begun = b"current-jobs-ready: %d\n" % count
    while begun in watcher.ask(b"stats-tube %b\r\n" % tube.encode()):
        pass
    watcher.close()
    process.send_signal(number)
    shown, said = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 128 + number, said
    deleted = int(shown.split()[0])
    assert shown == f"{deleted} job{'s' * (deleted != 1)} deleted\n" and 0 < deleted < count
    assert f"{number.name}: stopped after {deleted} job" in said
    (found,) = server.documents("stats", "-t", tube)
    assert found["current-jobs-ready"] == count - deleted and found["current-jobs-reserved"] == 0
    server.run("delete", "-t", tube, "--all", "--yes", "--state", "ready")


@pytest.mark.parametrize("state", ["ready", "delayed", "buried"])
def test_jobs_are_moved_into_another_tube(server: Server, state: str) -> None:
    source, target = f"from-{state}", f"to-{state}"
    delay = 500 if state == "delayed" else 0
    jobs = server.run("put", "-t", source, "-d", delay, "-l", typed=b"1\n2\n3\n").split()
    if state == "buried":
        server.run("bury", *jobs)
    first = server.documents("move", target, jobs[0])
    rest = server.run("move", target, "--from", source, "--state", state).splitlines()
    assert [line.split("\t")[0] for line in rest] == jobs[1:]
    new = [first[0]["new"], *(line.split("\t")[1] for line in rest)]
    assert [server.state(job) for job in new] == [state] * 3
    assert [server.run("peek", job) for job in new] == ["1\n", "2\n", "3\n"]
    assert server.is_ours == (list(map(str, new)) == jobs)
    for job in jobs:
        server.run("peek", job, code=0 if server.is_ours else 4)
    server.run("move", target, "--from", target, code=2)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("state", "number"),
    [("ready", signal.SIGINT), ("delayed", signal.SIGTERM), ("buried", signal.SIGHUP)], ids=str,
)  # fmt: skip
def test_a_signal_lets_move_finish(server: Server, state: str, number: signal.Signals) -> None:
    source, target = f"half-{state}-{number}", f"other-{state}-{number}"
    delay = 500 if state == "delayed" else 0
    count = 400
    if server.is_ours:  # It moves 200 at once.
        count = 3000 if state == "buried" else 10_000
    put = server.run("put", "-t", source, "-d", delay, "-l", typed=b"x\n" * count)
    if state == "buried":
        server.run("bury", *put.split())
    process = server.start("move", target, "--from", source, "--state", state)
    assert process.stdout is not None
    first = process.stdout.readline()
    process.send_signal(number)
    rest = process.stdout.read()  # `communicate` leaves out what was read ahead.
    _, said = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 128 + number, said
    moved = len((first + rest).splitlines())
    assert 0 < moved < count
    assert f"{number.name}: stopped after {moved} job" in said
    for tube, wanted in ((source, count - moved), (target, moved)):
        (found,) = server.documents("stats", "-t", tube)
        assert found[f"current-jobs-{state}"] == wanted
        assert sum(found[f"current-jobs-{each}"] for each in STATES) == wanted
        server.run("delete", "-t", tube, "--all", "--yes", "--state", state)


def test_tubes_are_listed_with_their_numbers(server: Server) -> None:
    server.run("put", "-t", "listed", "x")
    server.run("pause", "listed", 1000)
    (row,) = [line for line in server.run("tubes").splitlines() if line.startswith("listed\t")]
    cells = row.split("\t")
    assert cells[1:5] == ["1", "0", "0", "0"] and 990 <= int(cells[-1]) <= 1000
    (found,) = [each for each in server.documents("tubes") if each["name"] == "listed"]
    assert found["current-jobs-ready"] == 1
    server.run("pause", "listed", 0)


def test_an_empty_input_puts_nothing_unless_that_is_meant(server: Server) -> None:
    result = server.result("put", "-t", "void", typed=b"")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "the input is empty, nothing was put; --empty puts an empty job" in result.stderr
    server.run("reserve", "-t", "void", "--timeout", 0, "--delete", code=1)
    for words in ("--empty",), ("",):
        job = server.run("put", "-t", "void", *words, typed=b"").strip()
        assert server.documents("peek", job)[0]["body"] == ""
    server.run("put", "-t", "void", "--lines", typed=b"", code=1)
    assert server.run("put", "-t", "void", "--lines", "--empty", typed=b"") == ""


def test_stats_are_those_of_the_server(server: Server) -> None:
    lines = dict(line.split("\t") for line in server.run("stats").splitlines())
    assert lines["max-job-size"] == str(MAX_JOB_BYTES)
    (found,) = server.documents("stats")
    assert found["max-job-size"] == MAX_JOB_BYTES and found["draining"] is False
    assert found.keys() == {"v", *lines}
    server.run("stats", "-t", "no-such-tube", code=4)


def test_top_shows_tubes_and_rates(server: Server) -> None:
    server.run("put", "-t", "topmost", "-l", typed=b"x\n" * 4000)
    found = server.documents("top", "-n", 2, "-i", 0.1)
    rows = [each for each in found if each["tube"] == "topmost"]
    assert [row["ready"] for row in rows] == [4000, 4000]
    assert (rows[0]["puts_s"], rows[1]["puts_s"]) == (None, 0.0)
    assert server.run("top", "-n", 1).startswith("topmost\t4000\t0\t0\t0\t0\t-\t-\t0\n")
    assert server.run("top", "-n", 1, "--sort", "tube").split("\t")[0] < "topmost"


def test_top_says_how_replication_is() -> None:
    leads = Situation(ACTIVE, "", Identity("a:1", "01"), "a:1", 0, 0, 0.0, (), 1, 0)
    standbys = tuple(Presence(f"b:{at}", "02", STANDBY, 1, 1) for at in range(2))
    for situation, words in (
        (leads, "  active, 0 standbys"),
        (leads._replace(standbys=standbys[:1], behind=3),
         "  active, 1 standby, up to 3 messages behind"),
        (leads._replace(standbys=standbys, lag_records=2, lag_s=1.5),
         "  active, 2 standbys, 2 records not replicated since 1.500 s"),
        (leads._replace(standbys=(standbys[0], standbys[1]._replace(is_in_sync=False)), behind=3),
         "  active, 2 standbys, not in sync: b:1, up to 3 messages behind"),
        (leads._replace(copies=Copies(3, "n1", ("n1",), ("n2", "n3"))),
         "  active, 0 standbys, the stream lacks n2, n3"),
    ):  # fmt: skip
        shown = REPLICATED.write(situation.pairs()).encode()
        assert replication_words(ServerStats(shown)) == words
    assert replication_words(ServerStats(b"---\n")) == ""


def test_top_on_a_terminal_draws_and_leaves_it_as_it_was(server: Server) -> None:
    server.run("put", "-t", "drawn", "x")
    screen, process = on_a_terminal(server, "top", "-i", "0.1")
    shown = b""
    while shown.count(b"drawn") < 2:
        shown += os.read(screen, 1 << 16)
    process.send_signal(signal.SIGINT)
    shown += read_to_the_end(screen)
    assert process.wait(timeout=LIMIT_S) == 0
    text = shown.decode()
    assert text.startswith(ENTER) and text.endswith(LEAVE)
    assert (
        "put/s" in text
        and "deleted/s" in text
        and "pause" in text
        and server.address in text
        and "Traceback" not in text
    )


def test_the_last_look_of_top_can_be_read_on_the_terminal(server: Server) -> None:
    server.run("put", "-t", "left-behind", "x")
    screen, process = on_a_terminal(server, "top", "-n", "1", lines=500)
    shown = read_to_the_end(screen)
    assert process.wait(timeout=LIMIT_S) == 0
    _, _, left = shown.decode().rpartition(LEAVE)
    assert "? help" not in left
    assert "left-behind" in left and left.endswith("\r\n") and "\x1b" not in left


def shown_until(screen: int, *texts: str) -> str:
    """Read what is drawn until all of these have been."""
    shown = b""
    while not all(text.encode() in shown for text in texts):
        shown += os.read(screen, 1 << 16)
    return shown.decode()


def test_keys_filter_sort_explain_and_end_top(server: Server) -> None:
    server.run("put", "-t", "keys-one", "x")
    server.run("put", "-t", "keys-two", "x")
    server.run("reserve", "-t", "keys-two", "--bury")
    screen, process = on_a_terminal(server, "top", "-i", "60", lines=100, columns=120)
    drawn = shown_until(screen, "keys-one", "keys-two", "by ready")
    assert "last looks" in drawn and "█" in drawn
    assert "\x1b[36mkeys-one" in drawn and "\x1b[31mkeys-two" in drawn
    os.write(screen, b"/keys-t")
    shown_until(screen, "/keys-t_")
    os.write(screen, b"\rs")
    drawn = shown_until(screen, "only keys-t  by reserved")
    os.write(screen, b"?")
    drawn += shown_until(screen, "there are buried jobs")  # All of the screen before has then come.
    drawn = drawn.partition("only keys-t  by reserved")[2]
    assert "keys-two" in drawn and "keys-one" not in drawn
    os.write(screen, b"q")
    drawn = read_to_the_end(screen).decode()
    assert process.wait(timeout=LIMIT_S) == 0
    assert LEAVE in drawn


def test_a_signal_that_ends_top_leaves_the_terminal_as_it_was(server: Server) -> None:
    screen, terminal = pty.openpty()
    before = termios.tcgetattr(terminal)
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "top", "-i", "60"], stdin=terminal, stdout=terminal,
        stderr=terminal, env={**os.environ, "BEANSTALK_SERVER": server.address},
    )  # fmt: skip
    shown_until(screen, "? help")
    process.send_signal(signal.SIGTERM)
    # Whoever draws waits for a terminal that is not read.
    assert LEAVE in shown_until(screen, LEAVE)
    assert process.wait(timeout=LIMIT_S) == 128 + signal.SIGTERM
    assert termios.tcgetattr(terminal) == before
    os.close(terminal)
    os.close(screen)


def test_tubes_that_are_not_asked_for_are_not_printed(server: Server) -> None:
    server.run("put", "-t", "filtered-one", "x")
    server.run("put", "-t", "filtered-two", "x")
    lines = server.run("top", "-n", 1, "--filter", "filtered-t").splitlines()
    assert [line.split("\t")[0] for line in lines] == ["filtered-two"]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("columns", [80, 120])
def test_tubes_fit_the_terminal(server: Server, columns: int) -> None:
    server.run("put", "-t", "a-tube-with-quite-a-name", "x")
    screen, process = on_a_terminal(server, "tubes", lines=500, columns=columns)
    shown = read_to_the_end(screen)
    assert process.wait(timeout=LIMIT_S) == 0
    lines = [line.rstrip() for line in click.unstyle(shown.decode()).splitlines()]
    assert max(map(len, lines)) <= columns, lines
    assert "a-tube-with" in shown.decode() and "pause" in shown.decode()
    assert ("watching" in shown.decode()) == (columns == 120)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("peek 999999", "there is no job 999999\n"),
        ("stats -t nowhere", "there is no tube nowhere\n"),
        ("bury 999999", "beanstalk: stats-job (job 999999): NOT_FOUND: there is no job 999999"),
        ("kick 999999", "there is no job 999999, or not in a state for that\n"),
        ("pause nowhere 3", "there is no tube nowhere\n"),
    ],
)
def test_what_is_not_there_is_named(server: Server, words: str, message: str) -> None:
    result = server.result(*words.split())
    assert result.exit_code == 4
    assert message in result.stderr


@pytest.mark.one_in(3)
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_can_complete_subcommands_and_options(shell: str) -> None:
    def asked(instruction: str, **variables: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", MAIN], capture_output=True, text=True, timeout=LIMIT_S,
            env={**os.environ, "_BEANSTALK_COMPLETE": f"{shell}_{instruction}", **variables},
        ).stdout  # fmt: skip

    assert "_BEANSTALK_COMPLETE" in asked("source")
    for words, number, wanted in (
        ("beanstalk ", "1", COMMANDS),
        ("beanstalk delete --", "2", ["--tube", "--state", "--all"]),
        ("beanstalk delete --state ", "3", ["ready", "delayed", "buried"]),
    ):
        # fish hands over the word that is being written.
        current = words.split(" ")[-1] if shell == "fish" else number
        found = asked("complete", COMP_WORDS=words, COMP_CWORD=current)
        assert all(each in found for each in wanted), (words, found)


def test_the_server_may_stand_before_the_subcommand_or_behind_it(server: Server) -> None:
    nowhere, there = "127.0.0.1:1", server.address
    for words, environment, code in (
        (["-s", there, "stats"], nowhere, 0),
        (["--server", there, "stats"], nowhere, 0),
        (["-s", nowhere, "stats"], there, 4),
        (["-s", nowhere, "stats", "-s", there], nowhere, 0),
        (["-s", there, "stats", "-s", nowhere], there, 4),
        (["stats"], there, 0),
        (["stats", "-s", there], "x:y:z", 0),
        (["-s", there, "stats"], "x:y:z", 0),
        (["stats"], "x:y:z", 2),
        (["-s", "x:y:z", "stats"], there, 2),
    ):
        result = CliRunner().invoke(cli, words, env={"BEANSTALK_SERVER": environment})
        assert result.exit_code == code, (words, environment, result.output)


def test_without_a_server_it_ends_with_4() -> None:
    for words in (["stats"], ["put", "x"], ["top"]):
        result = CliRunner().invoke(cli, [*words, "-s", "127.0.0.1:1"])
        assert (result.exit_code, result.stderr) == (
            4,
            "beanstalk: 127.0.0.1:1: Connection refused\n",
        )


@pytest.mark.exhaustive
def test_a_server_that_goes_away_is_told(tmp_path: Path) -> None:
    with ServerProcess(ours("-p", 0), tmp_path) as process:
        server = Server(process)
        waiting = server.start("reserve", "--delete")
        watcher = Connection(process.port())
        while b"current-waiting: 1" not in watcher.ask(b"stats-tube default\r\n"):
            pass
        watcher.close()
        process.kill()
        _, said = waiting.communicate(timeout=LIMIT_S)
        assert waiting.returncode == 4
        assert said.startswith("beanstalk: reserve-with-timeout: ")
        assert "the server has closed the connection" in said


def test_an_interrupt_ends_it_with_130(server: Server) -> None:
    waiting = server.start("reserve", "-t", "interrupted", "--delete")
    watcher = Connection(server.process.port())
    while b"current-waiting: 1" not in watcher.ask(b"stats-tube interrupted\r\n"):
        pass
    watcher.close()
    waiting.send_signal(signal.SIGINT)
    waiting.communicate(timeout=LIMIT_S)
    assert waiting.returncode == 130


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", [">&-", ">/dev/full"])
@pytest.mark.parametrize("form", ["", "--json"])
def test_output_that_cannot_be_written_is_told(server: Server, target: str, form: str) -> None:
    tube = f"unwritten{target == '>&-'}{form}"
    code, said = server.shell(f"put -t {tube} x {form} {target}")
    assert code == 4 and said.startswith("beanstalk: ") and len(said.splitlines()) == 1
    why = "Bad file descriptor" if "&" in target else "No space left on device"
    assert why in said and "None" not in said
    assert form or "1 job put, and up to 0 more may be" in said
    code, said = server.shell(f"reserve -t {tube} --delete {form} {target}")
    assert code == 4 and why in said
    (stats,) = server.documents("stats", "-t", tube)
    assert stats["current-jobs-ready"] == 1
    code, said = server.shell(f"stats --json {target}")
    assert code == 4 and said.endswith(f": {why}\n") and len(said.splitlines()) == 1


def test_a_closed_input_puts_nothing(server: Server) -> None:
    code, said = server.shell("put -t closed <&-")
    assert (code, said) == (
        4,
        "beanstalk: Bad file descriptor; 0 jobs put, and up to 0 more may be\n",
    )
    assert server.shell("put -t closed x 2>&- >/dev/null") == (0, "")


@pytest.mark.parametrize("data", [b"hello", b"---\na: b\n"], ids=str)
@pytest.mark.parametrize(
    "words", ["tubes", "stats", "top", "kick --all", "move a --from b", "list", "connections"]
)
def test_a_server_that_talks_nonsense_is_told(words: str, data: bytes) -> None:
    said = {b"put": b"INSERTED 1\r\n", b"use": b"USING x\r\n", b"delete": b"DELETED\r\n"}
    known = b"---\n- list-jobs\n- list-connections\n"
    said[b"capabilities"] = b"OK %d\r\n%b\r\n" % (len(known), known)
    document = b"OK %d\r\n%b\r\n" % (len(data), data)
    with Listener(answer(lambda words: said.get(words[0], document))) as listener:
        result = CliRunner().invoke(cli, [*words.split(), "-s", listener.address])
    if words == "stats" and b"a" in data:
        assert result.exit_code == 0  # It is shown as it is.
        return
    assert result.exit_code == 4, result.output
    assert "this is no server of this protocol" in result.stderr


@pytest.mark.parametrize(("command", "ended"), [("true", 0), ("exit 3", 3)])
def test_a_server_that_goes_away_leaves_a_job_in_doubt(command: str, ended: int) -> None:
    stats = b"---\ntube: default\nreserves: 1\nttr: 60\npri: 9\n"
    said = {
        b"reserve-with-timeout": b"RESERVED 7 1\r\nx\r\n",
        b"stats-job": b"OK %d\r\n%b\r\n" % (len(stats), stats),
        b"delete": None, b"release": None,
    }  # fmt: skip
    said[b"use"] = b"USING default\r\n"

    def command_of(code: int) -> str:
        return "release" if code else "delete"

    with Listener(answer(lambda words: said.get(words[0], b"WATCHING 1\r\n"))) as listener:
        result = CliRunner().invoke(cli, ["reserve", "--exec", command, "-s", listener.address])
    assert result.exit_code == 4
    assert result.stderr == (
        f"beanstalk: the command has ended, exit code {ended}, but the server has not said what "
        "became of job 7; if it still has it, others get it: "
        f"{command_of(ended)} (job 7): sent, but the connection ended before the answer: it may "
        "have been carried out or not (the server has closed the connection)\n"
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", ["2>&-", "2>/dev/full"])
def test_what_cannot_be_told_does_not_change_the_exit_code(server: Server, target: str) -> None:
    assert server.shell(f"peek 999999 {target}") == (4, "")
    assert server.shell(f"reserve --no-such-option {target}") == (2, "")
    assert server.shell(f"peek -t untold {target}") == (1, "")
    server.run("put", "-t", "untold", "x")
    assert server.shell(f"move untold-too --from untold {target} >/dev/null") == (0, "")


def test_it_needs_no_twisted_and_nothing_of_the_log() -> None:
    code = (
        f"import sys; sys.argv[1:] = ['--help']\ntry:\n    {MAIN}\nexcept SystemExit:\n    pass\n"
    )
    code += (
        "print([name for name in sys.modules if name.split('.')[0] == 'twisted'])\n"
        "print([name for name in sys.modules if name.startswith('beanstalk_twisted.binlog.')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_S
    )
    segments = "beanstalk_twisted.binlog.segments"
    assert done.stdout.endswith(f"\n[]\n['{segments}', '{segments}.format']\n")
    assert all(f"\n  {name} " in done.stdout for name in COMMANDS)
