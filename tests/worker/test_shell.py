"""
Commands of a shell, as real processes.
"""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from twisted.internet.task import Clock

from beanstalk_twisted.client.forms import Job
from beanstalk_twisted.client.stats import JobStats
from beanstalk_twisted.worker.attempt import Attempt
from beanstalk_twisted.worker.shell import CommandFailed, Shell
from tests.server_process import LIMIT_S

STOPPED = """
import sys, threading
from twisted.internet.task import Clock
from beanstalk_twisted.client.forms import Job
from beanstalk_twisted.client.stats import JobStats
from beanstalk_twisted.worker.attempt import Attempt, Ending
from beanstalk_twisted.worker.shell import Shell

registered = threading.Event()


class Noted(Attempt):
    def when_cancelled(self, callback):
        super().when_cancelled(callback)
        registered.set()


stats = JobStats(b"---\\ntube: t\\nreserves: 1\\nttr: 1\\npri: 1\\n")
attempt = Noted(Clock(), Job(1, b"x"), stats, 1.0)
threading.Thread(target=Shell(sys.argv[1], kill_s=0.2), args=(attempt,), daemon=True).start()
sys.stdin.readline()
registered.wait()
attempt.cancel(Ending.STOPPED)
"""
"""A process whose own thread ends while its command, which heeds no SIGTERM, is still running."""

HEEDLESS = "trap '' TERM; echo begun; while true; do sleep 0.05; done"


def test_a_command_that_heeds_no_sigterm_is_killed_though_the_worker_is_done() -> None:
    command = [sys.executable, "-c", STOPPED, HEEDLESS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        # The command has this pipe too: it ends with the last of those who have it.
        process.communicate(b"\n", timeout=LIMIT_S)
        assert process.returncode == 0


@pytest.mark.parametrize(
    ("number", "name"),
    [(signal.SIGTERM, "SIGTERM"), (signal.SIGRTMIN + 1, f"signal {signal.SIGRTMIN + 1}")],
)
def test_a_command_that_ends_by_any_signal_has_failed(number: int, name: str) -> None:
    stats = JobStats(b"---\ntube: t\nreserves: 1\nttr: 1\npri: 1\n")
    attempt: Attempt[bytes] = Attempt(Clock(), Job(1, b"x"), stats, 1.0)
    with pytest.raises(CommandFailed, match=f"^ended by {name}$"):
        Shell(f"kill -{int(number)} $$")(attempt)
