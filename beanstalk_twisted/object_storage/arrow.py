"""
The real stores, through pyarrow's file systems.

pyarrow is one library for all of them, with native readers of ranges; the pipeline needs it anyway.
It is imported when a URL is opened: it takes 50 MB and 0.1 s.
"""

import contextlib
import errno
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from beanstalk_twisted.object_storage.opening import one_line, open_files
from beanstalk_twisted.object_storage.store import (
    Entry,
    Listing,
    OpenObject,
    Store,
    join,
    missing,
    shown,
)

if TYPE_CHECKING:
    from pyarrow import NativeFile
    from pyarrow.fs import FileSystem


class ArrowStore(Store):
    """A `Store` of one of pyarrow's file systems."""

    def __init__(self, files: "FileSystem", root: str, url: str) -> None:
        """:param root: path of the URL in the file system, without a slash at its end."""
        self.url = url
        self._files = files
        self._root = root
        self._has_directories = files.type_name in ("hdfs", "local")

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def check(self) -> None:
        """
        In a bucket there are no directories, only names, so it is the bucket that is looked for.
        """
        container = self._root if self._has_directories else self._root.split("/")[0]
        with self._told(""):
            found = self._files.get_file_info(container)
        if found.is_file or not found.type.value:
            raise FileNotFoundError(errno.ENOENT, f"there is no {container}", self.url)

    def listing(self, folder: str = "") -> Listing:
        with self._told(folder):
            return listed(self._files, self._path(folder))

    def open(self, name: str) -> OpenObject:
        """
        pyarrow cannot be told a length that is known (its C++ library can), so it asks for it.
        """
        with self._told(name):
            file = self._files.open_input_file(self._path(name))
            return ArrowObject(file, int(file.size()), lambda: self._told(name))

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        path = self._path(name)
        with self._told(name):
            if self._has_directories:
                self._files.create_dir(path.rpartition("/")[0], recursive=True)
            file = self._files.open_output_stream(path)
        try:
            # What the chunks themselves raise is not the store's.
            for chunk in chunks:
                with self._told(name):
                    file.write(chunk)
        finally:
            with self._told(name):
                file.close()

    def move(self, old: str, new: str) -> None:
        """HDFS has a rename, and no copy of its own; buckets have a copy, and no rename."""
        self.open(old).close()
        with self._told(old):
            if self._has_directories:
                self._files.move(self._path(old), self._path(new))
            else:
                self._files.copy_file(self._path(old), self._path(new))
                self._files.delete_file(self._path(old))

    def remove(self, name: str) -> None:
        with self._told(name):
            self._files.delete_file(self._path(name))

    @contextlib.contextmanager
    def _told(self, name: str) -> Iterator[None]:
        """Arrow's errors as OSError of one line each: most of its own have no ``strerror``."""
        from pyarrow import ArrowException

        where = join(self.url, name) if name else self.url
        try:
            yield
        except FileNotFoundError as problem:
            raise missing(name, self.url) from problem
        except (OSError, ArrowException) as problem:
            number = getattr(problem, "errno", None) or errno.EIO
            raise OSError(number, one_line(problem), where) from problem


class ArrowObject(OpenObject):
    """An `OpenObject` of an `ArrowStore`."""

    def __init__(self, file: "NativeFile", size: int, told: "Telling") -> None:
        """:param told: makes what gives errors the form that a `Store` has for them."""
        self.size = size
        self._file = file
        self._told = told

    def read(self, start: int, end: int) -> bytes:
        size = min(end, self.size) - start
        if size <= 0:
            return b""
        with self._told():
            return bytes(self._file.read_at(size, start))

    def close(self) -> None:
        with self._told():
            self._file.close()


Telling = Callable[[], contextlib.AbstractContextManager[None]]


def listed(files: "FileSystem", path: str) -> Listing:
    """
    What is directly in a folder of a file system; nothing if there is no such folder.

    Of Google's storage Arrow tells only those folders that have an object of their own, so there
    all that is below is listed.
    """
    from pyarrow.fs import FileSelector

    is_deep = files.type_name == "gcs"
    found = files.get_file_info(FileSelector(path, allow_not_found=True, recursive=is_deep))
    entries, folders = [], set()
    for each in found:
        name, slash, _ = each.path[len(path) + 1 :].partition("/")
        if each.is_file and not slash:
            entries.append(Entry(name, each.size))
        elif name:
            folders.add(name)
    return Listing(sorted(entries), sorted(folders))


def open_store(url: str) -> Store:
    """
    The store that a URL names.  Nothing is asked of it yet.

    :raise BadUrl: it names none.
    :raise OSError: pyarrow is not installed, or has no file system for it here.
    """
    return ArrowStore(*open_files(url), shown(url))
