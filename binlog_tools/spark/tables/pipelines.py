"""
The pipelines by name, and how their tables are written.
"""

import re
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from binlog_tools.spark.definitions.errors import TableError
from binlog_tools.spark.definitions.wholeness import local
from binlog_tools.spark.tables.attempts import attempts, workers
from binlog_tools.spark.tables.lifetimes import lifetimes
from binlog_tools.spark.tables.poison import poison, poison_jobs
from binlog_tools.spark.tables.snapshot import snapshot
from binlog_tools.spark.tables.tube_minutes import tube_minutes

FORMATS: Final = ("parquet", "delta")
MODES: Final = ("error", "overwrite", "append")

_UNWRITABLE: Final = re.compile(
    r"(Mkdirs failed to create|Parent path is not a directory|No space left on device"
    r"|Read-only file system)"
)


class Pipeline(NamedTuple):
    """
    A table that is made of events.

    :ivar make: from the events table.
    :ivar dated_by: the column whose day is the partition ``date``; empty: no such partition.
    :ivar by_server: whether there is a partition ``server``.
    :ivar needs_body: whether bodies are worth reading for it.
    """

    make: Callable[..., DataFrame]
    dated_by: str
    by_server: bool = True
    needs_body: bool = False


PIPELINES: Final = {
    "lifetimes": Pipeline(lifetimes, "first"),
    "attempts": Pipeline(attempts, "first"),
    "tube_minutes": Pipeline(tube_minutes, "minute"),
    "workers": Pipeline(workers, "first"),
    "poison": Pipeline(poison, "", by_server=False, needs_body=True),
    "poison_jobs": Pipeline(poison_jobs, "", needs_body=True),
    "snapshot": Pipeline(snapshot, ""),
}

TABLES: Final = ("lifetimes", "attempts", "tube_minutes", "workers", "poison")
"""What ``tables`` makes: all that needs no choice, and so all that the report shows."""


def write(name: str, table: DataFrame, out: str, form: str = "parquet", mode: str = "error") -> int:
    """
    A table as files, by server and day; see `wholeness`.

    :return: how many rows were written.
    :raise TableError: Spark has no such format here, or there is a table already.
    """
    pipeline = PIPELINES[name]
    partitions = ["server"] if pipeline.by_server else []
    if pipeline.dated_by:
        table = table.withColumn("date", F.to_date(pipeline.dated_by))
        partitions.append("date")
    table = table.repartition(*map(F.col, partitions)) if partitions else table.coalesce(1)
    written = Observation(name)
    table = table.observe(written, F.count(F.lit(1)).alias("rows"))
    try:
        table.write.format(form).mode(mode).partitionBy(*partitions).save(out)
    except Exception as problem:
        raise (_in_our_words(str(problem), out, form) or problem) from None
    return int(written.get.get("rows", 0))


def refuse_existing(outputs: Iterable[str]) -> None:
    """
    :raise TableError: there is something already where one of the tables is to be.
    """
    for out in outputs:
        place = local(out)
        if place is not None and place.exists():
            raise _exists(out)


def _exists(out: str) -> TableError:
    return TableError(
        "TABLE_EXISTS", f"{out}: there is something already; give --mode overwrite or append"
    )


def _in_our_words(text: str, out: str, form: str) -> TableError | None:
    """
    What Spark means by an error when it writes, if it is one of those that a user can mend.
    """
    if "[PATH_ALREADY_EXISTS]" in text:
        return _exists(out)
    if form == "delta" and "[DATA_SOURCE_NOT_FOUND]" in text:
        return TableError(
            "TABLE_FORMAT",
            "this Spark has no Delta; start it with the jars of delta-spark (pip install "
            "delta-spark, spark-submit --packages io.delta:…), or write Parquet",
        )
    lines = (line for line in text.split("\n") if "[BINLOG_" not in line and "Exception: " in line)
    if found := next(filter(None, map(_UNWRITABLE.search, lines)), None):
        return TableError(
            "TABLE_UNWRITABLE",
            f"{out}: Spark cannot write there ({found[1]}); is there room, may the executors "
            "write, and do they see it under this path?",
        )
    return None
