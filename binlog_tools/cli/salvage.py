"""``binlog-inspect salvage``."""

import json
import os
import shlex
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, NoReturn

import click

from beanstalk_twisted.binlog.directory import RealDirectory
from beanstalk_twisted.binlog.errors import LockHeld
from beanstalk_twisted.binlog.records.jobs import State
from binlog_tools.cli import options
from binlog_tools.cli.commands import CANNOT_READ, CODES, DAMAGED, SOUND
from binlog_tools.cli.options import (
    IDS,
    OUTPUT_FILE,
    open_source,
    tell_shared_keys,
    warn_if_running,
)
from binlog_tools.console.errors import fail
from binlog_tools.console.output import Output, columns, progress
from binlog_tools.console.wording import text_of, told
from binlog_tools.inspect.checking import check
from binlog_tools.logs.new_log import NewLog
from binlog_tools.logs.outputs import as_text, new_file
from binlog_tools.logs.quantities import Numbers, Span
from binlog_tools.logs.sources import Source
from binlog_tools.salvage import salvaging
from binlog_tools.salvage.claims import Consent, Refused
from binlog_tools.salvage.judging import Doubtful, Judgement
from binlog_tools.salvage.salvaging import Report, Salvage, types_of
from binlog_tools.salvage.scanning import Hole

MOST_SHOWN: Final = 20
"""Of a kind; the report has all jobs."""

_WHYS: Final = {
    "deleted?": "it may have been deleted in LSN {}",
    "changed?": "it may have changed in LSN {}, and was not deleted",
    "outdated?": "its body and tags may have been changed in LSN {}",
    "unconfirmed": "it was never confirmed durable",
    "tube": "the name of its tube is lost",
    "body": "its body is damaged or lost",
    "older": "the newest body of job {job} is damaged; this is the one before",
    "record": "its record is damaged",
}


# fmt: off
@click.command("salvage", cls=options.Command)
@options.log
@options.output_directory("Write the clean log there; must not exist, or be empty.")
@click.option("--in-place", "is_in_place", is_flag=True,
              help="Replace the log by the clean one; the original goes to quarantine/.")
@click.option("--accept-gap", "gaps", metavar="SEQ", multiple=True, type=IDS,
              help="Go on although these segments are missing: 41 or 41-43.")
@click.option("--rebuild-header", "may_rebuild", is_flag=True,
              help="Go on although headers of segments are damaged: frames tell what they said.")
@click.option("--prefer", "prefer", metavar="FILE", multiple=True,
              help="Of segments that contradict each other, FILE is right.")
@click.option("--doubtful", type=click.Choice([each.value for each in Doubtful]), default="keep",
              show_default=True, help="What to do with jobs that may be deleted or outdated.")
@click.option("--report", "report_path", metavar="FILE", type=OUTPUT_FILE,
              help="Write the whole report there, as JSON.")
