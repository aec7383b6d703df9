"""A file of a log, wherever it is: local ones are mapped, of others the bytes that are asked for
are fetched.
"""

import errno
import mmap
import os
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Final, Protocol

from beanstalk_twisted.binlog.files import LocalFiles, read_range
from beanstalk_twisted.binlog.segments.frames import Buffer
from beanstalk_twisted.object_storage.store import OpenObject, Store, is_url
from binlog_tools.spark.definitions.addresses import split
from binlog_tools.spark.files.stores import STORES, passes

TAIL_BYTES: Final = 64 << 10
"""Fetched together at the end of a file: a usual seal, and the trailer."""

PIECE_BYTES: Final = 16 << 20
"""Fetched by one request: more of it costs memory, less of it time, 20 ms for each in a region."""

PIECES_AT_ONCE: Final = 4
"""One connection to S3 carries some 80 MB/s, these as much as a task can decode."""


class BadRange(OSError):
    """Bytes of an object cannot be had though it is there: the store failed each time, or it gave
    fewer than the object should have, which was replaced or cut off.
    """


class LogFile(Protocol):
    """A file that is open to be read.  All methods raise OSError.

    :ivar address: a path or a URL.
    :ivar size: in bytes, when it was opened.
    :ivar is_local: whether bytes are shown where they are, and not a copy of them.
    """

    address: str
    size: int
    is_local: bool

    def read(self, start: int, end: int) -> bytes:
        """Bytes of the file; fewer if it ends before ``end``."""

    def view(self, size: int, start: int, end: int) -> memoryview:
        """The first ``size`` bytes, of which only those from ``start`` to ``end`` need be right."""

    def snapshot(self) -> Buffer:
        """A copy of all of it, as consistent as a reader beside a writer can have it."""

    def close(self) -> None:
        """Let go of the file; what `view` has given stays."""

    def __enter__(self) -> "LogFile": ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...  # fmt: skip


class _Closing:
    def close(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()


class LocalFile(_Closing):
    """A `LogFile` of this machine."""

    is_local = True

    def __init__(self, path: str, fd: int | None = None) -> None:
        """:param fd: of the file, if it is open; it is closed with this."""
        self.address = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if fd is None else fd
        self.size = os.fstat(self._fd).st_size

    def __enter__(self) -> "LocalFile":
        return self

    def read(self, start: int, end: int) -> bytes:
        return read_range(self._fd, start, end)

    def view(self, size: int, start: int, end: int) -> memoryview:
        return memoryview(mmap.mmap(self._fd, min(size, self.size), prot=mmap.PROT_READ))

    def snapshot(self) -> Buffer:
        folder, name = os.path.split(self.address)
        return LocalFiles(folder).read(name)

    def close(self) -> None:
        os.close(self._fd)


class RemoteFile(_Closing):
    """A `LogFile` in object storage."""

    is_local = False

    def __init__(self, store: Store, name: str, address: str, size: int | None = None) -> None:
        """:param size: if it is known; else the store is asked."""
        self.address = address
        self._store = store
        self._name = name
        self._object: OpenObject | None = None
        self.size = self._opened().size if size is None else size
        self._have: list[tuple[int, Buffer]] = []

    def __enter__(self) -> "RemoteFile":
        return self

    def _opened(self) -> OpenObject:
        """Opened once, and only if something is read: to open it is a request."""
        if self._object is None:
            self._object = self._store.open(self._name)
        return self._object

    def close(self) -> None:
        if self._object is not None:
            self._object.close()
            self._object = None

    def read(self, start: int, end: int) -> bytes:
        end = min(end, self.size)
        if start >= end:
            return b""
        for at, known in self._have:
            if at <= start and end <= at + len(known):
                return bytes(known[start - at : end - at])
        tail = max(0, self.size - TAIL_BYTES)
        if start < tail:
            return self._exactly(start, end)
        self._have.append((tail, self._exactly(tail, self.size)))
        at, known = self._have[-1]
        return bytes(known[start - at : end - at])

    def view(self, size: int, start: int, end: int) -> memoryview:
        """Pages that were not fetched take no memory, and read as zeros.  What is near the end of
        the file is fetched with its end: the seal is wanted too.
        """
        end = min(end, self.size)
        if self.size - end <= TAIL_BYTES:
            end = self.size
        pages = mmap.mmap(-1, max(size, end, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._fetch(memoryview(pages), start, end)
        shown = memoryview(pages).toreadonly()
        self._have.append((start, shown[start:end]))
        return shown[:size]

    def snapshot(self) -> Buffer:
        return self.view(self.size, 0, self.size)

    def _fetch(self, into: memoryview, start: int, end: int) -> None:
        starts = range(start, end, PIECE_BYTES)

        def fetch(at: int) -> None:
            to = min(at + PIECE_BYTES, end)
            into[at:to] = self._exactly(at, to)

        if len(starts) <= 1:
            for at in starts:
                fetch(at)
            return
        self._opened()
        with ThreadPoolExecutor(PIECES_AT_ONCE) as pool:
            for _ in pool.map(fetch, starts):
                pass

    def _exactly(self, start: int, end: int) -> bytes:
        """:raise BadRange: taken for the object, the rest would be damage."""
        found = self._opened()
        try:
            content = found.read(start, end)
        except OSError as problem:
            if not passes(problem):
                raise
            said = f"byte {start} to {end}: {problem.strerror or problem}"
            raise BadRange(problem.errno or errno.EIO, said, self.address) from problem
        if len(content) != end - start:
            what = f"{len(content)} bytes came from byte {start} on, not {end - start}"
            raise BadRange(errno.EIO, f"{what}; run it again", self.address)
        return content


def open_file(address: str, size: int | None = None) -> LogFile:
    """:param size: of an object, if it is known: then the store need not be asked.
    :raise OSError: it is not there, or cannot be read.
    :raise BadUrl: the address is a URL that names no store.
    """
    if not is_url(address):
        return LocalFile(address)
    folder, name = split(address)
    return RemoteFile(STORES.at(folder), name, address, size)
