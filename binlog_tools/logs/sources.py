"""A log, opened strictly read only."""

import errno
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.files import TO_END, Files, LocalFiles
from beanstalk_twisted.binlog.reading.survey import Progress, Survey, unknown_format
from beanstalk_twisted.binlog.segments.format import (
    SEGMENT_HEADER_BYTES,
    HeaderProblem,
    SegmentHeader,
    decode_segment_header,
    parse_segment_name,
    segment_name,
)
from beanstalk_twisted.binlog.segments.frames import Buffer

LOOKS: Final = 5
"""How often a log that changes under the reader is looked at before the last look is believed."""

_ARCHIVED: Final = re.compile(r"(\d{1,20})-(\d{1,20})\.tql")
_STORE: Final = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class ArchivedName(NamedTuple):
    """The name of a segment in an archive: ``<seq>-<first_lsn>.tql``."""

    seq: int
    first_lsn: int


def parse_archived_name(name: str) -> ArchivedName | None:
    found = _ARCHIVED.fullmatch(name)
    return ArchivedName(int(found[1]), int(found[2])) if found else None


def is_segment(name: str) -> bool:
    return parse_segment_name(name) is not None


def is_servers(names: Iterable[str]) -> bool:
    """Return True for the files of a server's directory: any segment has the name that a server
    gives it.
    """
    return any(map(is_segment, names))


def archived_among(names: Iterable[str]) -> list[str]:
    return [name for name in names if parse_archived_name(name) is not None]


def is_store_name(name: str) -> bool:
    return _STORE.fullmatch(name) is not None


def named_as_in_a_log(path: str, names: Iterable[str]) -> dict[str, str]:
    """The files of an archive by the names that they have in a server's directory.

    :raise OSError: it has a segment twice.
    """
    files: dict[str, str] = {}
    for name in sorted(names):
        found = parse_archived_name(name)
        if found is None:
            continue
        if segment_name(found.seq) in files:
            why = f"segment {found.seq} is there twice; see 'binlog-inspect archive-verify {path}'"
            raise OSError(errno.EINVAL, why, path)
        files[segment_name(found.seq)] = name
    return files


class NoLog(FileNotFoundError):
    def __init__(self, path: str, why: str = "there is no log here") -> None:
        super().__init__(errno.ENOENT, why, path)

    @classmethod
    def no_archive(cls, path: str, names: Iterable[str]) -> "NoLog":
        if is_servers(names):
            return cls(
                path,
                "this is a server's log, no archive; to see whether it is sound: "
                f"{shlex.join(['binlog-inspect', 'check', path])}",
            )
        return cls(path, "there is no archive here")


