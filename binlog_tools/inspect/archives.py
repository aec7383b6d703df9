"""Is an archive whole?  Each segment of a store once, sound, and every LSN there."""

import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.archive import PART
from beanstalk_twisted.binlog.archive_manifest import (
    MANIFEST,
    NAMES,
    RECENT,
    Incomplete,
    Manifest,
    Unusable,
    decode_entry,
    decode_manifest,
    describe,
)
from beanstalk_twisted.binlog.directory import RealDirectory
from beanstalk_twisted.binlog.reading.segment import is_sealed, walk
from beanstalk_twisted.binlog.reading.survey import unknown_format
from beanstalk_twisted.binlog.segments.format import (
    SEGMENT_HEADER_BYTES,
    HeaderProblem,
    SegmentHeader,
    archive_name,
    decode_segment_header,
    parse_segment_name,
)
from beanstalk_twisted.binlog.segments.frames import Frame
from beanstalk_twisted.object_storage.store import Store, is_url
from beanstalk_twisted.replication.stream.addresses import is_stream
from binlog_tools.console.wording import told
from binlog_tools.logs.opening import folders_in, store_at
from binlog_tools.logs.outputs import new_file
from binlog_tools.logs.quantities import Span
from binlog_tools.logs.reading import remarks
from binlog_tools.logs.sources import ArchivedName, NoLog, archived_among, parse_archived_name

FILES = frozenset([*NAMES, *(name + PART for name in NAMES)])


class Flaw(NamedTuple):
    """Something that is wrong with an archive.

    :ivar kind: ``hole``, ``overlap``, ``duplicate``, ``damaged``, ``misnamed``, ``foreign``,
        ``stray``; ``manifest``, it says what is not so, or ``stale``.
    :ivar file: its name; for a hole, the file behind it.
    :ivar first_lsn: of what is missing, spoilt or there twice; None if it is not about records.
    """

    kind: str
    file: str
    first_lsn: int | None
    last_lsn: int | None
    what: str


Folder = RealDirectory | Store
"""Where the segments of one store are kept."""


class Extent(NamedTuple):
    """How far a segment reaches; ``size`` is that of its file, bytes."""

    size: int
    end: int
    next_lsn: int


def described(store: Folder, sound: Mapping[str, Extent]) -> dict[int, bytes]:
    """What a manifest should say of sound segments, by sequence number."""
    headers = {name: _readable_header(store, name) for name in sound}
    by_seq = {header.seq: header for header in headers.values() if header is not None}
    entries = {}
    for name, header in headers.items():
        if header is None or archive_name(header.seq, header.first_lsn) != name:
            continue
        entry = _entry(store, sound[name], header, name, by_seq.get(header.seq + 1))
        if entry is not None:
            entries[header.seq] = entry
    return entries


def _entry(
    store: Folder, extent: Extent, header: SegmentHeader, name: str, after: SegmentHeader | None
) -> bytes | None:
    """Of the segment in which a server was killed nothing in it says where it ends, and while its
    successor is in use only the log has that: it ends where its last frame does.
    """
    read = partial(store.read, name)
    entry = describe(read, extent.size, after)
    if entry is not None or after is not None:
        return entry
    ends = header._replace(seq=header.seq + 1, first_lsn=extent.next_lsn, prev_end=extent.end)
    return describe(read, extent.size, ends)


def _readable_header(store: Folder, name: str) -> SegmentHeader | None:
    found = decode_segment_header(bytes(store.read(name, 0, SEGMENT_HEADER_BYTES)))
    return found if isinstance(found, SegmentHeader) else None


def manifest_remarks(store: Folder, entries: Mapping[int, bytes]) -> Iterator[Flaw]:
    """What is not as it should be, if there is a manifest."""
    # Also a directory, or a link that leads nowhere.
    is_local, names = isinstance(store, RealDirectory), store.names()
    there = [
        name
        for name in NAMES
        if name in names or (is_local and os.path.lexists(os.path.join(store.path, name)))
    ]
    spoken: set[int] = set()
    for name in there:
        try:
            found = decode_manifest(bytes(store.read(name)))
        except OSError as problem:
            why = problem.strerror or str(problem)
            yield Flaw("stale", name, None, None, f"it cannot be read: {why}; it is not used")
            continue
        if isinstance(found, Incomplete):
            yield Flaw("stale", name, None, None, f"it is cut off at {told(found.size, 'byte')}")
        elif isinstance(found, Unusable):
            yield Flaw("stale", name, None, None, f"{found.why}; it is not used")
        else:
            spoken |= found.entries.keys()
            yield from _of_entries(name, found.entries, entries)
    lacking = sorted(entries.keys() - spoken)
    if there and lacking:
        what = f"it lacks {told(len(lacking), 'segment')}, the first one is {lacking[0]}"
        yield Flaw("stale", there[-1], None, None, what)


