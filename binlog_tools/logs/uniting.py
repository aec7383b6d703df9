"""
One log of several places: the directory of a server, which has the segment in use, and an archive,
which has those that compaction has deleted.
"""

import errno
from collections.abc import Iterable, Sequence
from typing import Final

from beanstalk_twisted.binlog.reading.segment import Ending, walk
from beanstalk_twisted.binlog.segments.format import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    parse_segment_name,
    segment_name,
)
from beanstalk_twisted.binlog.segments.frames import Buffer
from binlog_tools.logs.reading import has_heap
from binlog_tools.logs.sources import NoLog, Source

MANY_STORES: Final = "there are {count} stores here ({names}); name the folder of one"


class UnitedSource(Source):
    """
    A `Source` of several that have segments of one store.  Of a segment that two have, the archived
    file is read, or another if that is damaged.

    :ivar passed_over: damaged files in the place of which others were read, in words.
    """

    def __init__(self, parts: Sequence[Source]) -> None:
        """:raise OSError: two have another segment of the same number; or one cannot be read."""
        self._parts = sorted(parts, key=lambda part: not part.is_archive)
        self._parts_with: dict[str, list[Source]] = {}
        self._chosen: dict[str, Source] = {}
        self._judged: set[str] = set()
        self.passed_over: list[str] = []
        path = " and ".join(part.path for part in parts)
        super().__init__(path, dict, is_partial=True)
        newest = max(self.names(), key=lambda name: parse_segment_name(name) or 0)
        self._compare_headers()
        self.is_archive = self._part(newest).is_archive

    def names(self, keeps_deleted: bool = False) -> list[str]:
        self._parts_with = {}
        # Archives last: a segment that a server deletes before it is listed is in its archive then.
        for part in reversed(self._parts):
            for name in part.segment_names(keeps_deleted).values():
                self._parts_with.setdefault(name, []).insert(0, part)
        return sorted(self._parts_with)

    def _compare_headers(self) -> None:
        """:raise OSError: two files are not the same segment."""
        for name, parts in self._parts_with.items():
            if len(parts) == 1:
                continue
            headers = [(part, part.header(name)) for part in parts]
            sound = [each for each in headers if isinstance(each[1], SegmentHeader)]
            for part, header in sound[1:]:
                if header != sound[0][1]:
                    raise _differs(name, sound[0][0], part)
            if sound:
                self._chosen[name] = sound[0][0]

    def _judge(self, name: str) -> None:
        """
        Choose the first file of a segment that is not damaged, if there are several; the first of
        them if all are.
        """
        parts = self._parts_with.get(name, [])
        if len(parts) == 1 or name in self._judged:
            return
        self._judged.add(name)
        flaws: list[str] = []
        for part in parts:
            flaw = self._flaw(part, name)
            if not flaw:
                self._chosen[name] = part
                instead = f"read from {part.path_of(name)} instead"
                self.passed_over += [f"{flaw}; {instead}" for flaw in flaws]
                return
            flaws.append(f"{part.path_of(name)}: {flaw}")

    def _flaw(self, part: Source, name: str) -> str:
        """What is wrong with a file of a segment; empty if nothing is."""
        try:
            header = part.header(name)
            if not isinstance(header, SegmentHeader):
                return header.why
            following = segment_name(header.seq + 1)
            after = self.header(following) if following in self._parts_with else None
            end = after.prev_end if isinstance(after, SegmentHeader) else None
            return _flaw_in(part.read(name), header, end)
        except OSError as problem:
            return problem.strerror or str(problem)

    def open(self, name: str) -> int:
        self._judge(name)
        return self._part(name).open(name)

    def path_of(self, name: str) -> str:
        return self._part(name).path_of(name)

    def read(self, name: str) -> Buffer:
        self._judge(name)
        return self._part(name).read(name)

    def read_part(self, name: str, start: int, end: int) -> Buffer:
        if end > SEGMENT_HEADER_BYTES:
            self._judge(name)
        return self._part(name).read_part(name, start, end)

    def header_bytes(self, name: str) -> bytes:
        return self._part(name).header_bytes(name)

    def forget_before(self, seq: int) -> None:
        for part in self._parts:
            part.forget_before(seq)

    def _part(self, name: str) -> Source:
        parts = self._parts_with.get(name)
        if not parts:
            raise NoLog(self.path, f"{name} is gone")
        chosen = self._chosen.get(name, parts[0])
        return chosen if chosen in parts else parts[0]


def _differs(name: str, one: Source, other: Source) -> OSError:
    return OSError(
        errno.EINVAL,
        f"{name} is another one in {one.path}: a log that was started from an old copy writes "
        f"another history; nothing was written. Name one of them",
        other.path,
    )


def _flaw_in(buffer: Buffer, header: SegmentHeader, end: int | None) -> str:
    """
    The first thing that is wrong in a segment, bodies included.

    :param end: where its frames end, if its successor says that.
    """
    for found in walk(buffer, header, end):
        if isinstance(found, Ending):
            return found.problem and f"offset {found.offset}: {found.problem}"
        if not has_heap(buffer, found, len(buffer)):
            return f"offset {found.offset}: the checksum of its bodies is wrong"
    return ""


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
    """The store of its segments, as the newest header that can be read says."""
    names = source.segment_names()
    if not names:
        raise NoLog(source.path)
    for name in reversed(names.values()):
        header = source.header(name)
        if isinstance(header, SegmentHeader):
            return header.store_uuid
    why = "no header of a segment can be read; nothing was written. See 'binlog-inspect check'"
    raise OSError(errno.EIO, why, source.path)
