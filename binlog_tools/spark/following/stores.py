"""Which segments there are of each store, in directories of servers and in archives: looked up
again for each batch of a stream, so names are listed and hardly anything is opened.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from beanstalk_twisted.binlog.segments.format import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    decode_segment_header,
    parse_segment_name,
)
from beanstalk_twisted.object_storage.store import is_url
from binlog_tools.logs.sources import is_store_name, parse_archived_name
from binlog_tools.spark.definitions.addresses import name_of, normal, within
from binlog_tools.spark.definitions.errors import SourceError, unknown_format
from binlog_tools.spark.files.listing import (
    Folder,
    expanded,
    files_at,
    folder_at,
    names_a_segment,
)
from binlog_tools.spark.files.opening import open_file


@dataclass
class Segments:
    """The segments of one store.

    :ivar live: addresses by sequence number, in the directory of a server; ``archived`` likewise.
    """

    store: str
    live: dict[int, str] = field(default_factory=dict)
    archived: dict[int, str] = field(default_factory=dict)

    @property
    def numbers(self) -> list[int]:
        return sorted(self.live.keys() | self.archived.keys())

    def paths(self, seq: int) -> tuple[str, ...]:
        """Where a segment is; in the archive first, since there it stays."""
        return tuple(where[seq] for where in (self.archived, self.live) if seq in where)

    def header(self, seq: int) -> SegmentHeader:
        """:raise FileNotFoundError: it is gone from where it was listed; look again.
        :raise SourceError: it cannot be read or is not what it should be.
        """
        for path in self.paths(seq):
            header = header_of(path)
            if header is None:
                continue
            if header.seq != seq or header.store_uuid.hex() != self.store:
                raise SourceError(
                    "BINLOG_HISTORIES_DIFFER",
                    f"{path}: it is segment {header.seq} of store {header.store_uuid.hex()}, not "
                    f"{seq} of {self.store}: directories were exchanged",
                )
            return header
        raise FileNotFoundError(seq)


def header_of(path: str) -> SegmentHeader | None:
    """:return: None if there is no such file.
    :raise SourceError: it is no segment that can be read.
    """
    try:
        with open_file(path) as file:
            header = decode_segment_header(file.read(0, SEGMENT_HEADER_BYTES))
    except FileNotFoundError:
        return None
    if isinstance(header, SegmentHeader):
        return header
    if header.foreign:
        raise unknown_format(path, header.why)
    raise SourceError("BINLOG_DAMAGED", f"{path}: {header.why}; run: binlog-inspect check {path}")


def look(paths: Sequence[str]) -> dict[str, Segments]:
    """All stores below directories of servers, archives, stores in them, URLs of such, or patterns.
    Archives are listed last: a segment is there before it is deleted, so none is missed in between.

    :raise OSError: something cannot be listed.
    """
    found: dict[str, Segments] = {}
    archives: list[str] = []
    for path in _directories(paths):
        folder = folder_at(path)
        if is_store_name(name_of(path)):
            archives.append(path)
        archives += map(folder.within, folder.stores)
        _add_live(found, folder)
    for path in archives:
        store = name_of(path).replace("-", "")
        segments = found.setdefault(store, Segments(store))
        for name in files_at(path):
            parsed = parse_archived_name(name)
            if parsed is not None:
                segments.archived[parsed.seq] = within(path, name)
    return {store: segments for store, segments in found.items() if segments.numbers}


def _directories(paths: Sequence[str]) -> Iterator[str]:
    for path in paths:
        for found in expanded(path):
            is_file = names_a_segment(found) if is_url(found) else not os.path.isdir(found)
            if not is_file:
                yield found
            elif found == normal(path):
                raise SourceError(
                    "BINLOG_OPTION", f"path: {found} is a file; a stream follows directories"
                )


def _add_live(found: dict[str, Segments], folder: Folder) -> None:
    """What a server's directory has; all of it is of one store."""
    parsed = ((parse_segment_name(name), name) for name in folder.sizes)
    segments = {seq: folder.within(name) for seq, name in parsed if seq is not None}
    for seq in sorted(segments, reverse=True):
        header = header_of(segments[seq])
        if header is not None:
            store = header.store_uuid.hex()
            found.setdefault(store, Segments(store)).live.update(segments)
            return
