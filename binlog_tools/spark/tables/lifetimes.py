"""
One row a job: what became of it, and how long it waited, ran, was delayed and was buried.

The counters are those of the job's newest image, so they are right also where records are missing.
"""

from typing import Final

from pyspark.sql import DataFrame

from binlog_tools.spark.tables.querying import in_steps
from binlog_tools.spark.tables.stays import stays

_JOBS: Final = """
SELECT server, job, max(IF(is_newest, tube, NULL)) AS tube,
  max(IF(until_ns IS NULL OR in_state = 'gone', in_state, NULL)) AS state,
  bool_or(in_state = 'reserved' AND ended_by = 'delete') AS ended_in_a_run,
  bool_or(in_state = 'buried' AND carried.dead_from IS NOT NULL
    AND (until_ns IS NULL OR ended_by = 'delete')) AS is_dead,
  max(IF(is_newest, event, NULL)) AS last_event,
  min(IF(event IN ('put', 'move', 'update', 'copy'), time_ns, NULL)) AS put_ns,
  min(at_ns) AS first_ns, max(at_ns) AS newest_ns,
  max(IF(is_newest, priority, NULL)) AS priority,
  max(IF(is_newest, delay_s, NULL)) AS delay_s,
  max(IF(is_newest, ttr_s, NULL)) AS ttr_s,
  max_by(bytes, IF(bytes IS NULL, NULL, lsn)) AS bytes,
  max(IF(is_newest, reserves, NULL)) AS attempts,
  max(IF(is_newest, timeouts, NULL)) AS timeouts,
  max(IF(is_newest, releases, NULL)) AS releases,
  max(IF(is_newest, buries, NULL)) AS buries,
  max(IF(is_newest, kicks, NULL)) AS kicks,
  count_if(is_logged AND event = 'disconnect-release') AS disconnects,
  count_if(is_logged AND event = 'move') AS moves,
  count_if(is_logged AND event = 'update') AS updates,
  count_if(is_logged AND is_death) AS deaths,
  max(revivals) AS revivals,
  max_by(carried, IF(carried IS NULL, NULL, lsn)) AS carried,
  count_if(in_state = 'ready' AND ended_by = 'reserve') AS waits,
  sum(IF(in_state = 'ready', coalesce(until_ns, last_ns) - since_ns, 0)) AS wait_ns,
  sum(IF(in_state = 'reserved', coalesce(until_ns, last_ns) - since_ns, 0)) AS run_ns,
  sum(IF(in_state = 'delayed', coalesce(until_ns, last_ns) - since_ns, 0)) AS delayed_ns,
  sum(IF(in_state = 'buried', coalesce(until_ns, last_ns) - since_ns, 0)) AS buried_ns,
  bool_or(event = 'put') AS is_whole
FROM {stays} GROUP BY server, job
"""

_LIFETIMES: Final = """
SELECT server, job, tube, state,
  CASE WHEN ended_in_a_run THEN 'done' WHEN is_dead THEN 'dead' WHEN state <> 'gone' THEN 'alive'
    ELSE 'deleted' END AS outcome,
  last_event,
  timestamp_micros(put_ns DIV 1000) AS put,
  timestamp_micros(first_ns DIV 1000) AS first,
  timestamp_micros(newest_ns DIV 1000) AS last,
  IF(state = 'gone', newest_ns - put_ns, NULL) AS life_ns,
  priority, delay_s, ttr_s, bytes, attempts, timeouts, releases, buries, kicks, disconnects,
  waits, wait_ns, run_ns, delayed_ns, buried_ns, is_whole,
  moves, updates, deaths, revivals, carried.unique_key AS unique_key,
  carried.concurrency_key AS concurrency_key, carried.job_group AS job_group,
  carried.after AS after, carried.dead_from AS dead_from, carried.dead_reason AS dead_reason,
  timestamp_micros(carried.dead_at_ns DIV 1000) AS dead_at, carried.origin AS origin
FROM {jobs}
"""


def lifetimes(events: DataFrame) -> DataFrame:
    """
    :param events: with the columns `stays.COLUMNS`.
    """
    return in_steps((("jobs", _JOBS), ("lifetimes", _LIFETIMES)), stays=stays(events))
