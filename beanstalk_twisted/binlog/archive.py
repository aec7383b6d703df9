"""The door to an archive: what is asked of it, and the real one.

An archive keeps the finished segments of stores, each in a folder of its own; what lies there, and
what may be relied on, is in docs/binlog-format.md, "The archive".  What is delivered there, and in
which steps, is in `delivery`.  One in object storage is `storage.object_archive.ObjectArchive`;
both, and a simulated one, pass the same contract tests (tests/binlog/archiving/test_archive.py).

Nothing here maps a file: the archive may be on a network that hangs, and a thread that waits for a
mapped page keeps all others waiting.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from typing import ClassVar, Final, Protocol

from beanstalk_twisted.binlog.directory import Directory, read_range, sync_directory
from beanstalk_twisted.binlog.errors import CannotUse

CHUNK_BYTES: Final = 1 << 20
"""Read, written and compared at once: well under a millisecond of the interpreter's time."""

PART: Final = ".part"
"""Ends the name of a copy that is not complete."""


class Archive(Protocol):
    """A place for the finished segments of a store.  All methods raise OSError.

    :ivar path: of the folder of the store, once it is open.
    :ivar is_remote: whether it may be away without anybody's mistake: a server then starts and ends
        without it.
    """

    path: str
    is_remote: ClassVar[bool] = False

    def refuse_unusable(self) -> None:
        """See at a start what nobody will mend meanwhile.

        :raise CannotUse: it can never be used as it is named.
        """

    def open(self, store_uuid: bytes) -> None:
        """Make the folder of a store if it is missing, durably; all else is about this folder."""

    def names(self) -> list[str]:
        """The names of the files, sorted."""

    def has(self, name: str) -> bool:
        """Whether there is a file of this name."""

    def holds(self, name: str, source: Directory, source_name: str, size: int) -> bool:
        """Whether a file is ``size`` bytes long, and they are those that another one begins
        with.
        """

    def link(self, name: str, source: Directory, source_name: str) -> None:
        """Give a file of the log a second name here, if it is on the same file system.

        :raise FileExistsError: there is one of this name, which stays.
        """

    def copy(self, name: str, source: Directory, source_name: str, size: int) -> None:
        """Copy the first ``size`` bytes of a file of the log, over what a crash may have left under
        this name, and return when they survive a power loss.
        """

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, atomically.

        :raise FileExistsError: there is one of the new name, which stays.
        """

    def remove(self, name: str) -> None:
        """Delete a file."""

    def content(self, name: str) -> bytes:
        """A whole file; for small ones."""

    def replace(self, name: str, content: bytes) -> None:
        """Make a file, or put another in its place.  If this raises, or the process ends meanwhile,
        there may be the old one, the new one, or in object storage the beginning of the new one.
        """

    def sync(self) -> None:
        """Return when all names in the folder survive a power loss."""


class RealArchive(Archive):
    """An `Archive` of the operating system."""

    def __init__(self, path: str) -> None:
        """:param path: of the directory of all stores; it is never made."""
        self.path = self._root = path

    def refuse_unusable(self) -> None:
        """A name that was mistyped, or a disk that is not mounted, is to be seen at once.

        :raise CannotUse: it is not there, or is not a directory we may write in.
        """
        try:
            if not stat.S_ISDIR(os.stat(self._root).st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            if not os.access(self._root, os.R_OK | os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except OSError as problem:
            raise CannotUse(
                f"archive directory {self._root}: {problem.strerror}; nothing was changed. Make "
                f"it, mount it, or give it to the user the server runs as, then start again."
            ) from problem

    def open(self, store_uuid: bytes) -> None:
        self.path = os.path.join(self._root, store_uuid.hex())
        with contextlib.suppress(FileExistsError):
            os.mkdir(self.path, 0o700)
        sync_directory(self._root)
        if not os.access(self.path, os.R_OK | os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), self.path)

    def _path(self, name: str) -> str:
        return os.path.join(self.path, name)

    def names(self) -> list[str]:
        with os.scandir(self.path) as entries:
            return sorted(entry.name for entry in entries if entry.is_file())

    def has(self, name: str) -> bool:
        try:
            os.stat(self._path(name))
        except FileNotFoundError:
            return False
        return True

    def holds(self, name: str, source: Directory, source_name: str, size: int) -> bool:
        """Two names of one file need no reading."""
        mine, theirs = self._path(name), os.path.join(source.path, source_name)
        found = os.stat(mine)
        if found.st_size != size:
            return False
        if os.path.samestat(found, os.stat(theirs)):
            return True
        pairs = zip(_chunks(mine, size), _chunks(theirs, size), strict=True)
        return all(one == other for one, other in pairs)

    def link(self, name: str, source: Directory, source_name: str) -> None:
        os.link(os.path.join(source.path, source_name), self._path(name))

    def copy(self, name: str, source: Directory, source_name: str, size: int) -> None:
        self._write(name, _chunks(os.path.join(source.path, source_name), size))

    def _write(self, name: str, chunks: Iterable[bytes]) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(self._path(name), flags, 0o600)
        try:
            for chunk in chunks:
                _write_all(fd, chunk)
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, old: str, new: str) -> None:
        """Only one server delivers the segments of a store, so nothing comes in between."""
        if self.has(new):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self._path(new))
        os.rename(self._path(old), self._path(new))

    def remove(self, name: str) -> None:
        os.unlink(self._path(name))

    def content(self, name: str) -> bytes:
        path = self._path(name)
        return b"".join(_chunks(path, os.stat(path).st_size))

    def replace(self, name: str, content: bytes) -> None:
        self._write(name + PART, [content])
        os.rename(self._path(name + PART), self._path(name))

    def sync(self) -> None:
        sync_directory(self.path)


def _chunks(path: str, size: int) -> Iterator[bytes]:
    """The first ``size`` bytes of a file.

    :raise OSError: it is shorter.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for at in range(0, size, CHUNK_BYTES):
            yield _read_all(fd, path, at, min(CHUNK_BYTES, size - at))
    finally:
        os.close(fd)


def _read_all(fd: int, path: str, offset: int, size: int) -> bytes:
    content = read_range(fd, offset, offset + size)
    if len(content) < size:
        raise OSError(errno.EIO, f"it ends at offset {offset + len(content)}", path)
    return content


def _write_all(fd: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
