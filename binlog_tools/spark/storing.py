"""Delta tables: one version is read, and a write makes the next one in one step.

`deltalake` keeps the log, partitions and statistics; its put-if-absent decides between two writers.
"""

import contextlib
import errno
import json
import math
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import SplitResult, unquote

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pa_fs

from beanstalk_twisted.object_storage.store import (
    ANONYMOUS,
    BadUrl,
    azure_secrets,
    is_url,
    listed,
    open_files,
    parse_url,
    shown,
)
from binlog_tools.spark.definitions.addresses import normal
from binlog_tools.spark.errors import TableError

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction

Replaced = Callable[[Mapping[str, Any]], bool]
"""Chooses partitions by the values of their columns."""

ANYBODY: Final = {
    "google_skip_signature": "true",
    "google_service_account_key": json.dumps({
        "client_email": "", "private_key_id": "", "private_key": "", "disable_oauth": True,
    }),
}  # fmt: skip
"""What makes deltalake ask Google's store without credentials: the first for reads; writes would
ask the machine for a token all the same, were there no account that needs none."""


class Location(NamedTuple):
    """A table's place: an absolute path of this machine, or a URL with its options."""

    path: str

    @classmethod
    def of(cls, text: str) -> "Location":
        """:param text: a path, ``file:`` or one of the URLs of `object_storage`.
        :raise TableError: the URL names no store.
        """
        if is_url(text):
            try:
                parse_url(text)
            except BadUrl as problem:
                raise TableError("TABLE_OPTION", f"{text.partition('?')[0]}: {problem}") from None
            return cls(text)
        return cls(os.path.abspath(normal(text)))

    @property
    def is_local(self) -> bool:
        return not is_url(self.path)

    def __str__(self) -> str:
        """The place without the options of its URL: as messages show it."""
        return self.path if self.is_local else shown(self.path)

    def system(self) -> tuple[pa_fs.FileSystem, str]:
        """Return pyarrow's file system, and the path in it; raise OSError if it has none."""
        if self.is_local:
            return pa_fs.LocalFileSystem(), self.path
        return open_files(self.path)

    def names(self) -> list[str]:
        """The names in this folder, sorted; none if there is no folder."""
        with self.writing():
            entries, folders = listed(*self.system())
            return sorted([*folders, *(entry.name for entry in entries)])

    def storage_options(self) -> dict[str, str]:
        """What deltalake has to know beside the environment to open the same place."""
        if self.is_local:
            return {}
        split, options = parse_url(self.path)
        if split.scheme.startswith("abfs"):
            return _azure_options(split, options)
        found = {"AWS_REGION": options["region"]} if "region" in options else {}
        if split.scheme == "gs" and split.username == ANONYMOUS:
            found |= ANYBODY
        name = "google_base_url" if split.scheme == "gs" else "AWS_ENDPOINT_URL"
        return found | _endpoint(name, options)

    @property
    def delta_url(self) -> str:
        """The place as deltalake takes it."""
        return str(self).replace(f"gs://{ANONYMOUS}@", "gs://", 1)

    def refuse_hopeless(self, code: str = "TABLE_UNWRITABLE") -> None:
        """Raise TableError, of this code if the bucket is missing, if no table can be here."""
        if self.is_local:
            if os.path.isfile(self.path):
                what = "it is a file; name a directory; nothing was written"
                raise TableError("TABLE_EXISTS", f"{self}: {what}")
            return
        with self.writing():
            system, root = self.system()
        bucket = root.partition("/")[0]
        is_gone = False
        # Who may not look at a bucket may still be allowed to write into it.
        with contextlib.suppress(OSError, pa.ArrowException):
            has_buckets = system.type_name != "hdfs"
            is_gone = has_buckets and not system.get_file_info(bucket).type.value
        if is_gone:
            what = f"there is no bucket {bucket}; make it, or name another; nothing was written"
            raise TableError(code, f"{self}: {what}")

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """:raise TableError: in the place of an error of the file system within the block."""
        try:
            yield
        except (OSError, pa.ArrowException) as problem:
            raise _unwritable(self, problem) from None


def _azure_options(split: SplitResult, options: dict[str, str]) -> dict[str, str]:
    """What deltalake has to know of Azure; it reads other variables than Azure's command line."""
    secrets = azure_secrets(os.environ)
    account = (split.hostname or "").partition(".")[0]
    return {
        **{f"azure_storage_{name}": secret for name, secret in secrets.items()},
        **_endpoint("azure_endpoint", options, f"/{account}"),
    }


def _endpoint(name: str, options: dict[str, str], path: str = "") -> dict[str, str]:
    """:param name: deltalake's, of what says where a store is."""
    if "endpoint_override" not in options:
        return {}
    scheme = options.get("scheme", "https")
    url = f"{scheme}://{options['endpoint_override']}{path}"
    return {name: url, "allow_http": str(scheme == "http").lower()}


