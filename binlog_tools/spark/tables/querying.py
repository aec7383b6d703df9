"""
A table made in steps, each of which is a query that may use the ones before it.
"""

from collections.abc import Iterable
from typing import Any

from pyspark.sql import DataFrame


def in_steps(steps: Iterable[tuple[str, str]], **tables: DataFrame) -> DataFrame:
    """
    :param steps: names and queries; a query says ``{name}`` for a table or an earlier step.
    :return: what the last one gives.
    """
    known: dict[str, Any] = dict(tables)
    (spark, *_) = [table.sparkSession for table in tables.values()]
    for name, query in steps:
        known[name] = newest = spark.sql(query, **known)
    return newest
