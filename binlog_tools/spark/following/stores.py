"""
Which segments there are of each store, in directories of servers and in archives: looked up again
for each batch of a stream, so names are listed and hardly anything is opened.
"""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from beanstalk_twisted.binlog.format import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    decode_segment_header,
    parse_segment_name,
)
from binlog_tools.logs.sources import parse_archived_name
from binlog_tools.spark.definitions.errors import SourceError
from binlog_tools.spark.reading.candidates import expanded

_STORE: Final = re.compile(r"[0-9a-f]{32}")


@dataclass
class Segments:
    """
    The segments of one store.

    :ivar live: paths by sequence number, in the directory of a server; ``archived`` likewise.
    """

    store: str
    live: dict[int, str] = field(default_factory=dict)
    archived: dict[int, str] = field(default_factory=dict)

    @property
    def numbers(self) -> list[int]:
        return sorted(self.live.keys() | self.archived.keys())

    def paths(self, seq: int) -> tuple[str, ...]:
        """
        Where a segment is; in the archive first, since there it stays.
        """
        return tuple(where[seq] for where in (self.archived, self.live) if seq in where)

    def header(self, seq: int) -> SegmentHeader:
        """
        :raise FileNotFoundError: it is gone from where it was listed; look again.
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
    """
    :return: None if there is no such file.
    :raise SourceError: it is no segment that can be read.
    """
    try:
        with open(path, "rb") as file:
            header = decode_segment_header(file.read(SEGMENT_HEADER_BYTES))
    except FileNotFoundError:
        return None
    if isinstance(header, SegmentHeader):
        return header
    code = "BINLOG_UNKNOWN_FORMAT" if header.foreign else "BINLOG_DAMAGED"
    raise SourceError(code, f"{path}: {header.why}; run: binlog-inspect check {path}")


def look(paths: Sequence[str]) -> dict[str, Segments]:
    """
    All stores below directories of servers, archives, stores in them, or patterns of these.
    Archives are listed last: a segment is there before it is deleted, so none is missed in between.
    """
    found: dict[str, Segments] = {}
    archives: list[tuple[str, str]] = []
    for path in _directories(paths):
        names = _names(path)
        if _STORE.fullmatch(os.path.basename(os.path.normpath(path))):
            archives.append((os.path.basename(os.path.normpath(path)), path))
        archives += [(name, os.path.join(path, name)) for name in names if _STORE.fullmatch(name)]
        _add_live(found, path, names)
    for store, path in archives:
        segments = found.setdefault(store, Segments(store))
        for name in _names(path):
            parsed = parse_archived_name(name)
            if parsed is not None:
                segments.archived[parsed.seq] = os.path.join(path, name)
    return {store: segments for store, segments in found.items() if segments.numbers}


def _directories(paths: Sequence[str]) -> Iterator[str]:
    for path in paths:
        for found in expanded(path):
            if os.path.isdir(found):
                yield found
            elif found == path.removeprefix("file://"):
                raise SourceError(
                    "BINLOG_OPTION", f"path: {found} is a file; a stream follows directories"
                )


def _names(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except FileNotFoundError:
        return []


def _add_live(found: dict[str, Segments], path: str, names: Sequence[str]) -> None:
    """
    What a server's directory has; all of it is of one store.
    """
    parsed = ((parse_segment_name(name), name) for name in names)
    segments = {seq: os.path.join(path, name) for seq, name in parsed if seq is not None}
    for seq in sorted(segments, reverse=True):
        header = header_of(segments[seq])
        if header is not None:
            store = header.store_uuid.hex()
            found.setdefault(store, Segments(store)).live.update(segments)
            return
