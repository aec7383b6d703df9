"""From paths to the segments of logs, each once (`candidates`), with how far it may be read
(`measuring`).
"""

import os
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from beanstalk_twisted.binlog.reading.survey import beanstalkd_file, import_command
from beanstalk_twisted.object_storage.store import BadUrl, is_url
from binlog_tools.logs.opening import open_sources
from binlog_tools.logs.sources import parse_archived_name
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
from binlog_tools.spark.reading.measuring import Segment, measured


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
    """What there is to read.

    :ivar segments: in the order of stores and sequence numbers.
    :ivar broken: files of which there is no sound copy.
    """

    segments: list[Segment]
    broken: list[BrokenFile]
    gaps: list[Gap]


def find(paths: Iterable[str], with_live: bool = True, seals_from: int = 0) -> Findings:
    """The segments that these paths name.

    :param paths: directories of servers, archives or stores in them, files, URLs of such, or
        patterns.
    :param with_live: whether those that are being written are read, as far as they are durable.
    :param seals_from: as of `measured`.
    :raise SourceError: there are none, two differ that should be the same, one is of a newer
        version.
    """
    paths = list(paths)
    try:
        found = _candidates([each for path in paths for each in named(path)])
        chosen = one_of_each(each for each in found if isinstance(each, Candidate))
        segments = measured(chosen, with_live, seals_from)
    except OSError as problem:
        raise unreadable(problem, ", ".join(paths)) from None
    except BadUrl as problem:
        raise bad_url(", ".join(paths), problem) from None
    broken = [each for each in found if isinstance(each, BrokenFile) and each.may_be not in chosen]
    folders = {key for key, each in chosen.items() if each.from_folder}
    return Findings(segments, broken, list(_gaps(segments, folders)))


def _candidates(paths: list[str]) -> list[Candidate | BrokenFile]:
    sources = open_sources(path for path in paths if not is_url(path))
    found = [each for source in sources for each in candidates(source)]
    for url in filter(is_url, paths):
        found += remote_candidates(url)
    if not found:
        raise _nothing(paths)
    return found


def named(path: str) -> list[str]:
    """:raise SourceError: there is nothing; see `expanded`.
    :raise OSError: likewise.
    """
    found = expanded(path)
    if not found:
        raise SourceError("BINLOG_NOT_FOUND", f"{path}: there is no such file or directory")
    return found


def refuse_nothing(paths: Iterable[str]) -> None:
    """Look whether there are segments at all; what they are is not looked at.

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
    """Where segments are missing between others of a store, if all of them were asked for, and if
    it was not the server that deleted them.
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
