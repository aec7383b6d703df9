"""A table with Delta Lake's log: grown and changed commit by commit, read by whatever reads Delta.

deltalake keeps the log; the files are ours.  The log's put-if-absent decides between two writers:
each commit names the version that it makes.
"""

import contextlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction, WriterProperties
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from binlog_tools.spark.definitions.errors import TableError
from binlog_tools.spark.storing.files import FILE_BYTES, File, Layout, json_of, text_of
from binlog_tools.spark.storing.locations import Files, Location
from binlog_tools.spark.storing.stored import (
    LOG,
    RETENTION_HOURS,
    Change,
    Optimized,
    dataset_of,
    now_ms,
)

ATTEMPTS: Final = 20
"""How often a commit is tried while others, who change other things, are faster."""


class DeltaStored:
    """A table with Delta's log, at one version.

    :ivar location: where it is.
    """

    def __init__(
        self, location: Location, layout: Layout | None = None, files: Files | None = None
    ) -> None:
        """:param layout: of the table that is to be written; None: it is only read.
        :param files: the door, if it is not the location's own.
        :raise TableError: there is none to read; or the one to write is somebody else's.
        """
        if "%" in str(location):
            what = "deltalake cannot use a path with a % in it; name another"
            raise TableError("TABLE_OPTION", f"{location}: {what}")
        self.location = location
        self._layout = layout
        self._files = files if files is not None else location.files()
        self._read = self._opened()
        self._version = _version_of(self._read)
        if layout is None and self._read is None:
            raise TableError("TABLE_NOT_FOUND", f"{location}: there is no table")
        if layout is not None:
            self._refuse_others(layout)

    def _opened(self, version: int | None = None) -> DeltaTable | None:
        """:param version: None: the newest."""
        options = self.location.storage_options()
        try:
            return DeltaTable(self.location.delta_url, version, storage_options=options)
        except TableNotFoundError:
            return None
        except (OSError, DeltaError) as problem:
            raise _unreadable(self.location, problem) from None

    def _refuse_others(self, layout: Layout) -> None:
        if self._table is None:
            with self.location.writing():
                found = set(self._files.names()) - {LOG}
            # What a run that was killed before its first commit has left is a folder or a file.
            start = f"{layout.partition_by[0]}=" if layout.partition_by else "part-"
            if not all(each.startswith(start) for each in found):
                raise TableError("TABLE_EXISTS", f"{self.location}: it is not empty, and no "
                                 f"{layout.name} table; name a new directory")  # fmt: skip
        elif (name := self._table.metadata().name) != layout.name:
            raise TableError("TABLE_EXISTS", f"{self.location}: it is a table {name or 'of others'}"
                             f", not {layout.name}; name a new directory")  # fmt: skip
        elif self.partition_by() != layout.partition_by:
            there, ours = (", ".join(each) or "nothing"
                           for each in (self.partition_by(), layout.partition_by))  # fmt: skip
            raise TableError("TABLE_EXISTS", f"{self.location}: its folders are by {there}, not by "
                             f"{ours}; name a new directory")  # fmt: skip

    @property
    def version(self) -> int | None:
        """A number that grows with each commit; None: there is no table yet."""
        return self._version

    @property
    def _table(self) -> DeltaTable | None:
        """The table at this version: what was committed since it was read is read now, and nothing
        of a table that nobody asks of again.
        """
        read, version = self._read, self._version
        if read is not None and version is not None and version != read.version():
            try:
                read.load_as_version(version)
            except (OSError, DeltaError) as problem:
                raise _unreadable(self.location, problem) from None
        return read

    def schema(self) -> pa.Schema:
        """All columns, with comments."""
        if self._table is None:
            assert self._layout is not None
            return self._layout.schema
        return pa.schema(self._table.schema().to_arrow())

    def partition_by(self) -> tuple[str, ...]:
        """The columns that folders say."""
        if self._table is None:
            return self._layout.partition_by if self._layout is not None else ()
        return tuple(self._table.metadata().partition_columns)

    def progress(self, names: Iterable[str]) -> dict[str, int]:
        """How far these have come; those of which no commit has told are left out."""
        return _progress(self._table, names)

    def files(
        self, within: Mapping[str, str | None] = {}, told: Iterable[str] | None = None
    ) -> list[File]:
        """The files of this version in these partitions.

        :param within: values of columns of partitions, as text.
        :param told: the columns whose statistics are wanted, None: all.  A table of a year has
            thousands of files, and all statistics of a file cost as much as to read a small one.
        """
        return [] if self._table is None else _files(self._table, (within,), told)

    def dataset(self) -> ds.Dataset:
        """This version as a dataset of Arrow, to be read without Spark."""
        return dataset_of(self.location, self.schema(), self.files())

    def commit(self, change: Change) -> int:
        """Make the next version, durably, in one step; this object goes on at it.

        :return: the version.
        :raise TableError: ``TABLE_BUSY``: since this object was opened or has committed, somebody
            else has changed a partition that is replaced or a progress that is told.
        """
        assert self._layout is not None
        base = self._table
        if base is None:
            self._create(self._layout, change)
            # Not the newest: what others have committed since then has not been looked at.
            self._read, version = self._there(self._opened(0)), 0
        else:
            self._read, version = self._go_on(base, self._layout, change)
        self._version = version
        with self.location.writing():
            self._files.sync(f"{LOG}/{version:020d}.json")
        return version

    def _create(self, layout: Layout, change: Change) -> None:
        with _saying(self.location):
            try:
                create_table_with_add_actions(
                    self.location.delta_url, Schema.from_arrow(layout.schema),
                    [_added(file) for file in change.added], mode="error",
                    partition_by=list(layout.partition_by), name=layout.name,
                    storage_options=self.location.storage_options(),
                    commit_properties=_properties(change),
                )  # fmt: skip
            except DeltaError:
                if self._opened() is None:
                    raise
                raise _busy(self.location) from None

    def _missing(self, there: DeltaTable, layout: Layout) -> list[Field]:
        """The columns that this version of ours has and the table has not.

        :raise TableError: one is of another type there.
        """
        types = {field.name: field.type for field in there.schema().fields}
        ours = Schema.from_arrow(layout.schema).fields
        for field in ours:
            if types.get(field.name, field.type) != field.type:
                raise TableError("TABLE_COLUMN", f"{self.location}: column {field.name} is "
                                 f"{types[field.name]} there, not {field.type}; write a new table"
                                 )  # fmt: skip
        return [field for field in ours if field.name not in types]

    def _widened(self, layout: Layout) -> DeltaTable:
        """The newest version, with the missing columns, added in a commit of its own: null in all
        rows that are there.
        """
        fresh = self._newest()
        missing = self._missing(fresh, layout)
        if missing:
            with _losing(self.location), _saying(self.location):
                fresh.alter.add_columns(missing)
        return fresh

    def _newest(self) -> DeltaTable:
        return self._there(self._opened())

    def _there(self, found: DeltaTable | None) -> DeltaTable:
        if found is None:
            raise TableError("TABLE_NOT_FOUND", f"{self.location}: the table has been deleted")
        return found

    def _go_on(self, base: DeltaTable, layout: Layout, change: Change) -> tuple[DeltaTable, int]:
        """Commit on top of what was looked at; if others were faster, of what is there by now, as
        long as it is what the change was made of.  The log is read again only then.

        :return: the table as it was read last, and the version that was made.
        """
        # What only adds need not list what is there: its cost does not grow with that.
        removed = _files(base, change.replaced, ())
        actions: list[AddAction | RemoveAction] = [
            *map(_added, change.added),
            *map(_removed, removed),
        ]
        fresh = self._widened(layout) if self._missing(base, layout) else base
        for _ in range(ATTEMPTS):
            looked_at = fresh.version()
            if looked_at != base.version() and self._is_done(base, fresh, change, removed):
                return fresh, looked_at
            try:
                with _saying(self.location):
                    fresh.create_write_transaction(
                        actions, "append", fresh.schema(), list(self.partition_by()),
                        commit_properties=_properties(change),
                    )  # fmt: skip
                return fresh, looked_at + 1
            except CommitFailedError as problem:
                fresh = self._newest()
                if fresh.version() == looked_at:
                    raise _unwritable(self.location, problem) from None
        raise _busy(self.location)

    def _is_done(
        self, base: DeltaTable, fresh: DeltaTable, change: Change, removed: list[File]
    ) -> bool:
        """:return: whether a later version is this change already: its answer was lost.
        :raise TableError: what the change was made of is not there any more.
        """
        there = {file.path: file for file in _files(fresh, ({},), ())}
        if change.added and all(file.path in there for file in change.added):
            return True
        replaced = {path for path, file in there.items() if change.removes(file)}
        if replaced != {file.path for file in removed} or (
            _progress(base, change.progress) != _progress(fresh, change.progress)
        ):
            raise _busy(self.location)
        return False

    def checkpoint(self) -> None:
        """Write what the log says so far as one file, and go on from it: what a commit costs grows
        with the commits behind the last such file, of which deltalake writes one in a hundred.

        :raise TableError: it cannot be written; the table is as it was before.
        """
        table = self._there(self._table)
        with _saying(self.location):
            table.create_checkpoint()
        version = table.version()
        with self.location.writing():
            self._files.sync(f"{LOG}/{version:020d}.checkpoint.parquet")
        # The table that is open would go on with all that it has read.
        self._read = self._opened(version)

    def optimize(self, retention_hours: float = RETENTION_HOURS) -> Optimized:
        """Put small files together, and remove those that no version needs since so many hours."""
        table = self._newest()
        with _losing(self.location), _saying(self.location):
            done = table.optimize.compact(
                target_size=FILE_BYTES, writer_properties=WriterProperties(compression="ZSTD")
            )
            gone = table.vacuum(
                math.ceil(retention_hours), dry_run=False, enforce_retention_duration=False,
                full=True,
            )  # fmt: skip
        self._read = self._opened()
        self._version = _version_of(self._read)
        return Optimized(done["numFilesRemoved"], done["numFilesAdded"], len(gone))


