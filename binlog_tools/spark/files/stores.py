"""Object storage as tasks and plans use it: each process opens a store once, and an operation that
fails for a moment is tried again.
"""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from beanstalk_twisted.object_storage.store import Listing, OpenObject, Store, again, open_store

WAITS_S: Final = (0.2, 0.4, 0.8, 1.6)
"""Seconds before each further attempt, 3 in all: long enough for a store that sheds load, beside
Arrow's own attempts; a task that fails is started again by Spark.
"""

LASTING: Final = (
    "ACCESS_DENIED", "NO_SUCH_BUCKET", "NO_SUCH_KEY", "INVALID_ACCESS_KEY_ID",
    "SIGNATURE_DOES_NOT_MATCH", "UNRECOGNIZED_CLIENT", "INVALID_CLIENT_TOKEN_ID",
    "EXPIRED_TOKEN", "MISSING_AUTHENTICATION_TOKEN", "OPT_IN_REQUIRED", "PERMISSION", "FORBIDDEN",
    "UNAUTHENTICATED", "AUTHENTICATIONFAILED", "AUTHORIZATIONFAILURE",
)  # fmt: skip
"""What is in the words of errors that do not pass by themselves."""

OPEN_STORES: Final = 64
"""Stores that a process keeps, some 100 KB each: a folder of an archive for each server."""

T = TypeVar("T")


def passes(problem: OSError) -> bool:
    """Whether an error may be gone a moment later."""
    if isinstance(problem, FileNotFoundError | PermissionError | IsADirectoryError):
        return False
    said = str(problem).upper()
    return not any(each in said for each in LASTING)


def tried(what: Callable[[], T], wait: Callable[[float], None]) -> T:
    """Do what may fail for a moment, and do it again when it does."""
    return again(what, WAITS_S, wait, passes)


class PatientStore(Store):
    """A store to read from, whose operations are tried again after errors that may pass."""

    def __init__(self, store: Store, wait: Callable[[float], None] = time.sleep) -> None:
        """:param wait: returns after so many seconds."""
        self.path = self.url = store.path
        self._store = store
        self._wait = wait

    def _tried(self, what: Callable[[], T]) -> T:
        return tried(what, self._wait)

    def check(self) -> None:
        self._tried(self._store.check)

    def at(self, folder: str) -> "PatientStore":
        return PatientStore(self._store.at(folder), self._wait)

    def listing(self, folder: str = "") -> Listing:
        return self._tried(lambda: self._store.listing(folder))

    def open(self, name: str) -> OpenObject:
        return PatientObject(self._tried(lambda: self._store.open(name)), self._wait)

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        raise NotImplementedError("logs are only read here")

    def move(self, old: str, new: str) -> None:
        raise NotImplementedError("logs are only read here")

    def remove(self, name: str) -> None:
        raise NotImplementedError("logs are only read here")


class PatientObject(OpenObject):
    """An open object that is asked again likewise."""

    def __init__(self, found: OpenObject, wait: Callable[[float], None]) -> None:
        self.size = found.size
        self._found = found
        self._wait = wait

    def read(self, start: int, end: int) -> bytes:
        return tried(lambda: self._found.read(start, end), self._wait)

    def close(self) -> None:
        self._found.close()


class Stores:
    """The stores that a process has open, by URL with options."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stores: dict[str, Store] = {}

    def keep(self, url: str, store: Store) -> None:
        """Take this one for what the URL names."""
        with self._lock:
            while len(self._stores) >= OPEN_STORES:
                del self._stores[next(iter(self._stores))]
            self._stores[url] = store

    def at(self, url: str) -> Store:
        """:raise BadUrl: it names no store.
        :raise OSError: it cannot be opened.
        """
        store = self._stores.get(url)
        if store is None:
            store = PatientStore(open_store(url))
            self.keep(url, store)
        return store


STORES: Final = Stores()
"""Those of this process."""
