"""Rows as Parquet files of a table, by partition.  A file counts when a commit has named it.

Files have new names each time, so whatever is written twice, by a task that Spark repeats or by a
run that was killed, disturbs nobody; `delta.DeltaStored.optimize` removes what no commit has named.
"""

import json
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import IO, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from binlog_tools.spark.definitions.errors import TableError
from binlog_tools.spark.storing.locations import Files, Location

FILE_BYTES: Final = 128 << 20
"""Bytes of a file, about: large enough that a year is some thousand files, small enough for a
task."""

GROUP_ROWS: Final = 131_072
"""Rows of a row group at most: what a reader skips by its statistics, or reads at once."""

HELD_BYTES: Final = 64 << 20
"""Bytes of rows that wait for the end of their row groups, in one task: bounds its memory."""

NUMBERS: Final = "DELTA_BINARY_PACKED"
"""How Parquet holds whole numbers and times: as differences.  Half of the processor time of plain
ones behind zstd, to write and to read, and files a seventh smaller; of the encodings that are as
cheap the one that all readers of the last years know."""

OPEN_FILES: Final = 32
"""Files that a task writes at once at most; rows by server and day have few."""

STATISTICS_CHARS: Final = 64
"""The longest text that is told as the smallest or largest of a file: the log stays small."""

NULL: Final = "__HIVE_DEFAULT_PARTITION__"
"""The folder of null, as Hive and Spark name it."""

Partition = tuple[tuple[str, str | None], ...]
"""The columns of a partition and its values, as text; None is null."""

CODED: Final = pa.dictionary(pa.int32(), pa.string())
"""The type of a column of text as a dictionary."""

FILE_SCHEMA: Final = pa.schema(
    [
        ("path", pa.string()),
        ("size", pa.int64()),
        ("rows", pa.int64()),
        ("partition", pa.string()),
        ("statistics", pa.string()),
    ]
)
"""How tasks hand back their files; `as_batch`, `files_of`."""

FILE_DDL: Final = "path string, size long, rows long, partition string, statistics string"
"""The same for Spark."""


class Layout(NamedTuple):
    """What a table is.

    :ivar name: says who made it: a table of another name is not written to.
    :ivar schema: its columns with those of its partitions, all nullable; the metadata ``comment``
        of a field is its comment.
    :ivar partition_by: the columns that its folders say.
    """

    name: str
    schema: pa.Schema
    partition_by: tuple[str, ...] = ()


class File(NamedTuple):
    """A file of a table.

    :ivar path: in the table.
    :ivar size: bytes.
    :ivar partition: what its folder says, and its contents do not.
    :ivar statistics: smallest and largest values and numbers of nulls by column, as Delta's
        protocol has them in JSON; empty: not known.
    """

    path: str
    size: int
    rows: int
    partition: Partition = ()
    statistics: Mapping[str, Any] = {}

    def spans(self, column: str) -> tuple[Any, Any] | None:
        """:return: the smallest and the largest value of a column as the statistics have them, None
        if they do not tell.
        """
        low = self.statistics.get("minValues", {}).get(column)
        high = self.statistics.get("maxValues", {}).get(column)
        return None if low is None or high is None else (low, high)

    def nulls(self, column: str) -> int:
        """How many rows have no value of a column; all if the statistics do not tell."""
        found: int = self.statistics.get("nullCount", {}).get(column, self.rows)
        return found

    def tells_of(self, column: str) -> bool:
        """Whether the statistics tell of a column, if only that it has no value."""
        return column in self.statistics.get("nullCount", {})

    def is_in(self, values: Mapping[str, str | None]) -> bool:
        """Whether its partition has these values."""
        own = dict(self.partition)
        return all(own[name] == value for name, value in values.items())


def as_batch(files: Iterable[File]) -> pa.RecordBatch:
    """Files as rows of `FILE_SCHEMA`."""
    rows = [{**file._asdict(), "partition": json.dumps(file.partition),
             "statistics": json.dumps(file.statistics)} for file in files]  # fmt: skip
    return pa.RecordBatch.from_pylist(rows, schema=FILE_SCHEMA)


def files_of(table: pa.Table) -> list[File]:
    """The inverse of `as_batch`."""
    return [
        File(**{**row, "partition": tuple(map(tuple, json.loads(row["partition"]))),
                "statistics": json.loads(row["statistics"])})
        for row in table.to_pylist()
    ]  # fmt: skip


