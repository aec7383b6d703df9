"""``binlog-inspect jobs``."""

import shlex
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final, NoReturn

import click

from beanstalk_twisted.binlog.records.others import Pause
from binlog_tools.cli import options
from binlog_tools.cli.commands import CANNOT_READ, USAGE
from binlog_tools.cli.options import MOST_NAMED, code_of_gaps, end_with_gaps, load, open_source
from binlog_tools.console.errors import fail, warn
from binlog_tools.console.output import Escaped, Output, columns
from binlog_tools.console.wording import text_of
from binlog_tools.inspect import listing
from binlog_tools.inspect.dumping import (
    Fields,
    Gap,
    body_fields,
    body_text,
    fields_of,
    preview,
    tags_text,
)
from binlog_tools.inspect.listing import Event, JobHistory, PastJobs, fields_of_job
from binlog_tools.logs import quantities
from binlog_tools.logs.live_set import END, Point
from binlog_tools.logs.outputs import STDOUT, opened
from binlog_tools.logs.quantities import NS, format_duration, format_size
from binlog_tools.logs.sources import Source
from binlog_tools.logs.stored import StoredJob

COLUMNS: Final = (
    "job", "tube", "state", "priority", "delay_s", "ttr_s", "created", "age_s", "deadline",
    "left_s", "reserves", "timeouts", "releases", "buries", "kicks", "bytes", "body",
    "tags",
)  # fmt: skip
"""Of a line in a pipe; see docs/inspect.md."""

PREVIEW_CHARACTERS: Final = 40

Listed = tuple[StoredJob, int]
"""A job, and the size of its body, which may not be there."""


@click.command("jobs", cls=options.Command)
@options.log
@options.of_jobs
@click.option("-n", "--limit", type=click.IntRange(min=0), help="Stop after so many jobs.")
@options.bodies("none", "Show bodies, and how.")
@options.as_of
@click.option("--explain", "explained", type=click.IntRange(min=1), metavar="ID",
              help="Tell all that happened to a job.")  # fmt: skip
@click.option(
    "--body", "wanted", type=click.IntRange(min=1), metavar="ID",
    help="Write the body of a job, living or deleted, to -o FILE or to stdout.",
)  # fmt: skip
@options.output_file("Where --body goes.")
@click.option("--raw", is_flag=True, help="Write the body as it is, on a terminal too.")
@options.as_json
def jobs_command(
    path: str, limit: int | None, how: str, point: Point | None, explained: int | None,
    wanted: int | None, target: str | None, raw: bool, is_json: bool, **chosen: Any,
) -> None:  # fmt: skip
    """List the jobs that a server would load, or tell of one.

    Reserved jobs are listed as ready, which they are after a start, and delays that are over have
    ended.  --as-of goes back: to a time, or behind an LSN; then reserved jobs are reserved.  What
    compaction has already deleted can only be seen in an archive.

    \b
    Examples:
      binlog-inspect jobs /var/lib/bs --tube mail --state buried
      binlog-inspect jobs /var/lib/bs --as-of -1h
      binlog-inspect jobs /var/lib/bs --explain 4711
      binlog-inspect jobs /var/lib/bs --body 4711 -o body.bin
      binlog-inspect jobs /var/lib/bs --json --bodies text | jq -r .body
    """
    if wanted is not None:
        options.refuse_beside("wanted", "target", "raw")
    elif explained is not None:
        options.refuse_beside("explained", "is_json")
    source = open_source(path)
    if wanted is not None:
        _write_body(source, wanted, target, raw)
        return
    if target is not None:
        fail(USAGE, "-o goes with --body; a list goes to stdout.")
    if raw:
        fail(USAGE, "--raw goes with --body.")
    output = Output(is_json)
    if explained is not None:
        _explain(output, source, explained)
        return
    selection = options.selection(**chosen)
    if point is None:
        loaded = load(source)
        now_ns, pauses = loaded.now_ns, loaded.tube_records([Pause])
        found: Iterator[Listed] = (
            (job, len(job.body)) for job in listing.chosen_jobs(loaded, selection)
        )
    else:
        past = PastJobs(source, point)
        now_ns, pauses = past.now_ns, past.pauses()
        found = past.jobs(selection, how != "none")
        _tell_missing(past, point)
    _list(output, islice(found, limit), now_ns, how)
    if output.is_terminal and not is_json:
        for tube, pause in pauses:
            left = format_duration(pause.until_ns - now_ns)
            output.line(f"tube {text_of(tube)} is paused for {left}")


def _tell_missing(past: PastJobs, point: Point) -> None:
    if past.unknown:
        were = "job was" if past.unknown == 1 else "jobs were"
        warn(
            f"{past.unknown} more {were} there, in a state that the log no longer tells: "
            f"compaction has deleted it. An archive may have it."
        )
    if not past.last_lsn:
        since = quantities.format_time_exactly(past.since_ns)
        warn(f"there were no jobs yet: the log begins at {since}")
    elif point.lsn != END.lsn and point.lsn > past.last_lsn:
        warn(
            f"the log ends with LSN {past.last_lsn}, before LSN {point.lsn}: these are the jobs "
            f"at its end. If a time was meant: --as-of @{point.lsn}"
        )
    elif point.time_ns != END.time_ns and point.time_ns > time.time_ns():
        warn("that is in the future: these are the jobs at the end of the log")


