"""The disk of a server in memory: it outlives the server, and knows what a power loss takes."""

import copy
import errno
import os
from collections.abc import Collection, Sequence
from typing import Self

from beanstalk_twisted.binlog.directory import (
    DELETED,
    IN_PLACE,
    QUARANTINE,
    Directory,
    DiskSpace,
    File,
)
from beanstalk_twisted.binlog.segments.frames import Buffer


def overwrite(content: bytearray, offset: int, written: bytes | None) -> None:
    """Write, or for None set the size to ``offset``."""
    if written is None:
        del content[offset:]
    content.extend(bytes(max(0, offset - len(content))))
    if written:
        content[offset : offset + len(written)] = written


class Inode:
    """The bytes of a file: as written, and as they survive a power loss."""

    def __init__(self, content: bytes = b"") -> None:
        self.written = bytearray(content)
        self.synced = bytes(content)

    def change(self, offset: int, written: bytes | None) -> None:
        """Write, or for None set the size to ``offset``."""
        overwrite(self.written, offset, written)

    def sync(self) -> None:
        self.synced = bytes(self.written)


class SimulatedFile(File):
    """A `File` of a `SimulatedDirectory`."""

    def __init__(self, inode: Inode) -> None:
        self.inode = inode

    def write_at(self, offset: int, chunks: Sequence[bytes]) -> None:
        self.inode.change(offset, b"".join(chunks))

    def allocate(self, size: int) -> None:
        if size > len(self.inode.written):
            self.inode.change(size, None)

    def truncate(self, size: int) -> None:
        self.inode.change(size, None)

    def sync(self) -> None:
        self.inode.sync()

    def close(self) -> None:
        pass


class SimulatedDirectory(Directory):
    """A `Directory` in memory, of which nothing fails.

    :ivar inodes: the files by name; ``synced_inodes`` those that a power loss leaves.
    :ivar quarantined: by name.
    """

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self.path = "(memory)"
        self.inodes = {name: self.make(content) for name, content in (files or {}).items()}
        self.synced_inodes = dict(self.inodes)
        self.quarantined: dict[str, bytes] = {}

    def make(self, content: bytes = b"") -> Inode:
        """A new file, not in the directory yet."""
        return Inode(content)

    def inode(self, name: str) -> Inode:
        try:
            return self.inodes[name]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name) from None

    def lock(self, text: str) -> None:
        """Nobody else can reach it."""

    def lost_lock(self) -> str:
        return ""

    def close(self) -> None:
        """Nothing is held."""

    def forget_cached(self, name: str) -> None:
        """Nothing is cached."""

    def expect_gaps(self, names: Collection[str]) -> None:
        """Nothing is read ahead."""

    def names(self) -> list[str]:
        return sorted(self.inodes)

    def read(self, name: str) -> Buffer:
        return bytes(self.inode(name).written)

    def read_part(self, name: str, start: int, end: int) -> Buffer:
        return bytes(memoryview(self.inode(name).written)[start:end])

    def copy_part(self, name: str, start: int, end: int) -> bytes:
        return bytes(self.read_part(name, start, end))

    def size(self, name: str) -> int:
        return len(self.inode(name).written)

    def create(self, name: str) -> File:
        if name in self.inodes:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        self.inodes[name] = self.make()
        return self.open(name)

    def open(self, name: str) -> File:
        return SimulatedFile(self.inode(name))

    def rename(self, old: str, new: str) -> None:
        inode = self.inode(old)
        del self.inodes[old]
        self.inodes[new] = inode

    def remove(self, name: str) -> None:
        self.inode(name)
        del self.inodes[name]

    def displaced(self, name: str, file: File) -> str:
        assert isinstance(file, SimulatedFile)
        if self.inodes.get(name) is file.inode:
            return IN_PLACE
        now = [each for each, inode in self.inodes.items() if inode is file.inode]
        return f"is now {self.path}/{now[0]}" if now else DELETED

    def disk_space(self) -> DiskSpace:
        """More than any disk has."""
        return DiskSpace(1 << 62, 1 << 62)

    def cut(self, name: str, size: int) -> None:
        self.inode(name).change(size, None)
        self.inode(name).sync()

    def sync(self) -> None:
        self.synced_inodes = dict(self.inodes)

    def quarantine(self, name: str, content: Buffer) -> str:
        self.quarantined.setdefault(name, bytes(content))
        return f"{self.path}/{QUARANTINE}/{name}"

    def replace(self, name: str, content: bytes) -> None:
        """Give a file other content behind everybody's back, as a rotten disk does."""
        self.inodes[name] = self.make(content)

    def after_kill(self) -> Self:
        """What the next process finds when this one is killed: all that was written, synced or
        not.
        """
        return copy.deepcopy(self)

    def after_power_loss(self) -> Self:
        """What the next process finds after a power loss: all that was synced."""
        return type(self)({name: inode.synced for name, inode in self.synced_inodes.items()})
