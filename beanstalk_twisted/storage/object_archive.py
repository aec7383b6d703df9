"""
An archive behind a URL: `binlog.archive.Archive` on an `object_storage.Store`.

An upload is complete before it has its final name: objects get the name of an unfinished copy, are
read back and compared, and only then renamed, which in a bucket is a copy within the store.
"""

import errno
from collections.abc import Callable, Iterator
from functools import partial
from typing import ClassVar

from beanstalk_twisted.binlog.archive import CHUNK_BYTES, Archive, RealArchive
from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.binlog.errors import CannotUse
from beanstalk_twisted.object_storage.arrow import open_store
from beanstalk_twisted.object_storage.store import BadUrl, Store, is_url, join, shown


def archive_at(place: str) -> Archive:
    """
    The archive that a URL or the path of a directory names.
    """
    if is_url(place):
        return ObjectArchive(shown(place), partial(open_store, place))
    return RealArchive(place)


class ObjectArchive(Archive):
    """
    An `Archive` in object storage.  Nothing is asked of the store before `open`.
    """

    is_remote: ClassVar[bool] = True

    def __init__(self, url: str, connect: Callable[[], Store]) -> None:
        """
        :param url: as it may be shown.
        :param connect: opens the store; called until it has once returned.
        """
        self.path = self._root = url
        self._connect = connect
        self._store: Store | None = None
        self._folder = ""

    def refuse_unusable(self) -> None:
        """
        Whether the store is there is not asked: it may be away for a while.

        :raise CannotUse: there is no way to it here.
        """
        try:
            self._store = self._connect()
        except (OSError, BadUrl) as problem:
            said = getattr(problem, "strerror", None) or problem
            raise CannotUse(f"archive {self._root}: {said}; nothing was changed.") from problem

    @property
    def _there(self) -> Store:
        if self._store is None:
            self._store = self._connect()
        return self._store

    def open(self, store_uuid: bytes) -> None:
        """
        A folder needs no making; that there is something to write into is seen here.
        """
        self._there.check()
        self._folder = store_uuid.hex()
        self.path = join(self._root, self._folder)

    def _name(self, name: str) -> str:
        return join(self._folder, name)

    def names(self) -> list[str]:
        return [entry.name for entry in self._there.entries(self._folder)]

    def has(self, name: str) -> bool:
        try:
            self._there.size(self._name(name))
        except FileNotFoundError:
            return False
        return True

    def holds(self, name: str, source: Directory, source_name: str, size: int) -> bool:
        if self._there.size(self._name(name)) != size:
            return False
        return all(
            self._there.read(self._name(name), at, at + len(chunk)) == chunk
            for at, chunk in _chunks(source, source_name, size)
        )

    def link(self, name: str, source: Directory, source_name: str) -> None:
        """
        There are no links into object storage.
        """
        raise OSError(errno.EXDEV, "an object is no file of the log", self._name(name))

    def copy(self, name: str, source: Directory, source_name: str, size: int) -> None:
        """
        What was written is read back: a store that says it has it may have something else.
        """
        chunks = (chunk for _, chunk in _chunks(source, source_name, size))
        self._there.write(self._name(name), chunks)
        if not self.holds(name, source, source_name, size):
            raise OSError(errno.EIO, "what was uploaded reads back as other bytes", name)

    def rename(self, old: str, new: str) -> None:
        """
        Only one server delivers the segments of a store, so nothing comes in between.
        """
        if self.has(new):
            raise FileExistsError(errno.EEXIST, "there is one of this name", self._name(new))
        self._there.move(self._name(old), self._name(new))

    def remove(self, name: str) -> None:
        self._there.remove(self._name(name))

    def sync(self) -> None:
        """
        An object that was written is durable.
        """


def _chunks(source: Directory, name: str, size: int) -> Iterator[tuple[int, bytes]]:
    """
    The first ``size`` bytes of a file of the log, each chunk with its offset.

    :raise OSError: it is shorter.
    """
    for at in range(0, size, CHUNK_BYTES):
        end = min(at + CHUNK_BYTES, size)
        chunk = bytes(source.read_part(name, at, end))
        if len(chunk) < end - at:
            raise OSError(errno.EIO, f"it ends at offset {at + len(chunk)}", name)
        yield at, chunk
