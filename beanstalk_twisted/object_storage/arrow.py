"""
The real stores, through pyarrow's file systems.

pyarrow is one library for all of them, with native readers of ranges; the pipeline needs it anyway.
It is imported when a URL is opened: it takes 50 MB and 0.1 s.
"""

import contextlib
import errno
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from beanstalk_twisted.object_storage.store import (
    BadUrl,
    Entry,
    Listing,
    OpenObject,
    Store,
    join,
    missing,
    parse_url,
    shown,
)

if TYPE_CHECKING:
    from pyarrow import NativeFile
    from pyarrow.fs import FileSystem

CONNECT_TIMEOUT_S: Final = 5
"""Seconds that S3 may take to accept a connection: far more than within one region."""

REQUEST_TIMEOUT_S: Final = 20
"""Seconds that S3 may be silent in a request: what ends a hanging one; Arrow tries thrice."""

_REFUSED: Final = (
    "look at AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (AWS_SESSION_TOKEN, AWS_PROFILE) in the "
    "environment, and at what they may do in this bucket"
)

_HINTS: Final = {
    "ACCESS_DENIED": _REFUSED,
    "INVALID_ACCESS_KEY_ID": _REFUSED,
    "SIGNATURE_DOES_NOT_MATCH": _REFUSED,
    "HTTP status 403": _REFUSED,
    "wrong version number": "if the store has no TLS, add the option scheme=http to the URL",
}
"""What to do, by what S3's errors have in them."""


class ArrowStore(Store):
    """
    A `Store` of one of pyarrow's file systems.
    """

    def __init__(self, files: "FileSystem", root: str, url: str) -> None:
        """
        :param root: path of the URL in the file system, without a slash at its end.
        """
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
        from pyarrow.fs import FileSelector

        with self._told(folder):
            found = self._files.get_file_info(
                FileSelector(self._path(folder), allow_not_found=True)
            )
        return Listing(
            sorted(Entry(each.base_name, each.size) for each in found if each.is_file),
            sorted(each.base_name for each in found if not each.is_file),
        )

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
        """
        HDFS has a rename, and no copy of its own; buckets have a copy, and no rename.
        """
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
        """
        Arrow's errors as OSError of one line each: most of its own have no ``strerror``.
        """
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
    """
    An `OpenObject` of an `ArrowStore`.
    """

    def __init__(self, file: "NativeFile", size: int, told: "Telling") -> None:
        """
        :param told: makes what gives errors the form that a `Store` has for them.
        """
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


def one_line(problem: BaseException) -> str:
    """
    What an error of Arrow says, and what to do, where that is known.
    """
    said = problem.args[0] if len(problem.args) == 1 else getattr(problem, "strerror", problem)
    line = " ".join(str(said).split()) or type(problem).__name__
    hints = (hint for mark, hint in _HINTS.items() if "AWS Error" in line and mark in line)
    hint = next(hints, "")
    return f"{line.rstrip('.')}; {hint}" if hint else line


def open_store(url: str) -> Store:
    """
    The store that a URL names.  Nothing is asked of it yet.

    :raise BadUrl: it names none.
    :raise OSError: pyarrow is not installed, or has no file system for it here.
    """
    return ArrowStore(*open_files(url), shown(url))


def open_files(url: str) -> "tuple[FileSystem, str]":
    """
    The file system that a URL is in, and its path there, without a slash at its end.

    :raise BadUrl: it names none.
    :raise OSError: pyarrow is not installed, or has no file system for it here.
    """
    split, options = parse_url(url)
    where = shown(url)
    try:
        from pyarrow import ArrowException
        from pyarrow.fs import FileSystem
    except ImportError as problem:
        message = "object storage needs more packages: pip install '.[archive]'"
        raise OSError(errno.ENOPKG, message, where) from problem
    if split.scheme == "s3":
        return _s3(options), (split.netloc + split.path).rstrip("/")
    try:
        files, root = FileSystem.from_uri(where)
    except ArrowException as problem:
        raise BadUrl(one_line(problem)) from problem
    except OSError as problem:
        raise OSError(problem.errno or errno.EIO, one_line(problem), where) from problem
    return files, root.rstrip("/")


def _s3(options: dict[str, str]) -> "FileSystem":
    """
    Without background writes an error is met where it happens, and no more than a part is in
    memory.
    """
    from pyarrow.fs import S3FileSystem

    given: dict[str, Any] = options
    return S3FileSystem(
        connect_timeout=CONNECT_TIMEOUT_S, request_timeout=REQUEST_TIMEOUT_S,
        background_writes=False, **given,
    )  # fmt: skip
