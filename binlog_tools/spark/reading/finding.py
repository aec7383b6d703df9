"""From paths to the segments of logs, each once: one may lie in a server's directory and in its
archive.
"""

import contextlib
import os
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.archive_manifest import NAMES, Entry, known_segments
from beanstalk_twisted.binlog.reading.survey import beanstalkd_file, import_command
from beanstalk_twisted.binlog.segments.format import (
    SEGMENT_HEADER_BYTES,
    HeaderProblem,
    SegmentHeader,
    decode_segment_header,
    parse_segment_name,
)
from beanstalk_twisted.binlog.segments.seals import read_seal
from beanstalk_twisted.object_storage.store import BadUrl, is_url
from binlog_tools.logs.sources import is_servers, is_store_name, parse_archived_name
from binlog_tools.spark.definitions.addresses import name_of, split
from binlog_tools.spark.errors import SourceError, bad_url, unknown_format, unreadable
from binlog_tools.spark.files import BadRange, Folder, expanded, folder_at, open_file
from binlog_tools.spark.reading.planning import (
    LOOKS_AT_ONCE,
    Candidate,
    Durables,
    Key,
    Segment,
    measured,
)
from binlog_tools.spark.segments.wanted import MAX_NUMBER, Stretch

COMPARED_BYTES: Final = 64 << 10
"""How much of the ends of two files that should be the same segment is compared."""

_UUID_AT: Final = slice(64, 80)
"""Where in a header the store is named."""


class BrokenFile(NamedTuple):
    """A file whose header cannot be used, and the segment that it may be."""

    path: str
    size: int
    why: str
    may_be: Key


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
    """What there is to read, in order; of ``broken`` files there is no sound copy."""

    segments: list[Segment]
    broken: list[BrokenFile]
    gaps: list[Gap]


class Seen:
    """What a stream remembers: headers in archives, files that are alike, what was durable."""

    def __init__(self) -> None:
        self.headers: dict[tuple[str, int], SegmentHeader] = {}
        self.alike: set[tuple[str, str]] = set()
        self.durable: Durables = {}


def segments_are(first: int, last: int) -> str:
    """Segments in words, with the verb."""
    return f"segment {first} is" if first == last else f"segments {first} to {last} are"


def find(
    paths: Iterable[str], with_live: bool = True, seals_from: int = 0, seen: Seen | None = None
) -> Findings:
    """Return the segments that these paths name, the archive last: it has what servers delete.

    :param seals_from: smaller segments whose end is known without their seal are not opened.
    :param seen: of a stream; else all is looked at.
    :raise SourceError: there are none, two differ that should not, one is of a newer version.
    """
    paths = list(paths)
    try:
        files = [file for path in paths for each in named(path) for file in _files_at(each)]
        found = list(_looked_at(files, seen))
        if not found:
            raise _nothing(paths)
        chosen = _one_of_each((each for each in found if isinstance(each, Candidate)), seen)
        segments = measured(chosen, with_live, seals_from, seen.durable if seen else None)
    except OSError as problem:
        raise unreadable(problem, ", ".join(paths)) from None
    except BadUrl as problem:
        raise bad_url(", ".join(paths), problem) from None
    broken = [each for each in found if isinstance(each, BrokenFile) and each.may_be not in chosen]
    return Findings(segments, broken, list(_gaps(segments)))


def named(path: str) -> list[str]:
    """Expand a pattern; raise SourceError if it names nothing."""
    found = expanded(path)
    if not found:
        raise SourceError("BINLOG_NOT_FOUND", f"{path}: there is no such file or directory")
    return found


def refuse_nothing(paths: Iterable[str]) -> None:
    """Raise SourceError if there are no segments at these paths; their content is not looked at."""
    paths = list(paths)
    if not any(_files_at(path) for path in paths):
        raise _nothing(paths)


