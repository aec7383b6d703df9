"""The jobs that were alive at a moment, or after a record: one row each, as they then were."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.functions import broadcast

from binlog_tools.spark.definitions.errors import TableError
from binlog_tools.spark.histories.images import COLUMNS
from binlog_tools.spark.tables.querying import need, with_tags

_UNTIL: Final = """
SELECT * FROM {events} WHERE event <> 'damage'
  AND (:at_ns IS NULL
    OR IF(copy OR event IN ('move', 'update'), logged_ns, time_ns) <= :at_ns)
  AND (:lsn IS NULL OR lsn <= :lsn)
"""

_SERVERS: Final = """
SELECT server, max(incarnation) AS incarnation, coalesce(:at_ns, max(logged_ns)) AS now_ns
FROM {until} GROUP BY server
"""

_NEWEST: Final = """
SELECT server, job, max_by(struct(
    tube, incarnation, connection, state, priority, delay_s, ttr_s, deadline_ns, reserves, timeouts,
    releases, buries, kicks, event, lsn), lsn) AS image,
  max_by(struct(
    time_ns AS put_ns, bytes, unique_key, concurrency_key, job_group, after, dead_from,
    dead_reason, dead_at, origin), IF(event IN ('put', 'move', 'update', 'copy'), lsn, NULL))
    AS full
FROM {until}
WHERE event IN ('put', 'reserve', 'release', 'bury', 'kick', 'touch', 'delete', 'ttr-expired',
                'disconnect-release', 'move', 'update', 'group-ended', 'copy')
GROUP BY server, job
"""

_JUDGED: Final = """
SELECT n.*, now_ns,
  CASE
    WHEN image.state IN ('delayed', 'reserved') AND image.deadline_ns <= now_ns THEN 'ready'
    WHEN image.state = 'reserved' AND image.incarnation < s.incarnation THEN 'ready'
    ELSE image.state END AS state
FROM {newest} AS n JOIN {servers} AS s ON n.server = s.server WHERE image.state <> 'gone'
"""

_SNAPSHOT: Final = """
SELECT server, job, image.tube AS tube, state, state <> image.state AS is_inferred,
  image.priority AS priority, image.delay_s AS delay_s, image.ttr_s AS ttr_s,
  timestamp_micros(IF(state = image.state, image.deadline_ns, NULL) DIV 1000) AS deadline,
  IF(state = image.state, image.deadline_ns, NULL) AS deadline_ns,
  IF(state = 'reserved', image.connection, NULL) AS connection,
  IF(state = 'reserved', image.incarnation, NULL) AS incarnation,
  timestamp_micros(full.put_ns DIV 1000) AS put,
  now_ns - full.put_ns AS age_ns, full.bytes AS bytes,
  image.reserves AS reserves, image.timeouts AS timeouts, image.releases AS releases,
  image.buries AS buries, image.kicks AS kicks, image.event AS last_event, image.lsn AS lsn,
  full.unique_key AS unique_key, full.concurrency_key AS concurrency_key,
  full.job_group AS job_group, full.after AS after, full.dead_from AS dead_from,
  full.dead_reason AS dead_reason, full.dead_at AS dead_at, full.origin AS origin,
  timestamp_micros(now_ns DIV 1000) AS as_of
FROM {judged}
"""


def snapshot(events: DataFrame, at_ns: int | None = None, lsn: int | None = None) -> DataFrame:
    """:param events: with the columns `histories.images.COLUMNS`.
    :param at_ns: the moment, in nanoseconds since the epoch; what happened then is in.
    :param lsn: the last record, in each server; its own moment is taken for now.  Neither: the
        whole table.
    :raise TableError: both are given, or a column is missing.
    """
    if at_ns is not None and lsn is not None:
        raise TableError("TABLE_OPTION", "a snapshot is of a time or of an LSN, not of both")
    spark = need(events, COLUMNS).sparkSession
    moment = {"at_ns": at_ns, "lsn": lsn}
    until = spark.sql(_UNTIL, moment, events=with_tags(events))
    servers = broadcast(spark.sql(_SERVERS, moment, until=until))
    newest = spark.sql(_NEWEST, until=until)
    return spark.sql(_SNAPSHOT, judged=spark.sql(_JUDGED, newest=newest, servers=servers))
