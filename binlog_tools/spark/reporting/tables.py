"""
The door to tables: where a table's files are, and their rows as Arrow batches.

Nothing else of the report opens a file.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from binlog_tools.spark.definitions.errors import TableError
from binlog_tools.spark.definitions.wholeness import SUCCESS, TEMPORARY, UNFINISHED, is_whole

AGAIN: Final = "make it again with --mode overwrite"


class Rows:
    """
    A table, read batch by batch: memory holds a batch, not the table.

    :ivar names: its columns; empty if there is no file in it.
    """

    def __init__(self, place: Path, found: Any) -> None:
        self._place = place
        self._found = found
        self.names = frozenset(found.schema.names if found.files else ())

    def count(self) -> int:
        return int(self._found.count_rows())

    def batches(self, names: Sequence[str], where: Any = None) -> Iterator[pa.RecordBatch]:
        """
        :param where: an expression of pyarrow.dataset; None: all rows.
        :raise TableError: one of the columns is missing.
        """
        if not self.names:
            return
        if missing := set(names) - self.names:
            raise TableError(
                "TABLE_COLUMN",
                f"{self._place}: there is no column {', '.join(sorted(missing))}: is it a table of "
                "python -m binlog_tools.spark?",
            )
        for batch in self._found.to_batches(columns=list(names), filter=where):
            if batch.num_rows:
                yield batch


def refuse_unfinished(tables: Path) -> None:
    """
    :raise TableError: the run that makes these tables has not come to its end.
    """
    if (tables / UNFINISHED).exists():
        raise TableError(
            "TABLE_NOT_FOUND",
            f"{tables}: the run that made these tables has not come to its end; make them again: "
            f"python -m binlog_tools.spark tables LOG -o {tables} --mode overwrite",
        )


def open_table(place: Path) -> Rows | None:
    """
    A table of Parquet files in partitions, or None if there is none at this place.

    :raise TableError: it is not whole, or cannot be read.
    """
    if not place.is_dir():
        return None
    if not is_whole(place):
        raise TableError(
            "TABLE_NOT_FOUND",
            f"{place}: it is not whole (no {SUCCESS}, or {TEMPORARY} in it): whoever writes it has "
            f"not finished, or was killed; wait, or {AGAIN}",
        )
    return Rows(place, _dataset(place))


def _dataset(place: Path) -> Any:
    partitions = ds.partitioning(
        pa.schema([("server", pa.string()), ("date", pa.string())]), flavor="hive"
    )
    try:
        return ds.dataset(place, format="parquet", partitioning=partitions)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as problem:
        raise TableError("TABLE_NOT_FOUND", f"{place}: it is no table: {problem}") from None


def seconds_of(times: Any) -> np.ndarray:
    """
    A column of moments as seconds since the epoch, float64; NaN where there is none.
    """
    micros = pc.cast(pc.cast(times, pa.timestamp("us", "UTC"), safe=False), pa.int64())
    return np.asarray(micros.to_numpy(zero_copy_only=False), np.float64) / 1e6
