"""The log of a real server, as JSON and behind logrotate; and signals that come twice, or with the
end of its terminal.
"""

from __future__ import annotations

import json
import os
import pty
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.test_server_process import read_log
from tests.faults.disk import FaultyDisk, Rule
from tests.server_process import LIMIT_S, TWISTD, Connection, ServerProcess, ours_at_once

PUT = b"put 0 0 60 4\r\nbody\r\n"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def logging(tmp_path: Path) -> ServerProcess:
    """Start our server at a socket, its log in a file, as JSON."""
    command = [str(TWISTD), "-n", "--pidfile=", f"--logfile={tmp_path}/bs.log", "beanstalk"]
    options = ["-l", f"unix:{tmp_path}/s", "-b", f"{tmp_path}/log", "--log-format", "json"]
    return ServerProcess([*command, *options], tmp_path)


def wait_for_event(path: Path, name: str) -> None:
    give_up = time.monotonic() + LIMIT_S
    while not (path.exists() and f'"event": "{name}"' in path.read_text()):
        assert time.monotonic() < give_up, path.read_text() if path.exists() else ""
        time.sleep(0.01)


def audited(path: Path) -> list[str]:
    """Give what the audit of a log says, without who did it."""
    return [line["message"].partition(": ")[2] for line in lines(path) if line["level"] == "audit"]


@pytest.mark.exhaustive
def test_a_renamed_log_goes_on_in_a_new_file_with_each_line_in_one(tmp_path: Path) -> None:
    log, old = tmp_path / "bs.log", tmp_path / "bs.log.1"
    with logging(tmp_path) as server:
        wait_for_event(log, "listening")
        connection = Connection(tmp_path / "s")
        assert connection.ask(PUT) == b"INSERTED 1\r\n"
        connection.ask(b"kick 1\r\n")
        log.rename(old)
        connection.ask(b"kick 2\r\n")
        server.process.send_signal(signal.SIGHUP)
        wait_for_event(log, "log-reopened")
        connection.ask(b"pause-tube default 1\r\n")
        assert connection.ask(b"b\xffg\x1bus\r\n") == b"UNKNOWN_COMMAND\r\n"
        assert connection.ask(PUT) == b"INSERTED 2\r\n"
        connection.close()
        server.kill()
    assert audited(old) == [
        "kick bound=1 tube=default: KICKED 0", "kick bound=2 tube=default: KICKED 0", "reload",
    ]  # fmt: skip
    assert audited(log) == ["pause-tube tube=default pause=1: PAUSED"]
    wrong = lines(log)[-1]
    assert (wrong["event"], wrong["fields"]["line"]) == ("client-error", "a line of 6 bytes")
    (listening,) = (line for line in lines(old) if line["event"] == "listening")
    assert listening["fields"] == {"address": f"unix:{tmp_path}/s"}
    assert (lines(old)[3]["fields"] or {}).keys() and all(
        set(line) - {"traceback"} == {"time", "level", "part", "event", "message", "fields"}
        for line in lines(old) + lines(log)
    )
    assert read_log(tmp_path / "log") == (False, {b"body"})
    with logging(tmp_path) as server:
        wait_for_event(log, "recovery-note")
        give_up = time.monotonic() + LIMIT_S
        while sum(line["event"] == "log-opened" for line in lines(log)) < 1:
            assert time.monotonic() < give_up
        connection = Connection(tmp_path / "s")
        assert [connection.ask(b"delete %d\r\n" % each) for each in (1, 2)] == [b"DELETED\r\n"] * 2


def test_whoever_is_at_a_unix_socket_is_named_so_in_the_audit(tmp_path: Path) -> None:
    with logging(tmp_path) as server:
        wait_for_event(tmp_path / "bs.log", "listening")
        connection = Connection(tmp_path / "s")
        assert connection.ask(b"drain\r\n") == b"DRAINING\r\n"
        connection.close()
        server.terminate()
    found = [line for line in lines(tmp_path / "bs.log") if line["event"] == "audit"]
    assert found[0]["message"] == "a UNIX socket: drain: DRAINING"
    assert found[0]["fields"] == {
        "who": "a UNIX socket", "command": "drain", "words": "drain", "reply": "DRAINING",
        "jobs": 0, "connection": 1,
    }  # fmt: skip
    assert [line["message"] for line in found[1:]] == ["SIGTERM: stop"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_a_stop_that_cannot_end_and_costs_nothing_that_was_answered(
    tmp_path: Path, first: signal.Signals
) -> None:
    disk = FaultyDisk(tmp_path)
    # An inline sync would keep the thread that signals come to.
    with disk.serve("--fsync-timeout", 0, "--fsync-inline", 0) as server:
        connection = server.connect()
        for number in range(1, 51):
            assert connection.ask(PUT) == b"INSERTED %d\r\n" % number
        disk.obey(Rule("sync", "hang"))
        connection.send(PUT)
        server.process.send_signal(first)
        server.wait_for(f"audit server   {first.name}: stop")
        assert server.process.poll() is None and not connection.is_answered
        server.process.send_signal(signal.SIGTERM)
        status, said = server.ended()
    assert status == 128 + signal.SIGTERM == 143
    assert "stopped at once by a second signal, SIGTERM; nothing that was answered is" in said
    assert "Traceback" not in said
    disk.obey()
    with disk.serve() as server:
        connection = server.connect()
        for number in range(1, 51):
            assert connection.ask(b"delete %d\r\n" % number) == b"DELETED\r\n"


def test_a_slow_sync_is_told_with_its_place_and_how_long_replies_waited(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    with disk.serve("--slow-command", 10, "--fsync-inline", 0) as server:
        connection = server.connect()
        assert connection.ask(PUT) == b"INSERTED 1\r\n"
        disk.obey(Rule("sync", "delay", 150))
        assert connection.ask(PUT) == b"INSERTED 2\r\n"
        server.wait_for(f"a write or sync in {disk.log} took ")


def test_a_server_whose_terminal_is_closed_stops_in_order(tmp_path: Path) -> None:
    command = ours_at_once("-l", f"unix:{tmp_path}/s", "-b", tmp_path / "log")
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(command[0], command)
    said = b""
    while b"listening on" not in said:
        said += os.read(terminal, 1000)
    connection = Connection(tmp_path / "s")
    assert connection.ask(PUT) == b"INSERTED 1\r\n"
    os.close(terminal)
    assert connection.reply() == b""
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM
    connection.close()
    assert read_log(tmp_path / "log") == (True, {b"body"})
