"""The door to tables: where a table's files are, and their rows as Arrow batches.

Nothing else of the report opens a file.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from binlog_tools.spark.definitions.errors import TableError
from binlog_tools.spark.storing.locations import UNFINISHED, Location
from binlog_tools.spark.storing.opening import holds_table, open_stored
from binlog_tools.spark.storing.stored import LOG


class Rows:
    """A table, read batch by batch: memory holds a batch, not the table.

    :ivar names: its columns; empty if there is no file in it.
    """

    def __init__(self, place: str, found: Any) -> None:
        """:param found: a dataset of Arrow; None: there is no file in the table."""
        self._place = place
        self._found = found
        self.names = frozenset(() if found is None else found.schema.names)

    def batches(self, names: Sequence[str], where: Any = None) -> Iterator[pa.RecordBatch]:
        """:param where: an expression of pyarrow.dataset; None: all rows.
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


def refuse_unfinished(tables: str) -> None:
    """:raise TableError: the run that makes these tables has not come to its end."""
    place = Location.of(tables)
    if UNFINISHED in place.files().names():
        raise TableError(
            "TABLE_NOT_FOUND",
            f"{place}: the run that made these tables has not come to its end; make them again: "
            f"python -m binlog_tools.spark tables LOG -o {place}",
        )


def open_table(place: str) -> Rows | None:
    """Return a table, or None if there is none at this place.

    :param place: a path, or a URL.
    :raise TableError: it is not whole, or cannot be read.
    """
    shown = Location.of(place)
    names = shown.files().names()
    if not names:
        return None
    if not holds_table(shown):
        raise TableError(
            "TABLE_NOT_FOUND",
            f"{shown}: it is not whole (no {LOG}): whoever writes it has not finished, or was "
            f"killed; wait, or make it again",
        )
    try:
        stored = open_stored(place)
        return Rows(str(shown), stored.dataset() if stored.files() else None)
    except pa.ArrowException as problem:
        text = str(problem).partition("\n")[0]
        raise TableError("TABLE_NOT_FOUND", f"{shown}: it is no table: {text}") from None


def seconds_of(times: Any) -> np.ndarray:
    """A column of moments as seconds since the epoch, float64; NaN where there is none."""
    micros = pc.cast(pc.cast(times, pa.timestamp("us", "UTC"), safe=False), pa.int64())
    return np.asarray(micros.to_numpy(zero_copy_only=False), np.float64) / 1e6
