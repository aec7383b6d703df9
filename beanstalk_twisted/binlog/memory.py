"""
A simulated directory that can lose, tear or refuse; and an archive that can do the same.

They keep *written* and *synced* apart, so that the tests of whoever uses this package can crash a
log at every single operation and look at what a power loss may leave.  What was written before a
sync that failed is in doubt for ever: a later one that succeeds proves nothing about it.
"""

import copy
import errno
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from beanstalk_twisted.binlog.archive import PART, Archive
from beanstalk_twisted.binlog.bodies import BodyReader, read_each
from beanstalk_twisted.binlog.directory import (
    DELETED,
    IN_PLACE,
    QUARANTINE,
    Directory,
    DiskSpace,
    File,
)
from beanstalk_twisted.binlog.errors import BodyLost
from beanstalk_twisted.binlog.records.jobs import BodyPlace
from beanstalk_twisted.binlog.segments.frames import Buffer


class _Change(NamedTuple):
    """
    A write that is not known synced, or for None a change of size to ``offset``.

    :ivar is_doubtful: whether a sync has failed since; ``is_synced`` whether a later one did not.
    """

    offset: int
    written: bytes | None
    is_doubtful: bool = False
    is_synced: bool = False


class _Inode:
    """The bytes of a simulated file: as written, and as they survive a power loss."""

    def __init__(self, content: bytes = b"") -> None:
        self.written = bytearray(content)
        self.synced = bytes(content)
        self.pending: list[_Change] = []

    def write(self, offset: int, content: bytes) -> None:
        self.pending.append(_Change(offset, content))
        _apply_write(self.written, offset, content)

    def resize(self, size: int) -> None:
        self.pending.append(_Change(size, None))
        _apply_write(self.written, size, None)

    def sync(self) -> None:
        """What a failed sync has put in doubt stays so."""
        if any(change.is_doubtful for change in self.pending):
            self.pending = [change._replace(is_synced=True) for change in self.pending]
        else:
            self.synced = bytes(self.written)
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
                _apply_write(self.written, change.offset, change.written)

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
        _apply_write(content, change.offset + start, part)


def _apply_write(content: bytearray, offset: int, written: bytes | None) -> None:
    """Write, or for None set the size to ``offset``."""
    if written is None:
        del content[offset:]
    content.extend(bytes(max(0, offset - len(content))))
    if written:
        content[offset : offset + len(written)] = written


