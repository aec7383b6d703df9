"""Functions of ours in the tasks of a session, and stored tables that tasks read.

Works in classic sessions and Connect, sets nothing, and needs no SparkContext and no jar.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import pyarrow as pa

from binlog_tools.spark.reading.planning import packed
from binlog_tools.spark.storing import FILE_BYTES, File, Location, StoredTable, dataset_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")

_DDL: Final = "result binary"


class Rows(NamedTuple):
    """Rows that tasks read by themselves: Spark's own way of rows to Python costs ten times as
    much.

    :ivar parts: what each task reads; they are pickled.
    :ivar schema: of all columns.
    :ivar read: gives the rows of a part in batches, of the columns named; columns of text may be
        dictionaries.
    """

    parts: Sequence[Any]
    schema: pa.Schema
    read: Callable[[Any, Sequence[str]], Iterator[pa.RecordBatch]]


@contextmanager
def kept_memory() -> Iterator[None]:
    """Let Arrow keep memory, as C does, for the next column: by default it gives it back at once,
    and takes a third of the processor time of tables.
    """
    before = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(before)


def each_in_task(
    spark: "SparkSession", items: Sequence[Item],
    work: Callable[[Item], Iterator[pa.RecordBatch]], schema: Any,
) -> "DataFrame":  # fmt: skip
    """Return the rows that come of each item, in a task of its own; it may run again."""

    def run(batches: Iterable[Any]) -> Iterator[pa.RecordBatch]:
        with kept_memory():
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from work(items[number])

    return spark.range(0, len(items), 1, max(1, len(items))).mapInArrow(run, schema)


def in_tasks(
    spark: "SparkSession", items: Sequence[Item], work: Callable[[Item], Result]
) -> list[Result]:
    """Return the results of each item, in a task of its own; it may run again."""
    if not items:
        return []

    def run(item: tuple[int, Item]) -> Iterator[pa.RecordBatch]:
        result = pickle.dumps((item[0], work(item[1])))
        yield pa.RecordBatch.from_arrays([pa.array([result], pa.binary())], ["result"])

    found = each_in_task(spark, list(enumerate(items)), run, _DDL).toArrow()
    # They come from tasks of our own.
    told = (pickle.loads(each) for each in found["result"].to_pylist())  # noqa: S301
    return [result for _, result in sorted(told, key=lambda pair: pair[0])]


def read_frame(
    spark: "SparkSession", table: StoredTable, columns: Iterable[str] | None = None
) -> "DataFrame":
    """Return a version of a table, or columns of it; later commits do not change it."""
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
    """Return rows for tasks to read, text as dictionaries; columns of ``schema`` may be missing."""
    schema = schema if schema is not None else table.schema()
    wanted = table.files() if files is None else files
    parts = packed(wanted, lambda file: file.size, FILE_BYTES)
    return Rows(parts, schema, partial(_read, table.location, schema, True))


def _read(
    location: Location, schema: pa.Schema, is_coded: bool, files: Sequence[File],
    names: Sequence[str],
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    # In one thread, with few batches in memory.
    batches: Iterator[pa.RecordBatch] = dataset_of(location, schema, files, is_coded).to_batches(
        columns=list(names), use_threads=False, batch_readahead=1, fragment_readahead=0
    )
    return batches
