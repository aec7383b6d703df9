"""
``binlog-inspect export``.
"""

from typing import Any

import click

from binlog_tools.cli import options
from binlog_tools.cli.opening import open_source
from binlog_tools.console.output import as_json, progress
from binlog_tools.logs.loading import load
from binlog_tools.logs.outputs import opened
from binlog_tools.rewrite.exporting import export


@click.command("export", cls=options.Command)
@options.log
@options.job_option
@options.tube_option
@options.state_option
@click.option("-o", "--output", "target", type=options.OUTPUT_FILE, metavar="FILE",
              help="Write to this file instead of stdout.")  # fmt: skip
def command(path: str, target: str | None, **chosen: Any) -> None:
    """
    Write the jobs that a server would load as JSON lines.

    The first line tells of the log, the next ones of pauses in force, each other one of a job.
    Bodies are text where they are UTF-8 (body), else base64 (body_base64).  import reads it back.

    \b
    Examples:
      binlog-inspect export /var/lib/bs -o jobs.jsonl
      binlog-inspect export /var/lib/bs --tube mail | jq -r 'select(.kind == "job") | .body'
    """
    with progress(f"reading {path}") as report:
        loaded = load(open_source(path), report)
    documents = export(loaded, options.selection(**chosen))
    with opened(target) as out:
        for document in documents:
            out.write(as_json(document) + "\n")
