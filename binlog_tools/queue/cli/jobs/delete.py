"""``beanstalk delete``."""

import sys
from collections.abc import Mapping, Sequence

import click

from beanstalk_twisted.client.addresses import Address
from binlog_tools.console.wording import told
from binlog_tools.queue.cli import options
from binlog_tools.queue.cli.exits import NOTHING, REFUSED, USAGE, end_if_told, fail, reason, warn
from binlog_tools.queue.cli.jobs.peek import each
from binlog_tools.queue.cli.signals import DeferredSignal
from binlog_tools.queue.purging import StateResult, TubePurge, purge_of
from binlog_tools.queue.server import STATES, Refused


@click.command("delete")
@click.argument("jobs", metavar="[ID]...", nargs=-1, type=options.JOB)
@options.server
@click.option("-t", "--tube", type=options.TUBE, metavar="NAME", help="With --all, of this tube.")
@click.option(
    "--state",
    "states",
    type=click.Choice(STATES),
    multiple=True,
    help="With --all, the jobs in this state; may be repeated.",
)
@click.option("--all", "is_all", is_flag=True, help="All jobs of a tube and state.")
@click.option("-y", "--yes", is_flag=True, help="With --all, do not ask.")
@options.as_json
def delete(
    jobs: tuple[int, ...], address: Address, tube: bytes | None, states: tuple[str, ...],
    is_all: bool, yes: bool, is_json: bool,
) -> None:  # fmt: skip
    """
    Delete jobs that nobody has reserved: those of these numbers, or all of a tube and state.

    --all says how many there are, and asks; without a terminal it wants --yes.  Jobs that are put
    later stay.  SIGINT and SIGTERM end it with the job, or the batch of 200, in hand, and it says
    how many were deleted.

    \b
    Examples:
      beanstalk delete 4711 4712
      beanstalk delete -t mail --state buried --all
      beanstalk delete -t mail --state ready --state delayed --all --yes
    """
    if is_all == bool(jobs):
        both = ", not both" if jobs else ""
        raise click.UsageError(f"give the numbers of jobs, or --all{both}")
    if jobs and (given := options.given("tube", "states", "yes")):
        raise click.UsageError(f"the numbers of jobs are enough: leave out {given}")
    if not is_all:
        with options.connected(address) as queue:
            each(jobs, queue.delete, "deleted", is_json)
        return
    if tube is None or not states:
        raise click.UsageError("--all wants --tube NAME, and --state ready, delayed or buried")
    _empty(address, tube, tuple(dict.fromkeys(states)), yes, is_json)


def _empty(
    address: Address, tube: bytes, states: Sequence[str], is_agreed: bool, is_json: bool
) -> None:
    with options.connected(address) as queue:
        purge = purge_of(queue, tube, states)
        if purge.total and not is_agreed:
            ask(told_counts(purge.counts, tube))
        with DeferredSignal() as stop:
            _run(purge, stop)
    options.show_count(purge.deleted, "deleted", is_json)
    end_if_told(stop, told(purge.deleted, "job"))
    if not purge.deleted:
        raise SystemExit(NOTHING)


def told_counts(counts: Mapping[str, int], tube: bytes) -> str:
    """Say how many jobs in these states a tube has, at least one."""
    *parts, last = [f"{count} {state}" for state, count in counts.items() if count]
    named = f"{', '.join(parts)} and {last}" if parts else last
    return f"{named} job{'s' * (sum(counts.values()) != 1)} of {tube.decode()}"


def ask(what: str, verb: str = "delete", done: str = "deleted") -> None:
    """
    Ask whether that is to be done to these jobs; end the command if not, or if nobody can be asked.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        fail(USAGE, f"{what} would be {done}; nobody is there to be asked, so give --yes")
    if not click.confirm(f"{verb.capitalize()} {what}?", err=True):
        fail(NOTHING, f"nothing was {done}")


def _run(purge: TubePurge, stop: DeferredSignal) -> None:
    """Delete them, and say where it ended early."""
    try:
        for gone in purge.run():
            if stop.number is not None:
                return
            if isinstance(gone, StateResult) and gone.later is not None:
                warn(
                    f"{told(gone.deleted, 'job')} of {gone.there} {gone.state} deleted; job "
                    f"{gone.later}, put since, is now the first, so it stopped there"
                )
    except (OSError, Refused) as problem:
        done = f"{told(purge.deleted, 'job')} deleted, and perhaps {purge.at_once} more"
        fail(REFUSED, f"{reason(problem)}; {done}")
