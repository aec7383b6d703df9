"""Opening logs for a command, which tells what of them is not read."""

import os
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from beanstalk_twisted.binlog.directory import holder_of
from beanstalk_twisted.binlog.segments.format import segment_name
from binlog_tools.cli.exits import CANNOT_READ, DAMAGED, TORN, fail, warn
from binlog_tools.console.output import Output, progress, text_of, told
from binlog_tools.inspect.dumping import Gap
from binlog_tools.logs import opening
from binlog_tools.logs import opening as loading
from binlog_tools.logs.live_set import END, Point
from binlog_tools.logs.moments import PastSource
from binlog_tools.logs.new_log import SharedKey, Written
from binlog_tools.logs.opening import Loaded
from binlog_tools.logs.quantities import Span, format_size
from binlog_tools.logs.sources import Source, parse_archived_name
from binlog_tools.tube_names import quoted

MOST_NAMED: Final = 5
"""Files that are left out and told one by one; of a whole archive the first ones say enough."""


def open_sources(paths: Iterable[str]) -> list[Source]:
    """The logs that these arguments name."""
    found = opening.open_sources(paths)
    for source in found:
        _tell_left_out(source)
    return found


def open_reachable(paths: Iterable[str]) -> tuple[list[Source], list[OSError]]:
    """The same without URLs that do not answer, and why these do not."""
    found, away = opening.open_reachable(paths)
    for source in found:
        _tell_left_out(source)
    return found, away


def open_source(path: str) -> Source:
    """The one log that an argument names."""
    found = opening.open_source(path)
    _tell_left_out(found)
    return found


def open_source_at(path: str, point: Point | None) -> Source:
    """The same as it was at a point; None: as it is."""
    source = open_source(path)
    return source if point is None else past(source, point)


def past(source: Source, point: Point) -> PastSource:
    """A log as it was at a point.

    :raise OSError: it has no such point, or lacks a segment that it takes.
    :raise BinlogError: such a segment is damaged, or of another version.
    """
    if END.time_ns != point.time_ns > time.time_ns():
        fail(
            CANNOT_READ,
            f"{source.path}: that is in the future; nothing was written. For the log as it is "
            f"leave --as-of out",
        )
    return PastSource(source, point)


def load(source: Source) -> Loaded:
    """Load a log as a server would, with a progress bar."""
    with progress(f"reading {source.path}") as report:
        return loading.load(source, report)


def _tell_left_out(source: Source) -> None:
    for remark in source.remarks:
        warn(f"{source.path}: {remark}")
    for name in source.left_out[:MOST_NAMED]:
        path = os.path.join(source.path, name)
        warn(f"{path}: left out, as a server does: it is named as in an archive. {_advice(path)}")
    more = len(source.left_out) - MOST_NAMED
    if more > 0:
        warn(f"{source.path}: {more} more files that are named so are left out")


def _advice(path: str) -> str:
    said = parse_archived_name(os.path.basename(path))
    assert said is not None
    target = os.path.join(os.path.dirname(path), segment_name(said.seq))
    if os.path.exists(target):
        return f"Segment {said.seq} is there under its own name; move this file elsewhere."
    return f"If the log lacks it: {shlex.join(['mv', path, target])}"


def code_of_gaps(sources: Iterable[Source]) -> int:
    """:return: `TORN` if the places that cannot be read are torn tails, at which a server
    starts.
    """
    return DAMAGED if any(source.survey().problems for source in sources) else TORN


def end_with_gaps(source: Source, gaps: Sequence[Gap]) -> None:
    """Where there are such places, name them and end with the exit code for them."""
    for gap in gaps:
        warn(f"{gap.place}: perhaps more, but {gap.why}")
    if gaps:
        raise SystemExit(code_of_gaps([source]))


def warn_if_running(path: str) -> None:
    """Say that a server runs on a log of which another one is made.  All servers hold the same
    lock.
    """
    pid = holder_of(path) if os.path.isdir(path) else 0
    if pid:
        who = f"process {pid}" if pid > 0 else "a process that cannot be named"
        warn(
            f"{path}: a server runs on it ({who}); what it does from now on is not in the new log, "
            f"so jobs may be done twice or be missing. Better stop it first."
        )


def tell(output: Output, written: Written, **more: object) -> None:
    """Say what was written; in a pipe the first field of each line says what it is.

    :param more: beside what every log has.
    """
    row = (
        "written", written.jobs, written.segments, written.path, written.bytes, written.first_lsn,
        written.last_lsn,
    )  # fmt: skip
    line = (
        f"{written.path}: {told(written.jobs, 'job')}, {format_size(written.bytes)} in "
        f"{told(written.segments, 'segment')}, LSN {Span(written.first_lsn, written.last_lsn)}"
    )
    output.result(lambda: {**written._asdict(), **more}, [row], lambda: output.line(line))


def tell_shared_keys(jobs: Sequence[SharedKey]) -> None:
    """:param jobs: that are in the new log without their unique keys."""
    for each in jobs:
        warn(
            f"job {each.job_id}: its unique key {text_of(each.key)} was taken off it: job "
            f"{each.holder} of tube {text_of(each.tube)} has that"
        )


def tell_unusable(tubes: Mapping[bytes, int], what: str) -> None:
    """:param tubes: those that no client may name, and how many jobs of each are left out."""
    for tube, jobs in tubes.items():
        warn(f"tube {quoted(tube)}: jobs that {what}: {jobs}; no client may use that name")
