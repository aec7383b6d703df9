"""``binlog-inspect restore``."""

import os

import click

from beanstalk_twisted.binlog.segments.format import SEGMENT_MAGIC
from beanstalk_twisted.object_storage.store import is_url
from binlog_tools.cli import options
from binlog_tools.cli.exits import CANNOT_READ, INCOMPLETE, USAGE, fail, message_of, warn
from binlog_tools.cli.opening import load, open_reachable, open_source, past, tell
from binlog_tools.console.output import Output, progress, told
from binlog_tools.logs.live_set import END, Point
from binlog_tools.logs.moments import UnitedSource, united
from binlog_tools.logs.quantities import format_size, format_time_exactly
from binlog_tools.logs.sources import Source, parse_archived_name
from binlog_tools.rewrite.backing_up import Backup, back_up, restore
from binlog_tools.rewrite.rewriting import rewrite


@click.command("backup", cls=options.Command)
@click.argument("path", metavar="DIR", type=options.LOG_DIRECTORY)
@click.option(
    "-o", "--output", "target", metavar="FILE", required=True, type=options.OUTPUT_FILE,
    help="The back-up; one that is there is replaced when all is written.",
)  # fmt: skip
@options.as_json
def backup_command(path: str, target: str, is_json: bool) -> None:
    """Write a log into one file, for `restore`; the server may run, and goes on.

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
    tell_backup(Output(is_json), target, backup)


def tell_backup(output: Output, path: str, backup: Backup, what: str = "backup") -> None:
    """Say what is in a back-up, or in the log that was made of it.

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


@click.command("restore", cls=options.Command)
@click.argument("paths", metavar="SOURCE...", nargs=-1, required=True, type=options.LOG)
@options.output_directory(required=True)
@options.as_of
@options.segment_size
@options.as_json
def restore_command(
    paths: tuple[str, ...], output: str, point: Point | None, segment_bytes: int, is_json: bool
) -> None:
    """Make a log of an archive, also as it was at a moment; or of a back-up.

    SOURCE is an archive or the folder of a store in it, a URL of one, or the directory of a server;
    name archive and directory, since the segment in use is in no archive.  They are only read.  The
    new log has the jobs, pauses, policies and remembered keys that the server had at that moment,
    or has at the end; reserved jobs are ready.  Of a segment that is in several SOURCEs one that is
    not damaged is read; a URL that does not answer is left out, with exit code 1, if the others
    have a log without gaps.  It is another store, and no id is given twice: a server that starts on
    it may use the same archive.

    A back-up, a file that `backup` has written, becomes the log that it was, checked: the same
    store, which needs another archive, as ids and LSNs are given again.

    \b
    Examples:
      binlog-inspect restore /backup/bs-archive /var/lib/bs -o /var/lib/bs-restored
      binlog-inspect restore s3://bucket/queues -o /var/lib/bs-then --as-of 2026-01-31T12:00Z
      binlog-inspect restore /backup/bs.tar -o /var/lib/bs-restored
    """
    backups = [path for path in paths if _is_backup(path)]
    shown = Output(is_json)
    if backups and (len(paths) > 1 or point is not None):
        fail(
            USAGE,
            f"{backups[0]}: a back-up holds one moment: name it alone, without --as-of; nothing "
            f"was written. For an earlier moment name the archive",
        )
    if backups:
        with progress(f"reading {paths[0]}") as report:
            found = restore(paths[0], output, report)
        tell_backup(shown, output, found, "restored")
        return
    found_sources, away = open_reachable(paths)
    whole = united(found_sources)
    for problem in away:
        _tell_away(problem, whole)
    source = past(whole, point or END)
    loaded = load(source)
    if source.is_archive and not loaded.survey.small.is_clean:
        warn(
            f"{source.path}: it ends with LSN {source.floors.last_lsn}, and the server went on; "
            f"what it did later is in its directory: name that too, if it is still there"
        )
    written = rewrite(loaded, output, "restore", segment_bytes=segment_bytes).written
    for damaged in whole.passed_over if isinstance(whole, UnitedSource) else ():
        warn(damaged)
    then = {"as_of_lsn": loaded.last_lsn, "as_of": format_time_exactly(loaded.survey.small.time_ns)}
    tell(shown, written, **then)
    if shown.is_terminal and not is_json:
        shown.line(f"as of LSN {then['as_of_lsn']}, {then['as_of']}")
    elif not is_json:
        shown.row(("as-of", *then.values()))
    if away:
        raise SystemExit(INCOMPLETE)


def _tell_away(problem: OSError, others: Source) -> None:
    seqs = others.segment_names()
    warn(
        f"{message_of(problem)}; it is left out: segments {min(seqs)} to {max(seqs)} are taken "
        f"from {others.path}, and what only it has is missing"
    )


def _is_backup(path: str) -> bool:
    """Whether this is a file, and none of a segment."""
    if is_url(path) or not os.path.isfile(path) or parse_archived_name(os.path.basename(path)):
        return False
    with open(path, "rb") as file:
        return not path.endswith(".tql") and file.read(len(SEGMENT_MAGIC)) != SEGMENT_MAGIC
