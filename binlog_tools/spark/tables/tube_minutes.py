"""
One row a server, tube and minute: what came, went and stood there, and how long it took.

Durations are kept to three significant digits, rounded down; a histogram maps them to how many
there were.  Stays become small entries (minute, kind, slot, value), which are added up without
joins.
"""

from typing import Final

from pyspark.sql import DataFrame

from binlog_tools.spark.tables.querying import in_steps
from binlog_tools.spark.tables.stays import stays

_DATED: Final = """
SELECT *, last_ns DIV 60000000000 AS last_minute, at_ns DIV 60000000000 AS at_minute,
  since_ns DIV 60000000000 AS since_minute, until_ns DIV 60000000000 AS until_minute,
  IF(in_state = 'ready' AND ended_by = 'reserve' AND since_known, until_ns - since_ns, NULL)
    AS wait_ns,
  IF(in_state = 'reserved' AND ended_by NOT IN ('touch', 'update', 'restart', 'unlogged'),
    until_ns - run_since_ns, NULL) AS run_ns
FROM {stays} WHERE in_state <> 'unseen'
"""

_ENTRIES: Final = """
SELECT server, tube, last_minute, entry.*
FROM {dated} LATERAL VIEW inline(filter(array(
  IF(is_logged AND event NOT IN ('copy', 'touch', 'update'),
    struct(at_minute AS minute, event AS kind, 0L AS slot, 1L AS value), NULL),
  IF(in_state <> 'gone' AND since_minute IS DISTINCT FROM until_minute,
    struct(since_minute AS minute, in_state AS kind, 0L AS slot, 1L AS value), NULL),
  IF(in_state <> 'gone' AND since_minute < until_minute,
    struct(until_minute AS minute, in_state AS kind, 0L AS slot, -1L AS value), NULL),
  IF(in_state = 'ready' AND since_minute IS DISTINCT FROM until_minute,
    struct(since_minute AS minute, 'oldest' AS kind,
      coalesce(until_minute, last_minute + 1) AS slot, since_ns AS value), NULL),
  IF(wait_ns IS NOT NULL,
    struct(until_minute AS minute, 'wait' AS kind,
      wait_ns - wait_ns % CAST(pow(10, greatest(0, length(CAST(wait_ns AS STRING)) - 3)) AS BIGINT)
        AS slot, 1L AS value), NULL),
  IF(run_ns IS NOT NULL,
    struct(until_minute AS minute, 'run' AS kind,
      run_ns - run_ns % CAST(pow(10, greatest(0, length(CAST(run_ns AS STRING)) - 3)) AS BIGINT)
        AS slot, 1L AS value), NULL)), entry -> entry IS NOT NULL)) entry
"""
"""
Stays that begin and end in one minute do not change a depth.  ``slot`` of `oldest` is the minute in
which the wait ended, its ``value`` when it began.
"""

_ADDED: Final = """
SELECT server, tube, minute, kind, slot, max(last_minute) AS last_minute,
  sum(IF(kind = 'oldest', 0, value)) AS total, min(value) AS least
FROM {entries} GROUP BY server, tube, minute, kind, slot
"""

_REACHED: Final = """
SELECT *, greatest(minute, max(IF(kind = 'oldest', slot, NULL)) OVER (
    PARTITION BY server, tube ORDER BY minute, IF(kind = 'oldest', least, 0)
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) AS reach
FROM {added}
"""
"""A wait is the oldest one from where all earlier ones have ended."""

_SPREAD: Final = """
SELECT server, tube, last_minute, kind, slot, total, least, this_minute AS minute
FROM {reached} LATERAL VIEW explode(CASE
  WHEN kind <> 'oldest' THEN array(minute)
  WHEN reach < slot THEN sequence(reach, slot - 1) END) AS this_minute
"""

