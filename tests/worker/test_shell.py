"""Commands of a shell, as real processes."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import sleep

import pytest
from twisted.internet.task import Clock

from beanstalk_twisted.client.commands.specs import Job
from beanstalk_twisted.client.stats import JobStats
from beanstalk_twisted.worker.attempt import Attempt, Ending
from beanstalk_twisted.worker.shell import CommandFailed, Shell
from tests.server_process import LIMIT_S

STOPPED = """
import sys, threading
from beanstalk_twisted.worker.attempt import Attempt, Ending
from beanstalk_twisted.worker.shell import Shell

registered = threading.Event()


class Noted(Attempt):
    def when_cancelled(self, callback):
        super().when_cancelled(callback)
        registered.set()


attempt = Noted.of(b"x")
threading.Thread(target=Shell(sys.argv[1], kill_s=0.2), args=(attempt,), daemon=True).start()
sys.stdin.readline()
registered.wait()
attempt.cancel(Ending.STOPPED)
"""
"""A process whose own thread ends while its command is still running."""

HEEDLESS = "trap '' TERM; echo begun; for i in $(seq 1200); do sleep 0.05; done"
"""A command that does not heed it."""

ORPHAN = f"trap 'exit 1' TERM; ({HEEDLESS}) & wait"
"""One that does, and has started another one that does not."""


@pytest.mark.exhaustive
@pytest.mark.parametrize("heedless", [HEEDLESS, ORPHAN])
def test_what_heeds_no_sigterm_is_killed_though_the_worker_is_done(heedless: str) -> None:
    command = [sys.executable, "-c", STOPPED, heedless]
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
    with pytest.raises(CommandFailed, match=f"^ended by {name}$"):
        Shell(f"kill -{int(number)} $$")(Attempt.of(b"x"))


FACTS = b"---\ntube: t\nreserves: 1\nttr: 1\ntime-left: 1\npri: 1\n"


@pytest.mark.parametrize(
    ("line", "shown"), [("metadata: a=%20;b\n", "a=%20;b"), ('metadata: "007"\n', "007"), ("", "")]
)
def test_a_command_has_the_metadata_of_its_job_and_of_no_other(
    tmp_path: Path, line: str, shown: str
) -> None:
    attempt: Attempt[bytes] = Attempt(Clock(), Job(1, b"x"))
    attempt.learn(JobStats(FACTS + line.encode()), 0.0)
    outer = {"BEANSTALK_JOB_METADATA": "of a job around this one"}
    Shell(f'printf "<%s>" "$BEANSTALK_JOB_METADATA" > {tmp_path}/seen', outer)(attempt)
    assert (tmp_path / "seen").read_text() == f"<{shown}>"


class Cancelled(Attempt[bytes]):
    """An attempt that is cancelled as soon as its command has said that it runs."""

    def __init__(self, begun: Path) -> None:
        super().__init__(Clock(), Job(1, b"x"))
        self.learn(JobStats(FACTS), 0.0)
        self._begun = begun

    def when_cancelled(self, callback: Callable[[], object]) -> None:
        while not self._begun.exists():
            sleep(0.01)
        super().when_cancelled(callback)
        self.cancel(Ending.LIMIT)


GRACEFUL = """
trap 'exit 1' TERM
(
  trap 'sleep 0.3; touch {dir}/cleaned; exit' TERM
  touch {dir}/begun
  for i in $(seq 1200); do sleep 0.05; done
) &
wait
"""
"""A command that ends by SIGTERM at once, and what it has started a little later."""


def test_a_command_has_ended_when_all_that_it_has_started_has(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed):
        Shell(GRACEFUL.format(dir=tmp_path))(Cancelled(tmp_path / "begun"))
    assert (tmp_path / "cleaned").exists()


def test_what_a_command_leaves_behind_that_was_not_cancelled_is_left_alone(tmp_path: Path) -> None:
    Shell(f"(sleep 0.2; touch {tmp_path}/later) & true")(Attempt.of(b"x"))
    assert not (tmp_path / "later").exists()
    while not (tmp_path / "later").exists():
        sleep(0.01)
