"""
``beanstalk reserve``.

A reservation ends with its connection, so with this command: it has to say what becomes of the job
before it ends.
"""

from typing import Final

import click

from beanstalk_twisted.client.addresses import Address
from binlog_tools.queue.cli import options
from binlog_tools.queue.cli.execution import execute
from binlog_tools.queue.cli.exits import NOTHING, fail
from binlog_tools.queue.server import Job, Queue, Stats

AND_THEN: Final = "one of --delete, --release, --bury and --exec CMD"


@click.command("reserve")
@options.server
@options.tubes("From this tube; may be repeated.  'default' without one.")
@click.option(
    "--timeout",
    type=options.SECONDS,
    metavar="S",
    help="Wait so many seconds for a job; without it, for ever.",
)
@options.outcome
@click.option(
    "-d",
    "--delay",
    type=options.SECONDS,
    metavar="S",
    help="Seconds until a job that is given back is ready; 0 without it.",
)
@options.raw
@options.as_json
def reserve(
    address: Address, tubes: tuple[bytes, ...], timeout: int | None, is_delete: bool,
    is_release: bool, is_bury: bool, command: str | None, delay: int | None, raw: bool,
    is_json: bool,
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
    then = chosen_outcome(is_delete, is_release, is_bury, command)
    _check_delay(then, delay)
    with options.connected(address) as queue:
        queue.watch_only(tubes or (b"default",))
        job = queue.reserve(timeout)
        if job is None:
            fail(NOTHING, "no job came in time")
        stats = queue.stats_job(job.id)
        if command is not None:
            raise SystemExit(execute(queue, job, stats, command, delay or 0))
        options.show_job(job, is_json, raw, tube=stats["tube"])
        settle(queue, job, stats, then, delay or 0)


def chosen_outcome(is_delete: bool, is_release: bool, is_bury: bool, command: str | None) -> str:
    """
    Say what becomes of the job: ``delete``, ``release``, ``bury``, or ``exec``.

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


def _check_delay(then: str, delay: int | None) -> None:
    if delay is not None and then in ("delete", "bury"):
        raise click.UsageError(f"--delay is for a job that is given back, not for --{then}")


def settle(queue: Queue, job: Job, stats: Stats, then: str, delay_s: int) -> None:
    """Do with a job what was asked for."""
    if then == "delete":
        queue.delete(job.id)
    elif then == "bury":
        queue.bury(job.id, stats.number("pri"))
    else:
        queue.release(job.id, stats.number("pri"), delay_s)