def write_files(
    files: Files, batches: Iterable[pa.RecordBatch], layout: Layout, file_bytes: int = FILE_BYTES
) -> Iterator[File]:
    """Write rows as files, each durable when it is given.

    :param batches: with the columns of the layout, in any order, and of types that become its types
        without loss; others are left out.
    :param file_bytes: a file with so many, or more, is followed by another one.
    :raise OSError: the files cannot be written; those that were not given are removed, as far as
        that is possible.
    :raise TableError: a column is missing.
    """
    writing = _Writing(files, layout.partition_by, file_bytes)
    try:
        for batch in batches:
            yield from writing.take(_conforming(batch, layout.schema))
        yield from writing.finish()
    except BaseException:
        writing.drop()
        raise


def stored_files(
    location: Location, batches: Iterable[pa.RecordBatch], layout: Layout
) -> list[File]:
    """`write_files`, to the end.

    :raise TableError: also in the place of an OSError.
    """
    with location.writing():
        return list(write_files(location.files(), batches, layout))


def _conforming(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    missing = set(schema.names) - set(batch.schema.names)
    if missing:
        names = ", ".join(sorted(missing))
        raise TableError("TABLE_COLUMN", f"rows without the columns {names} cannot be stored")
    batch = batch.select(schema.names)
    own = [ours.with_type(there.type) if is_text(there.type) and is_text(ours.type) else ours
           for ours, there in zip(schema, batch.schema, strict=True)]  # fmt: skip
    return batch.cast(pa.schema(own))


def is_text(kind: pa.DataType) -> bool:
    """Whether values are text, plain or as a dictionary.  Of others dictionaries cost more than
    they save.
    """
    return kind in (pa.string(), CODED)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_timestamp(kind))


class _Writing:
    """The files of one task that are being written, by partition."""

    def __init__(self, files: Files, partition_by: tuple[str, ...], file_bytes: int) -> None:
        self._files = files
        self._partition_by = partition_by
        self._file_bytes = file_bytes
        self._open: dict[Partition, _Open] = {}

    def take(self, batch: pa.RecordBatch) -> Iterator[File]:
        for partition, rows in _by_partition(batch, self._partition_by):
            if partition not in self._open and len(self._open) == OPEN_FILES:
                yield self._close(next(iter(self._open)))
            writer = self._open.pop(partition, None) or _Open(self._files, partition)
            self._open[partition] = writer  # The least recently used is the first.
            writer.take(rows)
            if writer.size >= self._file_bytes:
                yield self._close(partition)
        if sum(each.held_bytes for each in self._open.values()) > HELD_BYTES:
            max(self._open.values(), key=lambda each: each.held_bytes).flush()

    def finish(self) -> Iterator[File]:
        while self._open:
            yield self._close(next(iter(self._open)))

    def _close(self, partition: Partition) -> File:
        file = self._open[partition].close()
        del self._open[partition]
        return file

    def drop(self) -> None:
        for each in self._open.values():
            each.drop()


