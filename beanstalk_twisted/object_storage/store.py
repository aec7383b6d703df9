"""Object storage: what a URL names, and pyarrow's stores.  Credentials come from the environment
and the files that each store's own tools read; none stands in a URL, so a URL may be logged.
"""

import contextlib
import errno
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar
from urllib.parse import SplitResult, parse_qsl, urlsplit

if TYPE_CHECKING:
    from pyarrow import NativeFile
    from pyarrow.fs import FileSystem


T = TypeVar("T")

SCHEMES: Final = ("s3", "s3a", "gs", "abfs", "abfss", "hdfs")
"""What `open_store` can open.  Spark's ``s3a`` means ``s3``."""

OPTIONS: Final = {
    "s3": ("region", "endpoint_override", "scheme"),
    "gs": ("endpoint_override", "scheme"),
    "abfs": ("endpoint_override", "scheme"),
    "abfss": ("endpoint_override", "scheme"),
    "hdfs": (),
}
"""What may follow the ``?`` of a URL, by its scheme; Arrow's names."""

OPEN_OBJECTS: Final = 16
"""Objects that a store keeps open, since opening is a request: one for each thread that reads."""

_LOCAL: Final = ("file://localhost/", "file:///", "file:/")
_CONTAINER: Final = {"s3": "bucket", "gs": "bucket", "hdfs": "host"}

ANONYMOUS: Final = "anonymous"
"""The user of a ``gs://`` URL that is opened without credentials."""


class Entry(NamedTuple):
    """An object in a listing."""

    name: str
    size: int


class Listing(NamedTuple):
    """What is directly in a folder, both sorted."""

    entries: list[Entry]
    folders: list[str]


class Store(Protocol):
    """The objects below a URL, `ArrowStore` or one in memory for tests; both pass the same tests.
    Names are relative to the URL, with slashes between their parts.  All methods raise OSError,
    whose ``strerror`` is one line, and FileNotFoundError for what is not there.

    It is a `binlog.files.Files` of the objects directly below its URL.

    :ivar path: the URL, as it may be shown.
    """

    path: str

    def check(self) -> None:
        """Return if objects could be here: the bucket, the container or the directory is there."""

    def listing(self, folder: str = "") -> Listing:
        """List a folder, which need not exist, with a request for each 1,000 objects."""

    def at(self, folder: str) -> "Store":
        """The store of a folder below the URL; of the URL itself, if it is empty."""

    def names(self) -> list[str]:
        """Look again, and return the names of the objects directly below the URL, sorted."""
        return [entry.name for entry in self.listing().entries]

    def folders(self) -> list[str]:
        return self.listing().folders

    def size(self, name: str) -> int:
        """The size that `names` has listed; else the store is asked."""

    def read(self, name: str, start: int = 0, end: int = sys.maxsize) -> bytes:
        """Return the bytes from ``start`` to ``end``, or to where the object ends, with one
        request, and one more if the object was not read before.  Threads may call it at once.
        """

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """Make an object, or put another in its place, durably.  If this raises, or the process
        ends meanwhile, there may be an object of the first bytes.
        """

    def move(self, old: str, new: str) -> None:
        """Give an object another name.  What has the new name is complete at any moment; after a
        crash both may be there.
        """

    def remove(self, name: str) -> None: ...


class BadUrl(ValueError):
    """A URL that names no store; it says why."""


def is_url(path: str) -> bool:
    """Return whether this names object storage: no file's path begins with such a scheme."""
    scheme, mark, _ = path.partition("://")
    return bool(mark) and scheme.lower() in SCHEMES


def local_path(address: str) -> str:
    """The path that a ``file:`` URL names; anything else is a path already."""
    for start in _LOCAL:
        if address.startswith(start):
            return "/" + address.removeprefix(start)
    return address.removeprefix("file://").removeprefix("file:")


def join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def parse_url(url: str) -> tuple[SplitResult, dict[str, str]]:
    """:return: the URL without options, its scheme in lower case and as Arrow knows it; its
        options.
    :raise BadUrl: it cannot name a store.
    """
    try:
        split = urlsplit(url)
        _ = split.port if split.scheme == "hdfs" else None
    except ValueError as problem:
        raise BadUrl(str(problem)) from None
    scheme = split.scheme.removesuffix("a") if split.scheme == "s3a" else split.scheme
    if scheme not in SCHEMES:
        raise BadUrl(f"its scheme is none of {', '.join(SCHEMES)}")
    if not split.netloc:
        raise BadUrl(f"a {_CONTAINER.get(scheme, 'container')} follows {scheme}://")
    _refuse_user(scheme, split)
    if split.fragment:
        raise BadUrl("it has a # in it")
    options = dict(parse_qsl(split.query, keep_blank_values=True))
    known = OPTIONS[scheme]
    for name in options:
        if not known:
            raise BadUrl(f"URLs of {scheme}:// have no options")
        if name not in known:
            raise BadUrl(f"{name} is none of the options {', '.join(known)}")
    return split._replace(scheme=scheme, query=""), options


def _refuse_user(scheme: str, split: SplitResult) -> None:
    user = split.username
    if split.password is not None or (user is not None and scheme == "s3"):
        raise BadUrl("it has a secret in it; credentials belong in the environment")
    if scheme == "gs" and user not in (None, ANONYMOUS):
        raise BadUrl(f"before the @ of gs:// there can only be {ANONYMOUS}")
    if scheme.startswith("abfs") and (not user or "." not in (split.hostname or "")):
        raise BadUrl(f"it has not the form {scheme}://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH")


