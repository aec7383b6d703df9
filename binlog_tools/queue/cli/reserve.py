"""A shell's command with a job: its body is the input, the exit code says what becomes of it."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.addresses import Address
from beanstalk_twisted.client.commands.specs import Job
from beanstalk_twisted.client.stats import JobStats, environment_of
from binlog_tools.console.errors import fail, warn
from binlog_tools.console.signals import SIGNALLED, DeferredSignal, signal_name
from binlog_tools.console.wording import reason
from binlog_tools.queue import asking
from binlog_tools.queue.cli import options
from binlog_tools.queue.cli.exits import BURIED, DONE, NOTHING, REFUSED, TIMED_OUT

if TYPE_CHECKING:
    from beanstalk_twisted.client.sync import Client

TOUCH: Final = 0.5
"""Of the TTR, while a command runs, before it is touched."""

USELESS: Final = 65
"""The exit code of a command that says that its input is wrong, as of beanstalk-work."""

KILL_S: Final = 5.0
"""From SIGTERM to SIGKILL, for a command that is to end, seconds."""

LOOK_S: Final = 0.05
"""Between two looks whether the command has ended, or we are to end, seconds."""


class Execution:
    """A command that runs.  It has a session of its own, so that all that it starts can be
    ended.
    """

    def __init__(self, command: str, job: Job, stats: JobStats) -> None:
        self._body: bytes | None = job.body
        self._kill_at_s: float | None = None
        self._process = subprocess.Popen(  # noqa: S602 - a shell's command is what is wanted.
            command, shell=True, executable="/bin/sh", stdin=subprocess.PIPE,
            start_new_session=True, env={**os.environ, **environment_of(job.id, stats)},
        )  # fmt: skip

    def wait(self, seconds: float) -> int | None:
        """Give it more of the body and wait for its end.

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
        """End all of it, and wait until that has ended; call ``meanwhile`` now and then."""
        self.begin_end()
        while self.wait(LOOK_S) is None or self._signal(0):
            meanwhile()
            time.sleep(LOOK_S)
            self.begin_end()

    def _signal(self, number: int) -> bool:
        """Say whether anybody was there."""
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True


class Touches:
    def __init__(self, queue: "Client", job: Job, stats: JobStats) -> None:
        self._queue = queue
        self._job = job
        self._every_s = max(1, stats.ttr) * TOUCH
        self._at_s = time.monotonic() + self._every_s

    def touch_if_due(self) -> None:
        """:raise ClientError: it is not ours any more."""
        if time.monotonic() >= self._at_s:
            self._queue.touch(self._job)
            self._at_s = time.monotonic() + self._every_s


def execute(queue: "Client", job: Job, stats: JobStats, command: str, delay_s: int) -> int:
    """Run a command with the job, touch it meanwhile, settle it, and give the exit code for us."""
    # A command need not read its input, so a broken pipe must not end us.
    with DeferredSignal() as stop, _no_sigpipe():
        touches = Touches(queue, job, stats)
        running = Execution(command, job, stats)
        try:
            while (code := running.wait(LOOK_S)) is None:
                if stop.number is not None:
                    running.begin_end()
                touches.touch_if_due()
            if stop.number is not None:
                # What it has started may take its time; the job is ours until that has ended.
                running.end(touches.touch_if_due)
        except errors.ClientError as problem:
            running.end()
            fail(REFUSED, f"job {job.id} is not ours any more, the command was ended: {problem}")
        except BaseException:
            running.end()
            raise
        became = _settle(queue, job, stats, code, delay_s, is_stopped=stop.number is not None)
        if stop.number is not None:
            warn(f"{signal_name(stop.number)}: the command was ended, job {job.id} was {became}")
            return stop.exit_code
    if code:
        warn(f"the command has failed, {_ended(code)}: job {job.id} was {became}")
    return code if code >= 0 else SIGNALLED - code


def _settle(
    queue: "Client", job: Job, stats: JobStats, code: int, delay_s: int, *, is_stopped: bool
) -> str:
    then = {0: "delete", USELESS: "bury"}.get(code, "release")
    try:
        if is_stopped and then == "release" and queue.announces("return-job"):
            queue.return_job(job, delay=delay_s)
            return "given back"
        settle(queue, job, stats, then, delay_s)
    except errors.ErrorReply:
        raise
    except errors.ClientError as problem:
        fail(
            REFUSED,
            f"the command has ended, {_ended(code)}, but the server has not said what became of "
            f"job {job.id}; if it still has it, others get it: {reason(problem)}",
        )
    done = {"delete": "deleted", "bury": "buried"}.get(then)
    return done or f"given back{_if_dead(queue, job)}"


def _ended(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"ended by {signal_name(-code)}"


def _if_dead(queue: "Client", job: Job) -> str:
    """Say of a job that was given back whether it will not be tried again, as far as can be told:
    others may have it by now.
    """
    try:
        stats = queue.stats_job(job)
    except errors.ClientError:
        return ""
    is_dead = stats.state == "buried" and "dead-from" in stats
    return f", and is a dead letter of {stats['dead-from']} now" if is_dead else ""


@contextmanager
def _no_sigpipe() -> Iterator[None]:
    before = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGPIPE, before)