def _version_of(table: DeltaTable | None) -> int | None:
    return None if table is None else table.version()


def _progress(table: DeltaTable | None, names: Iterable[str]) -> dict[str, int]:
    if table is None:
        return {}
    found = {name: table.transaction_version(name) for name in names}
    return {name: number for name, number in found.items() if number is not None}


def _files(
    table: DeltaTable, within: Sequence[Mapping[str, str | None]], told: Iterable[str] | None
) -> list[File]:
    """The files in any of these partitions, with the statistics of some columns.

    deltalake gives paths as they stand in the log, quoted as in a URL; the others are not.
    """
    if not within:
        return []
    names = table.metadata().partition_columns
    rows = pa.table(table.get_add_actions())
    if names and {} not in within:
        rows = rows.filter(_is_in(_partitions(rows), within))
    partitions = _partitions(rows) if names else pa.table({"": pa.nulls(rows.num_rows)})
    texts = [[text_of(value) for value in partitions[name].to_pylist()] for name in names]
    found = [(kind, _told(rows, name, told)) for kind, name in _STATISTICS.items()]
    return [
        File(unquote(path), size, count or 0, tuple(zip(names, values, strict=True)), {
            "numRecords": count, **{kind: _json(each[at]) for kind, each in found}
        })
        for at, (path, size, count, values) in enumerate(zip(
            *(rows[name].to_pylist() for name in ("path", "size_bytes", "num_records")),
            zip(*texts, strict=True) if names else [()] * rows.num_rows, strict=True,
        ))
    ]  # fmt: skip


