"""
``beanstalk reserve``.

A reservation ends with its connection, so with this command: it has to say what becomes of the job
before it ends.
"""

import os
import signal
import subprocess
from typing import Final

import click

from binlog_tools.client import Lost
from binlog_tools.queue.cli import options
from binlog_tools.queue.cli.exits import NOTHING, REFUSED, fail, warn
from binlog_tools.queue.server import Address, Job, Queue, Refused, Stats

TOUCH: Final = 0.5
"""Of the TTR, while a command runs, before it is touched."""

USELESS: Final = 65
"""The exit code of a command that says that its input is wrong, as of beanstalk-work."""

KILL_S: Final = 5.0
"""From SIGTERM to SIGKILL, for a command whose job is lost, seconds."""

AND_THEN: Final = "one of --delete, --release, --bury and --exec CMD"


@click.command("reserve")
@options.server
@click.option(
    "-t",
    "--tube",
    "tubes",
    type=options.TUBE,
    multiple=True,
    metavar="NAME",
    help="From this tube; may be repeated.  'default' without one.",
)
@click.option(
    "--timeout",
    type=options.SECONDS,
    metavar="S",
    help="Wait so many seconds for a job; without it, for ever.",
)
@click.option("--delete", "then", flag_value="delete", help="Print it, then delete it.")
@click.option("--release", "then", flag_value="release", help="Print it, then give it back.")
@click.option("--bury", "then", flag_value="bury", help="Print it, then bury it.")
@click.option(
    "--exec",
    "command",
    metavar="CMD",
    help="Run this; the body is its input.  Delete the job if it exits with 0.",
)
@click.option(
    "-d",
    "--delay",
    type=options.SECONDS,
    default=0,
    show_default=True,
    metavar="S",
    help="Seconds until a job that is given back is ready.",
)
@options.raw
@options.as_json
def reserve(
    address: Address, tubes: tuple[bytes, ...], timeout: int | None, then: str | None,
    command: str | None, delay: int, raw: bool, is_json: bool,
) -> None:  # fmt: skip
    """
    Take one job, and do something with it.

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
    if (then is None) == (command is None):
        raise click.UsageError(f"a reservation ends with this command: give {AND_THEN}")
    with options.connected(address) as queue:
        queue.watch_only(tubes or (b"default",))
        job = queue.reserve(timeout)
        if job is None:
            fail(NOTHING, "no job came in time")
        stats = queue.stats_job(job.id)
        if command is not None:
            _run(queue, job, stats, command, delay)
        options.show_job(job, is_json, raw, tube=stats["tube"])
        assert then is not None
        _settle(queue, job, stats, then, delay)


def _settle(queue: Queue, job: Job, stats: Stats, then: str, delay_s: int) -> None:
    if then == "delete":
        queue.delete(job.id)
    elif then == "bury":
        queue.bury(job.id, int(stats["pri"]))
    else:
        queue.release(job.id, int(stats["pri"]), delay_s)


def _run(queue: Queue, job: Job, stats: Stats, command: str, delay_s: int) -> None:
    """
    Run a command with the job, settle it, and end as the command did.
    """
    facts = {
        "BEANSTALK_JOB_ID": str(job.id), "BEANSTALK_TUBE": stats["tube"],
        "BEANSTALK_ATTEMPT": stats["reserves"], "BEANSTALK_TTR": stats["ttr"],
        "BEANSTALK_PRIORITY": stats["pri"],
    }  # fmt: skip
    process = subprocess.Popen(  # noqa: S602 - a shell's command is what is wanted.
        command,
        shell=True,
        executable="/bin/sh",
        stdin=subprocess.PIPE,
        env={**os.environ, **facts},
    )
    try:
        _wait(queue, job, stats, process)
    except (Refused, Lost) as problem:
        _end(process)
        fail(REFUSED, f"job {job.id} is not ours any more, the command was ended: {problem}")
    except KeyboardInterrupt:
        # A terminal's Ctrl-C has reached the command too.
        _end(process)
        _settle(queue, job, stats, "release", delay_s)
        raise
    code = process.returncode
    then = {0: "delete", USELESS: "bury"}.get(code, "release")
    _settle(queue, job, stats, then, delay_s)
    if code < 0:
        warn(f"the command was ended by {signal.Signals(-code).name}")
    raise SystemExit(code if code >= 0 else 128 - code)


def _wait(queue: Queue, job: Job, stats: Stats, process: "subprocess.Popen[bytes]") -> None:
    """
    Give it the body and wait for its end, and touch the job meanwhile.
    """
    wait_s = max(1, int(stats["ttr"])) * TOUCH
    body: bytes | None = job.body
    while True:
        try:
            process.communicate(body, timeout=wait_s)
            return
        except subprocess.TimeoutExpired:
            body = None  # What is left of it is still given, and may not be named again.
            queue.touch(job.id)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(KILL_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
