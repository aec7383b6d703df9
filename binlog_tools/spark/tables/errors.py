"""
What can go wrong when tables are made of tables, in one line each.
"""

from collections.abc import Iterable

from pyspark.sql import DataFrame

from binlog_tools.spark.columns import BY_NAME


class TableError(Exception):
    """
    A table cannot be made.

    :ivar code: ``TABLE_COLUMN``, ``TABLE_OPTION``, ``TABLE_NOT_FOUND``, ``TABLE_EXISTS``,
        ``TABLE_UNWRITABLE``, ``TABLE_FORMAT`` or ``TABLE_BUSY``.
    """

    def __init__(self, code: str, what: str) -> None:
        super().__init__(f"[{code}] {' '.join(what.split())}")
        self.code = code

    def __reduce__(self) -> tuple[object, ...]:
        return TableError, (self.code, str(self).partition("] ")[2])


def need(events: DataFrame, names: Iterable[str]) -> DataFrame:
    """
    The table, if it has these columns of the events table, with their types.

    :raise TableError: it has not.
    """
    there = dict(events.dtypes)
    missing = [name for name in names if name not in there]
    if missing:
        raise TableError(
            "TABLE_COLUMN",
            f"the events table has no column {', '.join(missing)}; it has {', '.join(there)}; read "
            "the log again with all columns, or without the option columns",
        )
    for name in names:
        wanted = BY_NAME[name].ddl
        if there[name] != wanted:
            raise TableError(
                "TABLE_COLUMN", f"column {name} of the events table is {there[name]}, not {wanted}"
            )
    return events
