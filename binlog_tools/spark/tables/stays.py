"""
The history of a job as a sequence of stays: which state it was in, since when, until when.

A stay begins with an image and ends with the next one of the job, but for what the log omits:

- A **delayed** job becomes ready at its deadline, unless its next record is a `kick`.
- A **reserved** job without a record of the end was given up at the earliest of: the end of its
  TTR, the next start of the server, its next record.

`touch` and `update` begin a stay of the same run; a `copy` counts only as the first row of its job.

Of a `move` and an `update` the log does not say when they were: it was when their frames were
built, or a moment before.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.functions import broadcast

from binlog_tools.spark.tables.querying import in_steps, need, with_tags

COLUMNS: Final = (
    "server", "incarnation", "lsn", "event", "time_ns", "logged_ns", "job", "tube", "state",
    "priority", "delay_s", "ttr_s", "deadline_ns", "reserves", "timeouts", "releases", "buries",
    "kicks", "connection", "copy", "bytes",
)  # fmt: skip
"""What is needed of the events table."""

_LIVES: Final = """
SELECT server, incarnation,
       lead(first_ns) OVER (PARTITION BY server ORDER BY incarnation) AS restart_ns,
       max(newest_ns) OVER (PARTITION BY server) AS last_ns
FROM (
  SELECT server, incarnation,
         min(IF(copy OR event IN ('move', 'update'), logged_ns, time_ns)) AS first_ns,
         max(logged_ns) AS newest_ns
  FROM {events} WHERE event NOT IN ('damage', 'key') GROUP BY server, incarnation)
"""
"""Each start of a server, when the next one was, and the server's last moment."""

_IMAGES: Final = """
SELECT server, job, lsn, e.incarnation, event, tube, state, priority, delay_s, ttr_s, deadline_ns,
       reserves, timeouts, releases, buries, kicks, coalesce(connection, 0) AS connection,
       copy, bytes, time_ns, logged_ns, restart_ns, last_ns,
       IF(copy OR event IN ('move', 'update'), NULL, time_ns) AS own_ns,
       IF(event IN ('put', 'move', 'update', 'copy'),
         struct(unique_key, concurrency_key, job_group, after, dead_from, dead_reason, dead_at_ns,
           origin), NULL) AS tags
FROM {events} AS e JOIN {lives} USING (server, incarnation)
WHERE event IN ('put', 'reserve', 'release', 'bury', 'kick', 'touch', 'delete', 'ttr-expired',
                'disconnect-release', 'move', 'update', 'group-ended', 'copy')
"""

_TIMED: Final = """
SELECT *,
  CASE WHEN copy THEN logged_ns WHEN own_ns IS NOT NULL THEN own_ns
    ELSE least(logged_ns, lead(own_ns) IGNORE NULLS OVER jobs) END AS at_ns,
  event = 'move' AND tags.dead_from IS NOT NULL
    AND (lag(tags) IGNORE NULLS OVER jobs).dead_from IS NULL AS is_death,
  event = 'move' AND tags.dead_from IS NULL
    AND (lag(tags) IGNORE NULLS OVER jobs).dead_from IS NOT NULL AS is_revival
FROM {images} WINDOW jobs AS (PARTITION BY server, job ORDER BY lsn)
"""

_IN_ORDER: Final = """
SELECT *,
  lag(lsn) OVER jobs IS NULL AS is_first,
  lag(IF(copy, NULL, reserves)) IGNORE NULLS OVER jobs AS reserves_before,
  lead(IF(copy, NULL, struct(event, at_ns, incarnation, connection, reserves, state))) IGNORE NULLS
    OVER jobs AS next,
  last(IF(event = 'reserve', struct(reserves, kicks, incarnation, at_ns), NULL)) IGNORE NULLS
    OVER jobs AS begun,
  last(tags) IGNORE NULLS OVER jobs AS carried,
  sum(IF(is_revival, 1L, 0L)) OVER jobs AS revivals
FROM {timed} WINDOW jobs AS (PARTITION BY server, job ORDER BY lsn)
"""

_JUDGED: Final = """
SELECT *,
  coalesce(state = 'reserved' AND next.incarnation = incarnation AND next.reserves = reserves
    AND (next.event IN ('ttr-expired', 'disconnect-release')
      OR (next.event IN ('touch', 'release', 'bury', 'delete', 'move', 'update')
        AND next.connection = connection)), false) AS is_same_run,
  IF(state IN ('delayed', 'reserved') AND deadline_ns <= last_ns,
    greatest(at_ns, deadline_ns), NULL) AS due_ns,
  IF(begun.reserves = reserves AND begun.kicks = kicks AND begun.incarnation = incarnation,
    begun.at_ns, NULL) AS run_since_ns,
  coalesce(state = 'delayed' AND (next.event IN ('kick', 'group-ended')
    OR (next.event = 'move' AND next.state = 'delayed')), false) AS is_still_delayed
FROM {in_order} WHERE is_first OR NOT copy
"""

