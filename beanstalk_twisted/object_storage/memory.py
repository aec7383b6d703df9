"""
A simulated store: objects in a dictionary, and a fault at any operation.
"""

from collections.abc import Callable, Iterable

from beanstalk_twisted.object_storage.store import Entry, Store, missing


class MemoryStore(Store):
    """
    A `Store` in memory.

    :ivar objects: what is there, by name.
    :ivar fault: called with the name of each operation and of its object before it is carried out,
        and after each chunk of a write; what it raises ends the operation there.
    """

    def __init__(self, url: str = "memory://objects") -> None:
        self.url = url
        self.objects: dict[str, bytes] = {}
        self.fault: Callable[[str, str], None] = lambda operation, name: None

    def check(self) -> None:
        self.fault("check", "")

    def entries(self, folder: str = "") -> list[Entry]:
        self.fault("entries", folder)
        start = f"{folder}/" if folder else ""
        found = (name.removeprefix(start) for name in self.objects if name.startswith(start))
        return sorted(
            Entry(name, len(self.objects[start + name])) for name in found if "/" not in name
        )

    def folders(self) -> list[str]:
        self.fault("folders", "")
        return sorted({name.partition("/")[0] for name in self.objects if "/" in name})

    def _content(self, operation: str, name: str) -> bytes:
        self.fault(operation, name)
        try:
            return self.objects[name]
        except KeyError:
            raise missing(name, self.url) from None

    def size(self, name: str) -> int:
        return len(self._content("size", name))

    def read(self, name: str, start: int, end: int) -> bytes:
        return self._content("read", name)[start:end]

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """
        An error leaves the chunks before it as an object, as a real store may.
        """
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
