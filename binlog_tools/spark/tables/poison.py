"""Jobs that fail again and again, and what their bodies have in common.

A failure is a run that did not end in `delete`; most are counters of the job's newest image, so
they are right also where records are missing.  A body's **fingerprint** is that of
`beanstalk_twisted.binlog.bodies`, computed in Python on the executors.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.functions import broadcast, col, udf

from beanstalk_twisted.binlog.bodies import MAX_JSON_BYTES, fingerprint
from binlog_tools.spark.definitions.errors import TableError
from binlog_tools.spark.definitions.samples import readable
from binlog_tools.spark.histories.failing import FAILURES
from binlog_tools.spark.histories.images import EVENTS
from binlog_tools.spark.tables.querying import in_steps, need, with_tags

COLUMNS: Final = (
    "server", "lsn", "event", "time_ns", "job", "tube", "state", "timeouts", "releases", "buries",
    "copy",
)  # fmt: skip
"""What is needed of the events table; with ``body`` there are fingerprints."""

BROADCAST_JOBS: Final = 500_000
"""So many jobs that fail are sent to all tasks, some 50 MB, so that of the other jobs nothing moves
from task to task."""

_SUSPECTS: Final = """
SELECT server, job FROM {events}
WHERE timeouts + releases + buries > 0 OR event = 'disconnect-release'
GROUP BY server, job
HAVING max(timeouts) + max(releases) + max(buries) + count_if(event = 'disconnect-release')
  >= :failures
"""
"""Of a job that has not failed yet no record counts, and most jobs never fail."""

_COUNTED: Final = """
SELECT server, job, max_by(tube, lsn) AS tube, max(timeouts) AS timeouts, max(releases) AS releases,
  max(buries) AS buries, count_if(event = 'disconnect-release') AS disconnects,
  max_by(state, lsn) AS state, max(IF(copy, NULL, time_ns)) AS last_ns,
  max_by(struct(dead_from), IF(event IN ('put', 'move', 'update', 'copy'), lsn, NULL))
    .dead_from AS dead_from
FROM {events} GROUP BY server, job
"""

_FAILING: Final = """
SELECT *, timeouts + releases + buries + disconnects AS failures FROM {counted}
"""

_BODIES: Final = """
SELECT server, job, substring(body, 1, :bytes) AS body, octet_length(body) AS size FROM (
  SELECT server, job, max_by(body, lsn) AS body FROM {events}
  WHERE body IS NOT NULL GROUP BY server, job)
"""

_JOBS: Final = """
SELECT f.server, f.tube, f.job, fingerprint, state, failures, timeouts, releases, buries,
  disconnects, timestamp_micros(last_ns DIV 1000) AS last,
  coalesce(state = 'buried' AND dead_from IS NOT NULL, false) AS is_dead, sample
FROM {failing} AS f LEFT JOIN {marked} AS m ON f.server = m.server AND f.job = m.job
"""

_KINDS: Final = """
SELECT tube, fingerprint, count(*) AS jobs, sum(failures) AS failures, sum(timeouts) AS timeouts,
  sum(releases) AS releases, sum(buries) AS buries, sum(disconnects) AS disconnects,
  count_if(state <> 'gone') AS alive, count_if(is_dead) AS dead, max(failures) AS most_failures,
  max_by(struct(server, job, sample), struct(failures, server, job)) AS example, max(last) AS last
FROM {jobs} GROUP BY tube, fingerprint
"""
_POISON: Final = """
SELECT tube, fingerprint, jobs, failures, timeouts, releases, buries, disconnects, alive,
  dead, most_failures, example.server AS example_server, example.job AS example_job, last,
  example.sample AS sample
FROM {kinds}
"""


def poison_jobs(events: DataFrame, failures: int = FAILURES) -> DataFrame:
    """One row a job that failed at least so many times.

    :param events: with the columns `COLUMNS`; ``fingerprint`` is null without ``body``.  A query
        runs over them at once, for the jobs that fail.
    :param failures: 1 or more.
    :raise TableError: it is less, or a column is missing.
    """
    if failures < 1:
        raise TableError("TABLE_OPTION", f"failures is {failures}: it must be 1 or more")
    spark = need(events, COLUMNS).sparkSession
    events = with_tags(events).where(col("event").isin(*EVENTS))
    mine = events.join(_suspects(events, failures), ["server", "job"], "left_semi")
    failing = spark.sql(_FAILING, counted=spark.sql(_COUNTED, events=mine))
    marked = _marked(mine)
    return spark.sql(_JOBS, failing=failing, marked=marked)


def poison(events: DataFrame, failures: int = FAILURES) -> DataFrame:
    """One row a tube and fingerprint: how many jobs of the kind fail, how often, and the beginning
    of the body of one; see `poison_jobs`.
    """
    return in_steps((("kinds", _KINDS), ("poison", _POISON)), jobs=poison_jobs(events, failures))


def _suspects(events: DataFrame, failures: int) -> DataFrame:
    """The jobs that fail, as columns ``server`` and ``job``."""
    spark = events.sparkSession
    found = spark.sql(_SUSPECTS, {"failures": failures}, events=events)
    few = found.limit(BROADCAST_JOBS + 1).toArrow()
    if few.num_rows > BROADCAST_JOBS:
        return found
    return broadcast(spark.createDataFrame(few, "server string, job bigint"))


def _marked(events: DataFrame) -> DataFrame:
    """Fingerprints and samples.

    :param events: of the failing jobs only, since hashing bodies is what costs.
    """
    spark = events.sparkSession
    if "body" not in events.columns:
        return events.where("false").selectExpr(
            "server", "job", "CAST(NULL AS string) AS fingerprint", "CAST(NULL AS string) AS sample"
        )
    bodies = need(events, ("body",)).select("server", "job", "body", "lsn")
    begun = spark.sql(_BODIES, {"bytes": MAX_JSON_BYTES + 1}, events=bodies)
    mark = udf(lambda body: fingerprint(bytes(body)), "string")
    show = udf(lambda body, size: readable(bytes(body), size), "string")
    return begun.select("server", "job", mark("body").alias("fingerprint"),
                        show("body", "size").alias("sample"))  # fmt: skip
