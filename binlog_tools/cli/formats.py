"""Commands that read and write other formats: JSON lines, and logs of the C beanstalkd."""

import os
import shlex
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, BinaryIO, Final, NamedTuple, NoReturn

import click

from beanstalk_twisted.binlog.directory import RealDirectory
from beanstalk_twisted.binlog.reading.survey import Progress, Survey, beanstalkd_file
from beanstalk_twisted.binlog.records.others import Pause, TubePolicy
from beanstalk_twisted.binlog.segments.format import (
    DEFAULT_SEGMENT_BYTES,
    MAX_SEGMENT_BYTES,
    MIN_SEGMENT_BYTES,
)
from binlog_tools.cli import options
from binlog_tools.cli.commands import CANNOT_READ, CODES, DAMAGED, SOUND, TORN, USAGE
from binlog_tools.cli.options import (
    load,
    open_source,
    open_source_at,
    tell,
    tell_unusable,
    warn_if_running,
)
from binlog_tools.console.errors import fail, warn
from binlog_tools.console.output import Output, as_json, progress
from binlog_tools.console.streams import naming
from binlog_tools.console.wording import text_of, told
from binlog_tools.logs.live_set import Point
from binlog_tools.logs.new_log import NewDirectory
from binlog_tools.logs.opening import Loaded
from binlog_tools.logs.outputs import opened
from binlog_tools.logs.quantities import NS
from binlog_tools.logs.sources import NoLog, is_servers
from binlog_tools.logs.stored import LOST_AND_FOUND, StoredJob
from binlog_tools.rewrite import exporting
from binlog_tools.rewrite.exporting import WrongLine, export
from binlog_tools.tube_names import is_tube_name
from binlog_tools.v7.conversion import (
    DROPPED,
    PROGRESS_JOBS,
    Exported,
    Imported,
    Tally,
    export_jobs,
    import_log,
    refuse_running,
)
from binlog_tools.v7.files import DEFAULT_FILE_BYTES, MAX_FILE_BYTES, MIN_FILE_BYTES
from binlog_tools.v7.survivors import Survivors


