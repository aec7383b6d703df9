"""``binlog-inspect filter``."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import click

from beanstalk_twisted.binlog.errors import LockHeld
from binlog_tools.cli import options
from binlog_tools.cli.exits import CANNOT_READ, USAGE, fail, warn
from binlog_tools.cli.opening import (
    load,
    open_source,
    open_source_at,
    open_sources,
    tell,
    tell_shared_keys,
    warn_if_running,
)
from binlog_tools.console.output import Output, columns, progress, text_of, told
from binlog_tools.inspect.dumping import state_name
from binlog_tools.logs.live_set import Point
from binlog_tools.logs.new_log import shared_key_fields
from binlog_tools.logs.opening import Loaded
from binlog_tools.rewrite.rewriting import (
    ANY_AGE,
    Ages,
    Choice,
    Merged,
    OtherPolicy,
    Renumbered,
    SameStore,
    drop_in_place,
    merge,
    rewrite,
)


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
    "--accept-copies",
    is_flag=True,
    help="Go on although a log was made from another one, and both have jobs of one id.",
)
@options.segment_size
@options.as_json  # fmt: skip
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
    _tell_policies(merged)
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


def _tell_policies(merged: Merged) -> None:
    for each in merged.policies:
        warn(
            f"{each.path}: tube {text_of(each.tube)}: its policy is not in the new log, which has "
            f"that of a log named before: {_rules_text(each)}"
        )


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
@options.as_json  # fmt: skip
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
        _list(shown, loaded, choice)
        return
    assert output is not None
    outcome = rewrite(loaded, output, "filter", choice, segment_bytes)
    tell(shown, outcome.written, dropped=outcome.dropped)
    if shown.is_terminal and not is_json:
        shown.line(f"{told(outcome.dropped, 'job')} left out")
    elif not is_json:
        shown.row(("dropped", outcome.dropped))


def _list(output: Output, loaded: Loaded, choice: Choice) -> None:
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
