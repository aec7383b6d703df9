"""An archive behind a URL: `binlog.archiving.archive.Archive` on an `object_storage.Store`.

An upload is complete before it has its final name: objects get the name of an unfinished copy, are
read back and compared, and only then renamed, which in a bucket is a copy within the store.
"""

import errno
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import ClassVar, Final, TypeVar

from beanstalk_twisted.binlog.archive import Archive, RealArchive
from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.binlog.errors import CannotUse
from beanstalk_twisted.object_storage.store import (
    BadUrl,
    Store,
    again,
    is_url,
    join,
    open_store,
    shown,
)

T = TypeVar("T")

CHUNK_BYTES: Final = 8 << 20
"""Written, read back and compared at once: 8 requests for a segment, each may take long."""

PAUSES_S: Final = (0.5, 1.0, 2.0)
"""Seconds before a request that was refused is made again: a store that refuses every third one
still takes a segment, for which it is asked some 20 times.
"""

QUICK_S: Final = 5.0
"""Seconds after which a refused request is not made again at once: the store hangs, and who stops a
server waits for it.
"""


def archive_at(place: str) -> Archive:
    """The archive that a URL or the path of a directory names."""
    if is_url(place):
        return ObjectArchive(shown(place), partial(open_store, place))
    return RealArchive(place)


class ObjectArchive(Archive):
    """An `Archive` in object storage.  Nothing is asked of the store before `open`."""

    is_remote: ClassVar[bool] = True

    def __init__(
        self, url: str, connect: Callable[[], Store],
        sleep: Callable[[float], None] = time.sleep, now_s: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """:param url: as it may be shown.
        :param connect: opens the store; called until it has once returned.
        :param sleep: waits so many seconds; all methods may block.
        """
        self._sleep = sleep
        self._now_s = now_s
        self.path = self._root = url
        self._connect = connect
        self._store: Store | None = None
        self._folder = ""

    def refuse_unusable(self) -> None:
        """Whether the store is there is not asked: it may be away for a while.

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

    def _tried(self, request: Callable[[], T]) -> T:
        """Make a request, again if it is refused quickly."""
        begun_s = self._now_s()

        def attempt() -> T:
            nonlocal begun_s
            begun_s = self._now_s()
            return request()

        def was_quick(problem: OSError) -> bool:
            is_answer = isinstance(problem, FileNotFoundError | FileExistsError)
            return not is_answer and self._now_s() - begun_s <= QUICK_S

        return again(attempt, PAUSES_S, self._sleep, was_quick)

    def open(self, store_uuid: bytes) -> None:
        """A folder needs no making; that there is something to write into is seen here."""
        self._tried(lambda: self._there.check())
        self._folder = store_uuid.hex()
        self.path = join(self._root, self._folder)

    def _name(self, name: str) -> str:
        return join(self._folder, name)

    def _size(self, name: str) -> int:
        return self._tried(lambda: self._there.size(self._name(name)))

    def _read(self, name: str, start: int, end: int) -> bytes:
        return self._tried(lambda: self._there.read(self._name(name), start, end))

    def names(self) -> list[str]:
        return [entry.name for entry in self._tried(lambda: self._there.entries(self._folder))]

    def has(self, name: str) -> bool:
        try:
            self._size(name)
        except FileNotFoundError:
            return False
        return True

    def holds(self, name: str, source: Directory, source_name: str, size: int) -> bool:
        if self._size(name) != size:
            return False
        return all(
            self._read(name, at, at + len(chunk)) == chunk
            for at, chunk in _chunks(source, source_name, size)
        )

    def link(self, name: str, source: Directory, source_name: str) -> None:
        """There are no links into object storage."""
        raise OSError(errno.EXDEV, "an object is no file of the log", self._name(name))

    def copy(self, name: str, source: Directory, source_name: str, size: int) -> None:
        """What was written is read back: a store that says it has it may have something else."""

        def write() -> None:
            chunks = (chunk for _, chunk in _chunks(source, source_name, size))
            self._there.write(self._name(name), chunks)

        self._tried(write)
        if not self.holds(name, source, source_name, size):
            raise OSError(errno.EIO, "what was uploaded reads back as other bytes", name)

    def rename(self, old: str, new: str) -> None:
        """Only one server delivers the segments of a store, so nothing comes in between."""
        if self.has(new):
            raise FileExistsError(errno.EEXIST, "there is one of this name", self._name(new))
        self._tried(lambda: self._there.move(self._name(old), self._name(new)))

    def remove(self, name: str) -> None:
        self._tried(lambda: self._there.remove(self._name(name)))

    def content(self, name: str) -> bytes:
        return self._read(name, 0, self._size(name))

    def replace(self, name: str, content: bytes) -> None:
        self._tried(lambda: self._there.write(self._name(name), [content]))

    def sync(self) -> None:
        """An object that was written is durable."""


def _chunks(source: Directory, name: str, size: int) -> Iterator[tuple[int, bytes]]:
    """The first ``size`` bytes of a file of the log, each chunk with its offset.

    :raise OSError: it is shorter.
    """
    for at in range(0, size, CHUNK_BYTES):
        end = min(at + CHUNK_BYTES, size)
        chunk = bytes(source.read_part(name, at, end))
        if len(chunk) < end - at:
            raise OSError(errno.EIO, f"it ends at offset {at + len(chunk)}", name)
        yield at, chunk
