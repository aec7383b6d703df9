"""
One row an attempt: a run of a job, from `reserve` to its end, and the wait before it.
"""

from typing import Final

from pyspark.sql import DataFrame

from binlog_tools.spark.tables.querying import in_steps
from binlog_tools.spark.tables.stays import stays

_RUNS: Final = """
SELECT server, job, attempt, max(tube) AS tube,
  max(IF(in_state = 'reserved', incarnation, NULL)) AS incarnation,
  max(IF(in_state = 'ready' OR connection = 0, NULL, connection)) AS connection,
  min(IF(in_state = 'reserved', run_since_ns, NULL)) AS started_ns,
  max(IF(in_state = 'ready' OR ended_by = 'touch', NULL, until_ns)) AS ended_ns,
  max(IF(in_state = 'ready' OR ended_by = 'touch', NULL, ended_by)) AS ended_by,
  count_if(is_logged AND event = 'touch') AS touches,
  max(IF(in_state = 'ready' AND since_known, until_ns - since_ns, NULL)) AS wait_ns,
  min(IF(in_state = 'ready', NULL, at_ns)) AS first_ns
FROM {stays} WHERE attempt IS NOT NULL GROUP BY server, job, attempt
"""

_ATTEMPTS: Final = """
SELECT server, incarnation, connection, job, tube, attempt,
  timestamp_micros(first_ns DIV 1000) AS first,
  timestamp_micros(started_ns DIV 1000) AS started,
  timestamp_micros(ended_ns DIV 1000) AS ended,
  started_ns, ended_ns, ended_by, touches, wait_ns, ended_ns - started_ns AS run_ns
FROM {runs}
"""


def attempts(events: DataFrame) -> DataFrame:
    """
    :param events: with the columns `stays.COLUMNS`.
    """
    return in_steps((("runs", _RUNS), ("attempts", _ATTEMPTS)), stays=stays(events))