def _nothing(paths: list[str]) -> SourceError:
    for path in paths:
        theirs = beanstalkd_file(os.listdir(path)) if os.path.isdir(path) else None
        if theirs:
            what = f"{path}: {theirs} is a log of the C beanstalkd; run: {import_command(path)}"
            return SourceError("BINLOG_NO_LOG", what)
    return SourceError("BINLOG_NO_LOG", f"{', '.join(paths)}: there are no segments here")


def _gaps(segments: list[Segment]) -> Iterator[Gap]:
    """Where segments are missing that no server has deleted."""
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
        if not is_trimmed:
            yield Gap(before, after)


class _File(NamedTuple):
    """A file that may be a segment; ``known``: what a manifest says of it."""

    path: str
    seq: int
    size: int
    is_in_use: bool
    known: Entry | None = None


def _seq_of(name: str) -> int:
    archived = parse_archived_name(name)
    return archived.seq if archived is not None else parse_segment_name(name) or 0


def _files_at(path: str) -> list[_File]:
    """The segments at a place: a server's directory, an archive, or a store in one."""
    if bool(_seq_of(name_of(path))) if is_url(path) else not os.path.isdir(path):
        what = f"{path}: it is a file; name the directory or the archive that it is in"
        raise SourceError("BINLOG_NO_LOG", what)
    top = folder_at(path)
    every = [top, *(folder_at(top.within(name)) for name in top.folders if is_store_name(name))]
    return [file for folder in every for file in _files_in(folder)]


def _files_in(folder: Folder) -> list[_File]:
    is_live = is_servers(folder.sizes)
    numbers = {
        name: seq
        for name in folder.sizes
        if (seq := _seq_of(name)) and (not is_live or parse_segment_name(name) is not None)
    }
    newest = max(numbers.values(), default=0)
    known = {} if is_live else _known_in(folder)
    return [
        _File(
            folder.within(name), seq, folder.sizes[name], seq == newest and is_live, known.get(name)
        )
        for name, seq in sorted(numbers.items(), key=lambda item: item[1])
    ]


def _known_in(folder: Folder) -> dict[str, Entry]:
    """What the manifest of a store in an archive says of the segments there, if it has one."""
    files = []
    for name in filter(folder.sizes.__contains__, NAMES):
        # Nothing depends on it.  It may be written anew meanwhile, and its size is another one.
        with contextlib.suppress(OSError), open_file(folder.within(name)) as file:
            files.append(file.read(0, file.size))
    return known_segments(files, folder.sizes, _store_at(folder.address)) if files else {}


def _store_at(address: str) -> bytes | None:
    """The UUID of the store whose folder in an archive this is, by its name."""
    name = name_of(address)
    return uuid.UUID(name).bytes if is_store_name(name) else None


def _looked_at(files: Iterable[_File], seen: Seen | None) -> Iterator[Candidate | BrokenFile]:
    """:param files: those of which a manifest speaks are not opened."""
    unknown = []
    for each in files:
        header = each.known.header if each.known is not None else None
        if header is None and seen is not None:
            header = seen.headers.get((each.path, each.size))
        if header is None:
            unknown.append(each)
            continue
        _refuse_large(each.path, header)
        size = each.known.size if each.known is not None else each.size
        yield Candidate(each.path, header, size, True, False, known=each.known)
    with ThreadPoolExecutor(LOOKS_AT_ONCE) as pool:
        for found in pool.map(_look, unknown):
            if found is not None:
                if seen is not None and isinstance(found, Candidate) and found.is_archived:
                    seen.headers[found.path, found.size] = found.header
                yield found


