"""``binlog-inspect diff``."""

from collections.abc import Iterable
from typing import Any, Final

import click

from binlog_tools.cli import options
from binlog_tools.cli.opening import load, open_source
from binlog_tools.console.output import Output
from binlog_tools.console.wording import told
from binlog_tools.inspect.comparing import FIELDS, Difference, compare_logs

DIFFERENT: Final = 1


@click.command("diff", cls=options.Command)
@click.argument("a", type=options.LOG)
@click.argument("b", type=options.LOG)
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
    Compare the jobs of two logs, by their ids and as a server would load them.

    In a pipe each line is a job and a field: a, b or both; id; field; value in A; value in B.

    Exit codes: 0 the same, 1 they differ, else as with all commands.

    \b
    Examples:
      binlog-inspect diff /var/lib/bs /backup/bs-2026-01-31
      binlog-inspect diff /var/lib/bs nats://10.0.0.1,10.0.0.2/queue
      binlog-inspect diff /var/lib/bs /backup/bs-2026-01-31 --ignore reserves --ignore timeouts
    """
    selection = options.selection(**chosen)
    output = Output(is_json)
    left, right = load(open_source(a)), load(open_source(b))
    count = _show(output, compare_logs(left, right, selection, ignored), quiet)
    if count and output.is_terminal and not quiet and not is_json:
        output.line(f"{told(count, 'job')} differ{'s' if count == 1 else ''}")
    raise SystemExit(DIFFERENT if count else 0)


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
