"""A simulated store: objects in a dictionary, and a fault at any operation."""

import sys
from collections.abc import Callable, Iterable

from beanstalk_twisted.object_storage.store import (
    Entry,
    Listing,
    Store,
    join,
    missing,
)


class MemoryStore(Store):
    """A `Store` in memory.

    :ivar objects: what is there, by name.
    :ivar fault: called with the name of each request and of its object before it is carried out,
        and after each chunk of a write; what it raises ends the operation there.
    """

    def __init__(self, url: str = "memory://objects", top: "MemoryStore | None" = None) -> None:
        """:param top: the store that has the objects of this one in a folder."""
        self.path = url
        self.objects: dict[str, bytes] = {} if top is None else top.objects
        self.fault: Callable[[str, str], None] = lambda operation, name: None
        self._start = ""

    def check(self) -> None:
        self.fault("check", "")

    def at(self, folder: str) -> "MemoryStore":
        if not folder:
            return self
        found = MemoryStore(join(self.path, folder), self)
        found.fault = lambda operation, name: self.fault(operation, name)
        found._start = f"{self._start}{folder}/"
        return found

    def listing(self, folder: str = "") -> Listing:
        start = f"{self._start}{folder}/" if folder else self._start
        self.fault("listing", start.rstrip("/"))
        found = [name.removeprefix(start) for name in self.objects if name.startswith(start)]
        entries = [Entry(name, len(self.objects[start + name])) for name in found]
        return Listing(
            sorted(each for each in entries if "/" not in each.name),
            sorted({name.partition("/")[0] for name in found if "/" in name}),
        )

    def size(self, name: str) -> int:
        return len(self._content("open", name))

    def read(self, name: str, start: int = 0, end: int = sys.maxsize) -> bytes:
        return self._content("read", name)[start:end]

    def _content(self, operation: str, name: str) -> bytes:
        self.fault(operation, self._start + name)
        try:
            return self.objects[self._start + name]
        except KeyError:
            raise missing(name, self.path) from None

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """An error leaves the chunks before it as an object, as a real store may."""
        key = self._start + name
        self.fault("write", key)
        content = b""
        for chunk in chunks:
            content += chunk
            try:
                self.fault("written", key)
            except OSError:
                self.objects[key] = content
                raise
        self.objects[key] = content

    def move(self, old: str, new: str) -> None:
        content = self._content("copy", old)
        self.objects[self._start + new] = content
        self.fault("remove", self._start + old)
        del self.objects[self._start + old]

    def remove(self, name: str) -> None:
        self._content("remove", name)
        del self.objects[self._start + name]