def _of_entries(
    name: str, found: Mapping[int, bytes], entries: Mapping[int, bytes]
) -> Iterator[Flaw]:
    gone = sorted(found.keys() - entries.keys())
    if gone:
        what = f"it speaks of {told(len(gone), 'segment')} that cannot be read here, the first "
        yield Flaw("stale", name, None, None, f"{what}one is {gone[0]}")
    for seq in sorted(found.keys() & entries.keys()):
        said, true = decode_entry(found[seq]), decode_entry(entries[seq])
        if said is None or true is None or said == true:
            continue
        if (said.name, said.size) == (true.name, true.size):
            yield Flaw("manifest", name, None, None, f"what it says of segment {seq} is not so")
        else:
            yield Flaw("stale", name, None, None, f"it speaks of another file of segment {seq}")


def write(store: Folder, entries: Mapping[int, bytes]) -> Sequence[str]:
    """Write the manifest of a store, and give the names of its files.

    :raise OSError: it cannot be written.
    """
    headers = (_readable_header(store, name) for name in store.names() if name.endswith(".tql"))
    uuids = {header.store_uuid for header in headers if header is not None}
    if len(uuids) != 1:
        return []
    (uuid,) = uuids
    _put(store, MANIFEST, Manifest(uuid, entries).encode())
    if RECENT not in store.names():
        return [MANIFEST]
    _put(store, RECENT, Manifest(uuid, {}).encode())
    return NAMES


def _put(store: Folder, name: str, content: bytes) -> None:
    if isinstance(store, RealDirectory):
        with new_file(os.path.join(store.path, name)) as out:
            out.write(content)
    else:
        store.write(name, [content])


CRC_BYTES: Final = 1 << 20


class Stored(NamedTuple):
    name: str
    seq: int
    first_lsn: int
    extent: Extent


class Verdict(NamedTuple):
    """One store of an archive.

    :ivar spans: the LSNs that can be read, without gaps each.
    :ivar manifest: what the manifest should say, an entry for each sound segment.
    """

    path: str
    segments: int
    records: int
    spans: list[Span]
    flaws: list[Flaw]
    manifest: Mapping[int, bytes]

    @property
    def is_whole(self) -> bool:
        """Return True if nothing is wrong; stray files and a stale manifest do not count."""
        return all(flaw.kind in ("stray", "stale") for flaw in self.flaws)


def lsn_range(first: int, last: int | None) -> str:
    return f"LSN {first} and later" if last is None else f"LSN {Span(first, last)}"


def stores_of(path: str) -> Sequence[Folder]:
    """The folders of the stores in an archive; the folder itself, if it is one.

    :param path: of a directory, or a URL of object storage.
    :raise NoLog: there is none.
    """
    if is_stream(path):
        raise NoLog(path, f"this is a stream, no archive; see 'binlog-inspect check {path}'")
    if is_url(path):
        return folders_in(store_at(path), path)

    def is_store(folder: str) -> bool:
        return bool(archived_among(os.listdir(folder)))

    if is_store(path):
        return [RealDirectory(path)]
    folders = sorted(entry.path for entry in os.scandir(path) if entry.is_dir())
    found = [RealDirectory(folder) for folder in filter(is_store, folders)]
    if not found:
        raise NoLog.no_archive(path, os.listdir(path))
    return found


def verify(store: Folder) -> Verdict:
    """:raise OSError: the store cannot be read."""
    flaws: list[Flaw] = []
    names = _one_of_each(store, flaws)
    found: list[Stored] = []
    for at, name in enumerate(names):
        following = names[at + 1] if at + 1 < len(names) else None
        stored = _look(store, name, following, flaws)
        if stored is not None:
            found.append(stored)
    flaws += _chain(found)
    spoilt = {flaw.file for flaw in flaws if flaw.kind in ("damaged", "misnamed", "foreign")}
    sound = {each.name: each.extent for each in found if each.name not in spoilt}
    entries = described(store, sound)
    flaws += manifest_remarks(store, entries)
    records = sum(each.extent.next_lsn - each.first_lsn for each in found)
    return Verdict(store.path, len(found), records, _spans(found, flaws), flaws, entries)


def _one_of_each(store: Folder, flaws: list[Flaw]) -> list[str]:
    """The names of the segments in order, one file of each: the rightly named, if there is one."""
    for name in store.names():
        if not parse_archived_name(name) and name not in FILES:
            what = "this is no segment of an archive"
            if name.endswith(PART):
                what = "a copy that was begun and not finished"
            elif parse_segment_name(name) is not None:
                what = "a segment under its name in a server's directory"
            flaws.append(Flaw("stray", name, None, None, what))
    by_seq: dict[int, str] = {}
    for claim in sorted(_claims(store)):
        other = by_seq.setdefault(claim.seq, claim.name)
        if other != claim.name:
            flaws.append(_duplicate(store, claim, other))
    return list(by_seq.values())


class _Claim(NamedTuple):
    """What a file says that it is; claims are believed in their order."""

    seq: int
    is_misnamed: bool
    said: ArchivedName
    name: str


def _claims(store: Folder) -> Iterator[_Claim]:
    for name in store.names():
        said = parse_archived_name(name)
        if said is not None:
            header = _header(store, name)
            # A spoilt header says nothing.
            true = said if isinstance(header, str) else (header.seq, header.first_lsn)
            yield _Claim(true[0], true != said, said, name)


