"""The read-only interface to the files of a log, and the local files.  Object storage and
replicated streams implement it too; all pass the same contract tests (tests/binlog/test_files.py).
"""

import contextlib
import errno
import mmap
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Protocol, TypeVar, TypeVarTuple

from beanstalk_twisted.binlog.segments.format import (
    SEGMENT_HEADER_BYTES,
    TRAILER_BYTES,
    TRAILER_MAGIC,
    is_unfinished,
    parse_segment_name,
)
from beanstalk_twisted.binlog.segments.frames import Buffer

TO_END: Final = sys.maxsize
"""The ``end`` of a read that goes on to the end of the file."""

READ_ONLY: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
"""How a server opens a file of its directory to read it: never through a symbolic link."""

MAX_READ_TRIES: Final = 1_000
"""Calls of a read after EINTR and EAGAIN, some milliseconds: what cannot be read is read later."""

COPY_BYTES: Final = 1 << 20
"""Bytes of an unfinished file that one call reads: a copy is as consistent as one read."""

MAP_BYTES: Final = 64 << 10
"""Bytes from which a part of a finished file is mapped: below it, a copy is faster."""

HELD_FILES: Final = 256
"""Files that are held open, each for a file descriptor, of which a process may have 1,024 by
default: 16 GiB of segments, more than compaction deletes while a tool runs."""

_KINDS: Final = {
    stat.S_IFLNK: "symbolic link", stat.S_IFDIR: "directory", stat.S_IFIFO: "named pipe",
    stat.S_IFSOCK: "socket",
}  # fmt: skip

_ZEROS: Final = bytes(COPY_BYTES)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class NotRegular(OSError):
    """An entry has the name of a log's file and is no regular file: the log cannot be known."""

    hint: Final = "put the segment's file in its place, or move this and run binlog-inspect check"


class Files(Protocol):
    """The files of one folder.  Methods raise OSError, and FileNotFoundError for what is not there.

    :ivar path: the directory or the URL, as it is shown.
    """

    path: str

    def names(self) -> list[str]:
        """Look again, and return the names, sorted."""

    def size(self, name: str) -> int: ...

    def read(self, name: str, start: int = 0, end: int = TO_END) -> Buffer:
        """Return the bytes of a file from ``start`` to ``end``, or to where it ends."""


