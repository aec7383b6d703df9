"""``binlog-inspect diff``."""

import os
import time
from collections.abc import Iterable
from typing import Any, Final

import click

from beanstalk_twisted.client.addresses import FORMS, URLS, Address, token_of
from beanstalk_twisted.object_storage.store import is_url, local_path
from beanstalk_twisted.replication.stream.addresses import is_stream
from binlog_tools.cli import options
from binlog_tools.cli.exits import USAGE, fail, warn
from binlog_tools.cli.opening import load, open_source
from binlog_tools.connections import connect
from binlog_tools.console.output import Output
from binlog_tools.console.wording import told
from binlog_tools.inspect.comparing import FIELDS, Difference, ServerComparison, compare_logs
from binlog_tools.logs.selection import Selection

DIFFERENT: Final = 1


@click.command("diff", cls=options.Command)
@click.argument("a", type=options.LOG)
@click.argument("b", metavar="B|SERVER")
@options.of_jobs
@click.option(
    "--ignore",
    "ignored",
    multiple=True,
    type=click.Choice(FIELDS),
    metavar="FIELD",
    help=f"Do not compare this: {', '.join(FIELDS)}.",
)
@options.quiet
@options.as_json  # fmt: skip
def command(
    a: str, b: str, ignored: tuple[str, ...], quiet: bool, is_json: bool, **chosen: Any
) -> None:
    """
    Compare the jobs of two logs, or of a log and a running server.

    Jobs are told apart by their ids.  Two logs are compared as a server would load them.  A server
    is asked for each job of the log; how many others it has is told, but not which, since the
    protocol has no way to list them.  Bodies are compared whole.  It is shown the token in its
    address, tls://TOKEN@HOST:PORT, or that of BEANSTALK_TOKEN.

    In a pipe each line is a job and a field: a, b or both; id; field; value in A; value in B.

    Exit codes: 0 the same, 1 they differ, else as with all commands.

    \b
    Examples:
      binlog-inspect diff /var/lib/bs /backup/bs-2026-01-31
      binlog-inspect diff /var/lib/bs 127.0.0.1:11300
      binlog-inspect diff /var/lib/bs nats://10.0.0.1,10.0.0.2/queue
      binlog-inspect diff /var/lib/bs /backup/bs-2026-01-31 --ignore reserves --ignore timeouts
    """
    selection = options.selection(**chosen)
    output = Output(is_json)
    b = local_path(b)
    if os.path.exists(b) or is_url(b) or is_stream(b):
        options.LOG.convert(b, None, click.get_current_context())
        left, right = load(open_source(a)), load(open_source(b))
        count = _show(output, compare_logs(left, right, selection, ignored), quiet)
    else:
        count = _with_server(output, a, b, selection, ignored, quiet)
    if count and output.is_terminal and not quiet and not is_json:
        output.line(f"{told(count, 'job')} differ{'s' if count == 1 else ''}")
    raise SystemExit(DIFFERENT if count else 0)


def _with_server(
    output: Output, a: str, b: str, selection: Selection, ignored: tuple[str, ...], quiet: bool
) -> int:
    address = _address(b)
    with connect(address) as line:
        comparison = ServerComparison(open_source(a), line)
        found = comparison.differences(selection, time.time_ns(), ignored)
        count = _show(output, found, quiet)
        others = comparison.unknown_to_log
    if others and not quiet:
        warn(f"{address} has {told(others, 'job')} that {a} does not have")
        _tell_others(output, others)
    return count + (others or 0)


def _address(text: str) -> Address:
    """Read where the server is, which may have a token that must not be shown."""
    try:
        if ":" not in text:
            raise ValueError
        return Address.parse(text).showing(lambda: token_of(None, os.environ))
    except ValueError as problem:
        if text.startswith(URLS):
            fail(USAGE, str(problem))
        fail(USAGE, f"{text}: there is no such log, and it is no server: {FORMS}")


def _tell_others(output: Output, count: int) -> None:
    if output.is_json:
        output.document({"job": None, "where": "b", "fields": {}, "jobs": count})
    elif not output.is_terminal:
        output.row(("b", None, "jobs", None, count))


def _show(output: Output, found: Iterable[Difference], quiet: bool) -> int:
    count = 0
    for each in found:
        count += 1
        if quiet:
            continue
        if output.is_json:
            fields = {name: list(pair) for name, pair in each.fields.items()}
            output.document({"job": each.job_id, "where": each.where, "fields": fields})
        elif output.is_terminal:
            output.line(_sentence(each))
        else:
            rows = [(each.where, each.job_id, n, *pair) for n, pair in each.fields.items()]
            output.rows(rows or [(each.where, each.job_id, None, None, None)])
    return count


def _sentence(each: Difference) -> str:
    if each.where != "both":
        return f"job {each.job_id}: only in {each.where.upper()}"
    said = "; ".join(f"{name} {one} / {two}" for name, (one, two) in each.fields.items())
    return f"job {each.job_id}: {said}"