def _unwritable(location: Location, problem: Exception) -> TableError:
    number = getattr(problem, "errno", None)
    text = _line(problem.args[-1] if problem.args else problem)
    # Of a store that is elsewhere the number says less than the text.
    why = os.strerror(number) if number and location.is_local else text
    room = "; make room and run it again" if number == errno.ENOSPC else ""
    what = "the table is as it was before"
    return TableError("TABLE_UNWRITABLE", f"{location}: {why}; {what}{room}")


LOG: Final = "_delta_log"
"""The folder of Delta's log."""

NEW: Final = "new-"
"""Begins the name of a folder of files that wait for their commit; `optimize` removes them."""

FILE_BYTES: Final = 128 << 20
"""Target size of a file: a year has some thousand files, and a task reads one."""

RETENTION_HOURS: Final = 168
"""How long files without a version are kept, for readers and writers that began before: seven days,
Delta's own default.
"""

CODED: Final = pa.dictionary(pa.int32(), pa.string())
"""The type of a text column that is read as a dictionary."""


class Layout(NamedTuple):
    """Name, stored in the table, columns, their ``comment`` as metadata, and partitions."""

    name: str
    schema: pa.Schema
    partition_by: tuple[str, ...] = ()


class File(NamedTuple):
    """A file of a table; ``lsns``: smallest and largest of that column, if known."""

    path: str
    size: int
    rows: int
    partition: Mapping[str, Any]
    lsns: tuple[int, int] | None


class Optimized(NamedTuple):
    """Files that were merged into ``made``, and files removed that no version needed."""

    merged: int
    made: int
    removed: int


def holds_table(place: str) -> bool:
    """Return True if there is a Delta table; raise TableError if there is plain Parquet."""
    location = Location.of(place)
    if location.is_local and not os.path.isdir(location.path):
        return False
    names = location.names()
    if LOG not in names and "_SUCCESS" in names:
        what = "only Delta tables are supported; make this one again in a new directory"
        raise TableError("TABLE_FORMAT", f"{location}: it is plain Parquet: {what}")
    return LOG in names


def open_stored(place: str, layout: Layout | None = None) -> "StoredTable":
    """Open a table, to write it if there is a layout; raise TableError if it is not ours."""
    location = Location.of(place)
    if not holds_table(place):
        location.refuse_hopeless("TABLE_NOT_FOUND" if layout is None else "TABLE_UNWRITABLE")
    try:
        # Imported here: machines that only run tasks need not have it.
        import deltalake  # noqa: F401
    except ModuleNotFoundError as problem:
        what = f"Delta tables need {problem.name}: {sys.executable} -m pip install deltalake"
        raise TableError("NO_PACKAGE", f"{location}: {what}") from None
    return StoredTable(location, layout)