class _Open:
    """A file that is being written."""

    def __init__(self, files: Files, partition: Partition) -> None:
        self._files = files
        self._partition = partition
        folder = "".join(f"{folder_of(name, value)}/" for name, value in partition)
        self._name = f"{folder}part-{uuid.uuid4().hex}.zstd.parquet"
        self._held: list[pa.RecordBatch] = []
        self._held_rows = 0
        self.held_bytes = 0
        self._written: list[Any] = []
        self._stream: IO[bytes] | None = None
        self._writer: pq.ParquetWriter | None = None

    @property
    def size(self) -> int:
        return self._stream.tell() if self._stream is not None else 0

    def take(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        self._held_rows += batch.num_rows
        self.held_bytes += batch.nbytes
        if self._held_rows >= GROUP_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write what is held as a row group."""
        if not self._held:
            return
        table = pa.Table.from_batches(self._held)
        self._held, self._held_rows, self.held_bytes = [], 0, 0
        if self._writer is None:
            self._stream = self._files.create(self._name)
            self._writer = pq.ParquetWriter(
                self._stream, table.schema, compression="zstd", metadata_collector=self._written,
                use_dictionary=[field.name for field in table.schema if is_text(field.type)],
                column_encoding={field.name: NUMBERS for field in table.schema
                                 if _is_number(field.type)},
                store_schema=False,
            )  # fmt: skip
        self._writer.write_table(table, row_group_size=GROUP_ROWS)

    def close(self) -> File:
        self.flush()
        assert self._writer is not None and self._stream is not None
        self._writer.close()
        size = self._stream.tell()
        self._stream.close()
        self._files.sync(self._name)
        footer = self._written[0]
        return File(self._name, size, footer.num_rows, self._partition, _statistics(footer))

    def drop(self) -> None:
        """Leave nothing behind, if that is possible; else `optimize` removes it."""
        if self._stream is None:
            return
        try:
            self._stream.close()
            self._files.remove(self._name)
        except OSError:
            pass


_ESCAPED: Final = re.compile(r"[^A-Za-z0-9_.~\-\x80-\U0010ffff]")
"""What Spark and Hive take for what it is in a folder's name only if it is escaped, and more.  They
unescape bytes, not UTF-8: other characters than those of ASCII stay."""


def folder_of(name: str, value: str | None) -> str:
    """The folder of a partition, as Hive names it."""
    escaped = _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", value or "")
    return f"{name}={NULL if value is None else escaped}"


def _by_partition(
    batch: pa.RecordBatch, names: tuple[str, ...]
) -> Iterator[tuple[Partition, pa.RecordBatch]]:
    """The rows of each partition in their order, without its columns; a partition may come
    again.
    """
    if not batch.num_rows:
        return
    rest = batch.drop_columns(list(names)) if names else batch
    codes = np.zeros(batch.num_rows, np.int64)
    for name in names:
        found = batch.column(name).dictionary_encode()
        codes = codes * (len(found.dictionary) + 1) + found.indices.fill_null(-1).to_numpy() + 1
    heads = np.flatnonzero(np.diff(codes, prepend=-1))
    if len(heads) > OPEN_FILES:  # Putting rows in order copies them all.
        order = np.argsort(codes, kind="stable")
        batch, rest, codes = (each.take(pa.array(order)) for each in (batch, rest, pa.array(codes)))
        heads = np.flatnonzero(np.diff(codes.to_numpy(), prepend=-1))
    for start, end in zip(heads.tolist(), [*heads[1:].tolist(), len(codes)], strict=True):
        partition = tuple((name, text_of(batch.column(name)[start].as_py())) for name in names)
        yield partition, rest.slice(start, end - start)


def text_of(value: object) -> str | None:
    """A value of a partition's column as the log and folders have it."""
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)


def dated(batch: pa.RecordBatch, by: str) -> pa.RecordBatch:
    """The batch with a column ``date`` behind the others: the day of the times in ``by``, UTC."""
    return batch.append_column("date", pc.cast(batch.column(by), pa.date32(), safe=False))


def _statistics(footer: Any) -> dict[str, Any]:
    """What a Parquet file's footer says of its columns, as Delta's protocol has it."""
    lows: dict[str, Any] = {}
    highs: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    groups = [footer.row_group(group) for group in range(footer.num_row_groups)]
    for at in range(footer.num_columns):
        found = [group.column(at) for group in groups]
        name = found[0].path_in_schema
        if "." in name:
            continue
        told = [each.statistics for each in found]
        if any(each is None or not each.has_null_count for each in told):
            continue
        nulls[name] = sum(each.null_count for each in told)
        filled = [each for each in told if each.num_values]
        if filled and all(each.has_min_max for each in filled):
            low = _told(min([each.min for each in filled]), is_high=False)
            high = _told(max([each.max for each in filled]), is_high=True)
            if low is not None and high is not None:
                lows[name], highs[name] = low, high
    return {
        "numRecords": footer.num_rows, "minValues": lows, "maxValues": highs, "nullCount": nulls,
    }  # fmt: skip


def json_of(value: Any) -> Any:
    """A value of a column in JSON.  Times have milliseconds, as Spark's Delta writes them."""
    if isinstance(value, datetime):
        value = value.astimezone(UTC) if value.tzinfo else value
        return f"{value:%Y-%m-%dT%H:%M:%S}.{value.microsecond // 1000:03d}Z"
    return value if isinstance(value, (int, float, str)) else str(value)


def _told(value: Any, is_high: bool) -> Any:
    """A smallest or largest value, None if it is left out.  The largest time is rounded up."""
    if isinstance(value, datetime):
        return json_of(value + timedelta(microseconds=-value.microsecond % 1000 * is_high))
    if isinstance(value, str):
        return value if len(value) <= STATISTICS_CHARS else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None
