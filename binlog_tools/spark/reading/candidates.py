"""Which files are segments, each once: one may lie in the directory of a server and in its
archive.
"""

import contextlib
import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.archive_manifest import NAMES, Entry, known_segments
from beanstalk_twisted.binlog.segments.format import (
    SEGMENT_HEADER_BYTES,
    HeaderProblem,
    SegmentHeader,
    decode_segment_header,
    parse_segment_name,
)
from beanstalk_twisted.binlog.segments.seals import read_seal
from beanstalk_twisted.object_storage.store import is_url
from binlog_tools.logs.sources import (
    NoLog,
    Source,
    is_servers,
    is_store_name,
    named_as_in_a_log,
    parse_archived_name,
)
from binlog_tools.spark.definitions.addresses import name_of, split
from binlog_tools.spark.definitions.errors import SourceError, unknown_format
from binlog_tools.spark.files.listing import Folder, files_at, folder_at, names_a_segment
from binlog_tools.spark.files.opening import BadRange, LocalFile, LogFile, open_file
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
    """A file that is a segment.

    :ivar path: or its URL.
    :ivar is_archived: it is complete, and never changes.
    :ivar is_in_use: it lies in the directory of a server, and is the newest one there.
    :ivar from_folder: it was found in a folder, all of whose segments are asked for.
    :ivar copies: other files that are the same segment.
    :ivar known: what the manifest beside it says; then it was not opened.
    """

    path: str
    header: SegmentHeader
    size: int
    is_archived: bool
    is_in_use: bool
    from_folder: bool
    copies: tuple[str, ...] = ()
    known: Entry | None = None


class BrokenFile(NamedTuple):
    """A file whose header cannot be used.

    :ivar may_be: the segment that it is, by its name and what is left of its header.
    """

    path: str
    size: int
    why: str
    may_be: Key


class _File(NamedTuple):
    """A file that may be a segment.

    :ivar open: opens it.
    :ivar seq: what its name says.
    :ivar known: what a manifest says of it.
    """

    path: str
    seq: int
    open: Callable[[], LogFile]
    is_in_use: bool
    from_folder: bool
    known: Entry | None = None


def candidates(source: Source) -> Iterator[Candidate | BrokenFile]:
    """The segments of a local source, their headers read."""
    names = source.segment_names()
    newest = max(names, default=0)
    is_loose = source.is_partial and not os.path.isdir(source.path)
    known = _known_in(_sized(source.path)) if source.is_archive else {}

    def opener(path: str, name: str) -> Callable[[], LogFile]:
        return lambda: LocalFile(path, source.open(name))

    return _looked_at(
        _File(
            path := source.path_of(name), seq, opener(path, name),
            seq == newest and not source.is_partial, not is_loose, known.get(name_of(path)),
        )
        for seq, name in names.items()
    )  # fmt: skip


def remote_candidates(url: str) -> Iterator[Candidate | BrokenFile]:
    """The segments at a URL: of a server's directory that was copied there, an archive, a store in
    one, or one file.

    :raise NoLog: there are none.
    :raise BadUrl: it names no store.
    """
    if names_a_segment(url):
        seq = _seq_of(name_of(url))
        return _looked_at([_File(url, seq, lambda: open_file(url), False, False)])
    top = folder_at(url)
    every = [top, *(Folder(path, files_at(path), ()) for path in map(top.within, top.stores))]
    files = [file for folder in every for file in _files_in(folder)]
    if not files:
        raise NoLog(url)
    return _looked_at(files)


def _sized(path: str) -> Folder:
    """A local folder, with the sizes of its files."""
    sizes = {}
    with os.scandir(path) as entries:
        for each in entries:
            # A link may lead nowhere; what is a segment is opened, and then told.
            with contextlib.suppress(OSError):
                sizes[each.name] = each.stat().st_size
    return Folder(path, sizes, ())


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


def _seq_of(name: str) -> int:
    archived = parse_archived_name(name)
    return archived.seq if archived is not None else parse_segment_name(name) or 0


