"""``binlog-inspect backup``."""

import click

from binlog_tools.cli import options
from binlog_tools.cli.exits import CANNOT_READ, fail
from binlog_tools.cli.opening import load, open_source
from binlog_tools.console.output import Output, progress
from binlog_tools.console.wording import told
from binlog_tools.logs.quantities import format_size
from binlog_tools.rewrite.backing_up import Backup, back_up


@click.command("backup", cls=options.Command)
@click.argument("path", metavar="DIR", type=options.LOG_DIRECTORY)
@click.option(
    "-o", "--output", "target", metavar="FILE", required=True, type=options.OUTPUT_FILE,
    help="The back-up; one that is there is replaced when all is written.",
)  # fmt: skip
@options.as_json
def command(path: str, target: str, is_json: bool) -> None:
    """
    Write a log into one file, for `restore`; the server may run, and goes on.

    The file holds the log up to one LSN, with all that the server had answered when the command
    began.  Segments have checksums.  A damaged log is refused.

    \b
    Example:
      binlog-inspect backup /var/lib/bs -o /backup/bs.tar
    """
    source = open_source(path)
    if source.is_partial:
        fail(CANNOT_READ, f"{path}: this is an archive, whose files never change: copy them")
    survey = load(source).survey
    with progress(f"writing {target}") as report:
        backup = back_up(source, survey, target, report)
    tell(Output(is_json), target, backup)


def tell(output: Output, path: str, backup: Backup, what: str = "backup") -> None:
    """
    Say what is in a back-up, or in the log that was made of it.

    :param what: which of them; the first field in a pipe.
    """
    fields = {
        "path": path, "segments": len(backup.segments), "bytes": backup.bytes,
        "first_lsn": backup.first_lsn, "last_lsn": backup.last_lsn,
        "store_uuid": backup.store_uuid,
    }  # fmt: skip
    line = (
        f"{path}: {format_size(backup.bytes)} in {told(len(backup.segments), 'segment')}, "
        f"up to LSN {backup.last_lsn}"
    )
    output.result(lambda: fields, [(what, *fields.values())], lambda: output.line(line))
