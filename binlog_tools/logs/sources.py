"""A log, opened strictly read only."""

import errno
import mmap
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.directory import read_range
from beanstalk_twisted.binlog.reading.survey import Progress, Survey, unknown_format
from beanstalk_twisted.binlog.segments.format import (
    SEGMENT_HEADER_BYTES,
    TRAILER_BYTES,
    TRAILER_MAGIC,
    HeaderProblem,
    SegmentHeader,
    decode_segment_header,
    parse_segment_name,
    segment_name,
)
from beanstalk_twisted.binlog.segments.frames import Buffer

COPY_BYTES: Final = 1 << 20
"""How much of an unfinished segment is read at once: a copy of it is as consistent as one read."""

LOOKS: Final = 5
"""How often a log that changes under the reader is looked at before the last look is believed."""

HELD_SEGMENTS: Final = 256
"""Segments that are held open, oldest first, each for a file descriptor: 16 GiB by default, more
than compaction deletes while one looks.
"""

_ZEROS: Final = bytes(COPY_BYTES)
_ARCHIVED: Final = re.compile(r"(\d{1,20})-(\d{1,20})\.tql")
_STORE: Final = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class ArchivedName(NamedTuple):
    """The name of a segment in an archive: ``<seq>-<first_lsn>.tql``."""

    seq: int
    first_lsn: int


def parse_archived_name(name: str) -> ArchivedName | None:
    found = _ARCHIVED.fullmatch(name)
    return ArchivedName(int(found[1]), int(found[2])) if found else None


def is_servers(names: Iterable[str]) -> bool:
    """Return True for the files of a server's directory: any segment has the name that a server
    gives it.
    """
    return any(parse_segment_name(name) is not None for name in names)


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


class Source:
    """One log: a directory, what an archive has of one store, or some of its segments.  It is a
    `directory.Readable`.

    No lock is taken, so the server may run meanwhile.  A segment without a trailer may still be
    written or cut by a server, under a mapping; so it is copied, from its end to its beginning:
    what is appended meanwhile shows as a torn tail at worst, never as damage.  Since compaction
    deletes the oldest segments, they are held open from the moment that their names are read.

    :ivar is_partial: its beginning may be missing: it is not a server's directory.
    :ivar left_out: files in it that are named as in an archive, which no server reads.
    """

    has_ends: bool = True
    """Whether files end as a server leaves them: a stream has no trailers and no free space."""

    def __init__(
        self, path: str, files: Callable[[], Mapping[str, str]], is_partial: bool = False,
        left_out: Sequence[str] = (), is_archive: bool = False,
    ) -> None:  # fmt: skip
        """:param files: lists the paths of the files, by their names in a server's directory."""
        self.path = path
        self.is_partial = is_partial
        self.is_archive = is_archive
        self.left_out = tuple(left_out)
        self.remarks: list[str] = []
        self._list = files
        self._files: Mapping[str, str] = {}
        self._newest: tuple[str, Buffer] | None = None
        self._held: dict[str, int] = {}

    def __del__(self) -> None:
        self._let_go(list(self._held))

    def names(self, keeps_deleted: bool = False) -> list[str]:
        """Look again, and forget what was known of the newest one.

        :param keeps_deleted: whether segments that are gone since the last look still count.
        """
        found = dict(self._list())
        if not self.is_partial:
            gone = [name for name in self._held if name not in found]
            if keeps_deleted:
                found.update((name, self._files[name]) for name in gone)
            else:
                self._let_go(gone)
            self._hold(found)
        self._files = found
        self._newest = None
        return sorted(found)

    def _hold(self, found: dict[str, str]) -> None:
        for name in sorted(found):
            if len(self._held) >= HELD_SEGMENTS:
                break
            if name in self._held or parse_segment_name(name) is None:
                continue
            try:
                self._held[name] = os.open(found[name], os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                del found[name]
            except OSError:
                # Whoever reads it will say why.
                continue

    def _let_go(self, names: Iterable[str]) -> None:
        for name in names:
            os.close(self._held.pop(name))

    def forget_before(self, seq: int) -> None:
        self._let_go([name for name in self._held if (parse_segment_name(name) or 0) < seq])

    def open(self, name: str) -> int:
        """Give a file descriptor, which the caller closes.

        :raise OSError: it cannot be read, or is gone.
        """
        if name in self._held:
            return os.dup(self._held[name])
        return os.open(self.path_of(name), os.O_RDONLY | os.O_CLOEXEC)

    def segment_names(self, keeps_deleted: bool = False) -> dict[int, str]:
        """Give them by their sequence numbers, ascending; see `names`."""
        parsed = ((parse_segment_name(name), name) for name in self.names(keeps_deleted))
        return dict(sorted((seq, name) for seq, name in parsed if seq is not None))

    def path_of(self, name: str) -> str:
        """:raise FileNotFoundError: it is gone."""
        path = (self._files or self._list()).get(name)
        if path is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return path

    def read(self, name: str) -> Buffer:
        """The whole file; the same bytes each time until `names` is called again.

        :raise OSError: it cannot be read, or is gone.
        """
        if self._newest is not None and self._newest[0] == name:
            return self._newest[1]
        fd = self.open(name)
        try:
            # A segment that is sealed never changes.
            size, length = os.fstat(fd).st_size, len(TRAILER_MAGIC)
            has_trailer = size >= SEGMENT_HEADER_BYTES + TRAILER_BYTES
            if has_trailer and os.pread(fd, length, size - length) == TRAILER_MAGIC:
                return memoryview(mmap.mmap(fd, size, prot=mmap.PROT_READ))
            buffer = _copy(fd, size)
        finally:
            os.close(fd)
        # Preallocated segments and locks come behind the segments, and are not read.
        segments = filter(lambda each: parse_segment_name(each) is not None, self._files)
        if name == max(segments, default=name):
            self._newest = (name, buffer)
        return buffer

    def read_part(self, name: str, start: int, end: int) -> Buffer:
        return memoryview(self.read(name))[start:end]

    def header(self, name: str) -> SegmentHeader | HeaderProblem:
        """:raise Incompatible: it is in a format that this version does not know."""
        header = decode_segment_header(self.header_bytes(name))
        if isinstance(header, HeaderProblem) and header.foreign:
            raise unknown_format(self.path, f"{name}: {header.why}")
        return header

    def header_bytes(self, name: str) -> bytes:
        fd = self.open(name)
        try:
            return os.pread(fd, SEGMENT_HEADER_BYTES, 0)
        finally:
            os.close(fd)

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
            if look == LOOKS or not (survey.problems or survey.torn) or self._still(survey):
                break
        return survey

    def _surveyed(self, progress: Progress) -> Survey:
        return Survey(self, progress, not self.is_partial, self.is_archive)

    def _still(self, survey: Survey) -> bool:
        try:
            again = self._surveyed(lambda done, total: None)
            return _where(survey) == _where(again)
        except FileNotFoundError:
            return False


def _where(survey: Survey) -> tuple[object, ...]:
    """Where a log is not as it should be: the same in two looks, if nobody writes to it."""
    return tuple(survey.problems), survey.segments[-1:] and survey.segments[-1].ending


def _copy(fd: int, size: int) -> bytearray:
    """Read the end of a file first.  Zeros are not written, so they take no memory."""
    buffer = bytearray(size)
    for at in range((size - 1) // COPY_BYTES * COPY_BYTES, -1, -COPY_BYTES):
        chunk = read_range(fd, at, min(at + COPY_BYTES, size))
        if chunk != _ZEROS[: len(chunk)]:
            buffer[at : at + len(chunk)] = chunk
    return buffer
