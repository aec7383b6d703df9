"""The server as a process that asks for rights: tokens, users of UNIX sockets, ports, SIGHUP."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from binlog_tools.queue.cli.commands import cli
from tests.server.access.meeting import HASH, OTHER_TOKEN, TOKEN
from tests.server_process import ServerProcess, our_worker, ours

REFUSED = b"UNAUTHORIZED\r\n"
FILE = f"""
[identities.shop]
token = "{HASH}"
producer = "mail"

[identities.me]
uid = {os.getuid()}
admin = "*"
"""


def serving(tmp_path: Path, text: str = FILE) -> ServerProcess:
    """Start our server on a free port and a UNIX socket, with an access file."""
    (tmp_path / "access.toml").write_text(text)
    return ServerProcess(
        ours(
            "--listen", "tcp:0:interface=127.0.0.1", "--listen", f"unix:{tmp_path}/bs.sock",
            "--access", tmp_path / "access.toml", "-VV",
        ), tmp_path,
    )  # fmt: skip


def call(*words: object, **environment: str) -> Result:
    return CliRunner(env=environment).invoke(cli, [*map(str, words)], input="hello")


def test_tokens_users_and_the_file_that_is_read_again(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        port = server.port()
        connection = server.connect()
        assert connection.ask(b"stats\r\n") == REFUSED
        assert connection.ask(b"auth " + OTHER_TOKEN + b"\r\n") == REFUSED
        assert connection.ask(b"auth " + TOKEN + b"\r\n") == b"AUTHORIZED\r\n"
        assert connection.ask(b"use mail\r\n") == b"USING mail\r\n"
        assert connection.ask(b"put 0 0 60 5\r\nhello\r\n") == b"INSERTED 1\r\n"
        assert connection.ask(b"peek 1\r\n") == REFUSED

        local = call("-s", f"unix:{tmp_path}/bs.sock", "peek", "1")
        assert local.stdout.startswith("hello"), local.output
        (tmp_path / "token").write_bytes(TOKEN + b"\n")
        put = ("put", "-t", "mail")
        server_at = ("-s", f"127.0.0.1:{port}")
        assert call(*server_at, "--token-file", tmp_path / "token", *put).exit_code == 0
        assert call(*put, *server_at, "--token-file", tmp_path / "token").exit_code == 0
        behind = ("--token-file", tmp_path / "none", *put, "--token-file", tmp_path / "token")
        assert call(*server_at, *behind).exit_code == 0
        assert call(*server_at, *put, BEANSTALK_TOKEN=TOKEN.decode()).exit_code == 0
        url = f"beanstalk://:{TOKEN.decode()}@127.0.0.1:{port}"
        assert call("-s", url, *put).exit_code == 0
        for wrong in ({}, {"BEANSTALK_TOKEN": OTHER_TOKEN.decode()}):
            refused = call(*server_at, *put, **wrong)
            assert refused.exit_code == 4 and "UNAUTHORIZED" in refused.stderr
            assert OTHER_TOKEN.decode() not in refused.output

        (tmp_path / "access.toml").write_text("[")
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("All may do what they could")
        assert connection.ask(b"put 0 0 60 1\r\nx\r\n") == b"INSERTED 7\r\n"
        (tmp_path / "access.toml").write_text("")
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("read again, 0 identities")
        assert connection.ask(b"put 0 0 60 1\r\nx\r\n") == REFUSED
        connection.close()
        assert server.terminate() == -signal.SIGTERM
    said = "".join(server.said())
    assert TOKEN.decode() not in said and OTHER_TOKEN.decode() not in said
    assert "auth (hidden)" in said


@pytest.mark.one_in(2)
@pytest.mark.parametrize("is_file", [True, False])
def test_a_worker_shows_its_token(tmp_path: Path, is_file: bool) -> None:
    rights = f'[identities.worker]\ntoken = "{HASH}"\nworker = "mail"\nput = "mail"\n'
    (tmp_path / "token").write_bytes(TOKEN + b"\n")
    with serving(tmp_path, rights) as server:
        connection = server.connect()
        assert connection.ask(b"auth " + TOKEN + b"\r\n") == b"AUTHORIZED\r\n"
        connection.ask(b"use mail\r\n")
        assert connection.ask(b"put 0 0 60 5\r\nhello\r\n") == b"INSERTED 1\r\n"
        where = f"127.0.0.1:{server.port()}"
        command = our_worker("-s", where, "--tube", "mail", "--shell", "cat")
        environment = {"BEANSTALK_TOKEN": "" if is_file else TOKEN.decode()}
        shown = ["--token-file", str(tmp_path / "token")] if is_file else []
        with ServerProcess([*command, "-v", *shown], tmp_path, environment) as worker:
            while not connection.ask(b"stats-job 1\r\n").startswith(b"NOT_FOUND"):
                assert worker.process.poll() is None, worker.said()
                time.sleep(0.05)
        # When it has ended: what it has said is all there.
        said = "".join(worker.said())
        assert TOKEN.decode() not in said
