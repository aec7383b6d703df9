"""
``binlog-inspect merge``.
"""

import click

from binlog_tools.cli import options
from binlog_tools.cli.exits import USAGE, fail
from binlog_tools.cli.making import tell, warn_if_running
from binlog_tools.cli.opening import load, open_sources
from binlog_tools.console.output import Output, columns
from binlog_tools.console.wording import told
from binlog_tools.rewrite.rewriting import Renumbered, SameStore, merge


@click.command("merge", cls=options.Command)
@options.logs
@options.output_directory(required=True)
@click.option(
    "--accept-copies",
    is_flag=True,
    help="Go on although a log was made from another one, and both have jobs of one id.",
)
@options.segment_size
@options.as_json  # fmt: skip
def command(
    paths: tuple[str, ...], output: str, accept_copies: bool, segment_bytes: int, is_json: bool
) -> None:
    """
    Write the jobs of several logs into one new log.

    A job keeps its id, unless a log named before has one of that id: then it gets a new one, which
    is told.  Copies of one store are refused, and
    logs that were made from one another and have jobs in common.

    \b
    Example:
      binlog-inspect merge /var/lib/bs-a /var/lib/bs-b -o /var/lib/bs
    """
    for path in paths:
        warn_if_running(path)
    logs = [load(source) for source in open_sources(paths)]
    moved: list[Renumbered] = []
    shown = Output(is_json)
    try:
        written = merge(logs, output, segment_bytes, moved.append, accept_copies)
    except SameStore as problem:
        fail(USAGE, str(problem))
    if is_json:
        tell(shown, written, renumbered=[each._asdict() for each in moved])
        return
    tell(shown, written)
    if not shown.is_terminal:
        shown.rows(("renumbered", *each) for each in moved)
    elif moved:
        shown.heading(f"{told(len(moved), 'job')} got another id")
        shown.table(columns("log", "#old id", "#new id"), moved)