_STATISTICS: Final = {"minValues": "min", "maxValues": "max", "nullCount": "null_count"}
"""Of Delta's protocol, what deltalake calls them."""


def _struct(rows: pa.Table, name: str) -> pa.Table:
    """A column of structs as a table; without columns if there is none."""
    if name not in rows.column_names:
        return pa.table({})
    array = rows[name].combine_chunks()
    return pa.Table.from_arrays(array.flatten(), [field.name for field in array.type])


def _partitions(rows: pa.Table) -> pa.Table:
    return _struct(rows, "partition" if "partition" in rows.column_names else "partition_values")


def _is_in(partitions: pa.Table, within: Iterable[Mapping[str, str | None]]) -> Any:
    """Which rows are in any of these partitions."""
    texts = {name: partitions[name].combine_chunks().dictionary_encode("encode")
             for name in partitions.column_names}  # fmt: skip
    found = np.zeros(partitions.num_rows, bool)
    for values in within:
        mine = np.ones(partitions.num_rows, bool)
        for name, value in values.items():
            coded = texts[name]
            wanted = [number for number, each in enumerate(coded.dictionary.to_pylist())
                      if text_of(each) == value]  # fmt: skip
            mine &= np.isin(coded.indices.to_numpy(zero_copy_only=False), wanted)
        found |= mine
    return pa.array(found)


