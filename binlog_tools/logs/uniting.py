"""
One log of several places: the directory of a server, which has the segment in use, and an archive,
which has those that compaction has deleted.
"""

import errno
from collections.abc import Iterable, Sequence
from typing import Final

from beanstalk_twisted.binlog.format import SegmentHeader, parse_segment_name
from beanstalk_twisted.binlog.frames import Buffer
from binlog_tools.logs.sources import NoLog, Source

MANY_STORES: Final = "there are {count} stores here ({names}); name the folder of one"


class UnitedSource(Source):
    """
    A `Source` of several that have segments of one store.  Of a segment that two have, the archived
    file is read.
    """

    def __init__(self, parts: Sequence[Source]) -> None:
        """
        :raise OSError: two have another segment of the same number; or one cannot be read.
        """
        # Archives last: a segment that a server deletes before it is listed is in its archive then.
        self._parts = sorted(parts, key=lambda part: part.is_archive)
        self._part_of: dict[str, Source] = {}
        path = " and ".join(part.path for part in parts)
        super().__init__(path, dict, is_partial=True)
        newest = max(self.names(), key=lambda name: parse_segment_name(name) or 0)
        self.is_archive = self._part_of[newest].is_archive
        self._refuse_other_histories()

    def names(self, keeps_deleted: bool = False) -> list[str]:
        self._part_of = {}
        for part in self._parts:
            self._part_of.update(
                (name, part) for name in part.segment_names(keeps_deleted).values()
            )
        return sorted(self._part_of)

    def _refuse_other_histories(self) -> None:
        for part in self._parts:
            for name in part.segment_names().values():
                # A server may have begun one meanwhile, which nobody else has.
                other = self._part_of.get(name, part)
                if other is not part and other.header_bytes(name) != part.header_bytes(name):
                    raise OSError(
                        errno.EINVAL,
                        f"{name} is another one in {other.path}: a log that was started from an "
                        f"old copy writes another history; nothing was written. Name one of them",
                        part.path,
                    )

    def open(self, name: str) -> int:
        return self._part(name).open(name)

    def path_of(self, name: str) -> str:
        return self._part(name).path_of(name)

    def read(self, name: str) -> Buffer:
        return self._part(name).read(name)

    def read_part(self, name: str, start: int, end: int) -> Buffer:
        return self._part(name).read_part(name, start, end)

    def header_bytes(self, name: str) -> bytes:
        return self._part(name).header_bytes(name)

    def forget_before(self, seq: int) -> None:
        for part in self._parts:
            part.forget_before(seq)

    def _part(self, name: str) -> Source:
        if name not in self._part_of:
            raise NoLog(self.path, f"{name} is gone")
        return self._part_of[name]


def united(sources: Iterable[Source]) -> Source:
    """
    The one log that these are parts of.  Of an archive of several stores that one counts whose
    directory is named beside it.

    :raise OSError: they are of several stores, or one cannot be read; `NoLog`, there is none.
    """
    parts: dict[bytes, list[Source]] = {}
    owners = set()
    for source in sources:
        store = _store_of(source)
        parts.setdefault(store, []).append(source)
        if not source.is_partial:
            owners.add(store)
    if len(owners) == 1:
        parts = {store: parts[store] for store in owners}
    if len(parts) > 1:
        names = ", ".join(sorted(store.hex() for store in parts))
        first = next(iter(parts.values()))[0]
        raise OSError(errno.EINVAL, MANY_STORES.format(count=len(parts), names=names), first.path)
    (found,) = parts.values()
    return found[0] if len(found) == 1 else UnitedSource(found)


def _store_of(source: Source) -> bytes:
    """
    The store of its segments, as the newest header that can be read says.
    """
    names = source.segment_names()
    if not names:
        raise NoLog(source.path)
    for name in reversed(names.values()):
        header = source.header(name)
        if isinstance(header, SegmentHeader):
            return header.store_uuid
    why = "no header of a segment can be read; nothing was written. See 'binlog-inspect check'"
    raise OSError(errno.EIO, why, source.path)
