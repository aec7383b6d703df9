"""The log's interface to the file system.  Simulated directories pass the same contract tests
(tests/binlog/test_directory.py).
"""

import contextlib
import errno
import fcntl
import os
import stat
import struct
import sys
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple, Protocol

from beanstalk_twisted.binlog.errors import CannotUse, LockHeld
from beanstalk_twisted.binlog.files import (
    TO_END,
    Files,
    mapped,
    opened,
    paths_in,
    read_range,
    retried,
)
from beanstalk_twisted.binlog.segments.frames import Buffer

QUARANTINE = "quarantine"
LOCKS: Final = ("LOCK", "lock")
"""Ours, and the one that a C beanstalkd looks for."""

IN_PLACE: Final = ""
"""What `Directory.displaced` says of a file that is where it should be."""

DELETED: Final = "was deleted"
MOVED: Final = "is no longer there"

_GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE})
"""A path that leads nowhere; by other errors, such as EACCES and EIO, nobody can tell."""

_OURS: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
"""How a file is opened for writing: never through a symbolic link, which may lead to any file that
the server's user may write."""

_LINUX: Final = sys.platform.startswith("linux")
_FLOCK: Final = struct.Struct("@hhqqi" if _LINUX else "@qqihh")
"""fcntl's ``struct flock``: type, whence, start, length, pid on Linux; start, length, pid, type,
whence on BSD and macOS."""

JOINED_BYTES: Final = 1 << 20
"""Up to so many bytes are copied to be written in one call; more have a call for each of their
frames, which are mostly as large, and no copy."""


class DiskSpace(NamedTuple):
    """Space of a file system, full and empty, without what is reserved for root."""

    free_bytes: int
    size_bytes: int


class File(Protocol):
    """A segment that is being written.  All methods raise OSError."""

    def write_at(self, offset: int, chunks: Sequence[bytes]) -> None:
        """Write all of ``chunks`` one after the other from ``offset`` on, or raise."""

    def allocate(self, size: int) -> None:
        """Reserve space up to ``size`` bytes; what was not written reads as zeros."""

    def truncate(self, size: int) -> None:
        """Cut or extend to ``size`` bytes."""

    def sync(self) -> None:
        """Return when all that was written, and the size, survive a power loss."""

    def close(self) -> None: ...


