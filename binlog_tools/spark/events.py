"""
The log as Parquet, once: what all other pipelines read.

Each segment is a task: a run that was interrupted goes on where it was, and a later run adds what
is new.  A segment that has grown since is written again in the place of what it was.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition

from binlog_tools.spark.definitions.columns import BY_NAME, UNASKED, ddl
from binlog_tools.spark.definitions.errors import TableError
from binlog_tools.spark.reading.options import Asked
from binlog_tools.spark.reading.planning import Share, Trouble
from binlog_tools.spark.source import BinlogReader
from binlog_tools.spark.tables.agreement import obsolete, refuse_renamed
from binlog_tools.spark.tables.committing import commit, missing, opened
from binlog_tools.spark.tables.segment_files import Batches, Receipt, Split, write_split
from binlog_tools.spark.tasks import in_tasks

WHOLE: Final = 1 << 50
"""Bytes: no segment is as large, so none is cut."""


def splits(asked: Asked) -> tuple[list[Split], Batches]:
    """
    What a log is made of, and how its parts are read.

    :raise SourceError: see `BinlogReader.partitions`.
    """
    if asked.conditions:
        raise TableError("TABLE_OPTION", "an events table has all records; leave the bounds away")
    reader = BinlogReader(asked._replace(partition_bytes=WHOLE), asked.names)
    choice = (asked.names, asked.records, asked.copies, asked.damage)
    options = hashlib.sha256(repr(choice).encode()).hexdigest()[:8]
    items = [item for partition in reader.partitions() for item in partition.value]
    return [_split(item, options) for item in items], reader.read


def _split(item: Share | Trouble, options: str) -> Split:
    contents = InputPartition((item,))
    if isinstance(item, Share):
        header = item.place.header
        name = f"{header.seq:020d}-{header.first_lsn:020d}"
        version = f"{item.stretch.end}-{options}"
        path = item.place.path
        return Split(
            item.place.server, name, version, contents, header.store_uuid.hex(), _stamp(path),
            (f"unknown-{_broken(path)}",),
        )  # fmt: skip
    mark = hashlib.sha256(repr(item).encode()).hexdigest()[:16]
    if item.place is None:
        return Split("unknown", _broken(item.path), f"{mark}-{options}", contents)
    header = item.place.header
    name = f"damage-gap-{item.first_seq or 0:020d}-{header.seq - 1:020d}"
    return Split(item.place.server, name, f"{mark}-{options}", contents, header.store_uuid.hex())


def _broken(path: str) -> str:
    """
    What a file is called whose header cannot be used.
    """
    return f"damage-file-{hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}"


def _stamp(path: str) -> str:
    """
    What changes if somebody puts other bytes there, whatever time they say they have.
    """
    try:
        found = os.stat(path)
    except OSError:
        return ""
    return f"{path}:{found.st_ino}:{found.st_size}:{found.st_mtime_ns}:{found.st_ctime_ns}"


def write_events(spark: SparkSession, asked: Asked, out: Path) -> tuple[int, int]:
    """
    Bring the table up to date with the log.

    :param out: on a file system that all executors and this program see under this path.
    :return: how many segments were written, and how many rows.
    :raise TableError: the directory is something else, or somebody writes it, or its servers have
        other names.
    """

    def run(todo: list[Split], write: Write) -> list[Receipt]:
        return in_tasks(spark, todo, lambda split: next(write([split])))

    return update(asked, out, run)


Write = Callable[[Iterable[Split]], Iterator[Receipt]]
"""What each task does."""


def update(
    asked: Asked, out: Path, run: Callable[[list[Split], Write], list[Receipt]]
) -> tuple[int, int]:
    """
    The same, wherever the tasks run: ``run`` gives the receipts of all splits.
    """

    def write(todo: Iterable[Split]) -> Iterator[Receipt]:
        return (write_split(out, split, batches) for split in todo)

    known, batches = splits(asked)
    with opened(out):
        refuse_renamed(out, known)
        todo, gone = missing(out, known), obsolete(out, known)
        if not todo and not gone:
            return 0, 0
        receipts = run(todo, write) if todo else []
        commit(out, [*receipts, *gone])
    return len(receipts), sum(file.rows for receipt in receipts for file in receipt.files)


def read_events(spark: SparkSession, *paths: str) -> DataFrame:
    """
    The events table with the types it has: Spark alone takes a server named by digits for a number.

    :return: with the column ``date``, if the table is in folders by day.
    """
    there = spark.read.parquet(*paths).columns
    # Spark looks at one file; an older one has no tags, as its jobs had none.
    names = [name for name in BY_NAME if name in there or name in UNASKED["tags"]]
    read = spark.read.schema(ddl(tuple(names))).parquet(*paths)
    return read.select(*names, *(name for name in ("date",) if name in read.columns))