_ENDED: Final = """
SELECT *,
  CASE
    WHEN state = 'gone' THEN at_ns
    WHEN state = 'delayed' AND NOT is_still_delayed THEN least(next.at_ns, due_ns)
    WHEN state = 'reserved' AND NOT is_same_run THEN
      IF(least(next.at_ns, restart_ns, due_ns) < at_ns, at_ns,
        least(next.at_ns, restart_ns, due_ns))
    ELSE next.at_ns END AS end_ns
FROM {judged}
"""
"""Where a stay ends: by the next image, or by what the log does not say."""

_NAMED: Final = """
SELECT *,
  CASE
    WHEN end_ns IS NULL OR state = 'gone' THEN NULL
    WHEN state = 'delayed' AND end_ns = due_ns AND NOT is_still_delayed THEN 'due'
    WHEN state = 'reserved' AND NOT is_same_run THEN
      IF(end_ns = restart_ns, 'restart', 'unlogged')
    ELSE next.event END AS end_event
FROM {ended}
"""

_STAYS: Final = """
SELECT server, job, tube, lsn, incarnation, last_ns, connection, at_ns, copy, event, time_ns,
        priority, delay_s, ttr_s, reserves, timeouts, releases, buries, kicks, bytes, carried,
        is_death,
       next IS NULL AS is_newest, stay.*
FROM {named} LATERAL VIEW inline(filter(array(
  struct(
    true AS is_logged, state AS in_state, at_ns AS since_ns, end_ns AS until_ns,
    end_event AS ended_by, NOT copy OR state = 'delayed' AS since_known,
    IF(state = 'reserved', run_since_ns, NULL) AS run_since_ns,
    CASE WHEN state = 'reserved' THEN reserves
         WHEN state = 'ready' AND next.event = 'reserve' THEN next.reserves END AS attempt,
    revivals AS revivals),
  IF(end_event IN ('due', 'restart', 'unlogged'),
    struct(
      false AS is_logged, 'ready' AS in_state, end_ns AS since_ns, next.at_ns AS until_ns,
      next.event AS ended_by, true AS since_known, CAST(NULL AS BIGINT) AS run_since_ns,
      IF(next.event = 'reserve', next.reserves, NULL) AS attempt, revivals AS revivals),
    NULL),
  IF(event IN ('release', 'bury', 'ttr-expired', 'disconnect-release')
      AND reserves IS DISTINCT FROM reserves_before,
    struct(
      false AS is_logged, 'unseen' AS in_state, CAST(NULL AS BIGINT) AS since_ns,
      at_ns AS until_ns, event AS ended_by, false AS since_known,
      CAST(NULL AS BIGINT) AS run_since_ns, reserves AS attempt, revivals AS revivals),
    NULL)), stay -> stay IS NOT NULL)) stay
"""

_STEPS: Final = (
    ("images", _IMAGES), ("timed", _TIMED), ("in_order", _IN_ORDER), ("judged", _JUDGED),
    ("ended", _ENDED), ("named", _NAMED), ("stays", _STAYS),
)  # fmt: skip


def stays(events: DataFrame) -> DataFrame:
    """
    One row a stay, with the image that it follows from.

    Columns beside those of the image (``event`` and the rest, ``at_ns``: when): ``in_state``
    (`ready`, `reserved`, `delayed`, `buried`, `gone`; `unseen`: a run of which only the end is in
    the log), ``since_ns``, ``until_ns`` (null: it lasts), ``since_known`` (not for a `copy`),
    ``ended_by`` (an event; `due`; `restart`; `unlogged`), ``attempt`` (the run that it is, or that
    it was the wait for), ``run_since_ns`` (when the run began, null if that is not in the log),
    ``is_logged`` (false: it follows from the row before it), ``carried`` (its tags), ``is_death``,
    ``revivals`` (by `kick-dead`, so far: counters of reserves begin anew),
    ``is_newest`` (the job's last image), ``last_ns`` (the server's last moment).

    :param events: with the columns `COLUMNS`.
    :raise TableError: a column is missing.
    """
    events = with_tags(need(events, COLUMNS))
    spark = events.sparkSession
    lives = broadcast(spark.sql(_LIVES, events=events))
    return in_steps(_STEPS, events=events, lives=lives)
