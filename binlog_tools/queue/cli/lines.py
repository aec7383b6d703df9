"""``beanstalk list``, ``export`` and ``import``; what they do is imported when it is called."""

import re
from typing import Any

import click

from binlog_tools.console.groups import FiniteRange, Parsed
from binlog_tools.logs.quantities import parse_size
from binlog_tools.queue.cli import options


def _pattern(text: str) -> re.Pattern[bytes]:
    """:raise ValueError: it is no regular expression."""
    try:
        return re.compile(text.encode("utf-8", "surrogateescape"))
    except re.error as problem:
        raise ValueError(f"{text!r} is no regular expression: {problem}") from None


@click.command("list")
@click.argument("tube", type=options.TUBE, default=b"default")
@options.server
@click.option(
    "--state", "states", type=click.Choice(options.LISTED), multiple=True,
    show_default=options.LISTED[0],
    help="Only the jobs in this state; may be repeated.",
)  # fmt: skip
@click.option("-n", "--limit", type=click.IntRange(1), help="Show at most N jobs.", metavar="N")
@click.option("--bodies", "has_bodies", is_flag=True, help="Show the bodies too.")
@click.option(
    "--grep", "pattern", type=Parsed("pattern", _pattern), metavar="PATTERN",
    help="Only jobs with this regular expression in their bodies.",
)  # fmt: skip
@options.as_json
def list_command(**words: Any) -> None:
    """Show the jobs of TUBE ('default' without it), and change nothing.

    Ready ones stand in the order in which they are given out, delayed ones as their delays end,
    buried ones as they were buried.  Times are seconds; connection is that of the worker that has
    reserved it, as in `beanstalk connections`.  A delayed job may wait for a group to end instead.

    They are asked for page by page, and bodies 256 at a time: a job that stays where it is stands
    there once.

    \b
    Examples:
      beanstalk list mail
      beanstalk list mail --state buried --limit 20 --json
      beanstalk list mail --bodies --grep 'ada@example\\.org'
    """
    from binlog_tools.queue.cli.transfers import list_tube

    list_tube(**words)


@click.command("export")
@options.tube
@options.server
@click.option(
    "--state", "states", type=click.Choice(options.LISTED[1:]), multiple=True,
    help="Only the jobs in this state; may be repeated.",
)  # fmt: skip
@click.option(
    "-o", "--output", "target", type=click.Path(dir_okay=False), metavar="FILE",
    help="Write to this file, which is replaced when all is written.",
)  # fmt: skip
@options.as_json
def export_command(**words: Any) -> None:
    """Write the jobs of a tube as JSON lines, with all their fields, and change nothing.

    `beanstalk import` puts them again, here or elsewhere; `binlog-inspect import` makes a log of
    them.  A job that a worker has is imported as a ready one.  A job that changes its state
    meanwhile may be missing or be there twice: pause the tube.  Needs list-jobs, so it cannot
    export from a beanstalkd, which shows no job without reserving it but the first.

    \b
    Examples:
      beanstalk export -t mail -o mail.jsonl
      beanstalk export -t mail --state buried | jq -r .body
    """
    from binlog_tools.queue.cli.transfers import export_tube

    export_tube(**words)


@click.command("import")
@click.argument("file", type=click.File("rb"))
@options.server
@click.option(
    "-t", "--tube", type=options.TUBE, metavar="NAME",
    help="Put all jobs into this tube, instead of those that they were in.",
)  # fmt: skip
@click.option("--rate", type=FiniteRange(min=0, min_open=True), help="Jobs in a second.")
@click.option(
    "--journal", "journal_path", type=click.Path(dir_okay=False), metavar="FILE",
    help="Note in this file what is put, so that it is put once when this is run again.",
)  # fmt: skip
@click.option(
    "--uncertain", type=click.Choice(["stop", "again", "skip"]), default="stop", show_default=True,
    help="Jobs that an earlier run has sent without an answer, to a server without put-batch.",
)  # fmt: skip
@click.option(
    "--max-line", metavar="BYTES", type=Parsed("size", parse_size), default=64 << 20,
    show_default="64M", help="The longest line.",
)  # fmt: skip
@options.as_json
def import_command(**words: Any) -> None:
    """Put the jobs of JSON lines, as export writes them; FILE may be - for stdin.

    With priority, TTR, what is left of the delay, tags and body; buried ones are buried again.  A
    line needs no more than a body.  Jobs get new ids; their counters and ages begin again.  What
    the server cannot keep is reported.  A file is checked before anything is put.

    If it breaks off, run it again with the same --journal: then nothing is put twice, also after
    kill -9.  On a server without put-batch, jobs may be in doubt then, which it names.

    \b
    Examples:
      beanstalk import mail.jsonl --journal mail.journal
      beanstalk export -t mail | beanstalk -s queue.example import - -t mail-copy
    """
    from binlog_tools.queue.cli.transfers import import_file

    import_file(**words)
