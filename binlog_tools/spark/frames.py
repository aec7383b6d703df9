"""Stored tables as DataFrames, and as rows for tasks.

Works in classic sessions and Connect, sets nothing, and needs no jar: Spark cannot open object
storage as it comes from PyPI, so tasks read with pyarrow.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from binlog_tools.spark.definitions.packing import packed
from binlog_tools.spark.storing.locations import Location
from binlog_tools.spark.storing.tables import (
    FILE_BYTES,
    File,
    StoredTable,
    batches_of,
    dataset_of,
)
from binlog_tools.spark.tasks import Rows, each_in_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_frame(
    spark: "SparkSession", table: StoredTable, columns: Iterable[str] | None = None
) -> "DataFrame":
    """Return a version of a table; later commits do not change it, as long as its files are kept.

    :param columns: the columns wanted, None: all.  Of object storage no others are fetched.
    """
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructType

    schema = table.schema()
    names = list(columns) if columns is not None else schema.names
    struct = from_arrow_schema(schema)
    for field in schema:
        if field.metadata and b"comment" in field.metadata:
            struct[field.name].metadata["comment"] = field.metadata[b"comment"].decode()
    tasks = packed(table.files(), lambda file: file.size, FILE_BYTES)
    reading = partial(_read, table.location, schema, False, names=names)
    return each_in_task(spark, tasks, reading, StructType([struct[name] for name in names]))


def rows_of(
    table: StoredTable, files: Iterable[File] | None = None, schema: pa.Schema | None = None
) -> Rows:
    """Return the rows of a version for tasks to read; text columns are dictionaries.

    :param schema: columns instead of the table's own, null in files that lack them.
    """
    schema = schema if schema is not None else table.schema()
    wanted = table.files() if files is None else files
    parts = packed(wanted, lambda file: file.size, FILE_BYTES)
    return Rows(parts, schema, partial(_read, table.location, schema, True))


def _read(
    location: Location, schema: pa.Schema, is_coded: bool, files: Sequence[File],
    names: Sequence[str],
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    return batches_of(dataset_of(location, schema, files, is_coded), names)