def _look(each: _File) -> Candidate | BrokenFile | None:
    """One file; None if a server has deleted it meanwhile."""
    path = each.path
    try:
        with open_file(path, each.size if is_url(path) else None) as file:
            size, raw = file.size, file.read(0, SEGMENT_HEADER_BYTES)
    except FileNotFoundError:
        return None
    except BadRange as problem:
        store = _store_at(split(path)[0]) or b""
        return BrokenFile(path, 0, problem.strerror or str(problem), (store, each.seq))
    header = decode_segment_header(raw)
    if isinstance(header, HeaderProblem):
        if header.foreign:
            raise unknown_format(path, header.why)
        return BrokenFile(path, size, header.why, (raw[_UUID_AT], each.seq))
    _refuse_large(path, header)
    is_archived = parse_archived_name(name_of(path)) is not None
    return Candidate(path, header, size, is_archived, each.is_in_use)


def _refuse_large(path: str, header: SegmentHeader) -> None:
    if max(header.seq, header.first_lsn) >= MAX_NUMBER:
        what = f"{path}: segment {header.seq}, LSN {header.first_lsn}: 2**63 or more"
        raise SourceError("BINLOG_NUMBER_TOO_LARGE", what)


def _one_of_each(found: Iterable[Candidate], seen: Seen | None) -> dict[Key, Candidate]:
    """Choose of files of the same segment the archived one, or one that is not damaged."""
    chosen: dict[Key, Candidate] = {}
    for each in found:
        key = each.header.store_uuid, each.header.seq
        other = chosen.get(key)
        chosen[key] = each if other is None else _better(other, each, seen)
    return dict(sorted(chosen.items()))


def _better(one: Candidate, other: Candidate, seen: Seen | None) -> Candidate:
    """Which of two files is read.  What lies in two places under one inode is no copy."""
    best, worst = (other, one) if _rank(other) > _rank(one) else (one, other)
    pair = best.path, worst.path
    is_known = seen is not None and pair in seen.alike
    if not is_known and _is_one_file(*pair):
        return best
    if one.header != other.header:
        raise _different(one, other)
    if not is_known and not _ends_alike(one, other):
        sound = [each for each in (best, worst) if _is_whole(each)]
        if len(sound) > 1:
            raise _different(one, other)
        if sound == [worst]:
            best, worst = worst, best
    elif seen is not None and not worst.is_in_use:
        seen.alike.add(pair)
    return best._replace(copies=(*best.copies, worst.path, *worst.copies))


def _rank(each: Candidate) -> tuple[bool, bool]:
    return each.is_archived, not each.is_in_use


def _is_one_file(one: str, other: str) -> bool:
    if is_url(one) or is_url(other):
        return one == other
    try:
        return os.path.samefile(one, other)
    except FileNotFoundError:
        # A server has deleted it meanwhile.
        return False


def _is_whole(each: Candidate) -> bool:
    from binlog_tools.spark.segments.framing import is_intact

    try:
        with open_file(each.path, each.size) as file:
            seal = read_seal(file.read, each.size, each.header)
            buffer = memoryview(file.read(0, file.size))
    except BadRange:
        return False
    end = seal.end if seal is not None else len(buffer)
    stretch = Stretch(SEGMENT_HEADER_BYTES, end, each.header.first_lsn)
    return is_intact(buffer, each.header, stretch, "frames", with_bodies=True)


def _different(one: Candidate, other: Candidate) -> SourceError:
    return SourceError(
        "BINLOG_HISTORIES_DIFFER",
        f"{one.path} and {other.path} are both segment {one.header.seq} of store "
        f"{one.header.store_uuid.hex()}, with other bytes: a log that was started from an old copy "
        f"writes another history; read them apart",
    )


def _ends_alike(one: Candidate, other: Candidate) -> bool:
    """Return True if two files hold the same as far as both go; one in use may have grown."""
    if one.is_in_use or other.is_in_use:
        return True
    end = min(one.size, other.size)
    start = max(SEGMENT_HEADER_BYTES, end - COMPARED_BYTES)
    pieces = []
    for each in (one, other):
        try:
            with open_file(each.path, each.size) as file:
                pieces.append(file.read(start, end))
        except FileNotFoundError:
            return True
        except BadRange:
            return False
    return pieces[0] == pieces[1]