class Directory(Files, Protocol):
    """One directory of segments.  All methods raise OSError unless said otherwise."""

    def lock(self, text: str) -> None:
        """Keep other servers out for as long as this process lives; ``text`` says who we are.

        :raise LockHeld: another server has it; the message says which.
        """

    def forget_cached(self, name: str) -> None:
        """Ask that the next read comes from the device: after a failed write-back the cache may
        show what the disk never got.
        """

    def copy_part(self, name: str, start: int, end: int) -> bytes:
        """As `read`, copied: what the disk cannot read raises, a mapping ends the process."""

    def expect_gaps(self, names: Collection[str]) -> None:
        """Most of these files, and of no others, is skipped from now on: do not read ahead."""

    def create(self, name: str) -> File:
        """A new file, which must not exist yet."""

    def open(self, name: str) -> File:
        """A file to write that is there already."""

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, atomically."""

    def remove(self, name: str) -> None: ...

    def displaced(self, name: str, file: File) -> str:
        """Look whether ``name`` still leads to a file that is open here: the next start looks for
        it there, whatever happens to the directory meanwhile.

        :param file: one of `create` or `open`.
        :return: `IN_PLACE`, also if that cannot be decided; or what has become of it, in words that
            follow its name: `DELETED`, `MOVED`, or where it is now.
        """

    def lost_lock(self) -> str:
        """Return the name of a lock file that was deleted or replaced, empty if none was."""

    def disk_space(self) -> DiskSpace: ...

    def cut(self, name: str, size: int) -> None:
        """Truncate a file that is no longer written, durably."""

    def sync(self) -> None:
        """Return when all names in the directory survive a power loss."""

    def quarantine(self, name: str, content: Buffer) -> str:
        """Keep a durable copy of bytes that are about to be cut off; return its path.  An older
        copy of this name is never overwritten.
        """

    def close(self) -> None:
        """Give up the lock."""


class RealFile(File):
    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write_at(self, offset: int, chunks: Sequence[bytes]) -> None:
        if len(chunks) > 1 and sum(map(len, chunks)) <= JOINED_BYTES:
            chunks = [b"".join(chunks)]
        for chunk in chunks:
            rest: Buffer = chunk
            while (count := retried(os.pwrite, self._fd, rest, offset)) < len(rest):
                rest = memoryview(rest)[count:]
                offset += count
            offset += count

    def allocate(self, size: int) -> None:
        """File systems that cannot reserve space go without: it only makes later syncs cheaper."""
        try:
            retried(os.posix_fallocate, self._fd, 0, size)
        except OSError as problem:
            if problem.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise

    def truncate(self, size: int) -> None:
        retried(os.ftruncate, self._fd, size)

    def sync(self) -> None:
        retried(os.fdatasync, self._fd)

    def close(self) -> None:
        os.close(self._fd)

    def is_at(self, path: str) -> bool:
        """Whether a path leads to this file, by device and inode; True if nobody can tell."""
        try:
            return os.path.samestat(os.fstat(self._fd), os.lstat(path))
        except OSError as problem:
            return problem.errno not in _GONE

    def whereabouts(self) -> str:
        """:return: `DELETED`, where the file is now if the kernel says so (Linux), or `MOVED`."""
        with contextlib.suppress(OSError):
            if not os.fstat(self._fd).st_nlink:
                return DELETED
            return f"is now {os.readlink(f'/proc/self/fd/{self._fd}')}"
        return MOVED


class RealDirectory(Directory):
    def __init__(self, path: str) -> None:
        self.path = path
        self._locks: list[int] = []
        self._with_gaps: frozenset[str] = frozenset()

    def make(self) -> None:
        """Create the directory if only it, not its parent, is missing.

        :raise CannotUse: it is not there, cannot be made, or is not a directory we may write in.
        """
        try:
            with contextlib.suppress(FileExistsError):
                retried(os.mkdir, self.path, 0o700)
            if not stat.S_ISDIR(os.stat(self.path).st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), self.path)
            if os.statvfs(self.path).f_flag & os.ST_RDONLY:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), self.path)
            if not os.access(self.path, os.R_OK | os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), self.path)
        except OSError as problem:
            parent = os.path.dirname(self.path)
            if isinstance(problem, FileNotFoundError) and not os.path.exists(parent):
                raise CannotUse(
                    f"binlog directory {self.path}: there is no {parent} to make it in; nothing "
                    f"was lost. Make that (mkdir -p {parent}), or name another one; then start "
                    f"again."
                ) from problem
            raise CannotUse(
                f"binlog directory {self.path}: {problem.strerror}; nothing was lost. "
                f"{advice_on(self.path, problem)}, then start again."
            ) from problem

    def is_open_to_others(self) -> bool:
        """Whether users beside its owner may make and remove files in the directory."""
        return bool(os.stat(self.path).st_mode & (stat.S_IWGRP | stat.S_IWOTH))

    def _path(self, name: str) -> str:
        return os.path.join(self.path, name)

    def lock(self, text: str) -> None:
        """Take ``LOCK`` with flock and ``lock`` with fcntl, the latter because a C beanstalkd does.

        Neither descriptor is ever closed before the end: closing any descriptor of ``lock`` would
        drop its lock, as fcntl has it.

        :raise CannotUse: the files cannot be made.
        """
        try:
            self._lock(text)
        except OSError as problem:
            where = problem.filename or self.path
            raise CannotUse(
                f"binlog directory {self.path} cannot be locked: {where}: {problem.strerror}; "
                f"nothing was lost. Look at it, its permissions and its file system, then start "
                f"again."
            ) from problem

    def _lock(self, text: str) -> None:
        mine = retried(os.open, self._path(LOCKS[0]), _OURS | os.O_CREAT, 0o600)
        self._locks.append(mine)
        try:
            fcntl.flock(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = retried(os.pread, mine, 200, 0).decode("utf-8", "replace").strip()
            raise LockHeld(self._lock_message(holder or "an unknown process")) from None
        theirs = retried(os.open, self._path(LOCKS[1]), _OURS | os.O_CREAT, 0o600)
        self._locks.append(theirs)
        try:
            fcntl.lockf(theirs, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            if problem.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            raise LockHeld(self._lock_message("a C beanstalkd")) from None
        retried(os.ftruncate, mine, 0)
        retried(os.pwrite, mine, text.encode(), 0)

    def refuse_if_beanstalkd_runs(self) -> None:
        """:raise LockHeld: a C beanstalkd holds this directory; asked before `lock`, leaving no
        trace.
        """
        if holder_of(self.path):
            raise LockHeld(self._lock_message("a C beanstalkd"))

    def _lock_message(self, holder: str) -> str:
        return (
            f"binlog directory {self.path} is locked by {holder}; nothing was touched. "
            f"Stop that server first, or use another directory."
        )

    def names(self) -> list[str]:
        return list(paths_in(self.path))

    def read(self, name: str, start: int = 0, end: int = TO_END) -> Buffer:
        """Map the part only, so that a log larger than memory can be read: a limit on memory counts
        what is mapped.
        """
        with opened(self._path(name)) as fd:
            return mapped(fd, start, end, name in self._with_gaps)

    def copy_part(self, name: str, start: int, end: int) -> bytes:
        with opened(self._path(name)) as fd:
            return read_range(fd, start, end)

    def size(self, name: str) -> int:
        return os.stat(self._path(name), follow_symlinks=False).st_size

    def expect_gaps(self, names: Collection[str]) -> None:
        self._with_gaps = frozenset(names)

    def forget_cached(self, name: str) -> None:
        """Advice to the kernel; it may not follow."""
        with opened(self._path(name)) as fd:
            retried(os.posix_fadvise, fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def create(self, name: str) -> RealFile:
        return RealFile(retried(os.open, self._path(name), _OURS | os.O_CREAT | os.O_EXCL, 0o600))

    def open(self, name: str) -> RealFile:
        return RealFile(retried(os.open, self._path(name), _OURS))

    def rename(self, old: str, new: str) -> None:
        retried(os.rename, self._path(old), self._path(new))

    def remove(self, name: str) -> None:
        retried(os.unlink, self._path(name))

    def displaced(self, name: str, file: File) -> str:
        assert isinstance(file, RealFile)
        return IN_PLACE if file.is_at(self._path(name)) else file.whereabouts()

    def lost_lock(self) -> str:
        for name, fd in zip(LOCKS, self._locks, strict=False):
            if not RealFile(fd).is_at(self._path(name)):
                return name
        return ""

    def disk_space(self) -> DiskSpace:
        found = os.statvfs(self.path)
        blocks = found.f_blocks - (found.f_bfree - found.f_bavail)
        return DiskSpace(found.f_bavail * found.f_frsize, blocks * found.f_frsize)

    def cut(self, name: str, size: int) -> None:
        with opened(self._path(name), _OURS) as fd:
            retried(os.ftruncate, fd, size)
            retried(os.fdatasync, fd)

    def sync(self) -> None:
        sync_directory(self.path)

    def quarantine(self, name: str, content: Buffer) -> str:
        folder = self._path(QUARANTINE)
        with contextlib.suppress(FileExistsError):
            retried(os.mkdir, folder, 0o700)
        if os.path.islink(folder):
            raise OSError(errno.ELOOP, "it is a symbolic link", folder)
        whole = bytes(content)
        path = os.path.join(folder, name)
        while os.path.exists(path) and not _holds(path, whole):
            path += "+"
        if not os.path.exists(path):
            _write_whole(f"{path}.part", whole)
            retried(os.rename, f"{path}.part", path)
        sync_directory(folder)
        return path

    def close(self) -> None:
        for fd in self._locks:
            os.close(fd)
        self._locks.clear()


def advice_on(path: str, problem: OSError) -> str:
    if problem.errno == errno.ENOTDIR:
        return "Name a directory with --binlog, not a file"
    if problem.errno == errno.EROFS:
        return "Mount its file system for writing, or name another directory"
    if problem.errno == errno.ENOENT:
        return f"It is a symbolic link that leads nowhere: run mkdir -p {os.path.realpath(path)}"
    if os.path.isdir(path):
        found = os.stat(path)
        if found.st_uid == os.geteuid() and found.st_mode & stat.S_IRWXU != stat.S_IRWXU:
            return f"Run chmod u+rwx {path}"
        return f"Run chown -R {os.geteuid()} {path}, or start as its owner"
    return f"Run mkdir {path} and chown {os.geteuid()} {path}"


def holder_of(path: str) -> int:
    """The process that holds a directory's ``lock``, as a C beanstalkd does.  F_GETLK only asks:
    unlike trying to take the lock, it cannot get in the way of a server that starts just now.

    :return: its pid; 0 if nobody holds it, or we do; -1 if it cannot be named.
    :raise OSError: there is a ``lock`` that may not be looked at.
    """
    asked = (fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    packed = _FLOCK.pack(*(asked if _LINUX else asked[2:] + asked[:2]))
    try:
        with opened(os.path.join(path, "lock"), os.O_RDONLY | os.O_CLOEXEC) as fd:
            answer = fcntl.fcntl(fd, fcntl.F_GETLK, packed)
    except FileNotFoundError:
        return 0
    fields = _FLOCK.unpack(answer[: _FLOCK.size])
    kind, pid = (fields[0], fields[4]) if _LINUX else (fields[3], fields[2])
    return 0 if kind == fcntl.F_UNLCK else (pid or -1)


def _holds(path: str, content: bytes) -> bool:
    with open(path, "rb") as file:
        return file.read() == content


def _write_whole(path: str, content: bytes) -> None:
    """A crash may leave part of it: only a name given later says that it is whole.  If it raises,
    nothing is left of it.
    """
    copy = RealFile(retried(os.open, path, _OURS | os.O_CREAT | os.O_TRUNC, 0o600))
    try:
        copy.write_at(0, [content])
        copy.sync()
    except OSError:
        retried(os.unlink, path)
        raise
    finally:
        copy.close()


def sync_directory(path: str) -> None:
    """Return when all names in a directory survive a power loss."""
    with opened(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) as fd:
        retried(os.fsync, fd)
