"""The commands ``beanstalk flush`` and ``beanstalk forget-key``."""

from typing import Final

import click

from beanstalk_twisted.client.addresses import Address
from binlog_tools.client import LIMIT_S
from binlog_tools.connections import connect
from binlog_tools.console.output import Output
from binlog_tools.queue.cli import options
from binlog_tools.queue.cli.exits import NOTHING, warn
from binlog_tools.queue.cli.jobs.delete import ask, told_counts
from binlog_tools.queue.extensions import Extensions
from binlog_tools.queue.server import STATES, Queue

FLUSHED_PER_S: Final = 1000
"""Jobs that a server deletes in a second at least, on the slowest disk."""


@click.command("flush")
@click.argument("tube", type=options.TUBE)
@options.server
@click.option(
    "--state",
    "states",
    type=click.Choice(STATES),
    multiple=True,
    help="Only the jobs in this state; may be repeated.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@options.as_json
def flush(
    tube: bytes, address: Address, states: tuple[str, ...], yes: bool, is_json: bool
) -> None:  # fmt: skip
    """
    Delete all jobs of TUBE that nobody has reserved, or those in a state, by one command.

    It says how many there are, and asks; without a terminal it wants --yes.  Jobs that are put
    before you answer are deleted too; `delete --all` leaves those.  The server finishes it even if
    this command is ended.  Without --state, unique keys of deleted jobs are forgotten too.

    \b
    Examples:
      beanstalk flush mail
      beanstalk flush mail --state buried --yes
    """
    chosen = tuple(dict.fromkeys(states)) or STATES
    with connect(address) as line:
        queue = Queue(line)
        extensions = Extensions(queue)
        extensions.need("flush-tube", _instead(tube, chosen))
        stats = queue.stats_tube(tube)
        counts = {state: stats.number(f"current-jobs-{state}") for state in chosen}
        total = sum(counts.values())
        if total and not yes:
            ask(told_counts(counts, tube))
        elif total:
            warn(f"deleting {told_counts(counts, tube)}")
        line.limit(LIMIT_S + total / FLUSHED_PER_S)
        parts = ("all",) if set(chosen) == set(STATES) else chosen
        flushed = sum(extensions.flush(tube, state) for state in parts)
    options.show_count(flushed, "deleted", is_json)
    if not flushed:
        raise SystemExit(NOTHING)


@click.command("forget-key")
@click.argument("tube", type=options.TUBE)
@click.argument("key", type=options.TUBE)
@options.server
@options.as_json
def forget_key(tube: bytes, key: bytes, address: Address, is_json: bool) -> None:
    """
    Forget the unique KEY of a deleted job of TUBE, so that another put of it makes a new job.

    \b
    Example:
      beanstalk forget-key mail welcome-42
    """
    with connect(address) as line:
        extensions = Extensions(Queue(line))
        extensions.need("forget-key", "a remembered key ends with the time that its job asked for")
        extensions.forget_key(tube, key)
    if is_json:
        Output(True).document({"tube": tube.decode(), "key": key.decode(), "forgotten": True})


def _instead(tube: bytes, states: tuple[str, ...]) -> str:
    named = "".join(f" --state {state}" for state in states)
    return f"`beanstalk delete --all --tube {tube.decode()}{named}` deletes job by job"
