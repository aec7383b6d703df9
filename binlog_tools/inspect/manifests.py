"""Does the manifest of a store in an archive say what its segments say?  And writing it anew."""

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from beanstalk_twisted.binlog.archiving.archive import PART
from beanstalk_twisted.binlog.archiving.manifest import (
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
from beanstalk_twisted.binlog.directory import Readable
from beanstalk_twisted.binlog.segments.format import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    archive_name,
    decode_segment_header,
)
from binlog_tools.console.wording import told
from binlog_tools.logs.objects import ObjectFolder
from binlog_tools.logs.outputs import new_file

FILES = frozenset([*NAMES, *(name + PART for name in NAMES)])
"""What belongs to a manifest, and is no segment."""


class Remark(NamedTuple):
    """
    Something about a file of a manifest.

    :ivar is_false: it says what is not so; else it is stale, which costs readers time only.
    """

    name: str
    what: str
    is_false: bool


class Extent(NamedTuple):
    """
    How far a segment reaches.

    :ivar size: of its file, bytes.
    :ivar end: where its frames end.
    :ivar next_lsn: the first LSN behind it.
    """

    size: int
    end: int
    next_lsn: int


def described(store: Readable, sound: Mapping[str, Extent]) -> dict[int, bytes]:
    """
    What a manifest should say of segments that were found sound, by sequence number.

    :param sound: by name.
    """
    headers = {name: _header(store, name) for name in sound}
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
    store: Readable, extent: Extent, header: SegmentHeader, name: str, after: SegmentHeader | None
) -> bytes | None:
    """
    Of the segment in which a server was killed nothing in it says where it ends, and while its
    successor is in use only the log has that: it ends where its last frame does.
    """
    read = partial(store.read_part, name)
    entry = describe(read, extent.size, after)
    if entry is not None or after is not None:
        return entry
    ends = header._replace(seq=header.seq + 1, first_lsn=extent.next_lsn, prev_end=extent.end)
    return describe(read, extent.size, ends)


def _header(store: Readable, name: str) -> SegmentHeader | None:
    found = decode_segment_header(bytes(store.read_part(name, 0, SEGMENT_HEADER_BYTES)))
    return found if isinstance(found, SegmentHeader) else None


def remarks(store: Readable, entries: Mapping[int, bytes]) -> Iterator[Remark]:
    """
    What is not as it should be, if there is a manifest.

    :param entries: as `described` makes them.
    """
    there = [name for name in NAMES if _is_there(store, name)]
    spoken: set[int] = set()
    for name in there:
        try:
            found = decode_manifest(bytes(store.read(name)))
        except OSError as problem:
            why = problem.strerror or str(problem)
            yield Remark(name, f"it cannot be read: {why}; it is not used", is_false=False)
            continue
        if isinstance(found, Incomplete):
            yield Remark(name, f"it is cut off at {told(found.size, 'byte')}", is_false=False)
        elif isinstance(found, Unusable):
            yield Remark(name, f"{found.why}; it is not used", is_false=False)
        else:
            spoken |= found.entries.keys()
            yield from _of_entries(name, found.entries, entries)
    lacking = sorted(entries.keys() - spoken)
    if there and lacking:
        what = f"it lacks {told(len(lacking), 'segment')}, the first one is {lacking[0]}"
        yield Remark(there[-1], what, is_false=False)


def _is_there(store: Readable, name: str) -> bool:
    """Whether anything is called so, be it a directory or a link that leads nowhere."""
    if name in store.names():
        return True
    return not isinstance(store, ObjectFolder) and os.path.lexists(os.path.join(store.path, name))


def _of_entries(
    name: str, found: Mapping[int, bytes], entries: Mapping[int, bytes]
) -> Iterator[Remark]:
    gone = sorted(found.keys() - entries.keys())
    if gone:
        what = f"it speaks of {told(len(gone), 'segment')} that cannot be read here, the first "
        yield Remark(name, f"{what}one is {gone[0]}", is_false=False)
    for seq in sorted(found.keys() & entries.keys()):
        said, true = decode_entry(found[seq]), decode_entry(entries[seq])
        if said is None or true is None or said == true:
            continue
        if (said.name, said.size) == (true.name, true.size):
            yield Remark(name, f"what it says of segment {seq} is not so", is_false=True)
        else:
            what = f"it speaks of another file of segment {seq}"
            yield Remark(name, what, is_false=False)


def write(store: Readable, entries: Mapping[int, bytes]) -> Sequence[str]:
    """
    Write the manifest of a store anew.

    :return: the names of the files.
    :raise OSError: it cannot be written.
    """
    uuids = {header.store_uuid for name in store.names() if (header := _of(store, name))}
    if len(uuids) != 1:
        return []
    (uuid,) = uuids
    _put(store, MANIFEST, Manifest(uuid, entries).encode())
    if RECENT not in store.names():
        return [MANIFEST]
    _put(store, RECENT, Manifest(uuid, {}).encode())
    return NAMES


def _of(store: Readable, name: str) -> SegmentHeader | None:
    return _header(store, name) if name.endswith(".tql") else None


def _put(store: Readable, name: str, content: bytes) -> None:
    if isinstance(store, ObjectFolder):
        store.write(name, content)
        return
    with new_file(os.path.join(store.path, name)) as out:
        out.write(content)
