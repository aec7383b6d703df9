"""A table as it is stored: read at one version, changed by one commit at a time.

In a task, wherever it runs:

    files = write_files(table.location.files(), batches, layout)

In the driver, once, with the files of all tasks:

    table = open_stored("s3://bucket/lifetimes", LIFETIMES)
    before = table.progress(["5cf5f8…"])
    …
    table.commit(Change(files, replaced=({"settled": "false"},), progress={"5cf5f8…": 4711}))

Each commit is one step: all of it is seen, or nothing.  A process that is killed leaves the table
as it was, and at most files that no commit has named.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds

from binlog_tools.spark.storing.files import CODED, File
from binlog_tools.spark.storing.locations import Location

LOG: Final = "_delta_log"
"""The folder of Delta's log."""

RETENTION_HOURS: Final = 168
"""Hours that files are kept after a version without them was committed: seven days, Delta's own
default, for readers that began before, and for writers that have not committed yet."""


class Change(NamedTuple):
    """What makes the next version of a table.

    :ivar added: files that have been written.
    :ivar replaced: partitions that the table had when it was opened, by values of one or more of
        their columns; all files of these are removed.  ``({},)`` are all files.
    :ivar progress: how far somebody has come: a name (of a store, of a stream) to a number.
    """

    added: tuple[File, ...] = ()
    replaced: tuple[Mapping[str, str | None], ...] = ()
    progress: Mapping[str, int] = {}

    def removes(self, file: File) -> bool:
        return any(file.is_in(values) for values in self.replaced)


class Optimized(NamedTuple):
    """What `DeltaStored.optimize` has done.

    :ivar merged: files that were put together into ``made``.
    :ivar removed: files that no version needed.
    """

    merged: int
    made: int
    removed: int


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def dataset_of(
    location: Location, schema: pa.Schema, files: Sequence[File], is_coded: bool = False
) -> ds.Dataset:
    """Some files of a table as a dataset of Arrow, with the columns that its partitions say.

    :param schema: of the table; columns that a file has not are null.
    :param is_coded: columns of text are to be dictionaries.
    """
    door = location.files()
    partitions = [_expression(file, schema) for file in files]
    form = ds.ParquetFileFormat()
    if is_coded:
        texts = [field.name for field in schema if field.type == pa.string()]
        form = ds.ParquetFileFormat(dictionary_columns=set(texts))
        schema = pa.schema([field.with_type(CODED) if field.name in texts else field
                            for field in schema])  # fmt: skip
    return ds.FileSystemDataset.from_paths(
        [door.path(file.path) for file in files], schema=schema, format=form,
        filesystem=door.system, partitions=partitions,
    )  # fmt: skip


def batches_of(dataset: ds.Dataset, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """In one thread, and with few of them in memory: what a task may take."""
    batches: Iterator[pa.RecordBatch] = dataset.to_batches(
        columns=list(names), use_threads=False, batch_readahead=1, fragment_readahead=0
    )
    return batches


def _expression(file: File, schema: pa.Schema) -> Any:
    found = ds.scalar(True)
    for name, value in file.partition:
        kind = schema.field(name).type
        field = ds.field(name)
        found = found & (field.is_null() if value is None else field == pa.scalar(value).cast(kind))
    return found
