"""
From paths to the segments of logs, each once, with how far it may be read.

A segment may lie in the directory of a server and in its archive: it is one.  Where it ends, its
successor says; else its seal; else, while a server writes it, the watermark (`durable`).
"""

import glob
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.format import (
    SEGMENT_HEADER_BYTES,
    TRAILER_BYTES,
    HeaderProblem,
    SegmentHeader,
    decode_segment_header,
    parse_segment_name,
    segment_name,
)
from beanstalk_twisted.binlog.records import CleanStop
from beanstalk_twisted.binlog.survey import beanstalkd_file, import_command
from binlog_tools.sources import Source, open_sources, parse_archived_name
from binlog_tools.spark.errors import SourceError, unreadable
from binlog_tools.spark.segments.durable import Durable, durable_part, loaded_part
from binlog_tools.spark.segments.footers import Footer, read_footer
from binlog_tools.spark.segments.framing import MAX_NUMBER, Stretch

LOOKS_AT_ONCE: Final = 16
"""Files whose headers are read at the same time: on network storage each takes milliseconds."""

COMPARED_BYTES: Final = 64 << 10
"""How much of the ends of two files that should be the same segment is compared."""

Key = tuple[bytes, int]


class Candidate(NamedTuple):
    """
    A file that is a segment.

    :ivar is_archived: it is complete, and never changes.
    :ivar is_in_use: it lies in the directory of a server, and is the newest one there.
    :ivar from_folder: it was found in a folder, all of whose segments are asked for.
    """

    path: str
    header: SegmentHeader
    size: int
    is_archived: bool
    is_in_use: bool
    from_folder: bool


class BrokenFile(NamedTuple):
    """
    A file whose header cannot be used.
    """

    path: str
    size: int
    why: str


class Segment(NamedTuple):
    """
    A segment, and what of it may be read.

    :ivar size: how much of the file may be mapped: what lies behind may be cut off.
    :ivar next_lsn: the LSN behind it, None if nothing says that.
    :ivar logged_ns: when its first and last frames were built; None if nothing says that without
        reading it.
    :ivar footer: what its seal says, if it has one that holds.
    """

    path: str
    header: SegmentHeader
    size: int
    stretch: Stretch
    next_lsn: int | None
    logged_ns: tuple[int, int] | None
    footer: Footer | None

    @property
    def key(self) -> Key:
        """
        What tells segments apart.
        """
        return self.header.store_uuid, self.header.seq


class Gap(NamedTuple):
    """
    Segments that are missing between two of one store.
    """

    before: Segment
    after: Segment

    @property
    def what(self) -> str:
        """
        Which ones, in words.
        """
        first, last = self.before.header.seq + 1, self.after.header.seq - 1
        which = f"segments {first} to {last} are" if first < last else f"segment {first} is"
        lsns = f"up to LSN {self.after.header.first_lsn - 1}"
        if self.before.next_lsn is not None:
            lsns = f"LSN {self.before.next_lsn} to {self.after.header.first_lsn - 1}"
        return f"{which} missing between {self.before.path} and {self.after.path} ({lsns})"


class Findings(NamedTuple):
    """
    What there is to read.

    :ivar segments: in the order of stores and sequence numbers.
    """

    segments: list[Segment]
    broken: list[BrokenFile]
    gaps: list[Gap]


def find(
    paths: Iterable[str], with_live: bool = True, as_at_a_start: bool = False
) -> Findings:  # fmt: skip
    """
    The segments that these paths name.

    :param paths: directories of servers, archives or stores in them, files, or patterns.
    :param with_live: whether those that are being written are read, as far as they are durable.
    :param as_at_a_start: these are read as far as a server would that starts on them.
    :raise SourceError: there are none, two differ that should be the same, one is of a newer
        version.
    """
    expanded = [path for each in paths for path in _expanded(each)]
    try:
        sources = open_sources(expanded)
        found = [each for source in sources for each in _candidates(source)]
    except OSError as problem:
        raise unreadable(problem, ", ".join(expanded)) from None
    if not found:
        raise _nothing(expanded)
    broken = [each for each in found if isinstance(each, BrokenFile)]
    chosen = _one_of_each(each for each in found if isinstance(each, Candidate))
    unfinished = _TAILS[as_at_a_start] if with_live else None
    segments = _measured(chosen, unfinished)
    folders = {key for key, each in chosen.items() if each.from_folder}
    return Findings(segments, broken, list(_gaps(segments, folders)))