_COUNTED: Final = """
SELECT server, tube, minute, max(last_minute) AS last_minute,
  sum(IF(kind = 'put', total, 0)) AS puts,
  sum(IF(kind = 'reserve', total, 0)) AS reserves,
  sum(IF(kind = 'delete', total, 0)) AS deletes,
  sum(IF(kind = 'ttr-expired', total, 0)) AS timeouts,
  sum(IF(kind = 'release', total, 0)) AS releases,
  sum(IF(kind = 'bury', total, 0)) AS buries,
  sum(IF(kind = 'kick', total, 0)) AS kicks,
  sum(IF(kind = 'disconnect-release', total, 0)) AS disconnects,
  sum(IF(kind = 'move', total, 0)) AS moves,
  sum(IF(kind = 'ready', total, 0)) AS more_ready,
  sum(IF(kind = 'reserved', total, 0)) AS more_reserved,
  sum(IF(kind = 'delayed', total, 0)) AS more_delayed,
  sum(IF(kind = 'buried', total, 0)) AS more_buried,
  min(IF(kind = 'oldest', least, NULL)) AS oldest_ns,
  percentile(IF(kind = 'wait', slot, NULL), array(0.5, 0.95, 0.99), total) AS wait_percentiles,
  percentile(IF(kind = 'run', slot, NULL), array(0.5, 0.95, 0.99), total) AS run_percentiles,
  collect_list(IF(kind = 'wait', struct(slot, total), NULL)) AS waits,
  collect_list(IF(kind = 'run', struct(slot, total), NULL)) AS runs
FROM {spread} GROUP BY server, tube, minute
"""

_STANDING: Final = """
SELECT *, lead(minute) OVER minutes AS next_minute,
  sum(more_ready) OVER minutes AS ready, sum(more_reserved) OVER minutes AS reserved,
  sum(more_delayed) OVER minutes AS delayed, sum(more_buried) OVER minutes AS buried
FROM {counted} WINDOW minutes AS (PARTITION BY server, tube ORDER BY minute)
"""

_FILLED: Final = """
SELECT *, this_minute = minute AS is_told
FROM {standing} LATERAL VIEW explode(sequence(minute, coalesce(next_minute - 1,
  IF(ready + reserved + delayed + buried > 0, last_minute, minute)))) AS this_minute
"""
"""A tube's minutes end when nothing is left in it, else with the last minute of the server."""

_TUBE_MINUTES: Final = """
SELECT server, tube, timestamp_seconds(this_minute * 60) AS minute,
  IF(is_told, puts, 0) AS puts, IF(is_told, reserves, 0) AS reserves,
  IF(is_told, deletes, 0) AS deletes, IF(is_told, timeouts, 0) AS timeouts,
  IF(is_told, releases, 0) AS releases, IF(is_told, buries, 0) AS buries,
  IF(is_told, kicks, 0) AS kicks, IF(is_told, disconnects, 0) AS disconnects,
  IF(is_told, moves, 0) AS moves,
  ready, reserved, delayed, buried,
  IF(is_told, this_minute * 60000000000 + 60000000000 - oldest_ns, NULL) AS oldest_ns,
  CAST(IF(is_told, wait_percentiles[0], NULL) AS BIGINT) AS wait_p50_ns,
  CAST(IF(is_told, wait_percentiles[1], NULL) AS BIGINT) AS wait_p95_ns,
  CAST(IF(is_told, wait_percentiles[2], NULL) AS BIGINT) AS wait_p99_ns,
  CAST(IF(is_told, run_percentiles[0], NULL) AS BIGINT) AS run_p50_ns,
  CAST(IF(is_told, run_percentiles[1], NULL) AS BIGINT) AS run_p95_ns,
  CAST(IF(is_told, run_percentiles[2], NULL) AS BIGINT) AS run_p99_ns,
  map_from_entries(array_sort(IF(is_told, waits, array()))) AS wait_histogram,
  map_from_entries(array_sort(IF(is_told, runs, array()))) AS run_histogram
FROM {filled}
"""

_STEPS: Final = (
    ("dated", _DATED), ("entries", _ENTRIES), ("added", _ADDED), ("reached", _REACHED),
    ("spread", _SPREAD), ("counted", _COUNTED), ("standing", _STANDING), ("filled", _FILLED),
    ("tube_minutes", _TUBE_MINUTES),
)  # fmt: skip


def tube_minutes(events: DataFrame) -> DataFrame:
    """
    :param events: with the columns `stays.COLUMNS`.
    """
    return in_steps(_STEPS, stays=stays(events))