class StoredTable:
    """A table at one version."""

    def __init__(self, location: Location, layout: Layout | None = None) -> None:
        """:raise TableError: see `open_stored`."""
        if wrong := sorted(set("%[]\\") & set(str(location))):
            what = f"deltalake cannot use a path with a {wrong[0]} in it; name another"
            raise TableError("TABLE_OPTION", f"{location}: {what}")
        self.location = location
        self._layout = layout
        self._table = self._opened()
        if layout is None and self._table is None:
            raise TableError("TABLE_NOT_FOUND", f"{location}: there is no table")
        if layout is not None:
            self._refuse_others(layout)

    def _opened(self) -> "DeltaTable | None":
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        options = self.location.storage_options()
        try:
            return DeltaTable(self.location.delta_url, storage_options=options)
        except TableNotFoundError:
            return None
        except (OSError, DeltaError) as problem:
            raise TableError("TABLE_FORMAT", f"{self.location}: its log cannot be read: "
                             f"{_line(problem)}") from None  # fmt: skip

    def _refuse_others(self, layout: Layout) -> None:
        where, new = self.location, "name a new directory"
        if self._table is None:
            start = f"{layout.partition_by[0]}=" if layout.partition_by else "part-"
            # A run that was killed before its first commit leaves such a folder or file.
            if not all(name.startswith((start, NEW)) for name in set(where.names()) - {LOG}):
                raise TableError("TABLE_EXISTS", f"{where}: it is not empty, and no {layout.name} "
                                 f"table; {new}")  # fmt: skip
            return
        found = self._table.metadata()
        if found.name != layout.name:
            what = f"it is a table {found.name or 'of others'}, not {layout.name}"
            raise TableError("TABLE_EXISTS", f"{where}: {what}; {new}")
        if tuple(found.partition_columns) != layout.partition_by:
            there, ours = (", ".join(each) or "nothing"
                           for each in (found.partition_columns, layout.partition_by))  # fmt: skip
            raise TableError("TABLE_EXISTS", f"{where}: its folders are by {there}, not by {ours}; "
                             f"{new}")  # fmt: skip
        types = {field.name: field.type for field in self.schema()}
        for field in layout.schema:
            if types.get(field.name, field.type) != field.type:
                raise TableError("TABLE_COLUMN", f"{where}: column {field.name} is "
                                 f"{types[field.name]} there, not {field.type}; write a new table"
                                 )  # fmt: skip

    @property
    def version(self) -> int | None:
        """Grows with each commit; None: there is no table yet."""
        return None if self._table is None else self._table.version()

    @property
    def name(self) -> str | None:
        """The name of the layout with which it was made."""
        return None if self._table is None else self._table.metadata().name

    def schema(self) -> pa.Schema:
        if self._table is None:
            assert self._layout is not None
            return self._layout.schema
        return pa.schema(self._table.schema().to_arrow())

    def progress(self, names: Iterable[str]) -> dict[str, int]:
        """The numbers that commits have noted for these names, as far as there are any."""
        if self._table is None:
            return {}
        found = {name: self._table.transaction_version(name) for name in names}
        return {name: number for name, number in found.items() if number is not None}

    def files(self) -> list[File]:
        """The files of this version."""
        if self._table is None:
            return []
        by = self._table.metadata().partition_columns
        rows = pa.table(self._table.get_add_actions(flatten=True))
        names = {"path", "size_bytes", "num_records", "min.lsn", "max.lsn",
                 *(f"partition.{name}" for name in by)}  # fmt: skip
        return [
            File(unquote(row["path"]), row["size_bytes"], row["num_records"] or 0,
                 {name: row[f"partition.{name}"] for name in by},
                 None if row.get("max.lsn") is None else (row["min.lsn"], row["max.lsn"]))
            for row in rows.select([each for each in rows.column_names if each in names])
            .to_pylist()
        ]  # fmt: skip

    def dataset(self) -> ds.Dataset:
        """This version, to be read without Spark."""
        return dataset_of(self.location, self.schema(), self.files())

    def read(self, where: ds.Expression | None = None, names: Sequence[str] = ()) -> pa.Table:
        """The rows of this version, if there is one; see `Layout`."""
        if not self.files():
            return self.schema().empty_table().select(list(names) or self.schema().names)
        return self.dataset().to_table(filter=where, columns=list(names) or None)

    def write(
        self, rows: pa.Table, replaced: Replaced | None = None,
        progress: Mapping[str, int] | None = None,
    ) -> int:  # fmt: skip
        """Make the next version durably, in one step; this object goes on at it.

        :param replaced: the partitions whose old rows are removed; None: rows are only added.
        :param progress: numbers to note by name.
        :raise TableError: ``TABLE_BUSY``: another process has changed the table meanwhile.
        """
        from deltalake.exceptions import CommitFailedError, DeltaError

        is_new, noted = self._table is None, progress or {}
        try:
            self._commit(self._add_files(rows), replaced, noted)
        except CommitFailedError:
            known, fresh = self.progress(noted), self._opened()
            self._table = fresh
            # Others have merged files, or changed other servers.
            if not noted or self.progress(noted) != known:
                raise _busy(self.location) from None
            return self.write(rows, replaced, progress)
        except (OSError, DeltaError, pa.ArrowException) as problem:
            if is_new and "already exists" in str(problem):
                raise _busy(self.location) from None
            raise _unwritable(self.location, problem) from None
        assert self._table is not None
        self._sync([f"{LOG}/{self._table.version():020}.json"])
        return self._table.version()

    def _add_files(self, rows: pa.Table) -> "list[AddAction]":
        """Put files of these rows into the table's folder, durably.  Only a commit that names a
        file that is there already never loses one to a power loss: so deltalake writes a table of
        its own first, of which the files and their statistics are taken.
        """
        from deltalake import WriterProperties, write_deltalake
        from deltalake.transaction import AddAction

        assert self._layout is not None
        root = Path(self.location.path) if self.location.is_local else None
        if root is not None:
            root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=NEW, dir=root) as folder:
            write_deltalake(
                folder, rows, partition_by=list(self._layout.partition_by) or None,
                target_file_size=FILE_BYTES, writer_properties=WriterProperties(compression="ZSTD"),
            )  # fmt: skip
            lines = (Path(folder) / LOG / f"{0:020}.json").read_text("utf-8").splitlines()
            told = [action["add"] for action in map(json.loads, lines) if "add" in action]
            added = [
                AddAction(unquote(each["path"]), each["size"], each["partitionValues"],
                          each["modificationTime"], True, each["stats"]) for each in told
            ]  # fmt: skip
            for each in added:
                self._place(Path(folder) / each.path, each.path)
        self._sync([each.path for each in added])
        return added

    def _place(self, file: Path, path: str) -> None:
        if self.location.is_local:
            place = Path(self.location.path) / path
            place.parent.mkdir(parents=True, exist_ok=True)
            file.replace(place)
            return
        system, root = self.location.system()
        with system.open_output_stream(f"{root}/{path}") as stream:
            stream.write(file.read_bytes())

    def _commit(
        self, added: "list[AddAction]", replaced: Replaced | None, progress: Mapping[str, int]
    ) -> None:
        from deltalake import CommitProperties, Schema, Transaction
        from deltalake.transaction import RemoveAction, create_table_with_add_actions

        layout = self._layout
        assert layout is not None
        noted = [Transaction(name, number) for name, number in progress.items()]
        properties = CommitProperties(max_commit_retries=0, app_transactions=noted)
        partition_by = list(layout.partition_by)
        if self._table is None:
            create_table_with_add_actions(
                self.location.delta_url, Schema.from_arrow(layout.schema), added, "error",
                partition_by, layout.name, storage_options=self.location.storage_options(),
                commit_properties=properties,
            )  # fmt: skip
            self._table = self._opened()
            return
        known = self.schema().names
        if more := [field for field in layout.schema if field.name not in known]:
            self._table.alter.add_columns(list(Schema.from_arrow(pa.schema(more)).fields))
        now_ms = time.time_ns() // 10**6
        removed = [RemoveAction(file.path, True, now_ms, file.size) for file in self.files()
                   if replaced is not None and replaced(file.partition)]  # fmt: skip
        self._table.create_write_transaction(
            [*added, *removed], "append", layout.schema, partition_by, commit_properties=properties
        )
        self._table.update_incremental()

    def _sync(self, paths: Iterable[str]) -> None:
        """Let files of a local table, and the folders above them, survive a power loss."""
        if not self.location.is_local:
            return
        root = Path(self.location.path)
        files = [root / path for path in paths]
        folders = {parent for file in files for parent in file.parents
                   if parent == root.parent or parent.is_relative_to(root)}  # fmt: skip
        with self.location.writing():
            for path in (*files, *sorted(folders, reverse=True)):
                _sync(path)

    def optimize(self, retention_hours: float = RETENTION_HOURS) -> Optimized:
        """Merge small files, and remove those that no version has needed for so many hours."""
        from deltalake import WriterProperties
        from deltalake.exceptions import CommitFailedError, DeltaError

        table = self._opened()
        if table is None:
            raise TableError("TABLE_NOT_FOUND", f"{self.location}: the table has been deleted")
        try:
            done = table.optimize.compact(
                target_size=FILE_BYTES, writer_properties=WriterProperties(compression="ZSTD")
            )
            gone = table.vacuum(
                math.ceil(retention_hours), dry_run=False, enforce_retention_duration=False,
                full=True,
            )  # fmt: skip
        except CommitFailedError:
            raise _busy(self.location) from None
        except (OSError, DeltaError) as problem:
            raise _unwritable(self.location, problem) from None
        self._table = table
        return Optimized(done["numFilesRemoved"], done["numFilesAdded"], len(gone))