class Source(Files):
    """One log: a directory, what an archive has of one store, or some of its segments.

    No lock is taken, so the server may run meanwhile.  Since compaction deletes the oldest segments
    of a directory, they are held open from the moment that their names are read.

    :ivar is_partial: its beginning may be missing: it is not a server's directory.
    :ivar is_archive: its files are named as in an archive; here they have the names of a server's.
    :ivar left_out: files in it that are named as in an archive, which no server reads.
    """

    has_ends: bool = True
    """Whether files end as a server leaves them: a stream has no trailers and no free space."""

    def __init__(
        self, files: Files, is_partial: bool = False, left_out: Sequence[str] = (),
        is_archive: bool = False,
    ) -> None:  # fmt: skip
        self.path = files.path
        self.is_partial = is_partial
        self.is_archive = is_archive
        self.left_out = tuple(left_out)
        self.remarks: list[str] = []
        self._files = files
        self._local = files if isinstance(files, LocalFiles) else None
        self._live = None if is_partial else self._local
        self._named: Mapping[str, str] | None = None
        self._kept: tuple[str, Buffer] | None = None

    def names(self, keeps_deleted: bool = False) -> list[str]:
        """Look again, and forget what was known of the newest one.

        :param keeps_deleted: whether segments that are gone since the last look still count.
        """
        if self._live and not keeps_deleted:
            self._live.release()
        names = self._files.names()
        if self._live:
            gone = self._live.hold(filter(is_segment, names))
            names = [name for name in names if name not in gone]
        archived = named_as_in_a_log(self.path, names) if self.is_archive else None
        self._named = {name: name for name in names} if archived is None else archived
        self._kept = None
        return sorted(self._named)

    def hold(self, name: str) -> None:
        """Keep a file readable though a server may delete it."""
        if self._local:
            self._local.hold([self._own_name(name)])

    def forget_before(self, seq: int) -> None:
        if self._live:
            self._live.release(lambda name: name < segment_name(seq))

    def segment_names(self, keeps_deleted: bool = False) -> dict[int, str]:
        """Give them by their sequence numbers, ascending; see `names`."""
        parsed = ((parse_segment_name(name), name) for name in self.names(keeps_deleted))
        return dict(sorted((seq, name) for seq, name in parsed if seq is not None))

    def _own_name(self, name: str) -> str:
        """:raise FileNotFoundError: it is gone."""
        if self._named is None:
            self.names()
        own = (self._named or {}).get(name)
        if own is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return own

    def path_of(self, name: str) -> str:
        """:raise FileNotFoundError: it is gone."""
        own = self._own_name(name)
        return self._local.path_of(own) if self._local else own

    def size(self, name: str) -> int:
        return self._files.size(self._own_name(name))

    def read(self, name: str, start: int = 0, end: int = TO_END) -> Buffer:
        """Whole files: the same bytes each time until `names` is called again.

        :raise OSError: it cannot be read, or is gone.
        """
        if self._kept is not None and self._kept[0] == name:
            return memoryview(self._kept[1])[start:end]
        is_whole = start == 0 and end == TO_END
        own = self._own_name(name)
        if is_whole and not self._local:
            self._kept = None
        buffer = self._files.read(own, start, end)
        if is_whole and self._keeps(name, buffer):
            self._kept = name, buffer
        return buffer

    def _keeps(self, name: str, buffer: Buffer) -> bool:
        """The newest file of a directory changes; an object costs a request, and is kept too."""
        if not self._local:
            return True
        # Preallocated segments and locks come behind the segments, and are not read.
        newest = max(filter(is_segment, self._named or ()), default=name)
        return name == newest and not isinstance(buffer, memoryview)

    def header(self, name: str) -> SegmentHeader | HeaderProblem:
        """:raise Incompatible: it is in a format that this version does not know."""
        header = decode_segment_header(bytes(self.read(name, 0, SEGMENT_HEADER_BYTES)))
        if isinstance(header, HeaderProblem) and header.foreign:
            raise unknown_format(self.path, f"{name}: {header.why}")
        return header

    def survey(self, progress: Progress = lambda done, total: None) -> Survey:
        """Look at all of it as a server does when it starts; again, if it changes meanwhile.

        :raise NoLog: there is none.
        :raise OSError: it cannot be read.
        """
        for look in range(1, LOOKS + 1):
            try:
                survey = self._surveyed(progress)
            except FileNotFoundError:
                # A server has compacted; the names are no longer true.
                if look == LOOKS:
                    raise
                continue
            if not survey.segments and not survey.problems:
                raise NoLog(self.path)
            if look == LOOKS or not (survey.problems or survey.torn):
                break
            with suppress(FileNotFoundError):
                if _where(survey) == _where(self._surveyed(lambda done, total: None)):
                    break
        return survey

    def _surveyed(self, progress: Progress) -> Survey:
        return Survey(self, progress, not self.is_partial, self.is_archive)


def _where(survey: Survey) -> tuple[object, ...]:
    """Where a log is not as it should be: the same in two looks, if nobody writes to it."""
    return tuple(survey.problems), survey.segments[-1:] and survey.segments[-1].ending
