"""
The door to the file system: what the log asks of a directory, the real one and a simulated one.

`MemoryDirectory` keeps *written* and *synced* apart and can lose, tear or refuse, so that the tests
of whoever uses this package can crash a log at every single operation.  Both pass the same contract
tests (tests/binlog/test_directory.py).
"""

import contextlib
import errno
import fcntl
import mmap
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from beanstalk_twisted.binlog.errors import CannotUse, LockHeld
from beanstalk_twisted.binlog.frames import Buffer

QUARANTINE = "quarantine"


class File(Protocol):
    """
    A segment that is being written.  All methods raise OSError.
    """

    def write_at(self, offset: int, chunks: Sequence[bytes]) -> None:
        """
        Write all of ``chunks`` one behind the other from ``offset`` on, or raise.
        """

    def allocate(self, size: int) -> None:
        """
        Reserve space up to ``size`` bytes; what was not written reads as zeros.
        """

    def truncate(self, size: int) -> None:
        """
        Cut or extend to ``size`` bytes.
        """

    def sync(self) -> None:
        """
        Return when all that was written, and the size, survive a power loss.
        """

    def close(self) -> None:
        """
        Let go of the file.
        """


class Directory(Protocol):
    """
    One directory of segments.  All methods raise OSError unless said otherwise.
    """

    path: str

    def lock(self, text: str) -> None:
        """
        Keep other servers out for as long as this process lives.

        :param text: who we are, for whoever finds the lock held.
        :raise LockHeld: another server has it; the message says which.
        """

    def names(self) -> list[str]:
        """
        The names of the files, sorted.
        """

    def read(self, name: str) -> Buffer:
        """
        The whole file.
        """

    def forget_cached(self, name: str) -> None:
        """
        Ask that the next read comes from the device: after a failed write-back the cache may show
        what the disk never got.
        """

    def create(self, name: str) -> File:
        """
        A new file, which must not exist yet.
        """

    def rename(self, old: str, new: str) -> None:
        """
        Give a file another name, atomically.
        """

    def remove(self, name: str) -> None:
        """
        Delete a file.
        """

    def cut(self, name: str, size: int) -> None:
        """
        Truncate a file that is no longer written, and return when it is durable as it is then.
        """

    def sync(self) -> None:
        """
        Return when all names in the directory survive a power loss.
        """

    def quarantine(self, name: str, content: Buffer) -> str:
        """
        Keep a durable copy of bytes that are about to be cut off.

        :return: its path.  An older copy of this name is never overwritten.
        """

    def close(self) -> None:
        """
        Give up the lock.
        """


