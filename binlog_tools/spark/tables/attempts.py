"""
Attempts: runs of jobs, from `reserve` to their ends, each with the wait before it; and the workers,
connections that reserved jobs, by their attempts.
"""

from typing import Final

from pyspark.sql import DataFrame

from binlog_tools.spark.tables.querying import in_steps
from binlog_tools.spark.tables.stays import stays

_RUNS: Final = """
SELECT server, job, revivals, attempt, max(tube) AS tube,
  max(IF(in_state = 'reserved', incarnation, NULL)) AS incarnation,
  max(IF(in_state = 'ready' OR connection = 0, NULL, connection)) AS connection,
  min(IF(in_state = 'reserved', run_since_ns, NULL)) AS started_ns,
  max(IF(in_state = 'ready' OR ended_by IN ('touch', 'update'), NULL, until_ns)) AS ended_ns,
  max(IF(in_state = 'ready' OR ended_by IN ('touch', 'update'), NULL, ended_by)) AS ended_by,
  count_if(is_logged AND event = 'touch') AS touches,
  max(IF(in_state = 'ready' AND since_known, until_ns - since_ns, NULL)) AS wait_ns,
  min(IF(in_state = 'ready', NULL, at_ns)) AS first_ns
FROM {stays} WHERE attempt IS NOT NULL GROUP BY server, job, revivals, attempt
"""

_ATTEMPTS: Final = """
SELECT server, incarnation, connection, job, tube, revivals, attempt,
  timestamp_micros(first_ns DIV 1000) AS first,
  timestamp_micros(started_ns DIV 1000) AS started,
  timestamp_micros(ended_ns DIV 1000) AS ended,
  started_ns, ended_ns, ended_by, touches, wait_ns, ended_ns - started_ns AS run_ns
FROM {runs}
"""

_SIDE_BY_SIDE: Final = """
SELECT *, max(IF(started_ns IS NULL, NULL, ended_ns)) OVER (
    PARTITION BY server, incarnation, connection ORDER BY started_ns, revivals, attempt, job
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
  count_if(ended_by = 'move') AS moves,
  count_if(ended_by = 'ttr-expired') AS timeouts,
  count_if(ended_by = 'disconnect-release') AS disconnects,
  count_if(ended_by IN ('restart', 'unlogged')) AS lost,
  count_if(ended_by IS NULL) AS running
FROM {runs} GROUP BY server, incarnation, connection
"""


def attempts(events: DataFrame) -> DataFrame:
    """
    :param events: with the columns `stays.COLUMNS`.
    """
    return in_steps((("runs", _RUNS), ("attempts", _ATTEMPTS)), stays=stays(events))


def workers(events: DataFrame) -> DataFrame:
    """
    :param events: with the columns `stays.COLUMNS`.
    """
    return in_steps((("runs", _SIDE_BY_SIDE), ("workers", _WORKERS)), attempts=attempts(events))