@options.as_json
def salvage_command(
    path: str, output: str | None, is_in_place: bool, gaps: tuple[list[Span], ...],
    may_rebuild: bool, prefer: tuple[str, ...], doubtful: str, report_path: str | None,
    is_json: bool,
) -> None:
    """Bring back every undamaged job of a damaged LOG.

    Without -o it only reports what is certain, doubtful and lost.  With it, it writes a clean log,
    which a server starts on.  docs/recovery.md says what the words mean and how to go on.

    \b
    Examples:
      binlog-inspect salvage /var/lib/bs
      binlog-inspect salvage /var/lib/bs -o /var/lib/bs-new --report salvage.json

    Exit codes: 0 sound, 1 torn tail only, 2 wrong usage, 3 damaged, 4 cannot be read or written,
    78 a format that this version does not know.
    """
    if output and is_in_place:
        raise click.UsageError("-o and --in-place exclude each other")
    if is_in_place and not os.path.isdir(path):
        raise click.UsageError("--in-place takes a server's directory")
    if output is not None:
        warn_if_running(path)
    lock = _lock(path) if is_in_place else None
    if lock is not None:
        salvaging.settle(path)
    source = open_source(path)
    accepted = Numbers([span for spans in gaps for span in spans])
    chosen = frozenset(os.path.basename(name) for name in prefer)
    names = source.names()
    for name in prefer:
        if os.path.basename(name) not in names:
            raise click.UsageError(f"--prefer: {name} is not in {source.path}")
    consent = Consent(accepted, may_rebuild, chosen, is_dry=not (output or is_in_place))
    try:
        with progress("reading") as seen:
            salvage = Salvage(
                source, consent, Doubtful(doubtful), seen, is_whole=not source.is_partial,
                is_archive=source.is_archive,
            )
    except Refused as refused:
        _refuse(path, output, is_in_place, refused, _given(prefer, doubtful, report_path))
    # Whether there is anything to mend, only going through all jobs shows.
    is_needless = is_in_place and _is_nothing_to_mend(_carried_out(salvage, source, None))
    is_in_place = is_in_place and not is_needless
    target = salvaging.new_path(path) if is_in_place else output
    report = _carried_out(salvage, source, target)
    if is_in_place:
        report.kept_at = salvaging.replace(path)
        assert report.written is not None
        report.written = report.written._replace(path=path)
    if lock is not None:
        lock.close()
    if report_path:
        with new_file(report_path) as saved, as_text(saved) as file:
            json.dump({"v": 1, **report.document()}, file, indent=1, ensure_ascii=False)
            file.write("\n")
    more = _given(prefer, doubtful, report_path) + salvage.options
    if output is None and not is_in_place:
        is_needless = is_needless or _is_nothing_to_mend(report)
    command = None if is_needless else _command(path, None, False, more)
    tell_shared_keys(report.shared_keys)
    out = Output(is_json)
    show = partial(_show, report, out, command)
    out.result(report.document, _rows(report, command), show)
    raise SystemExit(CODES[report.verdict])
# fmt: on


def _is_nothing_to_mend(report: Report) -> bool:
    return CODES[report.verdict] == SOUND and not report.salvage.plan.left_out


def _lock(path: str) -> RealDirectory:
    directory = RealDirectory(path)
    try:
        directory.lock(f"binlog-inspect salvage, process {os.getpid()}")
    except LockHeld as problem:
        fail(CANNOT_READ, str(problem))
    return directory


def _carried_out(salvage: Salvage, source: Source, target: str | None) -> Report:
    report = Report(salvage)
    if target is None:
        deque(report.jobs(), maxlen=0)
    else:
        of_tubes = salvage.judge.tube_records()
        with NewLog(target, salvage.origin, floors=salvage.floors, of_tubes=of_tubes) as new:
            for job in report.jobs():
                new.add(job)
            new.add_keys(salvage.judge.remembered_keys())
            report.shared_keys = list(new.shared_keys)
            report.written = new.finish()
    if CODES[report.verdict] == SOUND:
        report.compare(check(source))
    return report


def _given(prefer: tuple[str, ...], doubtful: str, report_path: str | None) -> list[str]:
    words = [word for name in prefer for word in ("--prefer", name)]
    words += [] if doubtful == Doubtful.KEEP.value else ["--doubtful", doubtful]
    return words + (["--report", report_path] if report_path else [])


def _refuse(
    path: str, output: str | None, is_in_place: bool, refused: Refused, given: list[str]
) -> NoReturn:  # fmt: skip
    lines = "\n  ".join(refused.problems)
    message = f"{path}: nothing was written:\n  {lines}"
    if refused.options:
        command = _command(path, output, is_in_place, given + refused.options)
        message += f"\nTo go on all the same: {command}"
    fail(DAMAGED, message)


def _command(path: str, output: str | None, is_in_place: bool, options: list[str]) -> str:
    where = ["--in-place"] if is_in_place else ["-o", output or "NEW_DIRECTORY"]
    words = ["binlog-inspect", "salvage", path, *where]
    for option in options:
        words += option.split(" ", 1) if option.startswith("--") else [option]
    return shlex.join(words)


