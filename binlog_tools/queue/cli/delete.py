"""
``beanstalk delete``.
"""

import sys
from collections.abc import Sequence

import click

from binlog_tools.console.wording import told
from binlog_tools.queue.addresses import Address
from binlog_tools.queue.cli import options
from binlog_tools.queue.cli.exits import NOTHING, REFUSED, USAGE, end_if_told, fail, reason, warn
from binlog_tools.queue.cli.jobs import each
from binlog_tools.queue.cli.signals import DeferredSignal
from binlog_tools.queue.purging import StateResult, TubePurge
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
    later stay.  SIGINT and SIGTERM end it with the job in hand, and it says how many were deleted.

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
        purge = TubePurge(queue, tube, states)
        if purge.total and not is_agreed:
            _ask(purge, tube)
        with DeferredSignal() as stop:
            _run(purge, stop)
    options.show_count(purge.deleted, "deleted", is_json)
    end_if_told(stop, told(purge.deleted, "job"))
    if not purge.deleted:
        raise SystemExit(NOTHING)


def _ask(purge: TubePurge, tube: bytes) -> None:
    counts = [f"{count} {state}" for state, count in purge.counts.items()]
    what = f"{' and '.join(counts)} job{'s' * (purge.total != 1)} of {tube.decode()}"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        fail(USAGE, f"{what} would be deleted; nobody is there to be asked, so give --yes")
    if not click.confirm(f"Delete {what}?", err=True):
        fail(NOTHING, "nothing was deleted")


def _run(purge: TubePurge, stop: DeferredSignal) -> None:
    """
    Delete them, and say where it ended early.
    """
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
        done = f"{told(purge.deleted, 'job')} deleted, and perhaps one more"
        fail(REFUSED, f"{reason(problem)}; {done}")
