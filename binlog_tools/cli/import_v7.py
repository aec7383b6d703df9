"""
``binlog-inspect import-v7``.
"""

import time
from collections.abc import Mapping
from typing import NoReturn

import click

from beanstalk_twisted.binlog.directory import RealDirectory
from beanstalk_twisted.binlog.format import (
    DEFAULT_SEGMENT_BYTES,
    MAX_SEGMENT_BYTES,
    MIN_SEGMENT_BYTES,
)
from binlog_tools.cli.exits import CANNOT_READ, DAMAGED, SOUND, TORN, fail
from binlog_tools.cli.options import NEW_DIRECTORY, as_json, size_option
from binlog_tools.cli.output import Output, progress
from binlog_tools.sources import NoLog
from binlog_tools.v7.findings import Findings
from binlog_tools.v7.holder import refuse_running
from binlog_tools.v7.importing import Imported, import_log
from binlog_tools.v7.survivors import LOST_AND_FOUND, Survivors


@click.command("import-v7")
@click.argument("path", metavar="DIR", type=click.Path(exists=True, file_okay=False))
@click.option(
    "-o",
    "--output",
    "output",
    metavar="DST",
    type=NEW_DIRECTORY,
    help="The new log; must not exist, or be empty.  Without it, a dry run.",
)
@click.option(
    "--accept-gap",
    is_flag=True,
    help="Import although a file in the middle is missing, with what it said.",
)
@size_option(
    "--segment-size",
    DEFAULT_SEGMENT_BYTES,
    MIN_SEGMENT_BYTES,
    MAX_SEGMENT_BYTES,
    "Size of a segment of the new log.",
)
@as_json
def command(
    path: str, output: str | None, accept_gap: bool, segment_size: int, is_json: bool
) -> None:  # fmt: skip
    """
    Make a log of DIR, the binlog of a C beanstalkd (versions 5 and 7).

    DIR is only read; its server must not be running.  What cannot be right is skipped and named,
    and everything else is taken; bodies whose record is damaged become buried jobs of the tube
    lost+found.  Then start: beanstalk-twisted --binlog DST

    \b
    Look first:  binlog-inspect import-v7 /var/lib/beanstalkd
    Then:        binlog-inspect import-v7 /var/lib/beanstalkd -o /var/lib/bs

    Exit codes: 0 sound, 1 torn by a crash only, 2 wrong usage, 3 damaged (all that is intact was
    taken, but for a missing file without --accept-gap), 4 cannot be read or written.
    """
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
    if is_json:
        out.document(_document(found, imported))
    else:
        _print(out, found, imported, is_refused)
    raise SystemExit(_exit_code(found.findings))


def _refuse_machine(path: str, what: str) -> NoReturn:
    fail(
        CANNOT_READ,
        f"{path}: {what}, whose records are laid out differently; nothing was written. Run "
        f"beanstalkd on it on such a machine, and let it run empty beside the new server.",
    )


def _exit_code(findings: Findings) -> int:
    if findings.is_sound:
        return SOUND
    return TORN if findings.is_torn_only else DAMAGED


def _verdict(findings: Findings) -> str:
    if findings.is_sound:
        return "sound"
    if findings.is_torn_only:
        return "torn: a crash cut off what was just being written; all else is there"
    return (
        "damaged: all that is intact is taken.  Deletions may be among what is missing, so jobs "
        "that were deleted may be back"
    )


def _print(out: Output, found: Survivors, imported: Imported | None, is_refused: bool) -> None:
    counts = found.counts
    out.line(
        f"{found.path}: {counts.files} files, {counts.bytes} bytes, {counts.full} full and "
        f"{counts.short} short records"
    )
    out.line(_verdict(found.findings))
    for finding in found.findings.listed:
        out.line(f"  {finding}")
    unlisted = found.findings.total - len(found.findings.listed)
    if unlisted:
        out.line(f"  and {unlisted} more")
    states = ", ".join(f"{number} {state}" for state, number in found.states().items())
    out.line(f"found: {len(found.jobs)} jobs ({states}); the next id is {found.next_job_id}")
    if found.doubtful_jobs:
        out.line(f"doubtful: {found.doubtful_jobs} more jobs, buried in {LOST_AND_FOUND.decode()}")
    if is_refused:
        out.line(
            "nothing was written: look for the missing file; if it is lost, run this again with "
            "--accept-gap"
        )
    if imported:
        written = imported.written
        out.line(
            f"written: {written.jobs} jobs, {written.body_bytes} bytes of bodies, "
            f"{written.segments} segments, {written.bytes} bytes: {written.path}"
        )
        out.line(f"read back: {imported.loaded} jobs")


def _document(found: Survivors, imported: Imported | None) -> Mapping[str, object]:
    return {
        "source": found.path,
        **vars(found.counts),
        "verdict": _verdict(found.findings).partition(":")[0],
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
