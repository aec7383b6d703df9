"""
Which files are segments, each once: one may lie in the directory of a server and in its archive.
"""

import glob
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.format import (
    SEGMENT_HEADER_BYTES,
    HeaderProblem,
    SegmentHeader,
    decode_segment_header,
)
from binlog_tools.logs.sources import Source, parse_archived_name
from binlog_tools.spark.definitions.errors import SourceError, unreadable
from binlog_tools.spark.segments.footers import read_footer
from binlog_tools.spark.segments.framing import MAX_NUMBER, Stretch, is_intact

LOOKS_AT_ONCE: Final = 16
"""Files whose headers are read at the same time: on network storage each takes milliseconds."""

COMPARED_BYTES: Final = 64 << 10
"""How much of the ends of two files that should be the same segment is compared."""

_UUID_AT: Final = slice(64, 80)
"""Where in a header the store is named."""

Key = tuple[bytes, int]
"""What tells segments apart: their store and their number in it."""


class Candidate(NamedTuple):
    """
    A file that is a segment.

    :ivar is_archived: it is complete, and never changes.
    :ivar is_in_use: it lies in the directory of a server, and is the newest one there.
    :ivar from_folder: it was found in a folder, all of whose segments are asked for.
    :ivar copies: other files that are the same segment.
    """

    path: str
    header: SegmentHeader
    size: int
    is_archived: bool
    is_in_use: bool
    from_folder: bool
    copies: tuple[str, ...] = ()


class BrokenFile(NamedTuple):
    """
    A file whose header cannot be used.

    :ivar may_be: the segment that it is, by its name and what is left of its header.
    """

    path: str
    size: int
    why: str
    may_be: Key


def expanded(path: str) -> list[str]:
    """
    :return: what it names, in order; empty if there is nothing.
    :raise SourceError: something is there or not, but nobody lets us look.
    """
    path = path.removeprefix("file://")
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return sorted(glob.glob(path))
    except OSError as problem:
        raise unreadable(problem, path) from None
    return [path]


def candidates(source: Source) -> Iterator[Candidate | BrokenFile]:
    """
    The segments of a source, their headers read.
    """
    names = source.segment_names()
    newest = max(names, default=0)

    def look(item: tuple[int, str]) -> Candidate | BrokenFile | None:
        seq, name = item
        return _look(source, name, seq, seq == newest)

    with ThreadPoolExecutor(LOOKS_AT_ONCE) as pool:
        for found in pool.map(look, names.items()):
            if found is not None:
                yield found


def _look(source: Source, name: str, seq: int, is_newest: bool) -> Candidate | BrokenFile | None:
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
        return BrokenFile(path, size, header.why, (raw[_UUID_AT], seq))
    if max(header.seq, header.first_lsn) >= MAX_NUMBER:
        what = f"{path}: segment {header.seq}, LSN {header.first_lsn}: 2**63 or more"
        raise SourceError("BINLOG_NUMBER_TOO_LARGE", what)
    is_archived = parse_archived_name(os.path.basename(path)) is not None
    is_loose = source.is_partial and not os.path.isdir(source.path)
    is_in_use = is_newest and not source.is_partial
    return Candidate(path, header, size, is_archived, is_in_use, not is_loose)


def one_of_each(found: Iterable[Candidate]) -> dict[Key, Candidate]:
    """
    Of files that are the same segment, the archived one, with the others as its copies; in order.
    Where their ends differ, one that is not damaged.

    :raise SourceError: they are not the same.
    """
    chosen: dict[Key, Candidate] = {}
    for each in found:
        key = each.header.store_uuid, each.header.seq
        other = chosen.get(key)
        chosen[key] = each if other is None else _better(other, each)
    return dict(sorted(chosen.items()))


def _better(one: Candidate, other: Candidate) -> Candidate:
    """
    Which of two files is read.  What lies in two places under one inode is no copy.
    """
    best, worst = (other, one) if _rank(other) > _rank(one) else (one, other)
    if os.path.samefile(one.path, other.path):
        return best
    if one.header != other.header:
        raise _different(one, other)
    if not _ends_alike(one, other):
        sound = [each for each in (best, worst) if _is_whole(each)]
        if len(sound) > 1:
            raise _different(one, other)
        if sound == [worst]:
            best, worst = worst, best
    return best._replace(copies=(*best.copies, worst.path, *worst.copies))


def _is_whole(each: Candidate) -> bool:
    with open(each.path, "rb") as file:
        footer = read_footer(file.fileno(), each.size, each.header)
        buffer = memoryview(file.read())
    end = footer.end if footer is not None else len(buffer)
    stretch = Stretch(SEGMENT_HEADER_BYTES, end, each.header.first_lsn)
    return is_intact(buffer, each.header, stretch, "frames", with_bodies=True)


def _rank(each: Candidate) -> tuple[bool, bool]:
    return each.is_archived, not each.is_in_use


def _different(one: Candidate, other: Candidate) -> SourceError:
    return SourceError(
        "BINLOG_HISTORIES_DIFFER",
        f"{one.path} and {other.path} are both segment {one.header.seq} of store "
        f"{one.header.store_uuid.hex()}, with other bytes: a log that was started from an old copy "
        f"writes another history; read them apart",
    )


def _ends_alike(one: Candidate, other: Candidate) -> bool:
    """
    Whether two files hold the same, as far as the shorter one goes.  Of one in use the header has
    to do: the other may have been copied while it grew.
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
