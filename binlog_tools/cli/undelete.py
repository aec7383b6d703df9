"""``binlog-inspect undelete``."""

from typing import Any

import click

from binlog_tools.cli import options
from binlog_tools.cli.exits import USAGE, fail, warn
from binlog_tools.cli.opening import MOST_NAMED, end_with_gaps, open_source, tell
from binlog_tools.console.output import Output, columns, told
from binlog_tools.logs.quantities import Span
from binlog_tools.logs.sources import Source
from binlog_tools.rewrite import undeleting
from binlog_tools.rewrite.undeleting import Deleted


@click.command("undelete", cls=options.Command)
@options.log
@click.option(
    "--since",
    "since_ns",
    type=options.TIME,
    required=True,
    help="Only what was deleted at this time or later: 2026-01-31T12:00Z, -2h.",
)
@click.option("--until", "until_ns", type=options.TIME, help="Only what was deleted before.")
@options.job_option
@options.tube_option
@options.output_directory("A new log with the jobs.")
@click.option(
    "--files",
    "folder",
    metavar="DIR",
    type=options.NEW_DIRECTORY,
    help="A new folder with a file for each body, and an index.",
)
@options.as_json  # fmt: skip
def undelete_command(
    path: str, output: str | None, folder: str | None, is_json: bool, **chosen: Any
) -> None:
    """Bring back deleted jobs whose bodies are still in a log or an archive.

    Compaction deletes bodies for good; until then, and in an archive, they are there.  Without -o
    and --files the jobs are only listed.  They come back as they were when they were deleted, with
    their ids; those that were reserved are ready.  A log of them can be served, merged with another
    one, or replayed into a running server.  Jobs that damage may hide a change of are named.

    \b
    Examples:
      binlog-inspect undelete /var/lib/bs --since -1h
      binlog-inspect undelete /backup/bs-archive --since 2026-01-31 --tube mail -o /backup/mail
      binlog-inspect undelete /var/lib/bs --since -1h --files /backup/bodies
    """
    if output is not None and folder is not None:
        fail(USAGE, "one of -o and --files, not both")
    source = open_source(path)
    deleted = undeleting.find_deleted(source, options.selection(**chosen))
    shown = Output(is_json)
    if output is not None:
        written = undeleting.into_log(source, deleted, output)
        doubtful = [undeleting.fields_of_doubt(each) for each in deleted.jobs if each.doubt]
        tell(shown, written, without_body=deleted.without_body, doubtful=doubtful)
    elif folder is not None:
        count = undeleting.into_files(source, deleted, folder)
        shown.result(
            lambda: {"path": folder, "jobs": count, "without_body": deleted.without_body},
            [("files", count, folder)],
            lambda: shown.line(f"{folder}: {told(count, 'body', 'bodies')}"),
        )
    else:
        _list(shown, source, deleted)
    _tell_doubtful(deleted)
    _tell_missing(source, deleted)


def _list(output: Output, source: Source, deleted: Deleted) -> None:
    restored = undeleting.restored(source, deleted)
    found = (undeleting.fields_of_deleted(*each) for each in restored)
    if output.is_json:
        for fields in found:
            output.document(fields)
        return
    titles = columns("#job", "tube", "state", "deleted", "#bytes", "why")
    output.table(titles, ([fields[title.title] for title in titles] for fields in found))


def _tell_doubtful(deleted: Deleted) -> None:
    for each in [each for each in deleted.jobs if each.doubt][:MOST_NAMED]:
        assert each.doubt is not None
        lsns = Span(*each.doubt.hole)
        what = "body and tags" if each.doubt.is_outdated else "state"
        warn(f"job {each.job_id}: doubtful: its {what} may have been changed in LSN {lsns}")
    more = sum(each.doubt is not None for each in deleted.jobs) - MOST_NAMED
    if more > 0:
        warn(f"{told(more, 'more job is', 'more jobs are')} doubtful; --json names all")


def _tell_missing(source: Source, deleted: Deleted) -> None:
    if deleted.without_body:
        warn(
            f"{told(deleted.without_body, 'job')} more deleted, whose bodies are no longer there; "
            f"an archive may have them."
        )
    end_with_gaps(source, deleted.gaps)
