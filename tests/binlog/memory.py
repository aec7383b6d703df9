"""A simulated directory that can lose, tear or refuse; and an archive that can do the same.

They keep *written* and *synced* apart, so that tests can crash a log at every single operation and
look at what a power loss may leave.  What was written before a sync that failed is in doubt for
ever: a later one that succeeds proves nothing about it.
"""

import copy
import errno
import os
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Self

from beanstalk_twisted.binlog.archive import PART, Archive
from beanstalk_twisted.binlog.directory import Directory, DiskSpace, File
from beanstalk_twisted.binlog.segments.frames import Buffer
from beanstalk_twisted.testing.memory_server import (
    Inode,
    SimulatedDirectory,
    SimulatedFile,
    overwrite,
)


class _Change(NamedTuple):
    """A write that is not known synced, or for None a change of size to ``offset``.

    :ivar is_doubtful: whether a sync has failed since; ``is_synced`` whether a later one did not.
    """

    offset: int
    written: bytes | None
    is_doubtful: bool = False
    is_synced: bool = False


class _Inode(Inode):
    """The bytes of a file of which a part may survive."""

    def __init__(self, content: bytes = b"") -> None:
        super().__init__(content)
        self.pending: list[_Change] = []

    def change(self, offset: int, written: bytes | None) -> None:
        self.pending.append(_Change(offset, written))
        super().change(offset, written)

    def sync(self) -> None:
        """What a failed sync has put in doubt stays so."""
        if any(change.is_doubtful for change in self.pending):
            self.pending = [change._replace(is_synced=True) for change in self.pending]
        else:
            super().sync()
            self.pending.clear()

    def doubt(self) -> None:
        """A sync has failed."""
        self.pending = [c if c.is_synced else c._replace(is_doubtful=True) for c in self.pending]

    def forget_cached(self) -> None:
        """What is in doubt did not reach the disk."""
        if any(change.is_doubtful for change in self.pending):
            self.pending = [change for change in self.pending if not change.is_doubtful]
            self.written = bytearray(self.synced)
            for change in self.pending:
                overwrite(self.written, change.offset, change.written)

    def surviving(self, keep: "Callable[[int], Iterable[tuple[int, int]]]") -> bytes:
        if not self.pending:
            return self.synced
        content = bytearray(self.synced)
        for change in self.pending:
            _apply_parts(content, change, keep)
        return bytes(content)


def _apply_parts(
    content: bytearray, change: _Change, keep: "Callable[[int], Iterable[tuple[int, int]]]"
) -> None:
    """Apply as much of a change as is kept."""
    written = change.written
    size = 0 if written is None else len(written)
    is_certain = change.is_synced and not change.is_doubtful
    for start, end in [(0, size)] if is_certain else keep(size):
        part = None if written is None else written[start:end]
        overwrite(content, change.offset + start, part)


