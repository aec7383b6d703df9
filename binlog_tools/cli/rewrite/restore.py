"""
``binlog-inspect restore``.
"""

import click

from binlog_tools.cli import options
from binlog_tools.cli.rewrite.backup import tell
from binlog_tools.console.output import Output, progress
from binlog_tools.rewrite.backing_up import restore


@click.command("restore", cls=options.Command)
@click.argument("path", metavar="FILE", type=options.BACKUP_FILE)
@options.output_directory(required=True)
@options.as_json
def command(path: str, output: str, is_json: bool) -> None:
    """
    Make a log of a back-up that `backup` has written, and check it.

    Start a server on it, or put it in the place of a log while no server runs.  It is the same
    store as the log was: it needs another archive, as ids and LSNs are given again.

    \b
    Example:
      binlog-inspect restore /backup/bs.tar -o /var/lib/bs-restored
    """
    with progress(f"reading {path}") as report:
        backup = restore(path, output, report)
    tell(Output(is_json), output, backup, "restored")
