"""
``beanstalk --dialect v1``: the subcommands that the first protocol has, with the options that it
can serve.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import click

from binlog_tools.console.output import Output
from binlog_tools.console.wording import told
from binlog_tools.queue.addresses import Address
from binlog_tools.queue.cli import options
from binlog_tools.queue.cli.execution import execute
from binlog_tools.queue.cli.exits import NOTHING, REFUSED, fail, warn
from binlog_tools.queue.cli.jobs import each as do_each
from binlog_tools.queue.cli.jobs import numbers as job_numbers
from binlog_tools.queue.cli.put import bodies_of, end_if_told, noted_with
from binlog_tools.queue.cli.reserve import one_of, settle
from binlog_tools.queue.cli.tubes import show_stats
from binlog_tools.queue.server_v1 import QueueV1, put_request

F = TypeVar("F", bound=Callable[..., Any])

FOR_EVER_S: Final = 10 * 365 * 86_400.0
"""How long a reply may take: a `reserve` of v1 waits without limit, and sockets want a number."""


@contextmanager
def connected(address: Address, limit_s: float | None = None) -> Iterator[QueueV1]:
    """
    A connection to the server, for as long as the block lasts.
    """
    with address.connect() if limit_s is None else address.connect(limit_s) as line:
        yield QueueV1(line)


@click.command("put")
@click.argument("body", required=False)
@options.server
@click.option("-l", "--lines", is_flag=True, help="Each line of the input is a job.")
@click.option(
    "-p", "--priority", type=options.SECONDS, default=options.DEFAULT_PRIORITY, show_default=True,
    help="0 is the most urgent.",
)  # fmt: skip
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
    done = sent = refused = 0

    def requests() -> Iterator[bytes | None]:
        nonlocal sent
        for each in bodies_of(body, lines, may_be_empty, line, noted):
            sent += each is not None
            yield None if each is None else put_request(each, priority)

    with address.connect() as line, noted_with(lines) as noted:
        queue = QueueV1(line)
        try:
            for number, reply in enumerate(queue.ask_many(requests()), 1):
                if reply.name == b"INSERTED":
                    done += 1
                    continue
                refused += 1
                which = f"line {number} of the input" if lines else "the job"
                warn(f"{which} was not put: the server says {reply}")
        except OSError as problem:
            left = sent - done - refused
            where = f"{problem.filename}: " if problem.filename else ""
            so_far = f"{told(done, 'job')} put, and up to {left} more may be"
            code = REFUSED if noted.number is None else noted.exit_code
            fail(code, f"{where}{problem.strerror or problem}; {so_far}")
    _say(is_json, "put", done)
    end_if_told(noted, done)
    if refused:
        raise SystemExit(REFUSED)


def _say(is_json: bool, what: str, count: int) -> None:
    if is_json:
        Output(True).document({what: count})
    else:
        Output().line(f"{told(count, 'job')} {what}")


@click.command("reserve")
@options.server
@click.option("--delete", "is_delete", is_flag=True, help="Print it, then delete it.")
@click.option("--release", "is_release", is_flag=True, help="Print it, then give it back.")
@click.option("--bury", "is_bury", is_flag=True, help="Print it, then bury it.")
@click.option(
    "--exec", "command", metavar="CMD",
    help="Run this; the body is its input.  Delete the job if it exits with 0.",
)  # fmt: skip
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
    flags = {"delete": is_delete, "release": is_release, "bury": is_bury}
    then = one_of([name for name, is_set in flags.items() if is_set], command)
    if then is None and (given := options.given("raw", "is_json")):
        raise click.UsageError(f"{given}: with --exec nothing is printed but by the command")
    with connected(address, FOR_EVER_S) as queue:
        job = queue.reserve_any()
        facts = queue.facts(job)
        if then is None:
            assert command is not None
            raise SystemExit(execute(queue, job, facts, command, 0))
        options.show_job(job, is_json, raw, priority=job.priority)
        settle(queue, job, facts, then, 0)


@click.command("delete")
@job_numbers
@options.server
@options.as_json
def delete(jobs: tuple[int, ...], address: Address, is_json: bool) -> None:
    """
    Delete jobs that nobody has reserved.
    """
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
    _say(is_json, "kicked", kicked)
    if not kicked:
        raise SystemExit(NOTHING)


@click.command("stats")
@options.server
@click.option("-j", "--job", type=options.JOB, metavar="ID", help="Of a job.")
@options.as_json
def stats(address: Address, job: int | None, is_json: bool) -> None:
    """
    Show what the server says of itself, or of a job.
    """
    with connected(address) as queue:
        found = queue.stats() if job is None else queue.stats_job(job)
    show_stats(found, is_json)