def _list(output: Output, found: Iterable[Listed], now_ns: int, how: str) -> None:
    if output.is_json:
        for job, size in found:
            output.document({**fields_of_job(job, size, now_ns), **body_fields(job.body, how)})
    elif output.is_terminal:
        titles = columns(
            "#job", "tube", "state", "#pri", "#ttr", "#age", "#left", "#size", "~history", "~tags",
            *(["~body"] if how != "none" else []),
        )  # fmt: skip
        output.table(titles, (_for_people(*listed, now_ns, how) for listed in found))
    else:
        output.rows(_for_programs(found, now_ns, how))


def _for_programs(found: Iterable[Listed], now_ns: int, how: str) -> Iterator[tuple[object, ...]]:
    for job, size in found:
        fields = fields_of_job(job, size, now_ns)
        body = body_text(job.body, how) if how != "none" else None
        row = (fields[name] for name in COLUMNS[:-2])
        yield (*row, Escaped(body) if body else None, tags_text(job.tags) or None)


def _for_people(job: StoredJob, size: int, now_ns: int, how: str) -> tuple[object, ...]:
    fields = fields_of_job(job, size, now_ns)
    left = None if fields["left_s"] is None else format_duration(job.deadline_ns - now_ns)
    row = (
        job.job_id, job.tube, fields["state"], job.priority, job.ttr_s,
        format_duration(max(NS, now_ns - job.created_ns)), left, format_size(size),
        _history(job), tags_text(job.tags),
    )  # fmt: skip
    if how == "none":
        return row
    return (*row, Escaped(preview(job.body, how, PREVIEW_CHARACTERS)))


def _history(job: StoredJob) -> str:
    counts = {
        "reserved": job.reserves, "timed out": job.timeouts, "released": job.releases,
        "buried": job.buries, "kicked": job.kicks,
    }  # fmt: skip
    return ", ".join(f"{name} {count}" for name, count in counts.items() if count)


def _explain(output: Output, source: Source, job_id: int) -> None:
    history = listing.history_of(source, job_id, time.time_ns())
    if not history.events and not history.gaps:
        _not_there(source, job_id)
    if output.is_json:
        for event in history.events:
            output.document({**_event_fields(event), "what": event.what})
    elif output.is_terminal:
        _tell(output, history)
    else:
        for event in history.events:
            fields = _event_fields(event)
            output.row((
                fields["lsn"], fields["time"], fields["type"], fields.get("state"),
                fields.get("connection"), fields["segment"], fields["offset"], event.what,
            ))  # fmt: skip
    end_with_gaps(source, history.gaps)


def _event_fields(event: Event) -> Fields:
    return {**fields_of(event.entry), "time": quantities.format_time_exactly(event.at_ns)}


def _tell(output: Output, history: JobHistory) -> None:
    output.line(f"job {history.job_id}")
    for event in history.events:
        since = f"+{format_duration(event.since_ns)}" if event.since_ns else ""
        at = quantities.format_time(event.at_ns)
        output.line(f"  {at} {since:>8}  LSN {event.entry.lsn:<8} {event.what}")
    output.line(f"  {history.ending}")


def _write_body(source: Source, job_id: int, target: str | None, is_raw: bool) -> None:
    gaps: list[Gap] = []
    body = listing.body_of(source, job_id, gaps)
    if body is None:
        _no_body(source, listing.history_of(source, job_id, time.time_ns()))
    if target in (None, STDOUT):
        Output().body(body, is_raw)
    else:
        with opened(target) as out:
            out.buffer.write(body)
    for gap in gaps[:MOST_NAMED]:
        warn(f"{gap.place}: job {job_id} may have had a newer body there: {gap.why}")
    if gaps:
        raise SystemExit(code_of_gaps([source]))


def _no_body(source: Source, history: JobHistory) -> NoReturn:
    if history.gaps:
        places = "".join(f"\n  {gap.place}: {gap.why}" for gap in history.gaps)
        known = "there are records of it, and its body" if history.events else "if it was put, it"
        fail(
            code_of_gaps([source]),
            f"{source.path}: no body of job {history.job_id} can be read: {known} stood where the "
            f"log is damaged:{places}\nTo get what is left of it: binlog-inspect salvage "
            f"{shlex.quote(source.path)} -o NEW_DIRECTORY",
        )
    if not history.events:
        _not_there(source, history.job_id)
    fail(
        CANNOT_READ,
        f"{source.path}: there are records of job {history.job_id}, but its body is no longer "
        f"there: compaction has deleted it; an archive may have it",
    )


def _not_there(source: Source, job_id: int) -> NoReturn:
    fail(CANNOT_READ, f"{source.path}: the log has no record of job {job_id}")
