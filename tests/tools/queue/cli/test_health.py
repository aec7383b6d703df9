"""``beanstalk health``: what a probe learns from its exit code."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from binlog_tools.queue.cli.commands import cli
from binlog_tools.queue.cli.draining import WITHOUT_RIGHT
from tests.server_process import Connection, ServerProcess, ours_at_once


@pytest.fixture
def server_port(tmp_path: Path) -> Iterator[int]:
    with ServerProcess(ours_at_once("-p", 0), tmp_path) as server:
        yield server.port()


def health(port: int, *options: str) -> Result:
    return CliRunner().invoke(cli, ["-s", f"127.0.0.1:{port}", "health", *options])


def test_a_server_that_answers_is_well_also_when_it_drains(server_port: int) -> None:
    result = health(server_port)
    assert (result.exit_code, result.stdout) == (0, "well: 0 jobs\n")
    connection = Connection(server_port)
    connection.ask(b"put 0 9 9 1\r\nx\r\n")
    connection.ask(b"drain\r\n")
    connection.close()
    assert health(server_port).stdout == "well: 1 job, draining\n"
    result = health(server_port, "--json")
    assert json.loads(result.stdout) == {"v": 1, "is_healthy": True, "jobs": 1, "draining": True}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("token", ["", "nonsense"])
def test_one_that_answers_that_we_have_no_right_is_well(tmp_path: Path, token: str) -> None:
    path = tmp_path / "access.toml"
    path.write_text("")
    with ServerProcess(ours_at_once("-p", 0, "--access", path), tmp_path) as server:
        words = ["-s", f"beanstalk://{f':{token}@' if token else ''}127.0.0.1:{server.port()}"]
        result = CliRunner().invoke(cli, [*words, "health"])
        assert (result.exit_code, result.stdout) == (0, f"{WITHOUT_RIGHT}\n")
        if not token:
            shown = json.loads(CliRunner().invoke(cli, [*words, "health", "--json"]).stdout)
            assert shown == {"v": 1, "is_healthy": True, "jobs": None, "draining": None}


def test_one_that_does_not_answer_in_time_is_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        result = health(silent.getsockname()[1], "--timeout", "0.1")
    assert result.exit_code == 4
    assert "timed out" in result.stderr


def test_nor_is_one_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    result = health(port)
    assert result.exit_code == 4
    assert "Connection refused" in result.stderr