@click.command("export", cls=options.Command)
@options.log
@options.of_jobs
@options.as_of
@options.output_file("Write to this file instead of stdout.")
def export_command(path: str, target: str | None, point: Point | None, **chosen: Any) -> None:
    """Write the jobs that a server would load as JSON lines.

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


@click.command("import", cls=options.Command)
@click.argument("file", type=click.File("rb"))
@options.output_directory(required=True)
@options.segment_size
@options.size_option(
    "--max-line", exporting.DEFAULT_LINE_BYTES, exporting.MIN_LINE_BYTES, exporting.MAX_LINE_BYTES,
    "The longest line; one takes up to four times as much memory.",
)  # fmt: skip
@options.as_json
def import_command(
    file: BinaryIO, output: str, segment_bytes: int, max_line: int, is_json: bool
) -> None:
    """Write a new log with the jobs of JSON lines, as export writes them.

    FILE may be - for stdin.  A job needs no more than a body; what is missing gets a default: the
    tube default, priority 1024, TTR 60 s, the next free id.

    \b
    Examples:
      binlog-inspect import jobs.jsonl -o /var/lib/bs
      echo '{"tube": "mail", "body": "hello"}' | binlog-inspect import - -o /var/lib/bs
    """
    ignored: Counter[str] = Counter()
    try:
        with progress("importing") as report, naming(_name(file)):
            written = exporting.import_lines(
                exporting.bounded_lines(file, max_line), output, segment_bytes, time.time_ns(),
                lambda jobs: report(jobs, 0), ignored,
            )  # fmt: skip
    except WrongLine as problem:
        fail(USAGE, f"{_name(file)}: {problem}; nothing was written")
    if ignored:
        named = ", ".join(f"{name!r} in {told(n, 'line')}" for name, n in sorted(ignored.items()))
        warn(f"fields that are unknown here were passed over: {named}")
    tell(Output(is_json), written)


def _name(file: BinaryIO) -> str:
    name = getattr(file, "name", None)
    return name if isinstance(name, str) else "<stdin>"


Pauses = list[tuple[str, int]]
"""Tubes, and for how many seconds more they are paused."""


@click.command("export-v7", cls=options.Command)
@click.argument("path", metavar="SRC", type=options.LOG)
@options.output_directory(
    "The new directory; must not exist, or be empty. Without it, a dry run.", "DST"
)
@options.size_option(
    "--file-size", DEFAULT_FILE_BYTES, MIN_FILE_BYTES, MAX_FILE_BYTES,
    "Size of a file; beanstalkd's own default is the same.",
)  # fmt: skip
@options.as_json
def export_v7_command(path: str, output: str | None, file_size: int, is_json: bool) -> None:
    """Make a binlog that a C beanstalkd loads (version 7) of the log SRC.

    SRC is only read.  Stop its server first, or jobs that are done from now on are done twice.
    Reserved jobs become ready.  Pauses of tubes cannot be expressed; they are listed, as commands.
    Nor can tags of jobs, remembered keys and policies of tubes; they are counted.

    Exit codes: 0 sound, 1 torn tail only, 2 wrong usage, 3 damaged or not all jobs can be held,
    4 cannot be read or written.

    \b
    Examples:
      binlog-inspect export-v7 /var/lib/bs
      binlog-inspect export-v7 /var/lib/bs -o /var/lib/beanstalkd
      chown -R beanstalkd /var/lib/beanstalkd
    """
    warn_if_running(path)
    with progress("reading") as report:
        source = open_source(path)
        survey = source.survey(report)
    wall_ns = time.time_ns()
    log_ns = max(wall_ns, survey.small.time_ns)
    loaded = Loaded(source, survey, log_ns)
    tally = Tally()
    exported = None
    with progress("writing") as report:
        jobs = _counted(loaded.jobs(), report)
        if output:
            with NewDirectory(output) as new:
                exported = export_jobs(
                    jobs, new.directory, tally, next_job_id=survey.small.next_job_id,
                    log_ns=log_ns, wall_ns=wall_ns, file_bytes=file_size,
                )  # fmt: skip
                new.publish()
        else:
            for job in jobs:
                tally.take(job)
    pauses = [
        (text_of(tube), -(-(pause.until_ns - log_ns) // NS))
        for tube, pause in loaded.tube_records([Pause])
        # No command pauses another one.
        if is_tube_name(tube)
    ]
    tally.dropped["keys"] = len(loaded.remembered_keys())
    tally.dropped["policies"] = len(loaded.tube_records([TubePolicy]))
    tell_unusable(tally.unusable, "were not exported")
    for name, count in tally.dropped.items():
        if count:
            warn(f"not held: {_DROPPED_NAMES.get(name, name)}: {count}: {DROPPED[name]}")
    out, result = Output(is_json), _Result(survey, tally, pauses, output, exported)
    out.result(result.document, result.rows(), lambda: result.show(out))
    if tally.not_held:
        raise SystemExit(DAMAGED)
    raise SystemExit(TORN if survey.torn else SOUND)


_DROPPED_NAMES: Final = {
    "unique_key": "unique keys of jobs", "concurrency_key": "concurrency keys of jobs",
    "group": "groups of jobs", "after": "groups that jobs are to come after",
    "metadata": "metadata of jobs", "dead_letters": "marks of dead letters",
    "keys": "remembered keys",
    "policies": "policies of tubes",
}  # fmt: skip


def _counted(jobs: Iterator[StoredJob], report: Progress) -> Iterator[StoredJob]:
    """Count jobs, of which only the end says how many there are."""
    for done, job in enumerate(jobs, start=1):
        if not done % PROGRESS_JOBS:
            report(done, done)
        yield job


class _Result(NamedTuple):
    """An export that was made, or would be.

    :ivar output: with ``written`` None if it was a dry run.
    """

    survey: Survey
    tally: Tally
    pauses: Pauses
    output: str | None
    written: Exported | None

    @property
    def start(self) -> str:
        needs = self.tally.needs_max_job_size
        words = f"beanstalkd -b {shlex.quote(self.output or 'DST')}"
        return words + (f" -z {needs}" if needs else "")

    def rows(self) -> Iterator[tuple[object, ...]]:
        survey, tally = self.survey, self.tally
        counts = (tally.jobs, *tally.states.values(), tally.body_bytes, survey.small.next_job_id)
        yield "source", survey.path, *counts
        if survey.torn:
            yield "torn", str(survey.torn)
        yield from (("not-held", *job) for job in tally.not_held)
        yield from (("pause-tube", *pause) for pause in self.pauses)
        yield from (("dropped", name, count) for name, count in tally.dropped.items() if count)
        if self.written:
            yield "written", self.output, *self.written
        yield "start", self.start

    def show(self, out: Output) -> None:
        survey, tally = self.survey, self.tally
        states = ", ".join(f"{number} {state}" for state, number in tally.states.items())
        out.line(
            f"{survey.path}: {told(tally.jobs, 'job')} ({states}), "
            f"{told(tally.body_bytes, 'byte')} of bodies; the next id is {survey.small.next_job_id}"
        )
        if survey.torn:
            out.line(f"torn tail: {survey.torn}")
        for job_id, why in tally.not_held:
            out.line(f"not held: job {job_id}: {why}")
        for tube, s in self.pauses:
            out.line(f"not held: the pause of a tube; to pause it again: pause-tube {tube} {s}")
        if self.written:
            files = told(self.written.files, "file")
            out.line(f"written: {files}, {self.written.bytes} bytes: {self.output}")
        if tally.needs_max_job_size:
            out.line(
                f"there are bodies that beanstalkd loads only with -z {tally.needs_max_job_size} "
                f"or more; without it, it drops them"
            )
        out.line(f"start: {self.start}")

    def document(self) -> Mapping[str, object]:
        survey, tally = self.survey, self.tally
        return {
            "source": survey.path, "torn": str(survey.torn) if survey.torn else None,
            "jobs": tally.jobs, "states": tally.states, "body_bytes": tally.body_bytes,
            "next_job_id": survey.small.next_job_id,
            "needs_max_job_size": tally.needs_max_job_size,
            "not_held": [job._asdict() for job in tally.not_held], "dropped": tally.dropped,
            "pauses": [{"tube": tube, "seconds": seconds} for tube, seconds in self.pauses],
            "written": {"path": self.output, **self.written._asdict()} if self.written else None,
            "start": self.start,
        }  # fmt: skip


@click.command("import-v7", cls=options.Command)
@click.argument("path", metavar="DIR", type=options.V7_DIRECTORY)
@options.output_directory("The new log; must not exist, or be empty. Without it, a dry run.", "DST")
@click.option(
    "--accept-gap", is_flag=True,
    help="Import although a file in the middle is missing, with what it said.",
)  # fmt: skip
@options.size_option(
    "--segment-size", DEFAULT_SEGMENT_BYTES, MIN_SEGMENT_BYTES, MAX_SEGMENT_BYTES,
    "Size of a segment of the new log.",
)  # fmt: skip
@options.as_json
def import_v7_command(
    path: str, output: str | None, accept_gap: bool, segment_size: int, is_json: bool
) -> None:
    """Make a log of DIR, the binlog of a C beanstalkd (versions 5 and 7).

    DIR is only read; its server must not be running.  What cannot be right is skipped and named,
    and everything else is taken; bodies whose record is damaged become buried jobs of the tube
    lost+found.  Then start: beanstalk-twisted --binlog DST

    Exit codes: 0 sound, 1 torn by a crash only, 2 wrong usage, 3 damaged (all that is intact was
    taken, but for a missing file without --accept-gap), 4 cannot be read or written.

    \b
    Examples:
      binlog-inspect import-v7 /var/lib/beanstalkd
      binlog-inspect import-v7 /var/lib/beanstalkd -o /var/lib/bs
    """
    _refuse_ours(path)
    refuse_running(path)
    with progress("reading") as report:
        found = Survivors(RealDirectory(path), report)
    if not found.counts.files:
        raise NoLog(path)
    if found.findings.machine:
        fail(
            CANNOT_READ,
            f"{path}: {found.findings.machine}, whose records are laid out differently; nothing "
            f"was written. Run beanstalkd on it on such a machine, and let it run empty beside the "
            f"new server.",
        )
    refuse_running(path)
    is_refused = bool(output and found.gaps and not accept_gap)
    imported = None
    if output and not is_refused:
        with progress("writing") as report:
            imported = import_log(found, output, time.time_ns(), report, segment_size)
    out = Output(is_json)
    show = partial(_show, out, found, imported)
    out.result(partial(_document, found, imported), _rows(found, imported), show)
    if is_refused:
        _refuse_gap(found)
    raise SystemExit(CODES[found.findings.verdict])


def _refuse_ours(path: str) -> None:
    """Our servers hold the same lock as beanstalkd, so this is looked at first."""
    names = os.listdir(path)
    if beanstalkd_file(names) or not is_servers(names):
        return
    quoted = shlex.quote(path)
    fail(
        USAGE,
        f"{path}: this is a log of beanstalk-twisted already; nothing was written. To see what is "
        f"in it: binlog-inspect jobs {quoted}; to serve it: beanstalk-twisted --binlog {quoted}; "
        f"to make a binlog of beanstalkd of it: binlog-inspect export-v7 {quoted} -o DST",
    )


def _refuse_gap(found: Survivors) -> NoReturn:
    missing = ", ".join(
        f"binlog.{first}" + (f" to binlog.{last}" if last > first else "")
        for first, last in found.gaps[:MAX_NAMED_GAPS]
    )
    fail(
        DAMAGED,
        f"{found.path}: {missing} missing; nothing was written. Look for it; if it is lost, run "
        f"this again with --accept-gap: what it said is missing then, deletions too.",
    )


MAX_NAMED_GAPS = 10
"""In one line; all are listed."""


MEANINGS = {
    "sound": "sound",
    "torn": "torn: a crash cut off what was just being written; all else is there",
    "damaged": "damaged: all that is intact is taken; deletions may be among what is missing, so "
    "jobs that were deleted may be back",
}


def _rows(found: Survivors, imported: Imported | None) -> Iterator[tuple[object, ...]]:
    counts = found.counts
    numbers = (counts.files, counts.bytes, counts.full, counts.short)
    yield "source", found.findings.verdict, found.path, *numbers
    yield from (("finding", *finding) for finding in found.findings.listed)
    states = found.states().values()
    yield "jobs", len(found.jobs), *states, found.doubtful_jobs, found.next_job_id
    if imported:
        # The path, jobs, and bytes of bodies, segments, bytes.
        yield "written", *imported.written[:5], imported.loaded


def _show(out: Output, found: Survivors, imported: Imported | None) -> None:
    counts = found.counts
    out.line(
        f"{found.path}: {told(counts.files, 'file')}, {told(counts.bytes, 'byte')}, {counts.full} "
        f"full and {told(counts.short, 'short record')}"
    )
    out.line(MEANINGS[found.findings.verdict])
    for finding in found.findings.listed:
        out.line(f"  {finding}")
    unlisted = found.findings.counts.total() - len(found.findings.listed)
    if unlisted:
        out.line(f"  and {unlisted} more")
    states = ", ".join(f"{number} {state}" for state, number in found.states().items())
    out.line(
        f"found: {told(len(found.jobs), 'job')} ({states}); the next id is {found.next_job_id}"
    )
    if found.doubtful_jobs:
        more = told(found.doubtful_jobs, "more job")
        out.line(f"doubtful: {more}, buried in {LOST_AND_FOUND.decode()}")
    if imported:
        written = imported.written
        out.line(
            f"written: {told(written.jobs, 'job')}, {told(written.body_bytes, 'byte')} of bodies, "
            f"{told(written.segments, 'segment')}, {told(written.bytes, 'byte')}: {written.path}"
        )
        out.line(f"read back: {told(imported.loaded, 'job')}")


def _document(found: Survivors, imported: Imported | None) -> Mapping[str, object]:
    return {
        "source": found.path, "verdict": found.findings.verdict, **vars(found.counts),
        "findings": [finding._asdict() for finding in found.findings.listed],
        "finding_counts": found.findings.counts, "skipped_bytes": found.findings.skipped_bytes,
        "gaps": found.gaps, "jobs": len(found.jobs), "states": found.states(),
        "doubtful": found.doubtful_jobs, "next_job_id": found.next_job_id,
        "written": imported.written._asdict() if imported else None,
        "read_back": imported.loaded if imported else None,
    }  # fmt: skip