def _rows(report: Report, command: str | None) -> Iterator[tuple[object, ...]]:
    salvage = report.salvage
    yield from (("place", *place) for place in report.places)
    yield from (("hole", *_hole(hole)) for hole in salvage.holes)
    for kind, names in _exceptions(salvage):
        yield from ((kind, name) for name in names)
    for kind, jobs in (("doubtful", report.doubtful), ("lost", report.lost)):
        yield from ((kind, *_cells(each), str(each.why), each.new_tube) for each in jobs)
    yield from (("shared-key", *each) for each in report.shared_keys)
    yield (
        "log", report.verdict, salvage.directory.path, report.certain, len(report.doubtful),
        len(report.lost), report.hidden,
    )  # fmt: skip
    if report.written:
        yield "written", report.written.jobs, report.written.segments, report.written.path
    if report.kept_at:
        yield "kept", report.kept_at
    if command and not report.written:
        yield "next", command


def _show(report: Report, out: Output, command: str | None) -> None:
    """:param command: that writes it, None if there is nothing to mend."""
    salvage = report.salvage
    if report.places:
        out.heading("Places that are not as they were written")
        out.table(columns("segment", "#offset", "#to", "#LSN", "what"), report.places)
    if salvage.holes:
        out.heading("Records that cannot be read")
        out.table(columns("#from LSN", "#to", "in or behind", "types"), map(_hole, salvage.holes))
    for kind, names in _exceptions(salvage):
        if names:
            out.line(f"{kind}: {', '.join(map(str, names))}")
    _show_jobs(out, "Doubtful jobs", report.doubtful)
    _show_jobs(out, "Lost jobs", report.lost)
    if report.keys or report.policies:
        out.line(f"remembered keys: {report.keys}; policies of tubes: {report.policies}")
    out.line(
        f"{report.verdict}: jobs: {report.certain} certain, {len(report.doubtful)} doubtful, "
        f"{len(report.lost)} lost; records that cannot be read: {report.hidden}"
    )
    if report.doubtful and report.most_deleted is not None:
        most = f"at most {report.most_deleted}" if report.most_deleted else "none"
        out.line(f"by the seals, {most} of the doubtful ones were deleted")
    written = report.written
    if command is None:
        out.line("nothing was written: there is nothing to mend")
    elif written is None:
        out.line(f"nothing was written; to write it: {command}")
    elif report.kept_at:
        out.line(f"the log was replaced; the original segments are in {report.kept_at}")
    else:
        where = f"{written.path}, {told(written.segments, 'segment')}"
        was = "was" if written.jobs == 1 else "were"
        out.line(f"{told(written.jobs, 'job')} {was} written to {where}")


def _show_jobs(out: Output, title: str, jobs: list[Judgement]) -> None:
    if not jobs:
        return
    out.heading(title)
    rows = [(*_cells(each), _why(each), each.new_tube) for each in jobs[:MOST_SHOWN]]
    out.table(columns("#job", "tube", "state", "why", "put into"), rows)
    if len(jobs) > MOST_SHOWN:
        out.line(f"and {len(jobs) - MOST_SHOWN} more; --report FILE has them all")


def _exceptions(salvage: Salvage) -> tuple[tuple[str, Sequence[object]], ...]:
    return (
        ("rebuilt", salvage.rebuilt), ("left out", salvage.plan.left_out),
        ("missing", salvage.missing),
    )  # fmt: skip


def _hole(hole: Hole) -> tuple[object, ...]:
    types = ", ".join(f"{count} {name}" for name, count in types_of(hole).items())
    last = f"{hole.last_lsn}{' or more' if hole.is_open else ''}"
    return hole.first_lsn, last, hole.name or None, types or "unknown"


def _cells(each: Judgement) -> tuple[object, ...]:
    tube = f"number {each.tube_id}" if each.tube is None else text_of(each.tube)
    state = "unknown" if each.state is State.GONE else each.state.name.lower()
    return each.job_id, tube, state


def _why(each: Judgement) -> str:
    hole = f"{each.hole[0]} to {each.hole[1]}" if each.hole else ""
    return _WHYS[each.why].format(hole, job=each.claimed_id or each.job_id)
