"""pyarrow's file system of a URL, with the credentials of whoever runs this, and what its errors
say.

An endpoint and its scheme are options of the URL and named alike for all stores; credentials come
from where each store's own tools take them, and those of Azure's command line from its variables,
which Arrow does not read.
"""

import contextlib
import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult

from beanstalk_twisted.object_storage.store import (
    ANONYMOUS,
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
"""Seconds that S3 may be silent in a request: what ends a hanging one; Arrow tries thrice.  Seconds
that a request to Google's storage is made again for: its library's own are 15 minutes.
"""

AZURE_KEY: Final = "AZURE_STORAGE_KEY"
"""The variable of Azure's command line that has an account's key; `AZURE_SAS` has a token."""

AZURE_SAS: Final = "AZURE_STORAGE_SAS_TOKEN"

_OF_S3: Final = (
    "look at AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (AWS_SESSION_TOKEN, AWS_PROFILE) in the "
    "environment, and at what they may do in this bucket"
)
_OF_GOOGLE: Final = (
    "look at GOOGLE_APPLICATION_CREDENTIALS in the environment, and at what it may do in this "
    "bucket"
)
_OF_AZURE: Final = (
    f"look at {AZURE_KEY}, {AZURE_SAS} or AZURE_TENANT_ID, AZURE_CLIENT_ID and "
    "AZURE_CLIENT_SECRET in the environment, and at what they may do in this container"
)

_HINTS: Final = (
    ("AWS Error", ("ACCESS_DENIED", "INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH",
                   "HTTP status 403"), _OF_S3),
    ("AWS Error", ("wrong version number",),
     "if the store has no TLS, add the option scheme=http to the URL"),
    ("google::cloud::Status", ("PERMISSION_DENIED", "UNAUTHENTICATED"), _OF_GOOGLE),
    ("Azure Error", ("AuthenticationFailed", "AuthorizationFailure",
                     "AuthorizationPermissionMismatch", "NoAuthenticationInformation"), _OF_AZURE),
    ("GetToken()", ("",), _OF_AZURE),
)  # fmt: skip
"""What to do: by what marks a store's errors, and what one of them has in it."""


def one_line(problem: BaseException) -> str:
    """What an error of Arrow says, and what to do, where that is known."""
    said = problem.args[0] if len(problem.args) == 1 else getattr(problem, "strerror", problem)
    line = " ".join(str(said).split()) or type(problem).__name__
    hint = next((hint for store, marks, hint in _HINTS
                 if store in line and any(mark in line for mark in marks)), "")  # fmt: skip
    return f"{line.rstrip('.')}; {hint}" if hint else line


def open_files(url: str) -> "tuple[FileSystem, str]":
    """The file system that a URL is in, and its path there, without a slash at its end.

    :raise BadUrl: it names none.
    :raise OSError: pyarrow is not installed, or has no file system for it here.
    """
    split, options = parse_url(url)
    where = shown(url)
    try:
        from pyarrow import ArrowException
    except ImportError as problem:
        message = "object storage needs more packages: pip install '.[archive]'"
        raise OSError(errno.ENOPKG, message, where) from problem
    try:
        if split.scheme == "s3":
            return _s3(options), (split.netloc + split.path).rstrip("/")
        if split.scheme == "gs":
            return _google(split, options), ((split.hostname or "") + split.path).rstrip("/")
        if split.scheme == "hdfs":
            return _hadoop(where)
        return _azure(split, options), ((split.username or "") + split.path).rstrip("/")
    except (ArrowException, ValueError) as problem:
        raise BadUrl(one_line(problem)) from problem
    except ImportError as problem:
        message = "this pyarrow was built without it: pip install --upgrade pyarrow"
        raise OSError(errno.ENOPKG, message, where) from problem
    except OSError as problem:
        said = problem.strerror or one_line(problem)
        raise OSError(problem.errno or errno.EIO, " ".join(said.split()), where) from problem


def _s3(options: dict[str, str]) -> "FileSystem":
    """Without background writes an error is met where it happens, and no more than a part is in
    memory.
    """
    from pyarrow.fs import S3FileSystem

    given: dict[str, Any] = options
    return S3FileSystem(
        connect_timeout=CONNECT_TIMEOUT_S, request_timeout=REQUEST_TIMEOUT_S,
        background_writes=False, **given,
    )  # fmt: skip


def _google(split: SplitResult, options: dict[str, str]) -> "FileSystem":
    from pyarrow.fs import GcsFileSystem

    given: dict[str, Any] = options
    return GcsFileSystem(
        anonymous=split.username == ANONYMOUS,
        retry_time_limit=timedelta(seconds=REQUEST_TIMEOUT_S), **given,
    )  # fmt: skip


def _azure(split: SplitResult, options: dict[str, str]) -> "FileSystem":
    """The services of an account are two hosts, which differ in one word; an emulator is one
    host.
    """
    from pyarrow.fs import AzureFileSystem

    account, _, cloud = (split.hostname or "").partition(".")
    domain = cloud.partition(".")[2]
    endpoint, scheme = options.get("endpoint_override"), options.get("scheme", "https")
    given: dict[str, Any] = azure_secrets(os.environ)
    return AzureFileSystem(
        account,
        blob_storage_authority=endpoint or f".blob.{domain}", blob_storage_scheme=scheme,
        dfs_storage_authority=endpoint or f".dfs.{domain}", dfs_storage_scheme=scheme, **given,
    )  # fmt: skip


def azure_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """What opens an account, by Arrow's names: its key or a token; without them Azure's library
    looks for a principal, an identity of the machine, or somebody who is logged in.
    """
    if AZURE_KEY in environ:
        return {"account_key": environ[AZURE_KEY]}
    return {"sas_token": environ[AZURE_SAS]} if AZURE_SAS in environ else {}


def _hadoop(where: str) -> "tuple[FileSystem, str]":
    """:raise OSError: Java or Hadoop is not found; pyarrow says where it looked, on many lines."""
    from pyarrow.fs import FileSystem

    try:
        files, root = FileSystem.from_uri(where)
    except OSError as problem:
        what, mark, _ = one_line(problem).partition(" dlopen(")
        advice = "; JAVA_HOME, HADOOP_HOME and CLASSPATH say where they are" if mark else ""
        raise OSError(problem.errno or errno.EIO, f"{what}{advice}") from problem
    return files, root.rstrip("/")


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
        """In a bucket there are no directories, only names, so it is the bucket that is looked
        for.
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
        """pyarrow cannot be told a length that is known (its C++ library can), so it asks for
        it.
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
    """What is directly in a folder of a file system; nothing if there is no such folder.

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
    """The store that a URL names.  Nothing is asked of it yet.

    :raise BadUrl: it names none.
    :raise OSError: pyarrow is not installed, or has no file system for it here.
    """
    return ArrowStore(*open_files(url), shown(url))
