"""The manifest of a store in an archive: what readers ask of each segment before it is opened, in
two files (docs/binlog-format.md, "The manifest").
"""

import struct
import zlib
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.segments.format import (
    SEGMENT_HEADER,
    SEGMENT_HEADER_BYTES,
    TUBE_IN_SEAL_BYTES,
    U32,
    SegmentHeader,
    archive_name,
    decode_header_fields,
    decode_segment_header,
)
from beanstalk_twisted.binlog.segments.seals import ReadPart, SealIndex, decode_seal, read_seal

MANIFEST: Final = "manifest.tqm"
"""The file with all but the newest segments."""

RECENT: Final = "manifest-recent.tqm"
"""The file with the newest segments, written again after each delivery."""

NAMES: Final = (MANIFEST, RECENT)
"""The files of a manifest; of two entries for one segment that of the later one counts."""

MAX_ENTRIES: Final = 262_144
"""Segments in a manifest: 16 TiB of full ones, or 2.5 years of one every five minutes.  The newest
are kept; readers open the others.
"""

MAX_INFLATED_BYTES: Final = 256 << 20
"""Of the entries of one file, which a reader holds; `MAX_ENTRIES` take 190 MB as a rule."""

MAX_INDEXED: Final = 16
"""Frames in an entry's index: every 4 MiB of 64 MiB, so that one segment makes several tasks."""

MAX_TUBE_BYTES: Final = 4096
"""Of the tubes in an entry; where there are more they are left out, and a reader asks the seal."""

_MAGIC: Final = b"\x89TQM\r\n\x1a\n"
_MAJOR: Final = 1
_HEAD: Final = struct.Struct("<8sHHI16sQQIIII")
_ENTRY: Final = struct.Struct("<IIQQQqq160s")
_SEALED: Final = 1
_WITHOUT_TUBES: Final = 2
_SEQ_AT: Final = 48 + 16
"""Where in an entry its segment's sequence number stands."""

assert _HEAD.size == 64
assert _ENTRY.size == 48 + SEGMENT_HEADER.size


class Entry(NamedTuple):
    """What a manifest says of a segment.

    :ivar next_lsn: the first LSN after it.
    :ivar logged_ns: when its first and last frames were built; None if that is not known.
    :ivar seal: its seal, with `MAX_INDEXED` frames at most; None if it has none.
    :ivar names_tubes: whether ``seal.tubes`` are all of its tubes; else they are empty.
    """

    header: SegmentHeader
    size: int
    end: int
    next_lsn: int
    logged_ns: tuple[int, int] | None = None
    seal: SealIndex | None = None
    names_tubes: bool = True

    @property
    def name(self) -> str:
        return archive_name(self.header.seq, self.header.first_lsn)


class Incomplete(NamedTuple):
    """No manifest yet: the file ends too early; it was being written, or its writer was killed."""

    size: int


class Unusable(NamedTuple):
    """No manifest: the bytes cannot be right; or, ``is_foreign``, they are of a newer version."""

    offset: int
    why: str
    is_foreign: bool = False


class Manifest(NamedTuple):
    """One file of a manifest, its encoded entries by sequence number, ascending."""

    store_uuid: bytes
    entries: Mapping[int, bytes]

    def encode(self) -> bytes:
        """:return: the file, with the newest entries if there are more than it may have."""
        kept = _newest(self.entries)
        inflated = b"".join(kept)
        body = zlib.compress(inflated, 6)
        head = _HEAD.pack(
            _MAGIC, _MAJOR, 0, _HEAD.size, self.store_uuid, len(body), len(inflated), len(kept),
            zlib.crc32(body), 0, 0,
        )[:-4]  # fmt: skip
        return head + U32.pack(zlib.crc32(head)) + body


def _newest(entries: Mapping[int, bytes], most: int = MAX_INFLATED_BYTES) -> list[bytes]:
    kept: list[bytes] = []
    size = 0
    for _, raw in sorted(entries.items(), reverse=True)[:MAX_ENTRIES]:
        size += len(raw)
        if size > most:
            break
        kept.append(raw)
    return kept[::-1]


def decode_manifest(raw: bytes) -> Manifest | Incomplete | Unusable:
    """Read one file of a manifest.  Never raises for bad bytes."""
    head = raw[: _HEAD.size]
    if not _MAGIC.startswith(head[: len(_MAGIC)]):
        return Unusable(0, "it does not begin as a manifest does")
    if len(head) < _HEAD.size:
        return Incomplete(len(raw))
    if zlib.crc32(head[:-4]) != U32.unpack_from(head, _HEAD.size - 4)[0]:
        return Unusable(0, "the checksum of its head is wrong")
    (_, major, _, head_size, store_uuid, body_len, inflated_len, n_entries, crc, incompat, _
     ) = _HEAD.unpack(head)  # fmt: skip
    if major != _MAJOR or incompat:
        return Unusable(8, f"its version is {major}, features {incompat:#x}", is_foreign=True)
    body = raw[head_size:]
    if len(body) < body_len:
        return Incomplete(len(raw))
    if len(body) > body_len or zlib.crc32(body) != crc:
        return Unusable(head_size, "the checksum of its entries is wrong")
    entries = _inflated(body, inflated_len, n_entries)
    if entries is None:
        return Unusable(head_size, "its lengths contradict each other")
    return Manifest(store_uuid, entries)


