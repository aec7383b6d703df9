"""
One row a connection that reserved jobs: how many, for how long, and how it went.
"""

from typing import Final

from pyspark.sql import DataFrame

from binlog_tools.spark.tables.attempts import attempts
from binlog_tools.spark.tables.querying import in_steps

_SIDE_BY_SIDE: Final = """
SELECT *, max(IF(started_ns IS NULL, NULL, ended_ns)) OVER (
    PARTITION BY server, incarnation, connection ORDER BY started_ns, attempt, job
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS busy_until_ns
FROM {attempts} WHERE connection IS NOT NULL AND incarnation IS NOT NULL
"""
"""A connection may hold several jobs at once; their times are not added up in `busy_ns`."""

_WORKERS: Final = """
SELECT server, incarnation, connection,
  timestamp_micros(min(coalesce(started_ns, ended_ns)) DIV 1000) AS first,
  timestamp_micros(max(coalesce(ended_ns, started_ns)) DIV 1000) AS last,
  count(DISTINCT job) AS jobs,
  count(*) AS runs,
  sum(coalesce(run_ns, 0)) AS run_ns,
  sum(IF(run_ns IS NULL, 0,
    greatest(0, ended_ns - greatest(started_ns, coalesce(busy_until_ns, started_ns))))) AS busy_ns,
  count_if(ended_by = 'delete') AS deletes,
  count_if(ended_by = 'release') AS releases,
  count_if(ended_by = 'bury') AS buries,
  count_if(ended_by = 'ttr-expired') AS timeouts,
  count_if(ended_by = 'disconnect-release') AS disconnects,
  count_if(ended_by IN ('restart', 'unlogged')) AS lost,
  count_if(ended_by IS NULL) AS running
FROM {runs} GROUP BY server, incarnation, connection
"""


def workers(events: DataFrame) -> DataFrame:
    """
    :param events: with the columns `stays.COLUMNS`.
    """
    return in_steps((("runs", _SIDE_BY_SIDE), ("workers", _WORKERS)), attempts=attempts(events))
