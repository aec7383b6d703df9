"""Opening logs for a command, which tells what of them is not read."""

import os
import shlex
import time
from collections.abc import Iterable, Sequence
from typing import Final

from beanstalk_twisted.binlog.segments.format import segment_name
from binlog_tools.cli.exits import CANNOT_READ, DAMAGED, TORN, fail, warn
from binlog_tools.console.output import progress
from binlog_tools.inspect.dumping import Gap
from binlog_tools.logs import loading, opening
from binlog_tools.logs.live_set import END, Point
from binlog_tools.logs.loading import Loaded
from binlog_tools.logs.moments import PastSource
from binlog_tools.logs.sources import Source, parse_archived_name

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
    """
    A log as it was at a point.

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
    """
    :return: `TORN` if the places that cannot be read are torn tails, at which a server starts.
    """
    return DAMAGED if any(source.survey().problems for source in sources) else TORN


def end_with_gaps(source: Source, gaps: Sequence[Gap]) -> None:
    """Where there are such places, name them and end with the exit code for them."""
    for gap in gaps:
        warn(f"{gap.place}: perhaps more, but {gap.why}")
    if gaps:
        raise SystemExit(code_of_gaps([source]))
