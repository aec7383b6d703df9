"""
Logs in object storage: archives that a server has delivered there, and logs that were copied.

Headers and parts are read as ranges, and a whole segment at once when it is asked for: one is in
memory at a time, and the newest one.
"""

import os
from collections.abc import Mapping
from typing import Final

from beanstalk_twisted.binlog.directory import Readable
from beanstalk_twisted.binlog.segments.format import SEGMENT_HEADER_BYTES
from beanstalk_twisted.binlog.segments.frames import Buffer
from beanstalk_twisted.object_storage.arrow import open_store
from beanstalk_twisted.object_storage.store import Store, join
from binlog_tools.logs.sources import (
    NoLog,
    Source,
    archived_among,
    is_servers,
    is_store_name,
    named_as_in_a_log,
)

SPOOL_BYTES: Final = 8 << 20
"""Read at once where a segment is copied into a file: what S3's own tools take."""


class ObjectFolder(Readable):
    """A folder in object storage.  All methods raise OSError."""

    def __init__(self, store: Store, folder: str) -> None:
        """:param folder: its name below the store's URL; empty for the URL itself."""
        self.path = join(store.url, folder) if folder else store.url
        self._store = store
        self._folder = folder
        self._sizes: dict[str, int] = {}

    def names(self) -> list[str]:
        self._sizes = dict(self._store.entries(self._folder))
        return list(self._sizes)

    def size(self, name: str) -> int:
        """:return: of a file, as it was when `names` was last called."""
        if name not in self._sizes:
            self._sizes[name] = self._store.size(join(self._folder, name))
        return self._sizes[name]

    def read(self, name: str) -> Buffer:
        return self.read_part(name, 0, self.size(name))

    def write(self, name: str, content: bytes) -> None:
        """Make a small file, or put another in its place."""
        self._store.write(join(self._folder, name), [content])

    def read_part(self, name: str, start: int, end: int) -> Buffer:
        return self._store.read(join(self._folder, name), start, end)


class ObjectSource(Source):
    """A `Source` in object storage.  Nothing there is held open: objects do not change."""

    def __init__(self, folder: ObjectFolder, is_archive: bool, left_out: list[str]) -> None:
        """:param is_archive: whether files are named as in an archive."""
        self._folder = folder
        self._is_named_so = is_archive
        self._read: tuple[str, Buffer] | None = None
        super().__init__(folder.path, self._listed, is_archive, left_out, is_archive)

    def _listed(self) -> Mapping[str, str]:
        names = self._folder.names()
        if self._is_named_so:
            return named_as_in_a_log(self.path, names)
        return {name: name for name in names}

    def _hold(self, found: dict[str, str]) -> None:
        pass

    def open(self, name: str) -> int:
        """A file descriptor of a copy that has no name."""
        # Here, since it takes 7 ms, and commands that read directories do not need it.
        import tempfile

        own = self.path_of(name)
        size = self._folder.size(own)
        with tempfile.TemporaryFile() as copy:
            for at in range(0, size, SPOOL_BYTES):
                copy.write(self._folder.read_part(own, at, min(at + SPOOL_BYTES, size)))
            copy.flush()
            return os.dup(copy.fileno())

    def read(self, name: str) -> Buffer:
        if self._read is None or self._read[0] != name:
            self._read = None
            self._read = name, self._folder.read(self.path_of(name))
        return self._read[1]

    def read_part(self, name: str, start: int, end: int) -> Buffer:
        if self._read is not None and self._read[0] == name:
            return self._read[1][start:end]
        return self._folder.read_part(self.path_of(name), start, end)

    def header_bytes(self, name: str) -> bytes:
        return bytes(self.read_part(name, 0, SEGMENT_HEADER_BYTES))


def sources_at(url: str) -> list[Source]:
    """
    The logs at a URL: one, or those of an archive's stores.

    :raise BadUrl: it names no store.
    :raise OSError: it cannot be read; `NoLog`, there is none.
    """
    store = open_store(url)
    store.check()
    return sources_in(store)


def sources_in(store: Store) -> list[Source]:
    """The same of a store that is open."""
    found = [
        source
        for name in ("", *filter(is_store_name, store.folders()))
        if (source := _source(ObjectFolder(store, name))) is not None
    ]
    if not found:
        raise NoLog(store.url)
    return found


def _source(folder: ObjectFolder) -> Source | None:
    names = folder.names()
    archived = archived_among(names)
    if is_servers(names):
        return ObjectSource(folder, False, archived)
    return ObjectSource(folder, True, []) if archived else None


def folders_at(url: str) -> list[Readable]:
    """
    The folders of the stores of an archive, or the one that the URL is.

    :raise BadUrl: it names no store.
    :raise OSError: it cannot be read; `NoLog`, there is no archive.
    """
    store = open_store(url)
    store.check()
    return folders_in(store, url)


def folders_in(store: Store, url: str) -> list[Readable]:
    """The same of a store that is open."""
    stores = filter(is_store_name, store.folders())
    every = [ObjectFolder(store, name) for name in ("", *stores)]
    found: list[Readable] = [each for each in every if archived_among(each.names())]
    if not found:
        raise NoLog.no_archive(url, every[0].names())
    return found
