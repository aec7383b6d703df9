"""What people who run the server meet: sockets that were left behind, directories that go away,
limits of the system, signals, and what the log says.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.server_process import (
    LIMIT_S,
    TWISTD,
    Connection,
    ServerProcess,
    ours_at_once,
    real_beanstalkd,
)

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ (info |warn |critical|audit) \w+ +\S.*")


def at_socket(tmp_path: Path, *options: str) -> ServerProcess:
    return ServerProcess(ours_at_once("-l", f"unix:{tmp_path}/s", *options), tmp_path)


def serves(server: ServerProcess, tmp_path: Path) -> None:
    """Wait until it listens at its socket, and ask it something."""
    server.wait_for(f"listening on unix:{tmp_path}/s")
    connection = Connection(tmp_path / "s")
    assert connection.ask(b"list-tube-used\r\n") == b"USING default\r\n"
    connection.close()


# UNIX sockets.


def test_a_socket_that_beanstalkd_left_is_replaced(tmp_path: Path) -> None:
    beanstalkd = real_beanstalkd()
    with subprocess.Popen([beanstalkd, "-l", f"unix:{tmp_path}/s"]) as real:
        Connection(tmp_path / "s", waits=True).ask(b"list-tube-used\r\n")
        real.terminate()
        real.wait(timeout=LIMIT_S)
    assert (tmp_path / "s").is_socket()
    with at_socket(tmp_path) as server:
        serves(server, tmp_path)


# A directory that goes away.


@pytest.mark.exhaustive
@pytest.mark.parametrize("how", ["removed", "renamed", "replaced"])
def test_a_directory_that_goes_away_ends_an_idle_server_with_74(tmp_path: Path, how: str) -> None:
    log, away = tmp_path / "log", tmp_path / "away"
    with ServerProcess(ours_at_once("-p0", "-b", log), tmp_path) as server:
        connection = server.connect()
        assert connection.ask(b"put 0 0 60 1\r\nx\r\n") == b"INSERTED 1\r\n"
        if how == "removed":
            shutil.rmtree(log)
        else:
            log.rename(away)
        if how == "replaced":
            log.mkdir()
        status, said = server.ended()
    assert status == 74
    (line,) = [each for each in said.splitlines() if "the server ends" in each]
    segment = "00000000000000000001.tql"
    now = "was deleted" if how == "removed" else f"is now {away}/{segment}"
    assert f"the binlog is not at {log} any more: {segment} {now}. " in line
    assert f"run 'binlog-inspect check {log}', start again" in line
    if how == "renamed":
        away.rename(log)
        with ServerProcess(ours_at_once("-p0", "-b", log), tmp_path) as again:
            connection = again.connect()
            assert connection.ask(b"peek 1\r\n") == b"FOUND 1 1\r\nx\r\n"
            connection.close()


# Limits of the system.

FEW_DESCRIPTORS = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
for _ in range(int(sys.argv[1])):
    os.set_inheritable(os.open(os.devnull, os.O_RDONLY), True)
os.execv(sys.argv[2], sys.argv[2:])
"""


def with_few_descriptors(taken: int) -> list[str]:
    """Give the command that runs our server with 64 descriptors, of which so many are taken."""
    return [sys.executable, "-c", FEW_DESCRIPTORS, str(taken), *ours_at_once("-p0")]


def knock(port: int, times: int) -> None:
    """Connect so often, each time until the server has closed the connection."""
    for _ in range(times):
        with suppress(ConnectionResetError), Connection(port) as client:
            assert client.reply() == b""


def refusals(said: str, why: str) -> list[int]:
    """Give the numbers of connections that were refused for a reason, line by line."""
    return [int(count) for count in re.findall(rf"(\d+) connections? refused: {why}", said)]


def test_at_the_limit_of_connections_there_is_a_line_a_minute(tmp_path: Path) -> None:
    with ServerProcess(with_few_descriptors(0), tmp_path) as server:
        port = server.port()
        held = [Connection(port) for _ in range(32)]
        for each in held:
            assert each.ask(b"list-tube-used\r\n") == b"USING default\r\n"
        knock(port, 500)
        assert held[0].ask(b"list-tube-used\r\n") == b"USING default\r\n"
        server.terminate()
        _, said = server.ended()
        for each in held:
            each.close()
    assert refusals(said, "no more") == [1, 499]
    assert "refused: no more than 32 connections fit into the limit of file descriptors" in said


def test_at_the_limit_of_descriptors_there_is_a_line_a_minute(tmp_path: Path) -> None:
    with ServerProcess(with_few_descriptors(40), tmp_path) as server:
        port = server.port()
        held = [Connection(port) for _ in range(30)]
        server.wait_for("EMFILE")
        knock(port, 500)
        for each in held:
            each.close()
        server.terminate()
        _, said = server.ended()
    counts = refusals(said, "no file")
    assert (counts[0], len(counts)) == (1, 2) and sum(counts) >= 500
    assert said.count("EMFILE") == 2
    assert "refused: no file descriptors are left (EMFILE); raise 'ulimit -n' or LimitNO" in said


# Signals.


def test_further_sigterms_show_no_code(tmp_path: Path) -> None:
    with ServerProcess(ours_at_once("-p0", "-b", tmp_path / "log"), tmp_path) as server:
        server.connect().close()
        for _ in range(3):
            server.process.send_signal(signal.SIGTERM)
        status, said = server.ended()
    # By the signal if the stop was quicker.
    assert status in (128 + signal.SIGTERM, -signal.SIGTERM)
    assert "Traceback" not in said and "ReactorNotRunning" not in said
    assert all(LINE.fullmatch(line) for line in said.splitlines()), said


# What the log says.


def test_a_daemon_that_cannot_start_says_why_in_one_line_and_shows_no_code(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("mine")
    launcher = subprocess.run(
        [TWISTD, "--pidfile=daemon.pid", "beanstalk", "-p0", "-b", "log"],
        cwd=tmp_path, timeout=LIMIT_S, capture_output=True, text=True, check=False,
    )  # fmt: skip
    why = (
        f"binlog directory {tmp_path}/log: Not a directory; nothing was lost. "
        "Name a directory with --binlog, not a file, then start again."
    )
    assert launcher.returncode == 1
    first, second, *_ = launcher.stderr.splitlines()
    assert first == f"error: {why}"
    assert second.startswith("An error has occurred: b'Refused: binlog directory ")
    lines = (tmp_path / "twistd.log").read_text().splitlines()
    assert lines[-1].endswith(f"the server does not start: {why}")
    assert all(LINE.fullmatch(line) for line in lines), lines
