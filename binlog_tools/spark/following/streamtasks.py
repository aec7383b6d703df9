"""
What a task of a stream reads, wherever the files are by then.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from pyspark.sql.datasource import InputPartition

from binlog_tools.spark.definitions.errors import unreadable
from binlog_tools.spark.reading.options import Asked
from binlog_tools.spark.reading.planning import Share, Task, Trouble, open_share
from binlog_tools.spark.segments.decoding import Wanted, batches
from binlog_tools.spark.segments.producing import damage_row


class Beside(NamedTuple):
    """
    What a task has to know of a file beside what it is to read.

    :ivar elsewhere: where else the same file may be: a server moves segments on.
    :ivar tubes: names that were said before, if they are not to be searched for.
    """

    elsewhere: tuple[str, ...]
    tubes: Mapping[int, bytes] | None


class StreamPartition(InputPartition):
    """
    What one task reads.

    :ivar beside: by path, what else is known of the files.
    """

    def __init__(self, task: Task, beside: Mapping[str, Beside]) -> None:
        super().__init__(task)
        self.task = task
        paths = (item.place.path for item in task.items if isinstance(item, Share))
        self.beside = {path: beside[path] for path in paths}


def task_batches(
    partition: StreamPartition, asked: Asked, columns: tuple[str, ...]
) -> Iterator[Any]:
    """
    The batches of a task.

    :raise SourceError: something cannot be read.
    """
    wanted = Wanted(columns, asked.records, asked.copies, asked.damage, asked.verify)
    for item in partition.task.items:
        try:
            yield from _read(item, partition.beside, wanted)
        except OSError as problem:
            raise unreadable(problem) from None


def _read(item: Share | Trouble, beside: Mapping[str, Beside], wanted: Wanted) -> Iterator[Any]:
    if isinstance(item, Trouble):
        yield damage_row(wanted.columns, item.place, item.lsn, item.problem, size=item.size)
        return
    known = beside[item.place.path]
    share = _where_it_is(item, known.elsewhere)
    opened = open_share(share)
    tubes = opened.tubes if opened.tubes is not None else known.tubes
    yield from batches(opened.buffer, share.place, share.stretch, wanted, tubes)


def _where_it_is(share: Share, elsewhere: Iterable[str]) -> Share:
    """
    The same part, where its file is now.
    """
    for path in (share.place.path, *elsewhere):
        if os.path.exists(path):
            return share._replace(place=share.place._replace(path=path))
    return share
