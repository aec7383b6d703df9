"""``binlog-inspect compact``."""

import click

from binlog_tools.cli import options
from binlog_tools.cli.making import tell, warn_if_running
from binlog_tools.cli.opening import load, open_source_at
from binlog_tools.console.output import Output
from binlog_tools.logs.live_set import Point
from binlog_tools.rewrite.rewriting import rewrite


@click.command("compact", cls=options.Command)
@options.log
@options.output_directory(required=True)
@options.as_of
@options.segment_size
@options.as_json
def command(path: str, output: str, point: Point | None, segment_bytes: int, is_json: bool) -> None:
    """
    Write what a server would load into a new log, and nothing else.

    Jobs keep their ids, counters and order; tubes keep their pauses.  The log is left as it is.
    Put the new one in its place while no server runs, or start one on it.  If a server runs on the
    log meanwhile, a warning says so: what it does later is not in the new one.  --as-of goes back
    to a moment; for what compaction has deleted since, see restore.

    \b
    Example:
      binlog-inspect compact /var/lib/bs -o /var/lib/bs-small
    """
    if point is None:
        warn_if_running(path)
    loaded = load(open_source_at(path, point))
    before = sum(segment.ending.offset for segment in loaded.survey.segments)
    outcome = rewrite(loaded, output, "compact", segment_bytes=segment_bytes)
    tell(Output(is_json), outcome.written, bytes_before=before)