def _inflated(body: bytes, size: int, count: int) -> dict[int, bytes] | None:
    """:return: the entries; None if they are not as many, or as long, as the head says."""
    if size > MAX_INFLATED_BYTES:
        return None
    try:
        content = zlib.decompressobj().decompress(body, size + 1)
    except zlib.error:
        return None
    entries: dict[int, bytes] = {}
    at = 0
    while at + _ENTRY.size <= len(content):
        length = U32.unpack_from(content, at)[0]
        if length < _ENTRY.size or at + length > len(content):
            return None
        entry = content[at : at + length]
        entries[seq_of(entry)] = entry
        at += length
    is_whole = at == len(content) == size and len(entries) == count
    return entries if is_whole else None


def seq_of(entry: bytes) -> int:
    return int.from_bytes(entry[_SEQ_AT : _SEQ_AT + 8], "little")


def decode_entry(raw: bytes) -> Entry | None:
    """Decode an entry; None if this version does not understand the segment's header."""
    _, flags, size, end, next_lsn, first_ns, last_ns, fields = _ENTRY.unpack_from(raw)
    header = decode_header_fields(fields)
    if not isinstance(header, SegmentHeader):
        return None
    seal = decode_seal(raw[_ENTRY.size :]) if flags & _SEALED else None
    logged_ns = (first_ns, last_ns) if first_ns or last_ns else None
    names_tubes = not flags & _WITHOUT_TUBES
    return Entry(header, size, end, next_lsn, logged_ns, seal, names_tubes)


def known_segments(
    files: Iterable[bytes], sizes: Mapping[str, int], store: bytes | None = None
) -> dict[str, Entry]:
    """What the files of a manifest say of the segments that are there::

        sizes = {name: size, ...}                       # the listing of the folder
        known = known_segments([read(name) for name in NAMES if name in sizes], sizes)

    A manifest that is stale, torn, damaged, of a newer version or not there costs time, and nothing
    else.  Entries that contradict themselves, each other or the store are left out.  Where no other
    segment follows one, its own seal or frames say where it ends, and not ``end`` and ``next_lsn``.

    :param files: their bytes, in the order of `NAMES`; those that cannot be used count for nothing.
    :param sizes: of the files in the store's folder, by name.
    :param store: its UUID; None: that is not known.
    :return: entries by the names of their segments.  A segment that is missing here, has another
        size than the manifest says, or of which it says what cannot be, is to be opened.
    """
    found: dict[int, Entry] = {}
    for each in map(decode_manifest, files):
        if isinstance(each, Manifest) and store in (None, each.store_uuid):
            for entry in filter(None, map(decode_entry, each.entries.values())):
                is_ours = entry.header.store_uuid == each.store_uuid
                if is_ours and _is_possible(entry) and sizes.get(entry.name) == entry.size:
                    found[entry.header.seq] = entry
    contradicted: set[int] = set()
    for seq, entry in found.items():
        after = found.get(seq + 1)
        if after is not None:
            begins = after.header.prev_end, after.header.first_lsn
            contradicted |= {seq, seq + 1} if begins != (entry.end, entry.next_lsn) else set()
    return {entry.name: entry for seq, entry in found.items() if seq not in contradicted}


def _is_possible(entry: Entry) -> bool:
    """Whether its frames lie in the segment one after the other, as their LSNs do."""
    begin = SEGMENT_HEADER_BYTES, entry.header.first_lsn
    frames = [(each.offset, each.base_lsn) for each in entry.seal.indexed] if entry.seal else []
    places = [begin, *frames, (entry.end, entry.next_lsn)]
    is_ascending = all(one[0] <= other[0] and one[1] <= other[1] for one, other in pairwise(places))
    return is_ascending and entry.end <= entry.size and frames[:1] in ([], [begin])


def describe(read: ReadPart, size: int, after: SegmentHeader | None) -> bytes | None:
    """Make the entry of a finished segment, from its header and its seal.

    :param size: of its file, as it is archived.
    :param after: the header of the segment after it; None: there is none.
    :return: the entry, encoded; None if nothing says where it ends.
    """
    raw = bytes(read(0, SEGMENT_HEADER_BYTES))
    header = decode_segment_header(raw)
    if not isinstance(header, SegmentHeader):
        return None
    seal = read_seal(read, size, header)
    if after is not None:
        end, next_lsn = after.prev_end, after.first_lsn
        seal = seal if seal is not None and seal.end == end else None
    elif seal is not None:
        end, next_lsn = seal.end, seal.next_lsn
    else:
        return None
    fields = raw[: SEGMENT_HEADER.size]
    if seal is None or not seal.content.indexed:
        return _encode(0, size, end, next_lsn, (0, 0), fields, b"")
    logged_ns = seal.content.indexed[0].time_ns, seal.sealed_ns
    flags, thinned = _thinned(seal.content)
    return _encode(_SEALED | flags, size, end, next_lsn, logged_ns, fields, thinned.encode())


def _encode(
    flags: int, size: int, end: int, next_lsn: int, logged_ns: tuple[int, int], fields: bytes,
    seal: bytes,
) -> bytes:  # fmt: skip
    length = _ENTRY.size + len(seal)
    return _ENTRY.pack(length, flags, size, end, next_lsn, *logged_ns, fields) + seal


def _thinned(seal: SealIndex) -> tuple[int, SealIndex]:
    """As much of a seal as an entry has room for, and the entry's flags."""
    step = -(-len(seal.indexed) // MAX_INDEXED)
    seal = seal._replace(indexed=seal.indexed[::step])
    if sum(TUBE_IN_SEAL_BYTES + len(name) for name in seal.tubes.values()) > MAX_TUBE_BYTES:
        return _WITHOUT_TUBES, seal._replace(tubes={})
    return 0, seal