def _duplicate(store: Folder, claim: _Claim, other: str) -> Flaw:
    header = _header(store, claim.name)
    first, last = claim.said.first_lsn, None
    if isinstance(header, SegmentHeader):
        held = _walk(store, claim.name, header, None, [])
        first, last = held.first_lsn, max(held.first_lsn, held.extent.next_lsn - 1)
    same = _crc(store, claim.name) == _crc(store, other)
    what = f"segment {claim.seq} is there twice, also as {other}, "
    what += "with the same bytes" if same else "with other bytes"
    return Flaw("duplicate", claim.name, first, last, what)


def _crc(store: Folder, name: str) -> tuple[int, int]:
    crc = size = 0
    while chunk := store.read(name, size, size + CRC_BYTES):
        crc, size = zlib.crc32(chunk, crc), size + len(chunk)
    return size, crc


def _header(store: Folder, name: str) -> SegmentHeader | str:
    found = decode_segment_header(bytes(store.read(name, 0, SEGMENT_HEADER_BYTES)))
    if isinstance(found, HeaderProblem) and found.foreign:
        raise unknown_format(store.path, f"{name}: {found.why}")
    return found if isinstance(found, SegmentHeader) else found.why


def _look(store: Folder, name: str, following: str | None, flaws: list[Flaw]) -> Stored | None:
    said = parse_archived_name(name)
    assert said is not None
    header = _header(store, name)
    if isinstance(header, str):
        flaws.append(Flaw("damaged", name, said.first_lsn, None, header))
        return None
    folder = os.path.basename(os.path.abspath(store.path)).replace("-", "")
    if len(folder) == 32 and header.store_uuid.hex() != folder:
        what = f"it belongs to another store ({header.store_uuid.hex()})"
        flaws.append(Flaw("foreign", name, None, None, what))
        return None
    if (header.seq, header.first_lsn) != said:
        what = f"its header says segment {header.seq}, LSN {header.first_lsn}"
        flaws.append(Flaw("misnamed", name, None, None, what))
    successor = _header(store, following) if following else None
    end = None
    if isinstance(successor, SegmentHeader) and successor.seq == header.seq + 1:
        end = successor.prev_end
    return _walk(store, name, header, end, flaws)


def _walk(
    store: Folder, name: str, header: SegmentHeader, end: int | None, flaws: list[Flaw]
) -> Stored:
    buffer = store.read(name)
    next_lsn = header.first_lsn
    last: Frame | None = None
    is_sound = True
    for piece in walk(buffer, header, end):
        if isinstance(piece, Frame):
            next_lsn, last = piece.next_lsn, piece
        elif last and piece.offset == last.end and is_sealed(buffer, header, last):
            break
        else:
            is_sound = False
            last_lsn = piece.next_lsn - 1 if piece.next_lsn else None
            what = f"offset {piece.offset}: {piece.why}"
            flaws.append(Flaw("damaged", name, piece.first_lsn, last_lsn, what))
            next_lsn = piece.next_lsn or next_lsn
    frames_end = last.end if last else SEGMENT_HEADER_BYTES
    if is_sound:
        flaws += (
            Flaw("damaged", name, None, None, f"offset {at}: {what}; no record is missing")
            for at, _, what in remarks(buffer, last, frames_end)
        )
    extent = Extent(len(buffer), frames_end, next_lsn)
    return Stored(name, header.seq, header.first_lsn, extent)


def _chain(found: list[Stored]) -> Iterator[Flaw]:
    for before, after in pairwise(found):
        missing, next_lsn = Span(before.seq + 1, after.seq - 1), before.extent.next_lsn
        segments = f"segment {missing} is missing" if missing.first == missing.last else ""
        if missing.first < missing.last:
            segments = f"segments {missing} are missing"
        if after.first_lsn > next_lsn:
            what = segments or f"{before.name} ends before it"
            yield Flaw("hole", after.name, next_lsn, after.first_lsn - 1, what)
        elif after.first_lsn < next_lsn:
            what = f"{before.name} has these LSNs too"
            last = min(next_lsn, after.extent.next_lsn) - 1
            yield Flaw("overlap", after.name, after.first_lsn, last, what)
        elif segments:
            yield Flaw("hole", after.name, None, None, f"{segments}, but no LSN is")


def _spans(found: list[Stored], flaws: list[Flaw]) -> list[Span]:
    gaps = sorted(
        (flaw.first_lsn, flaw.last_lsn)
        for flaw in flaws
        if flaw.kind == "damaged" and flaw.first_lsn is not None and flaw.last_lsn is not None
    )
    spans: list[Span] = []
    for each in found:
        at, next_lsn = each.first_lsn, each.extent.next_lsn
        for first, last in [gap for gap in gaps if at <= gap[0] < next_lsn]:
            _extend(spans, at, first - 1)
            at = last + 1
        _extend(spans, at, next_lsn - 1)
    return spans


def _extend(spans: list[Span], first: int, last: int) -> None:
    if last < first:
        return
    if spans and spans[-1].last + 1 >= first:
        spans[-1] = Span(spans[-1].first, max(spans[-1].last, last))
    else:
        spans.append(Span(first, last))