def _expanded(path: str) -> list[str]:
    """
    The files and directories that a path or pattern names.
    """
    path = path.removeprefix("file://")
    if os.path.exists(path):
        return [path]
    found = sorted(glob.glob(path))
    if not found:
        raise SourceError("BINLOG_NOT_FOUND", f"{path}: there is no such file or directory")
    return found


def _nothing(paths: list[str]) -> SourceError:
    where = ", ".join(paths)
    for path in paths:
        theirs = beanstalkd_file(os.listdir(path)) if os.path.isdir(path) else None
        if theirs:
            what = f"{path}: {theirs} is a log of the C beanstalkd; run: {import_command(path)}"
            return SourceError("BINLOG_NO_LOG", what)
    return SourceError("BINLOG_NO_LOG", f"{where}: there are no segments here")


def _candidates(source: Source) -> Iterator[Candidate | BrokenFile]:
    """
    The segments of a source, their headers read.
    """
    names = source.segment_names()
    newest = max(names, default=0)

    def look(item: tuple[int, str]) -> Candidate | BrokenFile | None:
        seq, name = item
        return _look(source, name, seq == newest)

    with ThreadPoolExecutor(LOOKS_AT_ONCE) as pool:
        for found in pool.map(look, names.items()):
            if found is not None:
                yield found


def _look(source: Source, name: str, is_newest: bool) -> Candidate | BrokenFile | None:
    """
    One file; None if a server has deleted it meanwhile.
    """
    path = source.path_of(name)
    try:
        fd = source.open(name)
    except FileNotFoundError:
        return None
    try:
        size, raw = os.fstat(fd).st_size, os.pread(fd, SEGMENT_HEADER_BYTES, 0)
    finally:
        os.close(fd)
    header = decode_segment_header(raw)
    if isinstance(header, HeaderProblem):
        if header.foreign:
            raise SourceError("BINLOG_UNKNOWN_FORMAT", f"{path}: {header.why}")
        return BrokenFile(path, size, header.why)
    if max(header.seq, header.first_lsn) >= MAX_NUMBER:
        what = f"{path}: segment {header.seq}, LSN {header.first_lsn}: 2**63 or more"
        raise SourceError("BINLOG_NUMBER_TOO_LARGE", what)
    is_archived = parse_archived_name(os.path.basename(path)) is not None
    is_loose = source.is_partial and not os.path.isdir(source.path)
    is_in_use = is_newest and not source.is_partial
    return Candidate(path, header, size, is_archived, is_in_use, not is_loose)


def _one_of_each(found: Iterable[Candidate]) -> dict[Key, Candidate]:
    """
    Of files that are the same segment, the archived one; in order.

    :raise SourceError: they are not the same.
    """
    chosen: dict[Key, Candidate] = {}
    for each in found:
        key = each.header.store_uuid, each.header.seq
        other = chosen.get(key)
        if other is not None:
            _refuse_different(each, other)
        if other is None or _rank(each) > _rank(other):
            chosen[key] = each
    return dict(sorted(chosen.items()))


def _rank(each: Candidate) -> tuple[bool, bool]:
    """
    What is archived never changes; what is in use does.
    """
    return each.is_archived, not each.is_in_use


def _refuse_different(one: Candidate, other: Candidate) -> None:
    if os.path.samefile(one.path, other.path):
        return
    if one.header == other.header and _ends_alike(one, other):
        return
    raise SourceError(
        "BINLOG_HISTORIES_DIFFER",
        f"{one.path} and {other.path} are both segment {one.header.seq} of store "
        f"{one.header.store_uuid.hex()}, with other bytes: a log that was started from an old copy "
        f"writes another history; read them apart",
    )


def _ends_alike(one: Candidate, other: Candidate) -> bool:
    """
    Whether two files hold the same, as far as the shorter one goes.

    Of one that is in use the header has to do, which has a random number of its own: the other may
    have been copied while it grew.
    """
    if one.is_in_use or other.is_in_use:
        return True
    end = min(one.size, other.size)
    start = max(SEGMENT_HEADER_BYTES, end - COMPARED_BYTES)
    pieces = []
    for each in (one, other):
        with open(each.path, "rb") as file:
            pieces.append(os.pread(file.fileno(), end - start, start))
    return pieces[0] == pieces[1]


