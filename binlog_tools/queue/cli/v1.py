"""
``beanstalk --dialect v1``: the subcommands that the first protocol has, with the options that it
can serve.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click

from beanstalk_twisted.client.addresses import Address
from binlog_tools.client import LIMIT_S
from binlog_tools.connections import connect
from binlog_tools.console.wording import told
from binlog_tools.queue.cli import options
from binlog_tools.queue.cli.execution import execute
from binlog_tools.queue.cli.exits import NOTHING, REFUSED, end_if_told
from binlog_tools.queue.cli.jobs.peek import each as do_each
from binlog_tools.queue.cli.jobs.peek import numbers as job_numbers
from binlog_tools.queue.cli.jobs.put import Putter, bodies_of, deferred_signal, one_by_one
from binlog_tools.queue.cli.jobs.reserve import chosen_outcome, settle
from binlog_tools.queue.cli.tubes import show_stats
from binlog_tools.queue.server_v1 import QueueV1, put_request

FOR_EVER_S: Final = 10 * 365 * 86_400.0
"""How long a reply may take: a `reserve` of v1 waits without limit, and sockets want a number."""


@contextmanager
def connected(address: Address, limit_s: float = LIMIT_S) -> Iterator[QueueV1]:
    """A connection to the server, for as long as the block lasts."""
    with connect(address, limit_s) as line:
        yield QueueV1(line)


@click.command("put")
@click.argument("body", required=False)
@options.server
@options.lines
@options.priority
@options.may_be_empty
@options.as_json
def put(
    body: str | None, address: Address, lines: bool, priority: int, may_be_empty: bool,
    is_json: bool,
) -> None:  # fmt: skip
    """
    Put a job: BODY, or without it the input, or with --lines each line of the input.

    Protocol v1 tells no numbers of jobs; how many were put is printed.

    \b
    Examples:
      beanstalk --dialect v1 put hello
      seq 100000 | beanstalk --dialect v1 put --lines
    """
    if body is not None and lines:
        raise click.UsageError("--lines reads the input; leave out BODY")
    with connect(address) as line, deferred_signal(lines) as stop:
        requests = one_by_one(lambda each: put_request(each, priority))
        putter = Putter(QueueV1(line), requests, lines)
        putter.run(bodies_of(body, lines, may_be_empty, line, stop, putter.goes_on), stop)
    options.show_count(putter.put, "put", is_json)
    end_if_told(stop, f"{told(putter.put, 'job')} put")
    if putter.refused:
        raise SystemExit(REFUSED)


@click.command("reserve")
@options.server
@options.outcome
@options.raw
@options.as_json
def reserve(
    address: Address, is_delete: bool, is_release: bool, is_bury: bool, command: str | None,
    raw: bool, is_json: bool,
) -> None:  # fmt: skip
    """
    Take one job, and do something with it.

    As without --dialect, but it waits for ever, and a job cannot be touched: a command that runs
    longer than the TTR is ended, and somebody else gets the job.

    \b
    Examples:
      beanstalk --dialect v1 reserve --delete
      beanstalk --dialect v1 reserve --exec 'sendmail -t'
    """
    then = chosen_outcome(is_delete, is_release, is_bury, command)
    with connected(address, FOR_EVER_S) as queue:
        job = queue.reserve_any()
        facts = queue.facts(job)
        if command is not None:
            raise SystemExit(execute(queue, job, facts, command, 0))
        options.show_job(job, is_json, raw, priority=job.priority)
        settle(queue, job, facts, then, 0)


@click.command("delete")
@job_numbers
@options.server
@options.as_json
def delete(jobs: tuple[int, ...], address: Address, is_json: bool) -> None:
    """Delete jobs that nobody has reserved."""
    with connected(address) as queue:
        do_each(jobs, queue.delete, "deleted", is_json)


@click.command("kick")
@options.server
@click.option(
    "-n", "--count", type=click.IntRange(1, options.MAX_U32), required=True, help="At most so many."
)
@options.as_json
def kick(address: Address, count: int, is_json: bool) -> None:
    """
    Make jobs ready: the buried ones, and only if there are none the delayed ones.

    \b
    Example:
      beanstalk --dialect v1 kick -n 10
    """
    with connected(address) as queue:
        kicked = queue.kick(count)
    options.show_count(kicked, "kicked", is_json)
    if not kicked:
        raise SystemExit(NOTHING)


@click.command("stats")
@options.server
@click.option("-j", "--job", type=options.JOB, metavar="ID", help="Of a job.")
@options.as_json
def stats(address: Address, job: int | None, is_json: bool) -> None:
    """Show what the server says of itself, or of a job."""
    with connected(address) as queue:
        found = queue.stats() if job is None else queue.stats_job(job)
    show_stats(found, is_json)