AND_THEN: Final = "one of --delete, --release, --bury and --exec CMD"


@click.command("reserve")
@options.server
@click.option(
    "-t", "--tube", "tubes", type=options.TUBE, multiple=True, metavar="NAME",
    help="From this tube; may be repeated.  'default' without one.",
)  # fmt: skip
@click.option(
    "--timeout", type=options.SECONDS, metavar="S",
    help="Wait so many seconds for a job; without it, for ever.",
)  # fmt: skip
@click.option("--delete", "is_delete", is_flag=True, help="Print it, then delete it.")
@click.option("--release", "is_release", is_flag=True, help="Print it, then give it back.")
@click.option("--bury", "is_bury", is_flag=True, help="Print it, then bury it.")
@click.option(
    "--exec", "command", metavar="CMD",
    help="Run this; the body is its input. Delete the job if it exits with 0.",
)  # fmt: skip
@click.option(
    "-d", "--delay", type=options.SECONDS, metavar="S",
    help="Seconds until a job that is given back is ready; 0 without it.",
)  # fmt: skip
@options.raw
@options.as_json
def reserve_command(
    address: Address, tubes: tuple[bytes, ...], timeout: int | None, is_delete: bool,
    is_release: bool, is_bury: bool, command: str | None, delay: int | None, raw: bool,
    is_json: bool,
) -> None:  # fmt: skip
    """Take one job, and do something with it.

    A reservation ends when this command does, so say what is to become of the job: one of --delete,
    --release, --bury and --exec CMD.  A job is deleted when all of it was written.

    The command of --exec gets BEANSTALK_JOB_ID and more in its environment, and the job is touched
    while it runs.  If it fails, the job is given back, with 65 it is buried; the exit code is that
    of the command.

    \b
    Examples:
      beanstalk reserve -t mail --delete
      beanstalk reserve -t mail --timeout 0 --exec 'sendmail -t' || echo nothing sent
    """
    then = chosen_outcome(is_delete, is_release, is_bury, command)
    if delay is not None and then in ("delete", "bury"):
        raise click.UsageError(f"--delay is for a job that is given back, not for --{then}")
    with options.connected(address) as queue:
        queue.watch_only(*tubes or (b"default",))
        job = next(queue.jobs(timeout=timeout), None)
        if job is None:
            fail(NOTHING, "no job came in time")
        stats = queue.stats_job(job)
        if command is not None:
            raise SystemExit(execute(queue, job, stats, command, delay or 0))
        options.show_job(job, is_json, raw, tube=stats.tube)
        settle(queue, job, stats, then, delay or 0)


def chosen_outcome(is_delete: bool, is_release: bool, is_bury: bool, command: str | None) -> str:
    """Say what becomes of the job: ``delete``, ``release``, ``bury``, or ``exec``.

    :raise click.UsageError: there is no outcome, or more than one, or --exec with what is printed.
    """
    flags = {
        "delete": is_delete, "release": is_release, "bury": is_bury, "exec": command is not None,
    }  # fmt: skip
    given = [name for name, is_set in flags.items() if is_set]
    if not given:
        raise click.UsageError(f"a reservation ends with this command: give {AND_THEN}")
    if len(given) > 1:
        options_given = " and ".join(f"--{name}" for name in given)
        raise click.UsageError(f"{options_given} contradict: give only {AND_THEN}")
    if command is not None and not command.strip():
        raise click.UsageError("the command of --exec is empty")
    if command is not None and (shown := options.given("raw", "is_json")):
        raise click.UsageError(f"{shown}: with --exec nothing is printed but by the command")
    return given[0]


def settle(queue: "Client", job: Job, stats: JobStats, then: str, delay_s: int) -> None:
    if then == "delete":
        queue.delete(job)
    elif then == "bury":
        queue.bury(job, priority=stats.pri)
    else:
        queue.release(job, priority=stats.pri, delay=delay_s)


CODES: Final = {
    "DELETED": DONE, "NOT_FOUND": NOTHING, "BURIED": BURIED, "TIMED_OUT": TIMED_OUT,
}  # fmt: skip


@click.command("wait")
@click.argument("job", metavar="ID", type=options.JOB)
@options.server
@click.option(
    "--timeout", type=options.SECONDS, metavar="S",
    help="Wait so many seconds; without it, for ever.",
)  # fmt: skip
@options.as_json
def wait_command(job: int, address: Address, timeout: int | None, is_json: bool) -> None:
    """Wait until a job is done, and say how that ended.

    \b
    Prints one of these words, and ends with its exit code:
      DELETED    0    it was deleted meanwhile
      NOT_FOUND  1    there is no such job: it was deleted before, or never was
      BURIED     3    it is buried
      TIMED_OUT  124  it is still there

    \b
    Examples:
      beanstalk wait 4711
      beanstalk wait 4711 --timeout 60
    """
    with options.connected(address) as queue:
        asking.need(
            queue, "wait-job",
            f"`beanstalk stats --job {job}` says, now and then, whether it is there",
        )  # fmt: skip
        outcome = asking.wait(queue, job, float("inf") if timeout is None else timeout)
    options.show(is_json, {"id": job, "outcome": outcome}, outcome)
    raise SystemExit(CODES[outcome])
