"""Files of tables that fail when a test says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import IO

from binlog_tools.spark.storing.locations import Files


class FaultyFiles(Files):
    """A simulated door: another one, and a fault at any operation.

    :ivar fault: called with the name of each operation and of its file before it is carried out;
        what it raises ends the operation there.
    """

    def __init__(self, files: Files, fault: Callable[[str, str], None]) -> None:
        self._files = files
        self.fault = fault

    def create(self, name: str) -> IO[bytes]:
        self.fault("create", name)
        return self._files.create(name)

    def read(self, name: str) -> bytes:
        self.fault("read", name)
        return self._files.read(name)

    def sync(self, name: str) -> None:
        self.fault("sync", name)
        self._files.sync(name)

    def names(self, folder: str = "", is_deep: bool = False) -> list[str]:
        self.fault("names", folder)
        return self._files.names(folder, is_deep)

    def remove(self, name: str) -> None:
        self.fault("remove", name)
        self._files.remove(name)
