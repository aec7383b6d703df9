"""The files of logs, local or in object storage: what is in a folder, what a pattern names, and the
bytes of a file.  An address is text, so it can be sent to tasks; each process opens its own stores.
"""

import errno
import fnmatch
import glob
import mmap
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Final, NamedTuple, TypeVar

from beanstalk_twisted.binlog.files import LocalFiles, read_range
from beanstalk_twisted.binlog.segments.format import SegmentHeader, archive_name
from beanstalk_twisted.binlog.segments.frames import Buffer
from beanstalk_twisted.object_storage.store import Listing, Store, again, is_url, open_store
from binlog_tools.spark.definitions.addresses import normal, split, within

WAITS_S: Final = (0.2, 0.4, 0.8, 1.6)
"""Seconds before each further attempt, 3 in all: long enough for a store that sheds load, besides
Arrow's own attempts; a task that fails is started again by Spark."""

LASTING: Final = (
    "ACCESS_DENIED", "NO_SUCH_BUCKET", "NO_SUCH_KEY", "INVALID_ACCESS_KEY_ID",
    "SIGNATURE_DOES_NOT_MATCH", "UNRECOGNIZED_CLIENT", "INVALID_CLIENT_TOKEN_ID",
    "EXPIRED_TOKEN", "MISSING_AUTHENTICATION_TOKEN", "OPT_IN_REQUIRED", "PERMISSION", "FORBIDDEN",
    "UNAUTHENTICATED", "AUTHENTICATIONFAILED", "AUTHORIZATIONFAILURE",
)  # fmt: skip
"""What is in the words of errors that do not pass by themselves."""

OPEN_STORES: Final = 64
"""Stores that a process keeps, some 100 KB each: a folder of an archive for each server."""

TAIL_BYTES: Final = 64 << 10
"""Fetched together at the end of an object: a usual seal, and the trailer."""

PIECE_BYTES: Final = 16 << 20
"""Fetched by one request: more of it costs memory, less of it time, 20 ms for each in a region."""

PIECES_AT_ONCE: Final = 4
"""One connection to S3 carries some 80 MB/s, these as much as a task can decode."""

T = TypeVar("T")


class BadRange(OSError):
    """Bytes of an object that is there cannot be had, or are fewer than it should have."""


def passes(problem: OSError) -> bool:
    """Return True if an error may be gone a moment later."""
    if isinstance(problem, FileNotFoundError | PermissionError | IsADirectoryError):
        return False
    said = str(problem).upper()
    return not any(each in said for each in LASTING)


class PatientStore:
    """A store to read from, whose operations are tried again after errors that may pass."""

    def __init__(self, store: Store, wait: Callable[[float], None] = time.sleep) -> None:
        self._store = store
        self._wait = wait

    def _tried(self, what: Callable[[], T]) -> T:
        return again(what, WAITS_S, self._wait, passes)

    def check(self) -> None:
        self._tried(self._store.check)

    def listing(self) -> Listing:
        return self._tried(self._store.listing)

    def size(self, name: str) -> int:
        return self._tried(lambda: self._store.size(name))

    def read(self, name: str, start: int, end: int) -> bytes:
        return self._tried(lambda: self._store.read(name, start, end))


