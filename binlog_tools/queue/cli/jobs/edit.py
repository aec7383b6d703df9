"""``beanstalk edit``."""

from typing import BinaryIO

import click

from beanstalk_twisted.client.addresses import Address
from binlog_tools.queue.cli import options
from binlog_tools.queue.cli.exits import NOTHING, fail
from binlog_tools.queue.cli.jobs.peek import each
from binlog_tools.queue.extensions import Extensions, group_awaited
from binlog_tools.queue.server import Queue, Stats


@click.command("edit")
@click.argument("job", metavar="ID", type=options.JOB)
@options.server
@click.option(
    "-p", "--priority", "--pri", "priority", type=options.SECONDS, metavar="N",
    help="0 is the most urgent.",
)  # fmt: skip
@click.option(
    "-d", "--delay", type=options.SECONDS, metavar="S",
    help="Seconds from now until it is ready; 0: it is ready now.",
)  # fmt: skip
@click.option("--ttr", type=options.SECONDS, metavar="S", help="Seconds a worker has for it.")
@click.option(
    "--body", "source", type=click.File("rb"), metavar="FILE",
    help="What is in this file; - is the input.",
)  # fmt: skip
@options.may_be_empty
@options.as_json
def edit(
    job: int, address: Address, priority: int | None, delay: int | None, ttr: int | None,
    source: BinaryIO | None, may_be_empty: bool, is_json: bool,
) -> None:  # fmt: skip
    """
    Give the job ID another priority, delay, TTR or body.

    What is not given stays as it is; so do its number, age, counters and tags.  A buried job, or
    one that waits for a group, stays that.  One that a worker has is refused.

    What is not given is asked for first.  If the job is reserved or deleted in between, it is
    refused, and nothing has changed; if somebody has given it other values in between, those asked
    for before hold.

    \b
    Examples:
      beanstalk edit 4711 --pri 0 --delay 0
      beanstalk edit 4711 --body - < corrected.json
    """
    if priority is None and delay is None and ttr is None and source is None:
        raise click.UsageError("say what to change: --priority, --delay, --ttr or --body")
    body = None if source is None else source.read()
    if body is not None and not body and not may_be_empty:
        fail(NOTHING, "the input is empty, nothing was changed; --empty makes it an empty job")
    with options.connected(address) as queue:
        extensions = Extensions(queue)
        extensions.need("update-job", "put another job, and delete this one")

        def one(job: int) -> None:
            values = _with_what_it_has(queue, job, priority, delay, ttr)
            extensions.update(job, *values, body)

        each([job], one, "updated", is_json)


def _with_what_it_has(
    queue: Queue, job: int, priority: int | None, delay_s: int | None, ttr_s: int | None
) -> tuple[int, int, int]:
    """
    Ask what the job has, where that is not all given.

    :return: priority, delay and TTR.
    """
    if priority is not None and delay_s is not None and ttr_s is not None:
        return priority, delay_s, ttr_s
    stats = queue.stats_job(job)
    return (
        stats.number("pri") if priority is None else priority,
        _delay_left_s(stats) if delay_s is None else delay_s,
        stats.number("ttr") if ttr_s is None else ttr_s,
    )


def _delay_left_s(stats: Stats) -> int:
    """Find the delay with which a job stays what it is."""
    if group_awaited(stats) or stats["state"] == "buried":
        return stats.number("delay")  # The server keeps it for later.
    return stats.number("time-left") if stats["state"] == "delayed" else 0
