"""
A table as a directory of Parquet files: written whole, at once.

``_SUCCESS`` says that all is there.  There are no versions, no progress and no increments; a
second commit may only replace everything, and while it does there is no ``_SUCCESS``.
"""

from collections.abc import Iterable, Mapping
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from binlog_tools.spark.definitions.errors import TableError
from binlog_tools.spark.storing.files import NULL, File, Layout, Partition, commented_schema
from binlog_tools.spark.storing.locations import Files, Location
from binlog_tools.spark.storing.stored import (
    RETENTION_HOURS,
    SUCCESS,
    Change,
    Optimized,
    Stored,
)

SUFFIX = ".parquet"


class ParquetStored(Stored):
    """A `Stored` without a log; its version is 0 when it is whole."""

    form = "parquet"

    def __init__(
        self, location: Location, layout: Layout | None = None, files: Files | None = None
    ) -> None:
        self.location = location
        self._layout = layout
        self._files = files if files is not None else location.files()
        with location.writing():
            names = self._files.names(is_deep=True)
        self._names = [name for name in names if name.endswith(SUFFIX) and not _is_hidden(name)]
        self.version = 0 if SUCCESS in names else None
        if layout is None and not self._names and self.version is None:
            raise TableError("TABLE_NOT_FOUND", f"{location}: there is no table")
        if layout is not None and (set(names) - {SUCCESS, *self._names}):
            raise TableError("TABLE_EXISTS", f"{location}: it has other files than Parquet; "
                             "name a new directory")  # fmt: skip

    def schema(self) -> pa.Schema:
        if self._layout is not None:
            return self._layout.schema
        if not self._names:
            return pa.schema([])
        system = self.location.files()
        inner = commented_schema(
            pq.read_schema(system.path(self._names[0]), filesystem=system.system)
        )
        for name in self.partition_by():
            inner = inner.append(pa.field(name, pa.string()))
        return inner

    def partition_by(self) -> tuple[str, ...]:
        if self._layout is not None:
            return self._layout.partition_by
        return tuple(name for name, _ in _partition(self._names[0])) if self._names else ()

    def progress(self, names: Iterable[str]) -> dict[str, int]:
        return {}

    def files(
        self, within: Mapping[str, str | None] = {}, told: Iterable[str] | None = None
    ) -> list[File]:
        found = (File(name, 0, 0, _partition(name)) for name in self._names)
        return [file for file in found if file.is_in(within)]

    def commit(self, change: Change) -> int:
        """:raise TableError: it is there already, and not all of it is replaced."""
        if self.version is not None and {} not in change.replaced:
            raise TableError("TABLE_FORMAT", f"{self.location}: Parquet files are written once; "
                             "store the table with --format delta to add to it")  # fmt: skip
        added = {file.path for file in change.added}
        with self.location.writing():
            if self.version is not None:
                self._files.remove(SUCCESS)
            for name in self._names:
                if name not in added:
                    self._files.remove(name)
            self._files.create(SUCCESS).close()
            self._files.sync(SUCCESS)
        self._names = sorted(added)
        self.version = 0
        return 0

    def optimize(self, retention_hours: float = RETENTION_HOURS) -> Optimized:
        raise TableError("TABLE_FORMAT", f"{self.location}: only Delta tables are optimized")


class ParquetFile(ParquetStored):
    """One file that is read as a table."""

    def __init__(self, location: Location) -> None:
        """:param location: of a local file."""
        folder, _, name = location.path.rpartition("/")
        self.location = Location(folder)
        self._layout = None
        self._files = self.location.files()
        self._names = [name]
        self.version = 0


def _is_hidden(name: str) -> bool:
    """Whether a file does not count, as those in Spark's ``_temporary`` before it commits them."""
    return any(part.startswith(("_", ".")) for part in name.split("/"))


def _partition(name: str) -> Partition:
    pairs = (folder.partition("=") for folder in name.split("/")[:-1])
    return tuple(
        (column, None if value == NULL else unquote(value)) for column, mark, value in pairs if mark
    )