def shown(url: str) -> str:
    """A URL as it is shown: without its options.

    :raise BadUrl: it cannot name a store.
    """
    return parse_url(url)[0].geturl().rstrip("/")


def missing(name: str, url: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "there is no such object", f"{url}/{name}")


def again(
    request: Callable[[], T], waits_s: Iterable[float], wait: Callable[[float], None],
    passes: Callable[[OSError], bool],
) -> T:  # fmt: skip
    """Make a request, and make it again after errors that may pass.

    :param waits_s: seconds before each further attempt.
    :param passes: whether an error may be gone a moment later.
    """
    for wait_s in waits_s:
        try:
            return request()
        except OSError as problem:
            if not passes(problem):
                raise
            wait(wait_s)
    return request()


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
    """Return what an error of Arrow says, and what to do, where that is known."""
    said = problem.args[0] if len(problem.args) == 1 else getattr(problem, "strerror", problem)
    line = " ".join(str(said).split()) or type(problem).__name__
    hint = next((hint for store, marks, hint in _HINTS
                 if store in line and any(mark in line for mark in marks)), "")  # fmt: skip
    return f"{line.rstrip('.')}; {hint}" if hint else line


def open_files(url: str) -> "tuple[FileSystem, str]":
    """Return the file system that a URL is in, and its path there without a slash at its end.

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
        self.path = url
        self._files = files
        self._root = root
        self._has_directories = files.type_name in ("hdfs", "local")
        self._lock = threading.Lock()
        self._sizes: dict[str, int] = {}
        self._opened: dict[str, NativeFile] = {}

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def check(self) -> None:
        """In a bucket there are no directories, only names, so this looks for the bucket."""
        container = self._root if self._has_directories else self._root.split("/")[0]
        with self.telling(""):
            found = self._files.get_file_info(container)
        if found.is_file or not found.type.value:
            raise FileNotFoundError(errno.ENOENT, f"there is no {container}", self.path)

    def listing(self, folder: str = "") -> Listing:
        with self.telling(folder):
            return listed(self._files, self._path(folder))

    def at(self, folder: str) -> "ArrowStore":
        if not folder:
            return self
        return ArrowStore(self._files, self._path(folder), join(self.path, folder))

    def names(self) -> list[str]:
        entries = self.listing().entries
        with self._lock:
            self._sizes = dict(entries)
            self._opened.clear()
        return list(self._sizes)

    def size(self, name: str) -> int:
        listed = self._sizes.get(name)
        return int(self._open(name).size()) if listed is None else listed

    def read(self, name: str, start: int = 0, end: int = sys.maxsize) -> bytes:
        file = self._opened.get(name) or self._open(name)
        with self.telling(name):
            size = min(end, int(file.size())) - start
            return bytes(file.read_at(size, start)) if size > 0 else b""

    def _open(self, name: str) -> "NativeFile":
        """Ask for the length too: pyarrow, unlike its C++ library, cannot be given a known one."""
        with self.telling(name):
            file = self._files.open_input_file(self._path(name))
            file.size()
        with self._lock:
            self._opened.pop(name, None)
            if len(self._opened) >= OPEN_OBJECTS:
                # Another thread may still read from it: it is closed when that is done.
                del self._opened[next(iter(self._opened))]
            self._opened[name] = file
        return file

    def _forget(self, name: str) -> None:
        with self._lock:
            self._opened.pop(name, None)
            self._sizes.pop(name, None)

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        path = self._path(name)
        self._forget(name)
        with self.telling(name):
            if self._has_directories:
                self._files.create_dir(path.rpartition("/")[0], recursive=True)
            file = self._files.open_output_stream(path)
        try:
            # What the chunks themselves raise is not the store's.
            for chunk in chunks:
                with self.telling(name):
                    file.write(chunk)
        finally:
            with self.telling(name):
                file.close()

    def move(self, old: str, new: str) -> None:
        """HDFS has a rename, and no copy of its own; buckets have a copy, and no rename."""
        self._open(old)
        self._forget(old)
        self._forget(new)
        with self.telling(old):
            if self._has_directories:
                self._files.move(self._path(old), self._path(new))
            else:
                self._files.copy_file(self._path(old), self._path(new))
                self._files.delete_file(self._path(old))

    def remove(self, name: str) -> None:
        self._forget(name)
        with self.telling(name):
            self._files.delete_file(self._path(name))

    @contextlib.contextmanager
    def telling(self, name: str) -> Iterator[None]:
        """Arrow's errors as OSError of one line each: most of its own have no ``strerror``."""
        from pyarrow import ArrowException

        where = join(self.path, name) if name else self.path
        try:
            yield
        except FileNotFoundError as problem:
            raise missing(name, self.path) from problem
        except (OSError, ArrowException) as problem:
            number = getattr(problem, "errno", None) or errno.EIO
            raise OSError(number, one_line(problem), where) from problem


def listed(files: "FileSystem", path: str) -> Listing:
    """List a folder of a file system, which need not exist.  Of Google's storage Arrow tells only
    those folders that have an object of their own, so there all that is below is listed.
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
    """Make the store that a URL names.  Nothing is asked of it yet.

    :raise BadUrl: it names none.
    :raise OSError: pyarrow is not installed, or has no file system for it here.
    """
    return ArrowStore(*open_files(url), shown(url))
