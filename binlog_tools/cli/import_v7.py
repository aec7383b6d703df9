"""``binlog-inspect import-v7``."""

import os
import shlex
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import NoReturn

import click

from beanstalk_twisted.binlog.directory import RealDirectory
from beanstalk_twisted.binlog.reading.survey import beanstalkd_file
from beanstalk_twisted.binlog.segments.format import (
    DEFAULT_SEGMENT_BYTES,
    MAX_SEGMENT_BYTES,
    MIN_SEGMENT_BYTES,
)
from binlog_tools.cli import options
from binlog_tools.cli.exits import CANNOT_READ, CODES, DAMAGED, USAGE, fail
from binlog_tools.console.output import Output, progress
from binlog_tools.console.wording import told
from binlog_tools.logs.sources import NoLog, is_servers
from binlog_tools.logs.stored import LOST_AND_FOUND
from binlog_tools.v7.importing import Imported, import_log, refuse_running
from binlog_tools.v7.survivors import Survivors


@click.command("import-v7", cls=options.Command)
@click.argument("path", metavar="DIR", type=options.V7_DIRECTORY)
@options.output_directory("The new log; must not exist, or be empty. Without it, a dry run.", "DST")
@click.option(
    "--accept-gap",
    is_flag=True,
    help="Import although a file in the middle is missing, with what it said.",
)
@options.size_option(
    "--segment-size",
    DEFAULT_SEGMENT_BYTES,
    MIN_SEGMENT_BYTES,
    MAX_SEGMENT_BYTES,
    "Size of a segment of the new log.",
)
@options.as_json  # fmt: skip
def command(
    path: str, output: str | None, accept_gap: bool, segment_size: int, is_json: bool
) -> None:
    """
    Make a log of DIR, the binlog of a C beanstalkd (versions 5 and 7).

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
        _refuse_machine(path, found.findings.machine)
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


def _refuse_machine(path: str, what: str) -> NoReturn:
    fail(
        CANNOT_READ,
        f"{path}: {what}, whose records are laid out differently; nothing was written. Run "
        f"beanstalkd on it on such a machine, and let it run empty beside the new server.",
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
"""What the verdicts mean."""


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
        "source": found.path,
        "verdict": found.findings.verdict,
        **vars(found.counts),
        "findings": [finding._asdict() for finding in found.findings.listed],
        "finding_counts": found.findings.counts,
        "skipped_bytes": found.findings.skipped_bytes,
        "gaps": found.gaps,
        "jobs": len(found.jobs),
        "states": found.states(),
        "doubtful": found.doubtful_jobs,
        "next_job_id": found.next_job_id,
        "written": imported.written._asdict() if imported else None,
        "read_back": imported.loaded if imported else None,
    }
