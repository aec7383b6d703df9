"""Commands that write a log of logs: compact, merge, filter, backup, restore, undelete."""

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import click

from beanstalk_twisted.binlog.errors import LockHeld
from beanstalk_twisted.binlog.segments.format import SEGMENT_MAGIC
from beanstalk_twisted.object_storage.store import is_url
from binlog_tools.cli import options
from binlog_tools.cli.commands import CANNOT_READ, INCOMPLETE, USAGE
from binlog_tools.cli.options import (
    MOST_NAMED,
    end_with_gaps,
    load,
    open_reachable,
    open_source,
    open_source_at,
    open_sources,
    past,
    tell,
    tell_shared_keys,
    warn_if_running,
)
from binlog_tools.console.errors import fail, warn
from binlog_tools.console.output import Output, columns, progress
from binlog_tools.console.wording import reason, text_of, told
from binlog_tools.inspect.dumping import state_name
from binlog_tools.logs.live_set import END, Point
from binlog_tools.logs.moments import UnitedSource, united
from binlog_tools.logs.new_log import shared_key_fields
from binlog_tools.logs.opening import Loaded
from binlog_tools.logs.quantities import Span, format_size, format_time_exactly
from binlog_tools.logs.sources import Source, parse_archived_name
from binlog_tools.rewrite import undeleting
from binlog_tools.rewrite.backing_up import Backup, back_up, restore
from binlog_tools.rewrite.rewriting import (
    ANY_AGE,
    Ages,
    Choice,
    OtherPolicy,
    Renumbered,
    SameStore,
    drop_in_place,
    merge,
    rewrite,
)
from binlog_tools.rewrite.undeleting import Deleted