def _files_in(folder: Folder) -> list[_File]:
    is_live = is_servers(folder.sizes)
    named = {name: name for name in folder.sizes}
    if not is_live:
        named = named_as_in_a_log(folder.address, folder.sizes)
    numbers = {
        own: seq for name, own in named.items() if (seq := parse_segment_name(name)) is not None
    }
    newest = max(numbers.values(), default=0)
    known = {} if is_live else _known_in(folder)

    def opener(path: str, size: int) -> Callable[[], LogFile]:
        return lambda: open_file(path, size)

    return [
        _File(
            path := folder.within(name), seq, opener(path, folder.sizes[name]),
            seq == newest and is_live, True, known.get(name),
        )
        for name, seq in sorted(numbers.items(), key=lambda item: item[1])
    ]  # fmt: skip


def _looked_at(files: Iterable[_File]) -> Iterator[Candidate | BrokenFile]:
    """:param files: those of which a manifest speaks are not opened."""
    files = list(files)
    yield from (_as_known(each, each.known) for each in files if each.known is not None)
    files = [each for each in files if each.known is None]
    with ThreadPoolExecutor(LOOKS_AT_ONCE) as pool:
        for found in pool.map(_look, files):
            if found is not None:
                yield found


def _as_known(each: _File, known: Entry) -> Candidate:
    _refuse_large(each.path, known.header)
    return Candidate(
        each.path, known.header, known.size, True, False, each.from_folder, known=known
    )


def _look(each: _File) -> Candidate | BrokenFile | None:
    """One file; None if a server has deleted it meanwhile."""
    try:
        with each.open() as file:
            size, raw = file.size, file.read(0, SEGMENT_HEADER_BYTES)
    except FileNotFoundError:
        if not each.from_folder:
            raise
        return None
    except BadRange as problem:
        store = _store_at(split(each.path)[0]) or b""
        return BrokenFile(each.path, 0, problem.strerror or str(problem), (store, each.seq))
    path, header = each.path, decode_segment_header(raw)
    if isinstance(header, HeaderProblem):
        if header.foreign:
            raise unknown_format(path, header.why)
        return BrokenFile(path, size, header.why, (raw[_UUID_AT], each.seq))
    _refuse_large(path, header)
    is_archived = parse_archived_name(name_of(path)) is not None
    return Candidate(path, header, size, is_archived, each.is_in_use, each.from_folder)


def _refuse_large(path: str, header: SegmentHeader) -> None:
    if max(header.seq, header.first_lsn) >= MAX_NUMBER:
        what = f"{path}: segment {header.seq}, LSN {header.first_lsn}: 2**63 or more"
        raise SourceError("BINLOG_NUMBER_TOO_LARGE", what)


def one_of_each(found: Iterable[Candidate]) -> dict[Key, Candidate]:
    """Of files that are the same segment, the archived one, with the others as its copies; in
    order.  Where their ends differ, one that is not damaged.

    :raise SourceError: they are not the same.
    """
    chosen: dict[Key, Candidate] = {}
    for each in found:
        key = each.header.store_uuid, each.header.seq
        other = chosen.get(key)
        chosen[key] = each if other is None else _better(other, each)
    return dict(sorted(chosen.items()))


def _better(one: Candidate, other: Candidate) -> Candidate:
    """Which of two files is read.  What lies in two places under one inode is no copy."""
    best, worst = (other, one) if _rank(other) > _rank(one) else (one, other)
    if _is_one_file(one.path, other.path):
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


def _is_one_file(one: str, other: str) -> bool:
    if is_url(one) or is_url(other):
        return one == other
    return os.path.samefile(one, other)


def _is_whole(each: Candidate) -> bool:
    try:
        with open_file(each.path, each.size) as file:
            seal = read_seal(file.read, each.size, each.header)
            buffer = memoryview(file.read(0, file.size))
    except BadRange:
        return False
    end = seal.end if seal is not None else len(buffer)
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
    """Whether two files hold the same, as far as the shorter one goes.  Of one in use the header
    has to do: the other may have been copied while it grew.
    """
    if one.is_in_use or other.is_in_use:
        return True
    end = min(one.size, other.size)
    start = max(SEGMENT_HEADER_BYTES, end - COMPARED_BYTES)
    pieces = []
    for each in (one, other):
        try:
            with open_file(each.path, each.size) as file:
                pieces.append(file.read(start, end))
        except BadRange:
            return False
    return pieces[0] == pieces[1]