class LocalFiles(Files):
    """Local files, which a server may append to, cut and delete meanwhile.

    A file without a trailer may still be written or cut, under a mapping; so it is copied, from its
    end to its beginning: what is appended meanwhile shows as a torn tail at worst, never as damage.
    """

    def __init__(self, path: str, paths: Callable[[], Mapping[str, str]] | None = None) -> None:
        """:param paths: lists the paths of the files by name, if they are not all in ``path``."""
        self.path = path
        self._paths = paths
        self._held: dict[str, int] = {}

    def __del__(self) -> None:
        self.release()

    def names(self) -> list[str]:
        """Return those that are held too, though they are deleted."""
        there = self._paths() if self._paths else paths_in(self.path)
        return sorted({*self._held, *there})

    def path_of(self, name: str) -> str:
        path = self._paths().get(name) if self._paths else os.path.join(self.path, name)
        if path is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return path

    def hold(self, names: Iterable[str]) -> set[str]:
        """Keep files open, up to `HELD_FILES`, so that they can be read after a server has deleted
        them.

        :return: those that are gone already.
        """
        gone = set()
        for name in names:
            if len(self._held) >= HELD_FILES:
                break
            if name in self._held:
                continue
            try:
                self._held[name] = os.open(self.path_of(name), os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                gone.add(name)
            except OSError:
                # Reading it will say why.
                continue
        return gone

    def release(self, is_meant: Callable[[str], bool] = lambda name: True) -> None:
        """Let go of files that are held; buffers that were read stay usable."""
        for name in [name for name in self._held if is_meant(name)]:
            os.close(self._held.pop(name))

    @contextlib.contextmanager
    def opened(self, name: str) -> Iterator[int]:
        """A file descriptor to read from."""
        if name in self._held:
            yield self._held[name]
            return
        fd = os.open(self.path_of(name), os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield fd
        finally:
            os.close(fd)

    def size(self, name: str) -> int:
        with self.opened(name) as fd:
            return os.fstat(fd).st_size

    def is_finished(self, name: str) -> bool:
        """Return True if a file ends with a trailer: it never changes."""
        with self.opened(name) as fd:
            return _is_finished(fd, os.fstat(fd).st_size)

    def read(self, name: str, start: int = 0, end: int = TO_END) -> Buffer:
        with self.opened(name) as fd:
            size = os.fstat(fd).st_size
            end = min(end, size)
            if end - start >= MAP_BYTES and _is_finished(fd, size):
                return mapped(fd, start, end)
            return _copy(fd, start, max(start, end))


def paths_in(path: str) -> dict[str, str]:
    """Return the paths of the files in a directory by name, in order.

    :raise NotRegular: something that is no regular file has the name of a log's file.
    """
    with os.scandir(path) as entries:
        return dict(sorted((entry.name, entry.path) for entry in entries if _is_file(entry)))


def _is_file(entry: "os.DirEntry[str]") -> bool:
    is_of_log = parse_segment_name(entry.name) is not None or is_unfinished(entry.name)
    if not is_of_log or entry.is_file(follow_symlinks=False):
        return entry.is_file()
    try:
        kind = stat.S_IFMT(os.lstat(entry.path).st_mode)
    except FileNotFoundError:
        return False  # It was removed meanwhile.
    what = f"{entry.name} is a {_KINDS.get(kind, 'device')}, not a regular file"
    raise NotRegular(errno.EINVAL, what, entry.path)


def retried(call: Callable[[*Ts], T], *args: *Ts, tries: int = sys.maxsize) -> T:
    """Call the kernel again after EINTR and EAGAIN, which say nothing of the disk.  If that never
    ends, it is as a call that hangs: the watchdog gives up.
    """
    while True:
        try:
            return call(*args)
        except (BlockingIOError, InterruptedError):
            tries -= 1
            if not tries:
                raise
            os.sched_yield()


@contextlib.contextmanager
def opened(path: str, flags: int = READ_ONLY) -> Iterator[int]:
    fd = retried(os.open, path, flags)
    try:
        yield fd
    finally:
        os.close(fd)


def mapped(fd: int, start: int, end: int, has_gaps: bool = False) -> Buffer:
    before = start % mmap.ALLOCATIONGRANULARITY
    first = start - before
    while (size := min(os.fstat(fd).st_size, end)) > start:
        # A segment in use is cut at its end, perhaps just now.
        with contextlib.suppress(ValueError):
            whole = mmap.mmap(fd, size - first, prot=mmap.PROT_READ, offset=first)
            if has_gaps:
                whole.madvise(mmap.MADV_RANDOM)
            return memoryview(whole)[before:]
    return b""


def read_range(fd: int, start: int, end: int) -> bytes:
    """The bytes of an open file from ``start`` to ``end``, or to where it ends.  A call of the
    kernel returns what stands before a page that the disk cannot read, as if the file ended there;
    the next one, from that page on, says so.

    :raise OSError: the disk cannot read it.
    """
    content = retried(os.pread, fd, max(0, end - start), start, tries=MAX_READ_TRIES)
    while (at := start + len(content)) < end:
        part = retried(os.pread, fd, end - at, at, tries=MAX_READ_TRIES)
        if not part:
            break
        content += part
    return content


def _is_finished(fd: int, size: int) -> bool:
    length = len(TRAILER_MAGIC)
    has_trailer = size >= SEGMENT_HEADER_BYTES + TRAILER_BYTES
    return has_trailer and os.pread(fd, length, size - length) == TRAILER_MAGIC


def _copy(fd: int, start: int, end: int) -> Buffer:
    """Read the end of a file first.  Zeros are not written, so they take no memory."""
    if end - start <= COPY_BYTES:
        return read_range(fd, start, end)
    buffer = bytearray(end - start)
    for at in range((len(buffer) - 1) // COPY_BYTES * COPY_BYTES, -1, -COPY_BYTES):
        chunk = read_range(fd, start + at, min(start + at + COPY_BYTES, end))
        if chunk != _ZEROS[: len(chunk)]:
            buffer[at : at + len(chunk)] = chunk
    return buffer
