"""``binlog-inspect import``."""

import time
from collections import Counter
from typing import BinaryIO

import click

from binlog_tools.cli import options
from binlog_tools.cli.exits import USAGE, fail, warn
from binlog_tools.cli.making import tell
from binlog_tools.console.output import Output, progress
from binlog_tools.console.wording import told
from binlog_tools.logs.outputs import naming
from binlog_tools.rewrite import exporting
from binlog_tools.rewrite.line_fields import WrongLine


@click.command("import", cls=options.Command)
@click.argument("file", type=click.File("rb"))
@options.output_directory(required=True)
@options.segment_size
@options.size_option(
    "--max-line",
    exporting.DEFAULT_LINE_BYTES,
    exporting.MIN_LINE_BYTES,
    exporting.MAX_LINE_BYTES,
    "The longest line; one takes up to four times as much memory.",
)
@options.as_json  # fmt: skip
def command(file: BinaryIO, output: str, segment_bytes: int, max_line: int, is_json: bool) -> None:
    """
    Write a new log with the jobs of JSON lines, as export writes them.

    FILE may be - for stdin.  A job needs no more than a body; what is missing gets a default: the
    tube default, priority 1024, TTR 60 s, the next free id.

    \b
    Examples:
      binlog-inspect import jobs.jsonl -o /var/lib/bs
      echo '{"tube": "mail", "body": "hello"}' | binlog-inspect import - -o /var/lib/bs
    """
    ignored: Counter[str] = Counter()
    try:
        with progress("importing") as report, naming(_name(file)):
            written = exporting.import_lines(
                exporting.bounded_lines(file, max_line), output, segment_bytes, time.time_ns(),
                lambda jobs: report(jobs, 0), ignored,
            )  # fmt: skip
    except WrongLine as problem:
        fail(USAGE, f"{_name(file)}: {problem}; nothing was written")
    _tell_ignored(ignored)
    tell(Output(is_json), written)


def _name(file: BinaryIO) -> str:
    name = getattr(file, "name", None)
    return name if isinstance(name, str) else "<stdin>"


def _tell_ignored(ignored: Counter[str]) -> None:
    if ignored:
        named = ", ".join(f"{name!r} in {told(n, 'line')}" for name, n in sorted(ignored.items()))
        warn(f"fields that are unknown here were passed over: {named}")
