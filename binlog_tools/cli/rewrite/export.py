"""``binlog-inspect export``."""

from typing import Any

import click

from binlog_tools.cli import options
from binlog_tools.cli.opening import load, open_source_at
from binlog_tools.console.output import as_json
from binlog_tools.logs.live_set import Point
from binlog_tools.logs.outputs import opened
from binlog_tools.rewrite.exporting import export


@click.command("export", cls=options.Command)
@options.log
@options.of_jobs
@options.as_of
@options.output_file("Write to this file instead of stdout.")
def command(path: str, target: str | None, point: Point | None, **chosen: Any) -> None:
    """
    Write the jobs that a server would load as JSON lines.

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