def dataset_of(
    location: Location, schema: pa.Schema, files: Sequence[File], is_coded: bool = False
) -> ds.Dataset:
    """Return files with their partitions' columns; ``is_coded``: text as dictionaries."""
    system, root = location.system()
    form = ds.ParquetFileFormat()
    if is_coded:
        texts = {field.name for field in schema if field.type == pa.string()}
        form = ds.ParquetFileFormat(dictionary_columns=texts)
        schema = pa.schema([field.with_type(CODED) if field.name in texts else field
                            for field in schema])  # fmt: skip
    return ds.FileSystemDataset.from_paths(
        [f"{root}/{file.path}" for file in files], schema=schema, format=form, filesystem=system,
        partitions=[_expression(file, schema) for file in files],
    )  # fmt: skip


def _expression(file: File, schema: pa.Schema) -> ds.Expression:
    found = ds.scalar(True)
    for name, value in file.partition.items():
        field, kind = ds.field(name), schema.field(name).type
        found &= field.is_null() if value is None else field == pa.scalar(value).cast(kind)
    return found


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _line(problem: object) -> str:
    return re.sub(r"\x1b\[\d*m", "", " ".join(str(problem).split()))


def _busy(location: Location) -> TableError:
    return TableError("TABLE_BUSY", f"{location}: another run has changed this table meanwhile; "
                      "nothing was written; run it again")  # fmt: skip
