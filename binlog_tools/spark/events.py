"""The events table: the log as Parquet.  Each commit notes the last LSN of each store, so a run may
be killed, repeated, and started twice.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition

from binlog_tools.spark.definitions.columns import BY_NAME, Column, arrow_schema, commented
from binlog_tools.spark.errors import TableError
from binlog_tools.spark.reading.options import Asked
from binlog_tools.spark.reading.planning import (
    Share,
    Task,
    Trouble,
    increment,
    last_lsn,
    mark_names,
    mark_of,
    marks_of,
    refuse_other_histories,
    store_of,
    tasks_of,
)
from binlog_tools.spark.source import BinlogReader
from binlog_tools.spark.storing import File, Layout, StoredTable, open_stored
from binlog_tools.spark.tasks import Rows, rows_of

NAME: Final = "events"
"""What the table is called in its log."""

DATE: Final = Column("date", "date", "the day of `logged`, UTC; null where that is null")

PARTITION_BY: Final = ("server", DATE.name)

TASK_BYTES: Final = 256 << 20
"""Bytes of logs that a commit takes, which memory holds meanwhile."""

_WHOLE: Final = 1 << 62
"""No segment is cut: a commit says how far it comes by the segments that it has."""


class Written(NamedTuple):
    """What a run has written; ``problems``: rows of damage, ``version``: None: there is none."""

    segments: int
    rows: int
    problems: int
    version: int | None


def write_events(asked: Asked, place: str) -> Written:
    """Bring the table up to date with the logs, in commits of some `TASK_BYTES` of them.

    :raise SourceError: a log cannot be read, lacks what comes next, or is of another history.
    """
    if asked.conditions:
        raise TableError("TABLE_OPTION", "an events table has all records; leave the bounds away")
    table = open_stored(place, _layout(asked.names))
    names = tuple(name for name in BY_NAME if name in {*asked.names, *table.schema().names})
    # Starts and ordered stops too: they say when a job was interrupted.
    asked = asked._replace(columns=names, records="history", partition_bytes=_WHOLE)
    table = open_stored(place, _layout(names))
    partitions = BinlogReader(asked, asked.names).partitions()
    items = [item for partition in partitions for item in partition.value or ()]
    stores = {store_of(item): item.place.server for item in items if item.place is not None}
    told = table.progress(_names(items, stores))
    _refuse_renamed(table, stores, told)
    refuse_other_histories(items, told)
    news = list(increment(items, told, asked.damage == "skip"))
    done = problems = 0
    tasks = tasks_of(news, TASK_BYTES)
    for task in tasks or [()]:
        rows = _rows(asked, task, _layout(names).schema)
        reached = _reached(task, stores, rows)
        progress = {**reached, **marks_of(task)}
        if rows.num_rows or not progress.items() <= told.items():
            table.write(rows, None, progress)
        done += rows.num_rows
        problems += rows.num_rows - rows["problem"].null_count
    segments = {
        (store_of(item), item.place.header.seq) for item in news if isinstance(item, Share)
    }  # fmt: skip
    return Written(len(segments), done, problems, table.version)


def _layout(names: Iterable[str]) -> Layout:
    schema = commented((*names, DATE.name), {**BY_NAME, DATE.name: DATE})
    return Layout(NAME, schema, PARTITION_BY)


def _names(items: Iterable[Share | Trouble], stores: Mapping[str, str]) -> set[str]:
    """Of all progress that counts for these logs."""
    own = {_named(*each) for each in stores.items()}
    marks = {name for store in stores for name in mark_names(store)}
    return {*map(store_of, items), *own, *marks}


def _named(store: str, server: str) -> str:
    """The progress that says which name a store has in a table."""
    return f"{store}/{server}"


def _refuse_renamed(table: StoredTable, stores: Mapping[str, str], told: Mapping[str, int]) -> None:
    """Raise TableError if the table has one of these stores, or another one, under another name."""
    servers = {file.partition["server"] for file in table.files()} if stores else set()
    for store, server in stores.items():
        if store in told and _named(store, server) not in told:
            what = f"store {store} is not called {server!r} in this table"
        elif store not in told and server in servers:
            what = f"another store than {store} is called {server!r} in this table"
        else:
            continue
        raise TableError("TABLE_OPTION", f"{table.location}: {what}; give --servers as when it was "
                         "first written, or write a new table")  # fmt: skip


def _rows(asked: Asked, task: Task, schema: pa.Schema) -> pa.Table:
    found = BinlogReader(asked, asked.names).read(InputPartition(task))
    rows = pa.Table.from_batches(found, arrow_schema(asked.names))
    return rows.append_column(DATE.name, rows["logged"].cast(pa.date32())).cast(schema)


def _reached(task: Task, stores: Mapping[str, str], rows: pa.Table) -> dict[str, int]:
    """How far the table comes with these."""
    reached: dict[str, int] = {}
    for item in task:
        store, last = store_of(item), last_lsn(item)
        if item.place is None:
            assert isinstance(item, Trouble)
            reached[store] = mark_of(item)
            continue
        if last is None:
            last = _highest(rows, stores[store])
        above = item.lsns.low - 1 if isinstance(item, Share) else -1
        reached[store] = max(last, above, reached.get(store, -1))
        reached[_named(store, stores[store])] = reached[store]
    return reached


def _highest(rows: pa.Table, server: str) -> int:
    found = pc.max(rows.filter(pc.equal(rows["server"], server))["lsn"]).as_py()
    return -1 if found is None else int(found)


def event_rows(paths: Iterable[str], above: Mapping[str, int] | None = None) -> Rows:
    """Return rows of events tables for tasks, without files whose LSNs are not above these."""
    tables = [open_stored(path) for path in paths]
    own = [table.schema() for table in tables]
    first = {field.name: field for schema in reversed(own) for field in schema}
    schema = pa.schema([first[name] for name in BY_NAME if name in first])
    found = []
    for table, there in zip(tables, own, strict=True):
        missing = [field for field in schema if field.name not in there.names]
        files = [file for file in table.files() if _is_above(file, above or {})]
        found.append(rows_of(table, files, pa.schema([*there, *missing])))
    parts = [(rows.read, part) for rows in found for part in rows.parts]
    return Rows(parts, schema, _read_part)


def _read_part(part: tuple[Any, Any], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    read, files = part
    rows: Iterator[pa.RecordBatch] = read(files, names)
    return rows


def log_rows(asked: Asked, above: Mapping[str, int] | None = None) -> Rows:
    """Return the rows of logs, planned now, without segments whose LSNs are not above these."""
    partitions = BinlogReader(asked, asked.names).partitions()
    wanted = [tuple(_later(partition.value or (), above or {})) for partition in partitions]
    parts = [part for part in wanted if part]
    return Rows(parts, arrow_schema(asked.names), partial(_read_log, asked))


def _later(items: Iterable[Share | Trouble], above: Mapping[str, int]) -> Iterator[Share | Trouble]:
    for item in items:
        last = above.get(item.place.server) if item.place is not None else None
        if (
            last is None
            or isinstance(item, Trouble)
            or item.next_lsn is None
            or item.next_lsn - 1 > last
        ):
            yield item


def _read_log(asked: Asked, part: Any, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    return BinlogReader(asked, tuple(names)).read(InputPartition(part))


def _is_above(file: File, above: Mapping[str, int]) -> bool:
    """Whether a file may have events behind these LSNs."""
    last = above.get(str(file.partition["server"]))
    return last is None or file.lsns is None or file.lsns[1] > last
