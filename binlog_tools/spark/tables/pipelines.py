"""The pipelines by name, and how a table is written that is made anew of all events."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from binlog_tools.spark.definitions.errors import TableError
from binlog_tools.spark.frames import write_frame
from binlog_tools.spark.storing.opening import open_stored
from binlog_tools.spark.storing.stored import Change
from binlog_tools.spark.tables.histories import attempts, lifetimes, tube_minutes, workers
from binlog_tools.spark.tables.layouts import SINGLE
from binlog_tools.spark.tables.poison import poison, poison_jobs
from binlog_tools.spark.tables.snapshot import snapshot

if TYPE_CHECKING:
    from binlog_tools.spark.storing.delta import DeltaStored

MODES: Final = ("error", "overwrite", "append")
"""What becomes of a table that is there already."""


class Pipeline(NamedTuple):
    """A table that is made of events; `SINGLE` says how it is stored.

    :ivar make: from the events table.
    :ivar dated_by: the column whose day is the partition ``date``; empty: no such partition.
    :ivar needs_body: whether bodies are worth reading for it.
    """

    make: Callable[..., DataFrame]
    dated_by: str = ""
    needs_body: bool = False


PIPELINES: Final = {
    "lifetimes": Pipeline(lifetimes, "first"),
    "attempts": Pipeline(attempts, "first"),
    "tube_minutes": Pipeline(tube_minutes, "minute"),
    "workers": Pipeline(workers),
    "poison": Pipeline(poison, needs_body=True),
    "poison_jobs": Pipeline(poison_jobs, needs_body=True),
    "snapshot": Pipeline(snapshot),
}


def opened(name: str, place: str, mode: str = "error") -> "DeltaStored":
    """:raise TableError: see `open_stored`; or there is a table already, and the mode is against
    it.
    """
    stored = open_stored(place, SINGLE[name])
    is_there = stored.version is not None or bool(stored.files())
    if mode == "error" and is_there:
        what = "there is a table already; give --mode overwrite or append"
        raise TableError("TABLE_EXISTS", f"{stored.location}: {what}")
    return stored


def write(name: str, table: DataFrame, stored: "DeltaStored", mode: str = "error") -> int:
    """Commit a whole table, or add to one that is there.

    :param stored: as `opened` has given it.
    :return: how many rows were written.
    :raise TableError: they cannot be written; or another run was faster.
    """
    layout = SINGLE[name]
    if by := PIPELINES[name].dated_by:
        # The day in UTC, whatever the session's time zone.
        day = f"date_from_unix_date(int(floor(unix_micros({by}) / 86400000000)))"
        table = table.withColumn("date", F.expr(day))
    parts = layout.partition_by
    table = table.repartition(*map(F.col, parts)) if parts else table.coalesce(1)
    files = write_frame(table, stored.location, layout)
    stored.commit(Change(files, () if mode == "append" else ({},)))
    return sum(file.rows for file in files)