@click.command("compact", cls=options.Command)
@options.log
@options.output_directory(required=True)
@options.as_of
@options.segment_size
@options.as_json
def compact_command(
    path: str, output: str, point: Point | None, segment_bytes: int, is_json: bool
) -> None:
    """Write what a server would load into a new log, and nothing else.

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


@click.command("merge", cls=options.Command)
@options.logs
@options.output_directory(required=True)
@click.option(
    "--accept-copies", is_flag=True,
    help="Go on although a log was made from another one, and both have jobs of one id.",
)  # fmt: skip
@options.segment_size
@options.as_json
def merge_command(
    paths: tuple[str, ...], output: str, accept_copies: bool, segment_bytes: int, is_json: bool
) -> None:
    """Write the jobs of several logs into one new log.

    A job keeps its id, unless a log named before has one of that id: then it gets a new one, which
    is told.  Of two jobs of a tube with one unique key the first keeps it, and of two policies of a
    tube the first holds; what is left out is told.  Copies of one store are refused, and logs that
    were made from one another and have jobs in common.

    \b
    Example:
      binlog-inspect merge /var/lib/bs-a /var/lib/bs-b -o /var/lib/bs
    """
    for path in paths:
        warn_if_running(path)
    logs = [load(source) for source in open_sources(paths)]
    moved: list[Renumbered] = []
    shown = Output(is_json)
    try:
        merged = merge(logs, output, segment_bytes, moved.append, accept_copies)
    except SameStore as problem:
        fail(USAGE, str(problem))
    tell_shared_keys(merged.shared_keys)
    for each in merged.policies:
        warn(
            f"{each.path}: tube {text_of(each.tube)}: its policy is not in the new log, which has "
            f"that of a log named before: {_rules_text(each)}"
        )
    if is_json:
        tell(
            shown, merged.written, renumbered=[each._asdict() for each in moved],
            shared_keys=[shared_key_fields(each) for each in merged.shared_keys],
            policies=[{**each._asdict(), "tube": text_of(each.tube)} for each in merged.policies],
        )  # fmt: skip
        return
    tell(shown, merged.written)
    if not shown.is_terminal:
        shown.rows(("renumbered", *each) for each in moved)
        shown.rows(("shared-key", *each) for each in merged.shared_keys)
        shown.rows(("policy", each.path, each.tube, _rules_text(each)) for each in merged.policies)
    elif moved:
        shown.heading(f"{told(len(moved), 'job')} got another id")
        shown.table(columns("log", "#old id", "#new id"), moved)


def _rules_text(policy: OtherPolicy) -> str:
    return " ".join(f"{key}={value}" for key, value in policy.rules.items())


@click.command("filter", cls=options.Command)
@options.log
@click.option("--drop", "drops", is_flag=True, help="The jobs chosen go.")
@click.option("--keep", "keeps", is_flag=True, help="The jobs chosen stay, and all others go.")
@options.of_jobs
@click.option("--older-than", type=options.DURATION, help="Put longer ago than this: 90s, 2h, 7d.")
@click.option("--younger-than", type=options.DURATION, help="Put less long ago than this.")
@options.output_directory()
@click.option("--in-place", is_flag=True, help="Delete the jobs where they are; no server may run.")
@click.option("-n", "--dry-run", is_flag=True, help="Only list the jobs that would go.")
@options.as_of
@options.segment_size
@options.as_json
def filter_command(
    path: str, drops: bool, keeps: bool, older_than: int | None, younger_than: int | None,
    output: str | None, in_place: bool, dry_run: bool, point: Point | None, segment_bytes: int,
    is_json: bool, **chosen: Any,
) -> None:  # fmt: skip
    """Drop or keep jobs by tube, id, state and age: into a new log, or where they are.

    For a job that ends every server that touches it, and the like.  A job is chosen if all options
    say so.  --in-place appends one segment in which the jobs are deleted; they are kept in a small
    log in quarantine/ first, from which merge or replay brings them back.

    \b
    Examples:
      binlog-inspect filter /var/lib/bs --drop --job 4711 --in-place
      binlog-inspect filter /var/lib/bs --drop --tube mail --older-than 7d --dry-run
      binlog-inspect filter /var/lib/bs --keep --tube mail -o /backup/only-mail
    """
    if drops and keeps:
        fail(USAGE, "--drop and --keep exclude each other; nothing was written.")
    ages = Ages(older_than, younger_than)
    if not (drops or keeps) or not (any(chosen.values()) or ages != ANY_AGE):
        fail(USAGE, "say which jobs (--job, --tube, --state, --older-than, --younger-than), "
                    "and --drop or --keep")  # fmt: skip
    if sum((output is not None, in_place, dry_run)) != 1:
        fail(USAGE, "say where to: -o DIR, --in-place or --dry-run")
    if in_place and point is not None:
        fail(USAGE, "--in-place changes the log as it is: it does not go with --as-of.")
    choice = Choice(options.selection(**chosen), ages, keeps)
    shown = Output(is_json)
    if in_place:
        _in_place(shown, path, choice)
        return
    if output is not None and point is None:
        warn_if_running(path)
    loaded = load(open_source_at(path, point))
    if dry_run:
        _list_dropped(shown, loaded, choice)
        return
    assert output is not None
    outcome = rewrite(loaded, output, "filter", choice, segment_bytes)
    tell(shown, outcome.written, dropped=outcome.dropped)
    if shown.is_terminal and not is_json:
        shown.line(f"{told(outcome.dropped, 'job')} left out")
    elif not is_json:
        shown.row(("dropped", outcome.dropped))


def _list_dropped(output: Output, loaded: Loaded, choice: Choice) -> None:
    kept: Counter[bool] = Counter()

    def dropped() -> Iterator[tuple[int, bytes, str, int]]:
        for job in loaded.jobs():
            is_kept = choice.keeps(job, loaded.now_ns)
            kept[is_kept] += 1
            if not is_kept:
                yield job.job_id, job.tube, state_name(job.state), len(job.body)

    if output.is_json:
        for job_id, tube, state, size in dropped():
            output.document({"job": job_id, "tube": text_of(tube), "state": state, "bytes": size})
    else:
        output.table(columns("#job", "tube", "state", "#bytes"), dropped())
    gone = told(kept[False], "job")
    warn(f"{loaded.source.path}: {gone} would go, {kept[True]} would stay")


def _in_place(output: Output, path: str, choice: Choice) -> None:
    # Only to tell what a server would leave out.
    open_source(path)
    try:
        with progress(f"reading {path}") as report:
            dropped = drop_in_place(path, choice, report)
    except LockHeld as problem:
        fail(CANNOT_READ, str(problem))

    def show() -> None:
        output.line(f"{path}: {told(dropped.jobs, 'job')} deleted, {dropped.left} left")
        if dropped.kept_at:
            output.line(f"what was deleted is kept in {dropped.kept_at}")

    row = ("deleted", dropped.jobs, dropped.left, path, dropped.kept_at or None)
    output.result(lambda: {"log": path, **dropped._asdict()}, [row], show)


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
    """:param what: the first field in a pipe."""
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
        seqs = whole.segment_names()
        warn(
            f"{reason(problem)}; it is left out: segments {min(seqs)} to {max(seqs)} are taken "
            f"from {whole.path}, and what only it has is missing"
        )
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


def _is_backup(path: str) -> bool:
    if is_url(path) or not os.path.isfile(path) or parse_archived_name(os.path.basename(path)):
        return False
    with open(path, "rb") as file:
        return not path.endswith(".tql") and file.read(len(SEGMENT_MAGIC)) != SEGMENT_MAGIC


@click.command("undelete", cls=options.Command)
@options.log
@click.option(
    "--since", "since_ns", type=options.TIME, required=True,
    help="Only what was deleted at this time or later: 2026-01-31T12:00Z, -2h.",
)  # fmt: skip
@click.option("--until", "until_ns", type=options.TIME, help="Only what was deleted before.")
@options.job_option
@options.tube_option
@options.output_directory("A new log with the jobs.")
@click.option(
    "--files", "folder", metavar="DIR", type=options.NEW_DIRECTORY,
    help="A new folder with a file for each body, and an index.",
)  # fmt: skip
@options.as_json
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
        _list_deleted(shown, source, deleted)
    _tell_doubtful(deleted)
    if deleted.without_body:
        warn(
            f"{told(deleted.without_body, 'job')} more deleted, whose bodies are no longer there; "
            f"an archive may have them."
        )
    end_with_gaps(source, deleted.gaps)


def _list_deleted(output: Output, source: Source, deleted: Deleted) -> None:
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
