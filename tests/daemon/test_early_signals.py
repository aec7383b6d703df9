"""Signals from the first moment of the process: none ends it, and none is lost."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from beanstalk_twisted.daemon.early_signals import HELD, has_terminal, hold_back, let_through
from tests.server_process import LIMIT_S, ServerProcess, ours_at_once

MASK: int = sum(1 << (number - 1) for number in HELD)

IMPORTED = """
import sys
before = set(sys.modules)
import beanstalk_twisted.__main__
print(sorted(set(sys.modules) - before))
"""


def is_held_back(pid: int) -> bool:
    """Whether the kernel keeps the signals from a process, as it does until there are handlers."""
    status = Path(f"/proc/{pid}/status").read_text()
    [blocked] = re.findall(r"^SigBlk:\t([0-9a-f]+)$", status, re.MULTILINE)
    return int(blocked, 16) & MASK == MASK


def wait_until_held_back(pid: int) -> None:
    """Python itself, which cannot be told, is up by then; nothing of Twisted is."""
    give_up = time.monotonic() + LIMIT_S
    while not is_held_back(pid):
        assert time.monotonic() < give_up
        time.sleep(0.001)


def test_nothing_of_twisted_is_imported_before_they_are_held_back() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True)
    names = {"_signal", "beanstalk_twisted", "beanstalk_twisted.daemon"}
    names |= {"beanstalk_twisted.daemon.early_signals", "beanstalk_twisted.__main__"}
    names |= {"beanstalk_twisted.exports", "beanstalk_twisted.programs"}
    assert set(eval(done.stdout)) <= names


def test_what_is_held_back_comes_later_and_once() -> None:
    came: list[int] = []
    before = {number: signal.signal(number, lambda n, _: came.append(n)) for number in HELD}
    try:
        hold_back()
        for number in (*HELD, *HELD):
            # To this thread: others of pytest-xdist's do not hold them back.
            signal.pthread_kill(threading.get_ident(), number)
        assert came == []
    finally:
        let_through()
        for number, handler in before.items():
            signal.signal(number, handler)
    assert sorted(came) == sorted(HELD)


def test_a_server_takes_them_at_every_moment_of_its_start(tmp_path: Path) -> None:
    command = ours_at_once("-p0", "-b", tmp_path / "log")
    with ServerProcess(command, tmp_path, may_fork=False) as server:
        wait_until_held_back(server.process.pid)
        sent = 0
        while not any("listening on" in line for line in server.said()):
            for number in HELD:
                server.process.send_signal(number)
            sent += 1
            assert server.process.poll() is None, server.said()
            time.sleep(0.005)
        assert sent > 5
        connection = server.connect()
        assert connection.ask(b"put 0 0 9 1\r\nx\r\n") == b"DRAINING\r\n"
        connection.close()
        assert not is_held_back(server.process.pid)
        server.wait_for("audit server   SIGHUP: reload")
        server.wait_for("audit server   SIGUSR1: drain")
        assert server.terminate() == -signal.SIGTERM


def test_a_terminal_that_is_closed_at_once_stops_the_server(tmp_path: Path) -> None:
    command = ours_at_once("-p0", "-b", tmp_path / "log")
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(command[0], command)
    wait_until_held_back(pid)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM


def test_whether_there_is_a_terminal_is_seen_by_the_kernel(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os._exit(has_terminal())
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