class Stores:
    """The stores that a process has open, by URL with options."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stores: dict[str, PatientStore] = {}

    def keep(self, url: str, store: PatientStore) -> None:
        """Take this one for what the URL names."""
        with self._lock:
            while len(self._stores) >= OPEN_STORES:
                del self._stores[next(iter(self._stores))]
            self._stores[url] = store

    def at(self, url: str) -> PatientStore:
        """Return the store; raise BadUrl or OSError if there is none, or it cannot be opened."""
        if url not in self._stores:
            self.keep(url, PatientStore(open_store(url)))
        return self._stores[url]


STORES: Final = Stores()


class Folder(NamedTuple):
    """A folder: sizes of its files by name, and the folders in it."""

    address: str
    sizes: Mapping[str, int]
    folders: tuple[str, ...]

    def within(self, name: str) -> str:
        return within(self.address, name)


def folder_at(address: str) -> Folder:
    """:raise OSError: it cannot be listed.  In object storage only the bucket has to be there."""
    if is_url(address):
        store = STORES.at(address)
        store.check()
        listing = store.listing()
        return Folder(address, dict(listing.entries), tuple(listing.folders))
    sizes, folders = {}, []
    for entry in sorted(os.scandir(address), key=lambda each: each.name):
        if entry.is_dir():
            folders.append(entry.name)
        try:
            sizes[entry.name] = entry.stat().st_size
        except FileNotFoundError:
            # A link that leads nowhere is an error when it is read; else a server has deleted it.
            if entry.is_symlink():
                sizes[entry.name] = 0
    return Folder(address, sizes, tuple(folders))


_WILD: Final = re.compile(r"[*\[]")


def expanded(path: str) -> list[str]:
    """Return the addresses that a path, or the folders that a pattern names."""
    path = normal(path)
    if is_url(path):
        return _matching(path) if _WILD.search(path.partition("?")[0]) else [path]
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return sorted(filter(os.path.isdir, glob.glob(path)))
    return [path]


def _matching(url: str) -> list[str]:
    folder, pattern = split(url)
    found = []
    for parent in _matching(folder) if _WILD.search(folder.partition("?")[0]) else [folder]:
        names = STORES.at(parent).listing().folders
        found += [within(parent, name) for name in fnmatch.filter(names, pattern)]
    return sorted(found)


def archived_at(paths: Iterable[str], header: SegmentHeader) -> Iterator[str]:
    """Yield where a segment may be when the server has deleted it from where it was seen."""
    name = archive_name(header.seq, header.first_lsn)
    for path in map(normal, paths):
        yield within(within(path, header.store_uuid.hex()), name)
        yield within(path, name)


class LogFile(AbstractContextManager["LogFile"]):
    """An open file; ``is_local``: `view` shows bytes where they are.  All methods raise OSError."""

    is_local = True

    def __init__(self, address: str, size: int) -> None:
        self.address = address
        self.size = size

    def read(self, start: int, end: int) -> bytes:
        """Bytes of the file; fewer if it ends before ``end``."""
        raise NotImplementedError

    def view(self, size: int, start: int, end: int) -> memoryview:
        """The first ``size`` bytes, of which only those from ``start`` to ``end`` need be right."""
        raise NotImplementedError

    def snapshot(self) -> Buffer:
        """A copy of all of it, as consistent as a reader besides a writer can have it."""
        return self.view(self.size, 0, self.size)

    def close(self) -> None:
        """Let go of the file; what `view` has given stays."""

    def __exit__(self, *error: object) -> None:
        self.close()


class LocalFile(LogFile):
    def __init__(self, path: str, fd: int | None = None) -> None:
        """:param fd: of the file, if it is open; it is closed with this."""
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if fd is None else fd
        super().__init__(path, os.fstat(self._fd).st_size)

    def read(self, start: int, end: int) -> bytes:
        return read_range(self._fd, start, end)

    def view(self, size: int, start: int, end: int) -> memoryview:
        return memoryview(mmap.mmap(self._fd, min(size, self.size), prot=mmap.PROT_READ))

    def snapshot(self) -> Buffer:
        folder, name = os.path.split(self.address)
        return LocalFiles(folder).read(name)

    def close(self) -> None:
        os.close(self._fd)


class RemoteFile(LogFile):
    is_local = False

    def __init__(
        self, store: PatientStore, name: str, address: str, size: int | None = None
    ) -> None:
        """:param size: if it is known; else the store is asked."""
        super().__init__(address, store.size(name) if size is None else size)
        self._store = store
        self._name = name
        self._have: list[tuple[int, Buffer]] = []

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
        known = self._exactly(tail, self.size)
        self._have.append((tail, known))
        return known[start - tail : end - tail]

    def view(self, size: int, start: int, end: int) -> memoryview:
        """Pages that were not fetched take no memory.  The end is fetched with the seal."""
        end = min(end, self.size)
        if self.size - end <= TAIL_BYTES:
            end = self.size
        pages = mmap.mmap(-1, max(size, end, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        into, starts = memoryview(pages), range(start, end, PIECE_BYTES)

        def fetch(at: int) -> None:
            to = min(at + PIECE_BYTES, end)
            into[at:to] = self._exactly(at, to)

        if len(starts) == 1:
            fetch(start)
        elif starts:
            with ThreadPoolExecutor(PIECES_AT_ONCE) as pool:
                list(pool.map(fetch, starts))
        shown = into.toreadonly()
        self._have.append((start, shown[start:end]))
        return shown[:size]

    def _exactly(self, start: int, end: int) -> bytes:
        """:raise BadRange: taken for the object, the rest would be damage."""
        try:
            content = self._store.read(self._name, start, end)
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
    """Open a file or object, of a size if known; raise OSError or BadUrl if it cannot be read."""
    if not is_url(address):
        return LocalFile(address)
    folder, name = split(address)
    return RemoteFile(STORES.at(folder), name, address, size)
