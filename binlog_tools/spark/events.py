"""The events table: the log as Parquet, once, for all other pipelines to read.

Each run appends the records above the last LSN that the table has of a store, and says in the same
commit which is the last one now, and by which segments.  So a run may be killed, repeated, and
started twice, and does not take records of another history of the store.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition

from binlog_tools.spark.definitions.columns import (
    BY_NAME,
    Column,
    arrow_schema,
    commented,
)
from binlog_tools.spark.definitions.errors import TableError
from binlog_tools.spark.frames import read_frame, rows_of
from binlog_tools.spark.reading.increments import (
    increment,
    last_lsn,
    mark_names,
    mark_of,
    marks_of,
    refuse_other_histories,
    store_of,
)
from binlog_tools.spark.reading.options import Asked
from binlog_tools.spark.reading.planning import Share, Task, Trouble, tasks_of
from binlog_tools.spark.source import BinlogReader
from binlog_tools.spark.storing.files import File, Layout, dated, stored_files
from binlog_tools.spark.storing.locations import Location
from binlog_tools.spark.storing.opening import holds_table, open_stored
from binlog_tools.spark.storing.stored import Change
from binlog_tools.spark.tasks import Rows

if TYPE_CHECKING:
    from binlog_tools.spark.storing.delta import DeltaStored

NAME: Final = "events"
"""What the table is called in its log."""

DATE: Final = Column("date", "date", "the day of `logged`, UTC; null where that is null")

PARTITION_BY: Final = ("server", DATE.name)

TASK_BYTES: Final = 256 << 20
"""Bytes of logs that a task makes files of: one of about 128 MB, if they are of one day."""

Work = Callable[[Task], list[File]]
Run = Callable[[Sequence[Task], Work], list[list[File]]]
"""Carries out tasks somewhere; gives their results in the order of the tasks."""


class Written(NamedTuple):
    """What a run has written.

    :ivar segments: those that were read.
    :ivar problems: rows that tell of damage, or of a spoilt body.
    :ivar version: of the table; None: there is none, since there was nothing to write.
    """

    segments: int
    rows: int
    problems: int
    version: int | None


def in_process(tasks: Sequence[Task], work: Work) -> list[list[File]]:
    """The tasks one after the other, without Spark."""
    return [work(task) for task in tasks]


def write_events(asked: Asked, place: str, run: Run = in_process, rewrite: bool = False) -> Written:
    """Bring the table up to date with the logs, in one commit.

    :param asked: what is read, without conditions.
    :param place: a path that all executors and this program see, or a URL.
    :param run: who carries out the tasks, `partial(in_tasks, spark)` for Spark.
    :param rewrite: read these stores from the beginning, in the place of all rows they have.
    :raise SourceError: a log cannot be read, lacks what comes next, or is of another history.
    :raise TableError: the place has something else, or others write it, or its servers have other
        names.
    """
    if asked.conditions:
        raise TableError("TABLE_OPTION", "an events table has all records; leave the bounds away")
    table = open_stored(place, _layout(asked.names))
    names = tuple(name for name in BY_NAME if name in {*asked.names, *table.schema().names})
    # Starts and ordered stops too: they say when a job was interrupted.
    asked = asked._replace(columns=names, records="history")
    table = open_stored(place, _layout(names))
    partitions = BinlogReader(asked, asked.names).partitions()
    items = [item for partition in partitions for item in partition.value or ()]
    stores = {store_of(item): item.place.server for item in items if item.place is not None}
    told = table.progress(_names(items, stores))
    _refuse_renamed(table, stores, told)
    replaced = _rewritten(table, stores, items) if rewrite else ()
    known = {} if rewrite else told
    refuse_other_histories(items, known)
    news = list(increment(items, known, asked.damage == "skip"))
    found = run(tasks_of(news, TASK_BYTES), _worker(asked, table.location, _layout(names)))
    files = tuple(file for each in found for file in each)
    progress = {**_reached(news, stores, files), **marks_of(news)}
    if rewrite:
        progress = {**dict.fromkeys(_marked(stores) & told.keys(), 0), **progress}
    if files or replaced or not progress.items() <= told.items():
        table.commit(Change(files, replaced, progress))
    segments = {
        (store_of(item), item.place.header.seq) for item in news if isinstance(item, Share)
    }  # fmt: skip
    rows = sum(file.rows for file in files)
    problems = sum(file.rows - file.nulls("problem") for file in files)
    return Written(len(segments), rows, problems, table.version)


def _layout(names: Iterable[str]) -> Layout:
    schema = commented((*names, DATE.name), {**BY_NAME, DATE.name: DATE})
    return Layout(NAME, schema, PARTITION_BY)


def _marked(stores: Iterable[str]) -> set[str]:
    return {name for store in stores for name in mark_names(store)}


def _names(items: Iterable[Share | Trouble], stores: Mapping[str, str]) -> set[str]:
    """Of all progress that counts for these logs."""
    own = {_named(*each) for each in stores.items()}
    return {*map(store_of, items), *own, *_marked(stores)}


def _named(store: str, server: str) -> str:
    """The progress that says which name a store has in a table."""
    return f"{store}/{server}"


def _refuse_renamed(
    table: "DeltaStored", stores: Mapping[str, str], told: Mapping[str, int]
) -> None:
    """:raise TableError: the table calls one of these stores, or another one, otherwise: its rows
    would be there twice, or be taken for those of the other.
    """
    servers = {dict(file.partition).get("server") for file in table.files()} if stores else set()
    for store, server in stores.items():
        if store in told and _named(store, server) not in told:
            what = f"store {store} is not called {server!r} in this table"
        elif store not in told and server in servers:
            what = f"another store than {store} is called {server!r} in this table"
        else:
            continue
        raise TableError("TABLE_OPTION", f"{table.location}: {what}; give --servers as when it was "
                         "first written, or write a new table")  # fmt: skip


def _rewritten(
    table: "DeltaStored", stores: Mapping[str, str], items: Iterable[Share | Trouble]
) -> tuple[Mapping[str, str | None], ...]:
    """What a table loses that is written anew from these logs.

    :raise TableError: it has older records than they.
    """
    first: dict[str, int] = {}
    for item in items:
        if isinstance(item, Share):
            first.setdefault(item.place.server, item.stretch.first_lsn)
    for file in table.files():
        server, span = dict(file.partition)["server"], file.spans("lsn")
        if server in first and span is not None and span[0] < first[server]:
            raise TableError("TABLE_OPTION", f"{table.location}: it has records of {server} from "
                             f"LSN {span[0]} on, and the logs from {first[server]} on: they would "
                             "be lost; name the archive too")  # fmt: skip
    return *({"server": server} for server in stores.values()), {"server": None}


def _worker(asked: Asked, location: Location, layout: Layout) -> Work:
    def work(task: Task) -> list[File]:
        batches = BinlogReader(asked, asked.names).read(InputPartition(task))
        return stored_files(location, (dated(batch, "logged") for batch in batches), layout)

    return work


def _reached(
    news: Iterable[Share | Trouble], stores: Mapping[str, str], files: Sequence[File]
) -> dict[str, int]:
    """How far the table comes with these."""
    reached: dict[str, int] = {}
    for item in news:
        store, last = store_of(item), last_lsn(item)
        if item.place is None:
            assert isinstance(item, Trouble)
            reached[store] = mark_of(item)
            continue
        if last is None:
            last = _highest(files, stores[store])
        above = item.lsns.low - 1 if isinstance(item, Share) else -1
        reached[store] = max(last, above, reached.get(store, -1))
        reached[_named(store, stores[store])] = reached[store]
    return reached


def _highest(files: Iterable[File], server: str) -> int:
    spans = (file.spans("lsn") for file in files if file.is_in({"server": server}))
    return max((span[1] for span in spans if span is not None), default=-1)


def holds_events(path: str) -> bool:
    """Return True if there is a table, and not a log."""
    return holds_table(Location.of(path))


def read_events(spark: SparkSession, *paths: str) -> DataFrame:
    """Return events tables with the types they have, as `write_events` has stored them.

    :return: with the column ``date``, if the tables are in folders by day.
    """
    frames = [read_frame(spark, open_stored(path)) for path in paths]
    read = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)
    names = [name for name in (*BY_NAME, DATE.name) if name in read.columns]
    return read.select(*names)


def event_rows(paths: Iterable[str], above: Mapping[str, int] | None = None) -> Rows:
    """The same rows for tasks to read; columns of text are dictionaries.

    :param above: of servers, a last LSN that is not wanted: files that have no later ones are left
        out.
    """
    tables = [open_stored(path) for path in paths]
    own = [table.schema() for table in tables]
    first = {field.name: field for schema in reversed(own) for field in schema}
    schema = pa.schema([first[name] for name in BY_NAME if name in first])
    found = []
    for table, there in zip(tables, own, strict=True):
        missing = [field for field in schema if field.name not in there.names]
        files = (file for file in table.files(told=("lsn",)) if _is_above(file, above or {}))
        found.append(rows_of(table, files, pa.schema([*there, *missing])))
    parts = [(rows.read, part) for rows in found for part in rows.parts]
    return Rows(parts, schema, _read_part)


def _read_part(part: tuple[Any, Any], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    read, files = part
    rows: Iterator[pa.RecordBatch] = read(files, names)
    return rows


def log_rows(asked: Asked, above: Mapping[str, int] | None = None) -> Rows:
    """The rows of logs, planned now, for tasks to read.

    :param above: of servers, a last LSN that is not wanted: segments that have no later ones are
        left out.
    :raise SourceError: they cannot be planned.
    """
    partitions = BinlogReader(asked, asked.names).partitions()
    wanted = [tuple(_later(partition.value or (), above or {})) for partition in partitions]
    parts = [part for part in wanted if part]
    return Rows(parts, arrow_schema(asked.names), partial(_read_log, asked))


def _later(items: Iterable[Share | Trouble], above: Mapping[str, int]) -> Iterator[Share | Trouble]:
    for item in items:
        last = above.get(item.place.server) if item.place is not None else None
        if last is None or isinstance(item, Trouble):
            yield item
        elif item.next_lsn is None or item.next_lsn - 1 > last:
            # One that is gone when it is read would be missing for ever: that is an error.
            yield item._replace(is_oldest=False)


def _read_log(asked: Asked, part: Any, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    return BinlogReader(asked, tuple(names)).read(InputPartition(part))


def _is_above(file: File, above: Mapping[str, int]) -> bool:
    """Whether a file may have events behind these LSNs."""
    last, span = above.get(str(dict(file.partition).get("server"))), file.spans("lsn")
    return last is None or span is None or bool(span[1] > last)
