"""Rows of stored tables as Arrow batches; nothing else of the report opens a file."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from binlog_tools.spark.definitions.errors import TableError
from binlog_tools.spark.storing.locations import Location
from binlog_tools.spark.storing.tables import LOG, StoredTable, holds_table, open_stored


class Rows:
    """A table, read batch by batch: memory holds a batch, not the table.

    :ivar names: its columns; empty if there is no file in it.
    :ivar progress: `StoredTable.progress`.
    :ivar is_live: `live` keeps it.
    """

    def __init__(self, place: str, table: StoredTable) -> None:
        self._place = place
        self._found = table.dataset() if table.files() else None
        self.names = frozenset(() if self._found is None else self._found.schema.names)
        self.progress = table.progress
        self.is_live = (table.name or "").startswith("live ")

    def batches(self, names: Sequence[str], where: Any = None) -> Iterator[pa.RecordBatch]:
        """:param where: an expression of pyarrow.dataset; None: all rows.
        :raise TableError: one of the columns is missing.
        """
        if self._found is None:
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


def open_table(place: str) -> Rows | None:
    """Return a table, or None if there is none at this place.

    :raise TableError: it is not whole, or cannot be read.
    """
    shown = Location.of(place)
    if not shown.names():
        return None
    if not holds_table(place):
        raise TableError(
            "TABLE_NOT_FOUND",
            f"{shown}: it is not whole (no {LOG}): whoever writes it has not finished, or was "
            f"killed; wait, or make it again",
        )
    try:
        return Rows(str(shown), open_stored(place))
    except pa.ArrowException as problem:
        text = str(problem).partition("\n")[0]
        raise TableError("TABLE_NOT_FOUND", f"{shown}: it is no table: {text}") from None


def seconds_of(times: Any) -> np.ndarray:
    """A column of moments as seconds since the epoch, float64; NaN where there is none."""
    micros = pc.cast(pc.cast(times, pa.timestamp("us", "UTC"), safe=False), pa.int64())
    return np.asarray(micros.to_numpy(zero_copy_only=False), np.float64) / 1e6