def _measured(chosen: Mapping[Key, Candidate], unfinished: "Tail | None") -> list[Segment]:
    """
    How far each segment may be read; those are left out of which nothing may.

    :param unfinished: what says it of those that are being written; None: they are not read.
    """

    def measure(item: tuple[Key, Candidate]) -> Segment | None:
        (store, seq), each = item
        after = chosen.get((store, seq + 1))
        try:
            return _measure(each, after.header if after else _beside(each), unfinished)
        except FileNotFoundError:
            return None

    with ThreadPoolExecutor(LOOKS_AT_ONCE) as pool:
        return [segment for segment in pool.map(measure, chosen.items()) if segment is not None]


def _beside(each: Candidate) -> SegmentHeader | None:
    """
    The successor of a file that was named alone, if it lies beside it.
    """
    if each.from_folder or parse_segment_name(os.path.basename(each.path)) is None:
        return None
    path = os.path.join(os.path.dirname(each.path), segment_name(each.header.seq + 1))
    try:
        with open(path, "rb") as file:
            header = decode_segment_header(file.read(SEGMENT_HEADER_BYTES))
    except OSError:
        return None
    is_next = isinstance(header, SegmentHeader) and header.store_uuid == each.header.store_uuid
    return header if is_next and isinstance(header, SegmentHeader) else None


def _measure(
    each: Candidate, after: SegmentHeader | None, unfinished: "Tail | None"
) -> Segment | None:
    with open(each.path, "rb") as file:
        footer = read_footer(file.fileno(), each.size, each.header)
    if after is not None:
        if footer is not None and footer.end != after.prev_end:
            footer = None
        return _segment(each, after.prev_end, after.first_lsn, footer)
    if footer is not None and (not each.is_in_use or CleanStop.kind in footer.types):
        return _segment(each, footer.end, footer.next_lsn, footer)
    if each.is_archived:
        return _segment(each, _without_trailer(each), None, None)
    return _measure_unfinished(each, unfinished) if unfinished else None


def _segment(each: Candidate, end: int, next_lsn: int | None, footer: Footer | None) -> Segment:
    first_lsn = each.header.first_lsn
    logged = None
    if footer is not None and footer.indexed:
        logged = footer.indexed[0].time_ns, footer.sealed_ns
    stretch = Stretch(SEGMENT_HEADER_BYTES, end, first_lsn)
    size = min(each.size, end)
    return Segment(each.path, each.header, size, stretch, next_lsn, logged, footer)


def _without_trailer(each: Candidate) -> int:
    """
    Where the frames of an archived segment end whose seal cannot be understood.
    """
    with open(each.path, "rb") as file:
        end = os.pread(file.fileno(), TRAILER_BYTES, max(0, each.size - TRAILER_BYTES))
    return each.size - TRAILER_BYTES if end.endswith(b"TQLEND\r\n") else each.size


Tail = Callable[[memoryview, SegmentHeader, Stretch, bool], Durable]
"""What says how far the newest segment is read."""

_TAILS: Final[tuple[Tail, Tail]] = (durable_part, loaded_part)


def _measure_unfinished(each: Candidate, tail: Tail) -> Segment | None:
    """
    A segment that a server may be writing, or was writing when it crashed.
    """
    source = Source(each.path, lambda: {os.path.basename(each.path): each.path}, is_partial=True)
    buffer = memoryview(source.read(os.path.basename(each.path)))
    whole = Stretch(SEGMENT_HEADER_BYTES, _without_trailer(each), each.header.first_lsn)
    is_complete = each.from_folder and not each.is_in_use
    found = tail(buffer, each.header, whole, is_complete)
    if found.end == SEGMENT_HEADER_BYTES:
        return None
    stretch = Stretch(SEGMENT_HEADER_BYTES, found.end, each.header.first_lsn)
    logged = (found.first_ns, found.last_ns)
    is_whole = found.last_ns and found.end <= len(buffer)
    size = min(found.end, len(buffer))
    return Segment(
        each.path, each.header, size, stretch, found.next_lsn if is_whole else None,
        logged if is_whole else None, None,
    )  # fmt: skip


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
        is_archived = parse_archived_name(os.path.basename(before.path)) is not None
        is_trimmed = after.header.seq <= trimmed[store] and not is_archived
        if {before.key, after.key} <= folders and not is_trimmed:
            yield Gap(before, after)
