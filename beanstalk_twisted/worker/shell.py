"""Jobs as commands of a shell: the body is the input, the exit code is the outcome."""

import atexit
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from threading import Lock, Timer
from time import monotonic, sleep
from typing import Any, Final

from beanstalk_twisted.client.stats import environment_of
from beanstalk_twisted.worker.attempt import Attempt
from beanstalk_twisted.worker.policy import Bury, Decided

KILL_S: Final = 5.0
"""From SIGTERM to SIGKILL, for a command that does not end, seconds."""

USELESS: Final = 65
"""The exit code of a command that says that its input is wrong (EX_DATAERR of sysexits.h)."""

LOOK_S: Final = 0.05
"""Between two looks whether all that a cancelled command has started is gone, seconds."""

REAP_S: Final = 1.0
"""From SIGKILL until the end is not awaited any more, seconds: zombies count as there."""

SHELL: Final = "/bin/sh"

STARTING: Final = Lock()
"""Held while a command begins that nobody can end yet.  Threads do not keep a worker that stops, so
its end waits for this, and no command begins any more.
"""
atexit.register(STARTING.acquire)


class CommandFailed(Exception):
    """A command has ended with another code than 0, or by a signal."""


class Shell:
    """Does jobs by running a command; in threads, for it waits for the command's end.

    0 means that the job is done, 65 that it is buried, anything else that it has failed.  The
    command has the job's number and more in its environment: ``BEANSTALK_JOB_ID``,
    ``BEANSTALK_TUBE``, ``BEANSTALK_ATTEMPT``, ``BEANSTALK_TTR`` (seconds), ``BEANSTALK_PRIORITY``
    and ``BEANSTALK_JOB_METADATA`` (empty if there is none).  When the attempt is cancelled, the
    command and all that it has started get SIGTERM, and SIGKILL 5 seconds later; it has ended when
    all of it is gone.

    :ivar ends_within_s: how long that may take, seconds.
    """

    def __init__(
        self, command: str, environment: Mapping[str, str] = os.environ, kill_s: float = KILL_S
    ) -> None:
        """:raise ValueError: the command is empty: it would do nothing, and end each job."""
        if not command.strip():
            raise ValueError("the shell command is empty")
        self.ends_within_s = kill_s + REAP_S
        self._kill_s = kill_s
        self._command = command
        self._environment = environment

    def __call__(self, attempt: Attempt[Any]) -> None:
        """:raise CommandFailed: it has failed.
        :raise Decided: the job is to be buried.
        """
        command = [SHELL, "-c", self._command]
        environment = {**self._environment, **environment_of(attempt.id, attempt.stats)}
        code = run_for(attempt, command, attempt.body, self._kill_s, env=environment)
        if code == USELESS:
            raise Decided(Bury())
        check_code(code)


def run_for(
    attempt: Attempt[Any], command: Sequence[str], given: bytes, kill_s: float, **options: Any
) -> int:
    """Run a command until it ends, or the attempt is cancelled; gives its exit code.

    :param given: its input.
    :param options: of `subprocess.Popen`.
    """
    with STARTING:
        process = subprocess.Popen(  # noqa: S603 - what the application wants.
            command, stdin=subprocess.PIPE, start_new_session=True, **options
        )
        ending = _Ending(process, kill_s)
        attempt.when_cancelled(ending.begin)
    try:
        process.communicate(given)
    finally:
        ending.has_ended()
    return process.returncode


def check_code(code: int) -> None:
    """:raise CommandFailed: it has failed."""
    if code < 0:
        raise CommandFailed(f"ended by {_name(-code)}")
    if code:
        raise CommandFailed(f"exit code {code}")


def _name(number: int) -> str:
    """Name a signal; those between the first and the last for real time have no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class _Ending:
    """Ends a command with its process group, first politely."""

    def __init__(self, process: "subprocess.Popen[bytes]", kill_s: float) -> None:
        self._process = process
        self._kill_s = kill_s
        self._has_begun = False
        self._timer = Timer(kill_s, self._signal, (signal.SIGKILL,))
        # The worker's process stays for as long as a command may, though its threads do not matter:
        # one that is made in a daemon is a daemon, unless told.
        self._timer.daemon = False

    def begin(self) -> None:
        if self._process.returncode is None:
            self._has_begun = True
            self._signal(signal.SIGTERM)
            self._timer.start()

    def has_ended(self) -> None:
        """The command itself has; wait, if it was cancelled, for what it has started too, which
        would otherwise run besides the next attempt.
        """
        if self._has_begun:
            until_s = monotonic() + self._kill_s + REAP_S
            while self._signal(0) and monotonic() < until_s:
                sleep(LOOK_S)
        self._timer.cancel()

    def _signal(self, number: int) -> bool:
        """Send a signal, 0 for none; return True if anything is left of it."""
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True  # It has become another user: it is there, but not ours to end.
        return True
