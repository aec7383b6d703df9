"""The door to object storage: what is asked of it, and what a URL names.

The real one is `arrow.ArrowStore`, and a simulated one for tests; both pass the same contract
tests (tests/object_storage/test_store.py).  Credentials come from the environment and the files
that each store's own tools read; none stands in a URL, so a URL may be logged.
"""

import contextlib
import errno
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol, TypeVar
from urllib.parse import SplitResult, parse_qsl, urlsplit

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

_LOCAL: Final = ("file://localhost/", "file:///", "file:/")

ANONYMOUS: Final = "anonymous"
"""The user of a ``gs://`` URL that is opened without credentials."""


class Entry(NamedTuple):
    """An object in a listing."""

    name: str
    size: int


class Listing(NamedTuple):
    """What is directly in a folder, both sorted.

    :ivar folders: names of the folders in it.
    """

    entries: list[Entry]
    folders: list[str]


class OpenObject(Protocol):
    """An object to be read from: each range is one request.  All methods raise OSError.

    :ivar size: in bytes, when it was opened.
    """

    size: int

    def read(self, start: int, end: int) -> bytes:
        """Bytes of the object; fewer if it ends before ``end``.  Threads may call it at once."""

    def close(self) -> None:
        """Let go of it."""


class Store(Protocol):
    """The objects below a URL.  Names are relative to it, their parts parted by slashes.  All
    methods raise OSError, whose ``strerror`` is one line, and FileNotFoundError for what is not
    there.

    :ivar url: as it may be shown.
    """

    url: str

    def check(self) -> None:
        """Return if objects could be here: the bucket, the container or the directory is there."""

    def listing(self, folder: str = "") -> Listing:
        """What is directly in a folder; nothing if there is no such folder.  A request for each
        1,000.
        """

    def open(self, name: str) -> OpenObject:
        """Get ready to read from an object; one request, which asks for its length."""

    def entries(self, folder: str = "") -> list[Entry]:
        """The objects directly in a folder, sorted."""
        return self.listing(folder).entries

    def folders(self) -> list[str]:
        """The names of the folders directly below the URL, sorted."""
        return self.listing().folders

    def size(self, name: str) -> int:
        """The length of an object, in bytes."""
        with contextlib.closing(self.open(name)) as found:
            return found.size

    def read(self, name: str, start: int, end: int) -> bytes:
        """Bytes of an object; fewer if it ends before ``end``."""
        with contextlib.closing(self.open(name)) as found:
            return found.read(start, end)

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """Make an object, or put another in its place, durably.  If this raises, or the process
        ends meanwhile, there may be an object of the first bytes.
        """

    def move(self, old: str, new: str) -> None:
        """Give an object another name.  What has the new name is complete at any moment; after a
        crash both may be there.
        """

    def remove(self, name: str) -> None:
        """Delete an object."""


class BadUrl(ValueError):
    """A URL that names no store; it says why."""


def is_url(path: str) -> bool:
    """Whether this names object storage and not a file: no file's path begins with such a
    scheme.
    """
    scheme, mark, _ = path.partition("://")
    return bool(mark) and scheme.lower() in SCHEMES


def local_path(address: str) -> str:
    """The path that a ``file:`` URL names; anything else is a path already."""
    for start in _LOCAL:
        if address.startswith(start):
            return "/" + address.removeprefix(start)
    return address.removeprefix("file://").removeprefix("file:")


def join(folder: str, name: str) -> str:
    """The name of an object in a folder; the empty folder is the URL itself."""
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
    """:raise BadUrl: what stands before the ``@`` does not belong there."""
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


_CONTAINER: Final = {"s3": "bucket", "gs": "bucket", "hdfs": "host"}


def missing(name: str, url: str) -> FileNotFoundError:
    """What is raised for an object that is not there."""
    return FileNotFoundError(errno.ENOENT, "there is no such object", f"{url}/{name}")


def again(
    request: Callable[[], T], waits_s: Iterable[float], wait: Callable[[float], None],
    passes: Callable[[OSError], bool],
) -> T:  # fmt: skip
    """Make a request, and make it again after errors that may pass.

    :param waits_s: seconds before each further attempt.
    :param wait: returns after so many seconds.
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