class RealFile:
    """
    A `File` of the operating system.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write_at(self, offset: int, chunks: Sequence[bytes]) -> None:
        """
        Short writes go on with the remainder.
        """
        content = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        view = memoryview(content)
        while view:
            count = os.pwrite(self._fd, view, offset)
            view = view[count:]
            offset += count

    def allocate(self, size: int) -> None:
        """
        File systems that cannot reserve space go without: it only makes later syncs cheaper.
        """
        try:
            os.posix_fallocate(self._fd, 0, size)
        except OSError as problem:
            if problem.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise

    def truncate(self, size: int) -> None:
        """
        See `File.truncate`.
        """
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        """
        See `File.sync`.
        """
        os.fdatasync(self._fd)

    def close(self) -> None:
        """
        See `File.close`.
        """
        os.close(self._fd)


class RealDirectory:
    """
    A `Directory` of the operating system.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._locks: list[int] = []

    def make(self) -> None:
        """
        Create the directory if only it, not its parent, is missing.

        :raise CannotUse: it is not there, cannot be made, or is not a directory we may write in.
        """
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self.path, 0o700)
            if not stat.S_ISDIR(os.stat(self.path).st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), self.path)
            if not os.access(self.path, os.R_OK | os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), self.path)
        except OSError as problem:
            raise CannotUse(
                f"binlog directory {self.path}: {problem.strerror}; nothing was lost. "
                f"Make it, or give it to the user the server runs as, then start again."
            ) from problem

    def _path(self, name: str) -> str:
        return os.path.join(self.path, name)

    def lock(self, text: str) -> None:
        """
        Take ``LOCK`` with flock and ``lock`` with fcntl, the latter because a C beanstalkd does.

        Neither descriptor is ever closed before the end: closing any descriptor of ``lock`` would
        drop its lock, as fcntl has it.
        """
        mine = os.open(self._path("LOCK"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._locks.append(mine)
        try:
            fcntl.flock(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(mine, 200, 0).decode("utf-8", "replace").strip()
            raise LockHeld(self._lock_message(holder or "an unknown process")) from None
        theirs = os.open(self._path("lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._locks.append(theirs)
        try:
            fcntl.lockf(theirs, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            if problem.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            raise LockHeld(self._lock_message("a C beanstalkd")) from None
        os.ftruncate(mine, 0)
        os.pwrite(mine, text.encode(), 0)

    def _lock_message(self, holder: str) -> str:
        return (
            f"binlog directory {self.path} is locked by {holder}; nothing was touched. "
            f"Stop that server, or give this one a directory of its own."
        )

    def names(self) -> list[str]:
        """
        See `Directory.names`.
        """
        with os.scandir(self.path) as entries:
            return sorted(entry.name for entry in entries if entry.is_file())

    def read(self, name: str) -> Buffer:
        """
        A read-only mapping, so that a log larger than memory can be read.
        """
        fd = os.open(self._path(name), os.O_RDONLY | os.O_CLOEXEC)
        try:
            if not os.fstat(fd).st_size:
                return b""
            return memoryview(mmap.mmap(fd, 0, prot=mmap.PROT_READ))
        finally:
            os.close(fd)

    def forget_cached(self, name: str) -> None:
        """
        Advice to the kernel; it may not follow.
        """
        fd = os.open(self._path(name), os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)

    def create(self, name: str) -> RealFile:
        """
        See `Directory.create`.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return RealFile(os.open(self._path(name), flags, 0o600))

    def rename(self, old: str, new: str) -> None:
        """
        See `Directory.rename`.
        """
        os.rename(self._path(old), self._path(new))

    def remove(self, name: str) -> None:
        """
        See `Directory.remove`.
        """
        os.unlink(self._path(name))

    def cut(self, name: str, size: int) -> None:
        """
        See `Directory.cut`.
        """
        fd = os.open(self._path(name), os.O_RDWR | os.O_CLOEXEC)
        try:
            os.ftruncate(fd, size)
            os.fdatasync(fd)
        finally:
            os.close(fd)

    def sync(self) -> None:
        """
        See `Directory.sync`.
        """
        _sync_directory(self.path)

    def quarantine(self, name: str, content: Buffer) -> str:
        """
        See `Directory.quarantine`.
        """
        folder = self._path(QUARANTINE)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        path = os.path.join(folder, name)
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            return path
        copy = RealFile(fd)
        copy.write_at(0, [bytes(content)])
        copy.sync()
        copy.close()
        _sync_directory(folder)
        return path

    def close(self) -> None:
        """
        See `Directory.close`.
        """
        for fd in self._locks:
            os.close(fd)
        self._locks.clear()


def _sync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class _Inode:
    """
    The bytes of a simulated file: as written, and as they survive a power loss.
    """

    def __init__(self, content: bytes = b"") -> None:
        self.written = bytearray(content)
        self.synced = bytes(content)
        self.pending: list[tuple[int, bytes | None]] = []

    def write(self, offset: int, content: bytes) -> None:
        self.pending.append((offset, content))
        _apply_write(self.written, offset, content)

    def resize(self, size: int) -> None:
        self.pending.append((size, None))
        _apply_write(self.written, size, None)

    def sync(self) -> None:
        self.synced = bytes(self.written)
        self.pending.clear()

    def surviving(self, keep: "Callable[[int], Iterable[tuple[int, int]]]") -> bytes:
        content = bytearray(self.synced)
        for offset, written in self.pending:
            size = len(written) if written is not None else 0
            for start, end in keep(size):
                part = None if written is None else written[start:end]
                _apply_write(content, offset + start, part)
        return bytes(content)


def _apply_write(content: bytearray, offset: int, written: bytes | None) -> None:
    """
    Write, or for None set the size to ``offset``.
    """
    if written is None:
        del content[offset:]
    content.extend(bytes(max(0, offset - len(content))))
    if written:
        content[offset : offset + len(written)] = written


class MemoryFile:
    """
    A `File` of a `MemoryDirectory`.
    """

    def __init__(self, directory: "MemoryDirectory", name: str, inode: _Inode) -> None:
        self._directory = directory
        self._name = name
        self._inode = inode

    def write_at(self, offset: int, chunks: Sequence[bytes]) -> None:
        """
        See `File.write_at`.
        """
        self._directory.before("write", self._name)
        self._inode.write(offset, b"".join(chunks))

    def allocate(self, size: int) -> None:
        """
        See `File.allocate`.
        """
        self._directory.before("allocate", self._name)
        if size > len(self._inode.written):
            self._inode.resize(size)

    def truncate(self, size: int) -> None:
        """
        See `File.truncate`.
        """
        self._directory.before("truncate", self._name)
        self._inode.resize(size)

    def sync(self) -> None:
        """
        See `File.sync`.
        """
        self._directory.before("sync", self._name)
        self._inode.sync()

    def close(self) -> None:
        """
        See `File.close`.
        """


class MemoryDirectory:
    """
    A simulated `Directory`.

    :ivar before: called with the name of each changing operation and of its file just before it
        happens; it may raise: an OSError is a fault of the disk, anything else a crash right there.
    :ivar operations: how many changing operations have been asked for.
    """

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self.path = "(memory)"
        self.operations = 0
        self.fault: Callable[[str, str], None] = lambda operation, name: None
        self._names = {name: _Inode(content) for name, content in (files or {}).items()}
        self._synced_names = dict(self._names)
        self._pending_names: list[tuple[str, _Inode | None, str | None]] = []
        self.quarantined: dict[str, bytes] = {}

    def before(self, operation: str, name: str) -> None:
        """
        Count an operation and let `fault` speak.
        """
        self.operations += 1
        self.fault(operation, name)

    def lock(self, text: str) -> None:
        """
        Nobody else can reach it.
        """

    def names(self) -> list[str]:
        """
        See `Directory.names`.
        """
        return sorted(self._names)

    def _inode(self, name: str) -> _Inode:
        try:
            return self._names[name]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name) from None

    def read(self, name: str) -> Buffer:
        """
        See `Directory.read`.
        """
        return bytes(self._inode(name).written)

    def forget_cached(self, name: str) -> None:
        """
        There is no cache.
        """

    def create(self, name: str) -> MemoryFile:
        """
        See `Directory.create`.
        """
        self.before("create", name)
        if name in self._names:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        inode = self._names[name] = _Inode()
        self._pending_names.append((name, inode, None))
        return MemoryFile(self, name, inode)

    def rename(self, old: str, new: str) -> None:
        """
        See `Directory.rename`.
        """
        self.before("rename", new)
        inode = self._inode(old)
        del self._names[old]
        self._names[new] = inode
        self._pending_names.append((new, inode, old))

    def remove(self, name: str) -> None:
        """
        See `Directory.remove`.
        """
        self.before("remove", name)
        self._inode(name)
        del self._names[name]
        self._pending_names.append((name, None, None))

    def cut(self, name: str, size: int) -> None:
        """
        See `Directory.cut`.
        """
        self.before("cut", name)
        self._inode(name).resize(size)
        self._inode(name).sync()

    def sync(self) -> None:
        """
        See `Directory.sync`.
        """
        self.before("sync directory", "")
        self._synced_names = dict(self._names)
        self._pending_names.clear()

    def quarantine(self, name: str, content: Buffer) -> str:
        """
        See `Directory.quarantine`.
        """
        self.before("quarantine", name)
        self.quarantined.setdefault(name, bytes(content))
        return f"{self.path}/{QUARANTINE}/{name}"

    def close(self) -> None:
        """
        Nothing is held.
        """

    def after_kill(self) -> "MemoryDirectory":
        """
        What the next process finds when this one is killed: all that was written.
        """
        return MemoryDirectory({name: bytes(node.written) for name, node in self._names.items()})

    def after_power_loss(
        self,
        keep_name: Callable[[], bool] = lambda: False,
        keep_bytes: Callable[[int], Iterable[tuple[int, int]]] = lambda size: (),
    ) -> "MemoryDirectory":
        """
        What the next process finds after a power loss: all that was synced, and of the rest what
        the caller chooses.

        :param keep_name: asked for each change of a name that was not synced.
        :param keep_bytes: asked for each write that was not synced, with its size; gives the
            (start, end) parts of it that reached the disk.  ``(0, 0)`` keeps a change of size.
        """
        names = dict(self._synced_names)
        for name, inode, old in self._pending_names:
            if keep_name():
                _apply_name(names, name, inode, old)
        return MemoryDirectory({name: node.surviving(keep_bytes) for name, node in names.items()})


def _apply_name(names: dict[str, _Inode], name: str, inode: _Inode | None, old: str | None) -> None:
    if inode is None:
        names.pop(name, None)
        return
    names[name] = inode
    if old is not None:
        names.pop(old, None)
