"""Tables by SQL: the columns that a query needs, and queries in steps, each of which may use the
ones before it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.functions import lit

from binlog_tools.spark.definitions.columns import BY_NAME, TAGS, arrow_type
from binlog_tools.spark.definitions.errors import TableError
from binlog_tools.spark.tasks import Rows


def in_steps(steps: Iterable[tuple[str, str]], **tables: DataFrame) -> DataFrame:
    """:param steps: names and queries; a query says ``{name}`` for a table or an earlier step.
    :return: what the last one gives.
    """
    known: dict[str, Any] = dict(tables)
    (spark, *_) = [table.sparkSession for table in tables.values()]
    for name, query in steps:
        known[name] = newest = spark.sql(query, **known)
    return newest


def with_tags(events: DataFrame) -> DataFrame:
    """The table with all columns of tags: null where it has none, as those of earlier versions."""
    missing = {
        name: lit(None).cast(BY_NAME[name].ddl) for name in TAGS if name not in events.columns
    }
    return events.withColumns(missing) if missing else events


def need(events: DataFrame, names: Iterable[str]) -> DataFrame:
    """The table, if it has these columns of the events table, with their types.

    :raise TableError: it has not.
    """
    _refuse(dict(events.dtypes), {name: BY_NAME[name].ddl for name in names})
    return events


def need_rows(events: Rows, names: Iterable[str]) -> Rows:
    """The same of rows that tasks read."""
    there = {field.name: field.type for field in events.schema}
    _refuse(there, {name: arrow_type(BY_NAME[name].ddl) for name in names})
    return events


def _refuse(there: Mapping[str, object], wanted: Mapping[str, object]) -> None:
    missing = [name for name in wanted if name not in there]
    if missing:
        raise TableError(
            "TABLE_COLUMN",
            f"the events table has no column {', '.join(missing)}; it has {', '.join(there)}; read "
            "the log again with all columns, or without the option columns",
        )
    for name, kind in wanted.items():
        if there[name] != kind:
            raise TableError(
                "TABLE_COLUMN", f"column {name} of the events table is {there[name]}, not {kind}"
            )