def _told(rows: pa.Table, name: str, told: Iterable[str] | None) -> list[dict[str, Any]]:
    """Of each file the statistics of this kind."""
    table = _struct(rows, name)
    wanted = table.column_names if told is None else [
        each for each in told if each in table.column_names
    ]  # fmt: skip
    made: list[dict[str, Any]] = table.select(wanted).to_pylist()
    return made if wanted else [{} for _ in range(rows.num_rows)]


def _json(found: dict[str, Any]) -> dict[str, Any]:
    return {name: json_of(value) for name, value in found.items() if value is not None}


def _added(file: File) -> AddAction:
    return AddAction(
        file.path, file.size, dict(file.partition), now_ms(), data_change=True,
        stats=json.dumps(file.statistics),
    )  # fmt: skip


def _removed(file: File) -> RemoveAction:
    return RemoveAction(file.path, True, now_ms(), file.size, dict(file.partition))


def _properties(change: Change) -> CommitProperties:
    """Without retries of deltalake's own: the commit is the next version of what was looked at."""
    told = [Transaction(name, number) for name, number in change.progress.items()]
    return CommitProperties(max_commit_retries=0, app_transactions=told)


@contextlib.contextmanager
def _saying(location: Location) -> Iterator[None]:
    """:raise TableError: in the place of deltalake's errors, but for those of a lost race."""
    try:
        yield
    except CommitFailedError:
        raise
    except (OSError, DeltaError) as problem:
        raise _unwritable(location, problem) from None


@contextlib.contextmanager
def _losing(location: Location) -> Iterator[None]:
    """:raise TableError: in the place of the error of a lost race."""
    try:
        yield
    except CommitFailedError:
        raise _busy(location) from None


def _line(problem: Exception) -> str:
    return re.sub(r"\x1b\[\d*m", "", " ".join(str(problem).split()))


def _unwritable(location: Location, problem: Exception) -> TableError:
    what = f"{location}: {_line(problem)}; the table is as it was before"
    return TableError("TABLE_UNWRITABLE", what)


def _unreadable(location: Location, problem: Exception) -> TableError:
    return TableError("TABLE_FORMAT", f"{location}: its log cannot be read: {_line(problem)}")


def _busy(location: Location) -> TableError:
    return TableError("TABLE_BUSY", f"{location}: another run has changed this table meanwhile; "
                      "nothing was written; run it again")  # fmt: skip
