"""A shell's command with a job: its body is the input, the exit code says what becomes of it."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from binlog_tools.client import Lost
from binlog_tools.queue.cli.exits import REFUSED, fail, reason, warn
from binlog_tools.queue.cli.signals import SIGNALLED, DeferredSignal, signal_name
from binlog_tools.queue.server import Job, Queue, Refused, Stats

TOUCH: Final = 0.5
"""Of the TTR, while a command runs, before it is touched."""

USELESS: Final = 65
"""The exit code of a command that says that its input is wrong, as of beanstalk-work."""

KILL_S: Final = 5.0
"""From SIGTERM to SIGKILL, for a command that is to end, seconds."""

LOOK_S: Final = 0.05
"""Between two looks whether the command has ended, or we are to end, seconds."""


class Execution:
    """
    A command that runs.  It has a session of its own, so that all that it starts can be ended.
    """

    def __init__(self, command: str, job: Job, stats: Stats) -> None:
        facts = {
            "BEANSTALK_JOB_ID": str(job.id), "BEANSTALK_TUBE": stats["tube"],
            "BEANSTALK_ATTEMPT": stats["reserves"], "BEANSTALK_TTR": stats["ttr"],
            "BEANSTALK_PRIORITY": stats["pri"],
        }  # fmt: skip
        self._body: bytes | None = job.body
        self._kill_at_s: float | None = None
        self._process = subprocess.Popen(  # noqa: S602 - a shell's command is what is wanted.
            command, shell=True, executable="/bin/sh", stdin=subprocess.PIPE,
            start_new_session=True, env={**os.environ, **facts},
        )  # fmt: skip

    def wait(self, seconds: float) -> int | None:
        """
        Give it more of the body and wait for its end.

        :return: its exit code, below 0 for a signal; None as long as it runs.
        """
        body, self._body = self._body, None  # What is left is still given, and not named again.
        try:
            self._process.communicate(body, timeout=seconds)
        except subprocess.TimeoutExpired:
            return None
        return self._process.returncode

    def begin_end(self) -> None:
        """Ask it to end; called again, kill it when it was given its time."""
        now_s = time.monotonic()
        if self._kill_at_s is None:
            self._kill_at_s = now_s + KILL_S
            self._signal(signal.SIGTERM)
        elif now_s >= self._kill_at_s:
            self._signal(signal.SIGKILL)

    def end(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """
        End all of it, and wait until that has ended.

        :param meanwhile: called now and then while it waits.
        """
        self.begin_end()
        while self.wait(LOOK_S) is None or self._signal(0):
            meanwhile()
            time.sleep(LOOK_S)
            self.begin_end()

    def _signal(self, number: int) -> bool:
        """Send a signal, and say whether anybody was there."""
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True


class Touches:
    """Keeps a job by touching it, for as long as it is asked to."""

    def __init__(self, queue: Queue, job: Job, stats: Stats) -> None:
        self._queue = queue
        self._job = job
        self._every_s = max(1, stats.number("ttr")) * TOUCH
        self._at_s = time.monotonic() + self._every_s

    def touch_if_due(self) -> None:
        """
        Touch it if so much of its TTR is over.

        :raise Refused: it is not ours any more.
        """
        if time.monotonic() >= self._at_s:
            self._queue.touch(self._job.id)
            self._at_s = time.monotonic() + self._every_s


def execute(queue: Queue, job: Job, stats: Stats, command: str, delay_s: int) -> int:
    """
    Run a command with the job, touch it meanwhile, and settle it.

    :param delay_s: of a job that is given back.
    :return: the exit code for us.
    """
    # A command need not read its input, so a broken pipe must not end us.
    with DeferredSignal() as stop, _no_sigpipe():
        touches = Touches(queue, job, stats)
        running = Execution(command, job, stats)
        try:
            code = _watch(running, touches, stop)
            if stop.number is not None:
                # What it has started may take its time; the job is ours until that has ended.
                running.end(touches.touch_if_due)
        except (Refused, Lost) as problem:
            running.end()
            fail(REFUSED, f"job {job.id} is not ours any more, the command was ended: {problem}")
        except BaseException:
            running.end()
            raise
        became = _settle(queue, job, stats, code, delay_s)
        if stop.number is not None:
            warn(f"{signal_name(stop.number)}: the command was ended, job {job.id} was {became}")
            return stop.exit_code
    if code:
        warn(f"the command has failed, {_ended(code)}: job {job.id} was {became}")
    return code if code >= 0 else SIGNALLED - code


def _watch(running: Execution, touches: Touches, stop: DeferredSignal) -> int:
    """Wait for its end, and touch the job meanwhile."""
    while (code := running.wait(LOOK_S)) is None:
        if stop.number is not None:
            running.begin_end()
        touches.touch_if_due()
    return code


def _settle(queue: Queue, job: Job, stats: Stats, code: int, delay_s: int) -> str:
    try:
        return _settled(queue, job, stats, code, delay_s)
    except Lost as problem:
        fail(
            REFUSED,
            f"the command has ended, {_ended(code)}, but the server has not said what became of "
            f"job {job.id}; if it still has it, others get it: {reason(problem)}",
        )


def _ended(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"ended by {signal_name(-code)}"


def _settled(queue: Queue, job: Job, stats: Stats, code: int, delay_s: int) -> str:
    if code == 0:
        queue.delete(job.id)
        return "deleted"
    if code == USELESS:
        queue.bury(job.id, stats.number("pri"))
        return "buried"
    queue.release(job.id, stats.number("pri"), delay_s)
    return f"given back{_if_dead(queue, job)}"


def _if_dead(queue: Queue, job: Job) -> str:
    """
    Say of a job that was given back whether it will not be tried again, as far as can be told:
    others may have it by now.
    """
    try:
        stats = queue.stats_job(job.id)
    except (Refused, Lost):
        return ""
    is_dead = stats.get("state") == "buried" and "dead-from" in stats
    return f", and is a dead letter of {stats['dead-from']} now" if is_dead else ""


@contextmanager
def _no_sigpipe() -> Iterator[None]:
    before = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGPIPE, before)