class MemoryFile(SimulatedFile):
    """A `File` of a `MemoryDirectory`."""

    inode: _Inode

    def __init__(self, directory: "MemoryDirectory", name: str, inode: _Inode) -> None:
        super().__init__(inode)
        self._directory = directory
        self._name = name

    def write_at(self, offset: int, chunks: Sequence[bytes]) -> None:
        content = b"".join(chunks)
        try:
            self._directory.before("write", self._name)
        except OSError:
            # Who writes cannot know how far it came.
            self.inode.change(offset, content[: len(content) // 2])
            raise
        self._directory.charge(self.inode, offset + len(content))
        super().write_at(offset, [content])

    def allocate(self, size: int) -> None:
        self._directory.before("allocate", self._name)
        self._directory.charge(self.inode, size)
        super().allocate(size)

    def truncate(self, size: int) -> None:
        self._directory.before("truncate", self._name)
        super().truncate(size)

    def sync(self) -> None:
        try:
            self._directory.before("sync", self._name)
        except OSError:
            self.inode.doubt()
            raise
        super().sync()


def fails_at(nth: int, code: int = errno.EIO, kind: str = "") -> Callable[[str, str], None]:
    """A fault: the nth operation, of a kind or of any, fails, and no other."""
    left = nth

    def fault(operation: str, name: str) -> None:
        nonlocal left
        if kind in ("", operation):
            left -= 1
            if not left:
                raise OSError(code, os.strerror(code), name)

    return fault


class MemoryDirectory(SimulatedDirectory):
    """A `SimulatedDirectory` with faults.

    :ivar fault: called with the name of each changing operation and of its file just before it
        happens; it may raise: an OSError is a fault of the disk, anything else a crash right there.
    :ivar read_fault: called with the name of a file before a part of it is copied; it may raise.
    :ivar operations: how many changing operations have been asked for.
    :ivar space: bytes that all files together may have; None for no limit.
    :ivar is_away: whether something else is at its path, so that only open files lead here.
    """

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        super().__init__(files)
        self.operations = 0
        self.space: int | None = None
        self.is_away = False
        self.fault: Callable[[str, str], None] = lambda operation, name: None
        self.read_fault: Callable[[str], None] = lambda name: None
        self._pending_names: list[tuple[str, Inode | None, str | None]] = []

    def make(self, content: bytes = b"") -> _Inode:
        return _Inode(content)

    def inode(self, name: str) -> _Inode:
        return _ours(super().inode(name))

    def before(self, operation: str, name: str) -> None:
        """Count an operation and let `fault` speak."""
        self.operations += 1
        self.fault(operation, name)

    def charge(self, inode: Inode, size: int) -> None:
        """A file is to have so many bytes.

        :raise OSError: there is no space.
        """
        if self.space is None or size <= len(inode.written):
            return
        others = sum(len(each.written) for each in self.inodes.values() if each is not inode)
        if others + size > self.space:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def copy_part(self, name: str, start: int, end: int) -> bytes:
        self.read_fault(name)
        return super().copy_part(name, start, end)

    def forget_cached(self, name: str) -> None:
        self.inode(name).forget_cached()

    def create(self, name: str) -> File:
        self.before("create", name)
        file = super().create(name)
        self._pending_names.append((name, self.inode(name), None))
        return file

    def open(self, name: str) -> MemoryFile:
        return MemoryFile(self, name, self.inode(name))

    def rename(self, old: str, new: str) -> None:
        self.before("rename", new)
        super().rename(old, new)
        self._pending_names.append((new, self.inode(new), old))

    def remove(self, name: str) -> None:
        self.before("remove", name)
        super().remove(name)
        self._pending_names.append((name, None, None))

    def displaced(self, name: str, file: File) -> str:
        return f"is now (elsewhere)/{name}" if self.is_away else super().displaced(name, file)

    def disk_space(self) -> DiskSpace:
        if self.space is None:
            return super().disk_space()
        used = sum(len(inode.written) for inode in self.inodes.values())
        return DiskSpace(max(0, self.space - used), self.space)

    def cut(self, name: str, size: int) -> None:
        self.before("cut", name)
        super().cut(name, size)

    def sync(self) -> None:
        self.before("sync directory", "")
        super().sync()
        self._pending_names.clear()

    def quarantine(self, name: str, content: Buffer) -> str:
        self.before("quarantine", name)
        return super().quarantine(name, content)

    def adopt(self, name: str, source: Directory, source_name: str) -> None:
        """Give a file of another simulated directory a second name here."""
        assert isinstance(source, MemoryDirectory)
        inode = self.inodes[name] = source.inode(source_name)
        self._pending_names.append((name, inode, None))

    def after_kill(self) -> Self:
        left = copy.copy(self)
        left.fault = lambda operation, name: None
        left.read_fault = lambda name: None
        left.operations = 0
        left.is_away = False
        return copy.deepcopy(left)

    def after_power_loss(
        self,
        keep_name: Callable[[], bool] = lambda: False,
        keep_bytes: Callable[[int], Iterable[tuple[int, int]]] = lambda size: (),
    ) -> Self:
        """What the next process finds after a power loss; see `surviving`."""
        return type(self)(self.surviving(keep_name, keep_bytes))

    def surviving(
        self, keep_name: Callable[[], bool], keep_bytes: Callable[[int], Iterable[tuple[int, int]]]
    ) -> dict[str, bytes]:
        """The files that a power loss leaves: all that was synced, and of the rest what the caller
        chooses.

        :param keep_name: asked for each change of a name that was not synced.
        :param keep_bytes: asked for each write that was not synced, with its size; gives the
            (start, end) parts of it that reached the disk.  ``(0, 0)`` keeps a change of size.
        """
        names = dict(self.synced_inodes)
        for name, inode, old in self._pending_names:
            if keep_name():
                _apply_name(names, name, inode, old)
        return {name: _ours(inode).surviving(keep_bytes) for name, inode in names.items()}


def _ours(inode: Inode) -> _Inode:
    assert isinstance(inode, _Inode)
    return inode


def _apply_name(names: dict[str, Inode], name: str, inode: Inode | None, old: str | None) -> None:
    if inode is None:
        names.pop(name, None)
        return
    names[name] = inode
    if old is not None:
        names.pop(old, None)


class MemoryArchive(Archive):
    """A simulated `archive.Archive`: the folder of each store is a `MemoryDirectory`.

    :ivar files: the folder that is open.
    :ivar fault: see `MemoryDirectory.fault`; each call of `link`, and each step of a `copy`, is one
        operation.
    :ivar can_link: whether it is on the file system of the log.
    """

    def __init__(self, can_link: bool = True) -> None:
        self.path = "(archive)"
        self.can_link = can_link
        self.fault: Callable[[str, str], None] = lambda operation, name: None
        self.folders: dict[str, MemoryDirectory] = {}
        self.files = MemoryDirectory()

    def refuse_unusable(self) -> None:
        """It is always there."""

    def open(self, store_uuid: bytes) -> None:
        self.fault("open", store_uuid.hex())
        self.path = f"(archive)/{store_uuid.hex()}"
        self.files = self.folders.setdefault(store_uuid.hex(), MemoryDirectory())
        self.files.fault = lambda operation, name: self.fault(operation, name)

    def names(self) -> list[str]:
        return self.files.names()

    def has(self, name: str) -> bool:
        return name in self.files.names()

    def holds(self, name: str, source: Directory, source_name: str, size: int) -> bool:
        mine, theirs = self.files.read(name), source.read(source_name)
        return len(mine) == size and bytes(mine) == bytes(theirs[:size])

    def link(self, name: str, source: Directory, source_name: str) -> None:
        self.files.before("link", name)
        if self.has(name):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        if not self.can_link:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), name)
        self.files.adopt(name, source, source_name)

    def copy(self, name: str, source: Directory, source_name: str, size: int) -> None:
        content = bytes(source.read(source_name)[:size])
        if len(content) < size:
            raise OSError(errno.EIO, f"it ends at offset {len(content)}", source_name)
        file = self.files.open(name) if self.has(name) else self.files.create(name)
        file.truncate(0)
        file.write_at(0, [content])
        file.sync()

    def rename(self, old: str, new: str) -> None:
        if self.has(new):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new)
        self.files.rename(old, new)

    def remove(self, name: str) -> None:
        self.files.remove(name)

    def content(self, name: str) -> bytes:
        self.files.before("content", name)
        return bytes(self.files.read(name))

    def replace(self, name: str, content: bytes) -> None:
        part = name + PART
        file = self.files.open(part) if self.has(part) else self.files.create(part)
        file.truncate(0)
        file.write_at(0, [content])
        file.sync()
        self.files.rename(part, name)

    def sync(self) -> None:
        self.files.sync()
