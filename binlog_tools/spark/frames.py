"""Stored tables as DataFrames, and DataFrames as files of stored tables.

Works in classic sessions and Connect, sets nothing, and needs no jar: Spark itself cannot open
object storage as it comes from PyPI, so there the tasks read and write with pyarrow.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from binlog_tools.spark.definitions.packing import packed
from binlog_tools.spark.storing.files import (
    FILE_BYTES,
    FILE_DDL,
    File,
    Layout,
    as_batch,
    files_of,
    folder_of,
    stored_files,
)
from binlog_tools.spark.storing.locations import Location
from binlog_tools.spark.storing.stored import batches_of, dataset_of
from binlog_tools.spark.tasks import Rows, each_in_task

if TYPE_CHECKING:
    from binlog_tools.spark.storing.delta import DeltaStored

Batches = Iterable[pa.RecordBatch]


def write_frame(frame: DataFrame, location: Location, layout: Layout) -> tuple[File, ...]:
    """Write the rows of a DataFrame as files, each of its tasks its own.

    :return: what `DeltaStored.commit` takes.
    """
    found = frame.mapInArrow(_writer(location, layout), FILE_DDL).toArrow()
    return tuple(files_of(found))


def _writer(location: Location, layout: Layout) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def write(batches: Batches) -> Iterator[pa.RecordBatch]:
        yield as_batch(stored_files(location, batches, layout))

    return write


def read_frame(
    spark: SparkSession, table: "DeltaStored", columns: Iterable[str] | None = None,
    files: Sequence[File] | None = None,
) -> DataFrame:  # fmt: skip
    """A version of a table; later commits do not change what it gives, as long as its files are
    kept.

    :param columns: the columns wanted, None: all.  Of object storage no others are fetched.
    :param files: of ``table.files()`` those that are wanted, None: all.
    """
    schema = table.schema()
    names = list(columns) if columns is not None else schema.names
    wanted = list(files) if files is not None else table.files()
    struct = _struct(schema)
    if table.location.is_local and wanted and all(_is_in_folders(file) for file in wanted):
        root = table.location.path
        paths = [_escaped(f"{root}/{file.path}") for file in wanted]
        # Spark alone would take a server named by digits for a number.
        read = spark.read.schema(struct).option("basePath", root)
        return read.parquet(*paths).select(*names)
    tasks = packed(wanted, lambda file: file.size, FILE_BYTES)
    reading = partial(_read, table.location, schema, False, names=names)
    return each_in_task(spark, tasks, reading, StructType([struct[name] for name in names]))


def rows_of(
    table: "DeltaStored", files: Iterable[File] | None = None, schema: pa.Schema | None = None
) -> Rows:
    """The same rows for tasks to read; columns of text are dictionaries.

    :param schema: columns in the place of the table's own, null in files that have not got them.
    """
    schema = schema if schema is not None else table.schema()
    wanted = table.files() if files is None else files
    parts = packed(wanted, lambda file: file.size, FILE_BYTES)
    return Rows(parts, schema, partial(_read, table.location, schema, True))


def _struct(schema: pa.Schema) -> StructType:
    """The schema for Spark, with comments."""
    struct = from_arrow_schema(schema)
    for field in schema:
        if field.metadata and b"comment" in field.metadata:
            struct[field.name].metadata["comment"] = field.metadata[b"comment"].decode()
    return struct


def _is_in_folders(file: File) -> bool:
    """Whether the folders say the partition, as ours do; other writers of Delta need not do so."""
    return all(folder_of(name, value) in file.path for name, value in file.partition)


def _escaped(path: str) -> str:
    """A path that Spark does not take for a pattern."""
    return "".join(f"\\{char}" if char in "*?[]{}\\," else char for char in path)


def _read(
    location: Location, schema: pa.Schema, is_coded: bool, files: Sequence[File],
    names: Sequence[str],
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    return batches_of(dataset_of(location, schema, files, is_coded), names)
