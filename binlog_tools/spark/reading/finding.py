"""
From paths to the segments of logs, each once (`candidates`), with how far it may be read
(`measuring`).
"""

import os
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.reading.survey import beanstalkd_file, import_command
from beanstalk_twisted.object_storage.store import BadUrl, is_url
from binlog_tools.logs.opening import open_sources
from binlog_tools.logs.sources import NoLog, parse_archived_name
from binlog_tools.spark.definitions.addresses import name_of
from binlog_tools.spark.definitions.errors import SourceError, bad_url, unreadable
from binlog_tools.spark.files.listing import expanded
from binlog_tools.spark.reading.candidates import (
    BrokenFile,
    Candidate,
    Key,
    candidates,
    one_of_each,
    remote_candidates,
)
from binlog_tools.spark.reading.measuring import Segment, Tail, measured
from binlog_tools.spark.segments.durable import durable_part, loaded_part

_TAILS: Final[tuple[Tail, Tail]] = (durable_part, loaded_part)


def segments_are(first: int, last: int) -> str:
    """Segments in words, with the verb."""
    return f"segment {first} is" if first == last else f"segments {first} to {last} are"


class Gap(NamedTuple):
    before: Segment
    after: Segment

    @property
    def what(self) -> str:
        which = segments_are(self.before.header.seq + 1, self.after.header.seq - 1)
        lsns = f"up to LSN {self.after.header.first_lsn - 1}"
        if self.before.next_lsn is not None:
            lsns = f"LSN {self.before.next_lsn} to {self.after.header.first_lsn - 1}"
        return f"{which} missing between {self.before.path} and {self.after.path} ({lsns})"


class Findings(NamedTuple):
    """
    What there is to read.

    :ivar segments: in the order of stores and sequence numbers.
    :ivar broken: files of which there is no sound copy.
    """

    segments: list[Segment]
    broken: list[BrokenFile]
    gaps: list[Gap]


def find(
    paths: Iterable[str], with_live: bool = True, as_at_a_start: bool = False, seals_from: int = 0,
    away: list[OSError] | None = None,
) -> Findings:  # fmt: skip
    """
    The segments that these paths name.

    :param paths: directories of servers, archives or stores in them, files, URLs of such, or
        patterns.
    :param with_live: whether those that are being written are read, as far as they are durable.
    :param as_at_a_start: these are read as far as a server would that starts on them.
    :param seals_from: as of `measured`.
    :param away: URLs that do not answer are left out, if other paths have segments, and told here.
    :raise SourceError: there are none, two differ that should be the same, one is of a newer
        version.
    """
    paths = list(paths)
    try:
        found = _candidates(list(_named(paths, away)), away)
        chosen = one_of_each(each for each in found if isinstance(each, Candidate))
        unfinished = _TAILS[as_at_a_start] if with_live else None
        segments = measured(chosen, unfinished, seals_from)
    except OSError as problem:
        raise unreadable(problem, ", ".join(paths)) from None
    except BadUrl as problem:
        raise bad_url(", ".join(paths), problem) from None
    broken = [each for each in found if isinstance(each, BrokenFile) and each.may_be not in chosen]
    folders = {key for key, each in chosen.items() if each.from_folder}
    return Findings(segments, broken, list(_gaps(segments, folders)))


def _named(paths: list[str], away: list[OSError] | None) -> Iterator[str]:
    """What the patterns among the paths stand for."""
    for path in paths:
        try:
            yield from named(path)
        except OSError as problem:
            _leave_out(path, problem, away)


def _leave_out(path: str, problem: OSError, away: list[OSError] | None) -> None:
    """:raise OSError: the problem, if it is not that a URL does not answer."""
    is_answer = isinstance(problem, NoLog | FileNotFoundError)
    if away is None or not is_url(path) or is_answer:
        raise problem
    away.append(problem)


def _candidates(
    paths: list[str], away: list[OSError] | None = None
) -> list[Candidate | BrokenFile]:
    sources = open_sources(path for path in paths if not is_url(path))
    found = [each for source in sources for each in candidates(source)]
    for url in filter(is_url, paths):
        try:
            found += remote_candidates(url)
        except OSError as problem:
            _leave_out(url, problem, away)
    if away and not found:
        raise away[0]
    if not found:
        raise _nothing(paths)
    return found


def named(path: str) -> list[str]:
    """
    :raise SourceError: there is nothing; see `expanded`.
    :raise OSError: likewise.
    """
    found = expanded(path)
    if not found:
        raise SourceError("BINLOG_NOT_FOUND", f"{path}: there is no such file or directory")
    return found


def refuse_nothing(paths: Iterable[str]) -> None:
    """
    Look whether there are segments at all; what they are is not looked at.

    :param paths: without patterns.
    :raise SourceError: there are none.
    """
    paths = list(paths)
    for source in open_sources(path for path in paths if not is_url(path)):
        if source.segment_names():
            return
    for url in filter(is_url, paths):
        if next(iter(remote_candidates(url)), None) is not None:
            return
    raise _nothing(paths)


def _nothing(paths: list[str]) -> SourceError:
    where = ", ".join(paths)
    for path in paths:
        theirs = beanstalkd_file(os.listdir(path)) if os.path.isdir(path) else None
        if theirs:
            what = f"{path}: {theirs} is a log of the C beanstalkd; run: {import_command(path)}"
            return SourceError("BINLOG_NO_LOG", what)
    return SourceError("BINLOG_NO_LOG", f"{where}: there are no segments here")


def _gaps(segments: list[Segment], folders: set[Key]) -> Iterator[Gap]:
    """
    Where segments are missing between others of a store, if all of them were asked for, and if it
    was not the server that deleted them.
    """
    trimmed: dict[bytes, int] = {}
    for each in segments:
        store, trim_seq = each.header.store_uuid, each.header.trim_seq
        trimmed[store] = max(trim_seq, trimmed.get(store, 0))
    for before, after in pairwise(segments):
        store = before.header.store_uuid
        if store != after.header.store_uuid or after.header.seq == before.header.seq + 1:
            continue
        is_archived = parse_archived_name(name_of(before.path)) is not None
        is_trimmed = after.header.seq <= trimmed[store] and not is_archived
        if {before.key, after.key} <= folders and not is_trimmed:
            yield Gap(before, after)
