"""The server as a process, with policies of tubes."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.server_process import ServerProcess, ours


def serving(tmp_path: Path) -> ServerProcess:
    """Start our server on a free port, with a log and a file of policies."""
    return ServerProcess(
        ours("-p0", "-b", tmp_path / "log", "--tubes", tmp_path / "tubes.toml"), tmp_path
    )


def test_the_file_is_read_again_on_sighup_and_commands_outlive_a_kill(tmp_path: Path) -> None:
    file = tmp_path / "tubes.toml"
    file.write_text('["mail.*"]\nmax-jobs = 0\n')
    with serving(tmp_path) as server:
        connection = server.connect()
        shown = connection.ask(b"tube-policy mail.in\r\n")
        assert shown.endswith(b"max-jobs: 0\nmax-jobs-from: file\n\r\n")
        assert connection.ask(b"tube-policy mail.in rate=7 max-jobs=5\r\n") == b"POLICY\r\n"
        file.write_text('["mail.*"]\nmax-jobs = "many"\n')
        server.process.send_signal(signal.SIGHUP)
        file.write_text('["mail.*"]\nmax-age = 9\n')
        while b"max-age-from: file\n" not in connection.ask(b"tube-policy mail.in\r\n"):
            server.process.send_signal(signal.SIGHUP)
            assert server.process.poll() is None
        shown = connection.ask(b"tube-policy mail.in\r\n")
        assert b"max-jobs: 5\nmax-jobs-from: command\n" in shown
        server.process.kill()
    with serving(tmp_path) as server:
        connection = server.connect()
        assert connection.ask(b"tube-policy mail.in\r\n") == shown