class MemoryFile(File):
    """A `File` of a `MemoryDirectory`."""

    def __init__(self, directory: "MemoryDirectory", name: str, inode: _Inode) -> None:
        self._directory = directory
        self._name = name
        self._inode = inode

    def write_at(self, offset: int, chunks: Sequence[bytes]) -> None:
        content = b"".join(chunks)
        try:
            self._directory.before("write", self._name)
        except OSError:
            # Who writes cannot know how far it came.
            self._inode.write(offset, content[: len(content) // 2])
            raise
        self._directory.charge(self._inode, offset + len(content))
        self._inode.write(offset, content)

    def allocate(self, size: int) -> None:
        self._directory.before("allocate", self._name)
        self._directory.charge(self._inode, size)
        if size > len(self._inode.written):
            self._inode.resize(size)

    def truncate(self, size: int) -> None:
        self._directory.before("truncate", self._name)
        self._inode.resize(size)

    def sync(self) -> None:
        try:
            self._directory.before("sync", self._name)
        except OSError:
            self._inode.doubt()
            raise
        self._inode.sync()

    def close(self) -> None:
        """Let go of the file."""

    def is_named(self, names: dict[str, _Inode], name: str) -> bool:
        """Tell whether a name leads to this file."""
        return names.get(name) is self._inode


class MemoryDirectory(Directory):
    """
    A simulated `Directory`.

    :ivar before: called with the name of each changing operation and of its file just before it
        happens; it may raise: an OSError is a fault of the disk, anything else a crash right there.
    :ivar read_fault: called with the name of a file before a part of it is copied; it may raise.
    :ivar with_gaps: see `expect_gaps`.
    :ivar operations: how many changing operations have been asked for.
    :ivar space: bytes that all files together may have; None for no limit.
    :ivar is_away: whether something else is at its path, so that only open files lead here.
    """

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self.path = "(memory)"
        self.operations = 0
        self.space: int | None = None
        self.is_away = False
        self.fault: Callable[[str, str], None] = lambda operation, name: None
        self.read_fault: Callable[[str], None] = lambda name: None
        self.with_gaps: frozenset[str] = frozenset()
        self._names = {name: _Inode(content) for name, content in (files or {}).items()}
        self._synced_names = dict(self._names)
        self._pending_names: list[tuple[str, _Inode | None, str | None]] = []
        self.quarantined: dict[str, bytes] = {}

    def before(self, operation: str, name: str) -> None:
        """Count an operation and let `fault` speak."""
        self.operations += 1
        self.fault(operation, name)

    def charge(self, inode: _Inode, size: int) -> None:
        """
        A file is to have so many bytes.

        :raise OSError: there is no space.
        """
        if self.space is None or size <= len(inode.written):
            return
        others = sum(len(each.written) for each in self._names.values() if each is not inode)
        if others + size > self.space:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def lock(self, text: str) -> None:
        """Nobody else can reach it."""

    def names(self) -> list[str]:
        return sorted(self._names)

    def _inode(self, name: str) -> _Inode:
        try:
            return self._names[name]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name) from None

    def read(self, name: str) -> Buffer:
        return bytes(self._inode(name).written)

    def read_part(self, name: str, start: int, end: int) -> Buffer:
        return bytes(memoryview(self._inode(name).written)[start:end])

    def copy_part(self, name: str, start: int, end: int) -> bytes:
        self.read_fault(name)
        return bytes(self.read_part(name, start, end))

    def size(self, name: str) -> int:
        return len(self._inode(name).written)

    def expect_gaps(self, names: Collection[str]) -> None:
        self.with_gaps = frozenset(names)

    def forget_cached(self, name: str) -> None:
        self._inode(name).forget_cached()

    def create(self, name: str) -> MemoryFile:
        self.before("create", name)
        if name in self._names:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        inode = self._names[name] = _Inode()
        self._pending_names.append((name, inode, None))
        return MemoryFile(self, name, inode)

    def open(self, name: str) -> MemoryFile:
        return MemoryFile(self, name, self._inode(name))

    def rename(self, old: str, new: str) -> None:
        self.before("rename", new)
        inode = self._inode(old)
        del self._names[old]
        self._names[new] = inode
        self._pending_names.append((new, inode, old))

    def remove(self, name: str) -> None:
        self.before("remove", name)
        self._inode(name)
        del self._names[name]
        self._pending_names.append((name, None, None))

    def displaced(self, name: str, file: File) -> str:
        assert isinstance(file, MemoryFile)
        if not self.is_away and file.is_named(self._names, name):
            return IN_PLACE
        now = [each for each in self._names if file.is_named(self._names, each)]
        place = "(elsewhere)" if self.is_away else self.path
        return f"is now {place}/{now[0]}" if now else DELETED

    def lost_lock(self) -> str:
        """Nobody else can come here."""
        return ""

    def disk_space(self) -> DiskSpace:
        """Without a limit, more than any disk has."""
        used = sum(len(inode.written) for inode in self._names.values())
        size = 1 << 62 if self.space is None else self.space
        return DiskSpace(max(0, size - used), size)

    def cut(self, name: str, size: int) -> None:
        self.before("cut", name)
        self._inode(name).resize(size)
        self._inode(name).sync()

    def sync(self) -> None:
        self.before("sync directory", "")
        self._synced_names = dict(self._names)
        self._pending_names.clear()

    def quarantine(self, name: str, content: Buffer) -> str:
        self.before("quarantine", name)
        self.quarantined.setdefault(name, bytes(content))
        return f"{self.path}/{QUARANTINE}/{name}"

    def close(self) -> None:
        """Nothing is held."""

    def replace(self, name: str, content: bytes) -> None:
        """Give a file other content behind everybody's back, as a rotten disk does."""
        self._names[name] = _Inode(content)

    def adopt(self, name: str, source: Directory, source_name: str) -> None:
        """Give a file of another simulated directory a second name here."""
        assert isinstance(source, MemoryDirectory)
        inode = self._names[name] = source._inode(source_name)
        self._pending_names.append((name, inode, None))

    def after_kill(self) -> "MemoryDirectory":
        """
        What the next process finds when this one is killed: all that was written, synced or not.
        """
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
    ) -> "MemoryDirectory":
        """What the next process finds after a power loss; see `surviving`."""
        return MemoryDirectory(self.surviving(keep_name, keep_bytes))

    def surviving(
        self, keep_name: Callable[[], bool], keep_bytes: Callable[[int], Iterable[tuple[int, int]]]
    ) -> dict[str, bytes]:
        """
        The files that a power loss leaves: all that was synced, and of the rest what the caller
        chooses.

        :param keep_name: asked for each change of a name that was not synced.
        :param keep_bytes: asked for each write that was not synced, with its size; gives the
            (start, end) parts of it that reached the disk.  ``(0, 0)`` keeps a change of size.
        """
        names = dict(self._synced_names)
        for name, inode, old in self._pending_names:
            if keep_name():
                _apply_name(names, name, inode, old)
        return {name: inode.surviving(keep_bytes) for name, inode in names.items()}


def _apply_name(names: dict[str, _Inode], name: str, inode: _Inode | None, old: str | None) -> None:
    if inode is None:
        names.pop(name, None)
        return
    names[name] = inode
    if old is not None:
        names.pop(old, None)


class MemoryArchive(Archive):
    """
    A simulated `archive.Archive`: the folder of each store is a `MemoryDirectory`.

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


class MemoryBodyReader(BodyReader):
    """
    A simulated `bodies.BodyReader`.

    :ivar bodies: by place and job.
    :ivar fault: called before each read with its place; what it raises, the read raises.
    :ivar reads: the places that were read, in order.
    """

    def __init__(self) -> None:
        self.bodies: dict[tuple[BodyPlace, int], bytes] = {}
        self.fault: Callable[[BodyPlace], None] = lambda place: None
        self.reads: list[BodyPlace] = []

    def read(self, place: BodyPlace, job_id: int) -> bytes:
        self.reads.append(place)
        self.fault(place)
        body = self.bodies.get((place, job_id))
        if body is None:
            raise BodyLost(f"{place}: no full record of job {job_id} stands there.")
        return body

    def read_all(self, asked: Sequence[tuple[BodyPlace, int]]) -> list[bytes | Exception]:
        return read_each(self.read, asked)
