"""``binlog-inspect import``."""

import time
from collections import Counter
from typing import Any, BinaryIO

import click

from binlog_tools.cli import options
from binlog_tools.cli.exits import USAGE, fail, warn
from binlog_tools.cli.opening import load, open_source_at, tell
from binlog_tools.console.output import Output, as_json, progress, told
from binlog_tools.logs.live_set import Point
from binlog_tools.logs.outputs import naming, opened
from binlog_tools.rewrite import exporting
from binlog_tools.rewrite.exporting import WrongLine, export


@click.command("export", cls=options.Command)
@options.log
@options.of_jobs
@options.as_of
@options.output_file("Write to this file instead of stdout.")
def export_command(path: str, target: str | None, point: Point | None, **chosen: Any) -> None:
    """Write the jobs that a server would load as JSON lines.

    The first line tells of the log, the next ones of pauses in force, each other one of a job.
    Bodies are text where they are UTF-8 (body), else base64 (body_base64).  import reads it back.

    \b
    Examples:
      binlog-inspect export /var/lib/bs -o jobs.jsonl
      binlog-inspect export /var/lib/bs --tube mail | jq -r 'select(.kind == "job") | .body'
    """
    documents = export(load(open_source_at(path, point)), options.selection(**chosen))
    with opened(target) as out:
        for document in documents:
            out.write(as_json(document) + "\n")


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
def import_command(
    file: BinaryIO, output: str, segment_bytes: int, max_line: int, is_json: bool
) -> None:
    """Write a new log with the jobs of JSON lines, as export writes them.

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
