"""A simulated store: objects in a dictionary, and a fault at any operation."""

from collections.abc import Callable, Iterable

from beanstalk_twisted.object_storage.store import (
    Entry,
    Listing,
    OpenObject,
    Store,
    missing,
)


class MemoryStore(Store):
    """A `Store` in memory.

    :ivar objects: what is there, by name.
    :ivar fault: called with the name of each request and of its object before it is carried out,
        and after each chunk of a write; what it raises ends the operation there.
    """

    def __init__(self, url: str = "memory://objects") -> None:
        self.url = url
        self.objects: dict[str, bytes] = {}
        self.fault: Callable[[str, str], None] = lambda operation, name: None

    def check(self) -> None:
        self.fault("check", "")

    def listing(self, folder: str = "") -> Listing:
        self.fault("listing", folder)
        start = f"{folder}/" if folder else ""
        found = [name.removeprefix(start) for name in self.objects if name.startswith(start)]
        entries = [Entry(name, len(self.objects[start + name])) for name in found]
        return Listing(
            sorted(each for each in entries if "/" not in each.name),
            sorted({name.partition("/")[0] for name in found if "/" in name}),
        )

    def open(self, name: str) -> OpenObject:
        return MemoryObject(self, name, len(self._content("open", name)))

    def part(self, name: str, start: int, end: int) -> bytes:
        """What a range of an open object is answered with."""
        return self._content("read", name)[start:end]

    def _content(self, operation: str, name: str) -> bytes:
        self.fault(operation, name)
        try:
            return self.objects[name]
        except KeyError:
            raise missing(name, self.url) from None

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """An error leaves the chunks before it as an object, as a real store may."""
        self.fault("write", name)
        content = b""
        for chunk in chunks:
            content += chunk
            try:
                self.fault("written", name)
            except OSError:
                self.objects[name] = content
                raise
        self.objects[name] = content

    def move(self, old: str, new: str) -> None:
        content = self._content("copy", old)
        self.objects[new] = content
        self.fault("remove", old)
        del self.objects[old]

    def remove(self, name: str) -> None:
        self._content("remove", name)
        del self.objects[name]


class MemoryObject(OpenObject):
    """An `OpenObject` of a `MemoryStore`."""

    def __init__(self, store: MemoryStore, name: str, size: int) -> None:
        self.size = size
        self._store = store
        self._name = name

    def read(self, start: int, end: int) -> bytes:
        return self._store.part(self._name, start, end)

    def close(self) -> None:
        pass
