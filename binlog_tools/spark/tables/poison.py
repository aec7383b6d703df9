"""
Jobs that fail again and again, and what their bodies have in common.

A failure is a run that did not end in `delete`; most are counters of the job's newest image, so
they are right also where records are missing.  A body's **fingerprint** is that of
`beanstalk_twisted.binlog.fingerprint`, computed in Python on the executors.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.functions import udf

from beanstalk_twisted.binlog.fingerprint import MAX_JSON_BYTES, fingerprint
from binlog_tools.spark.definitions.errors import TableError
from binlog_tools.spark.definitions.samples import readable
from binlog_tools.spark.tables.querying import in_steps, need, with_tags

FAILURES: Final = 3
"""So many failures make a job poison, unless told otherwise."""

COLUMNS: Final = (
    "server", "lsn", "event", "time_ns", "job", "tube", "state", "timeouts", "releases", "buries",
    "copy",
)  # fmt: skip
"""What is needed of the events table; with ``body`` there are fingerprints."""

_COUNTED: Final = """
SELECT server, job, max_by(tube, lsn) AS tube, max(timeouts) AS timeouts, max(releases) AS releases,
  max(buries) AS buries, count_if(event = 'disconnect-release') AS disconnects,
  max_by(state, lsn) AS state, max(IF(copy, NULL, time_ns)) AS last_ns,
  max_by(struct(dead_from), IF(event IN ('put', 'move', 'update', 'copy'), lsn, NULL))
    .dead_from AS dead_from
FROM {events}
WHERE event IN ('put', 'reserve', 'release', 'bury', 'kick', 'touch', 'delete', 'ttr-expired',
                'disconnect-release', 'move', 'update', 'group-ended', 'copy')
GROUP BY server, job
"""

_FAILING: Final = """
SELECT *, timeouts + releases + buries + disconnects AS failures FROM {counted}
WHERE timeouts + releases + buries + disconnects >= :failures
"""

_BODIES: Final = """
SELECT server, job, substring(body, 1, :bytes) AS body, octet_length(body) AS size FROM (
  SELECT b.server, b.job, max_by(b.body, b.lsn) AS body
  FROM {failing} AS f JOIN {events} AS b ON f.server = b.server AND f.job = b.job
  WHERE b.body IS NOT NULL GROUP BY b.server, b.job)
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
    """
    One row a job that failed at least so many times.

    :param events: with the columns `COLUMNS`; ``fingerprint`` is null without ``body``.
    :param failures: 1 or more.
    :raise TableError: it is less, or a column is missing.
    """
    if failures < 1:
        raise TableError("TABLE_OPTION", f"failures is {failures}: it must be 1 or more")
    spark = need(events, COLUMNS).sparkSession
    counted = spark.sql(_COUNTED, events=with_tags(events))
    failing = spark.sql(_FAILING, {"failures": failures}, counted=counted)
    marked = _marked(events, failing)
    return spark.sql(_JOBS, failing=failing, marked=marked)


def poison(events: DataFrame, failures: int = FAILURES) -> DataFrame:
    """
    One row a tube and fingerprint: how many jobs of the kind fail, how often, and the beginning of
    the body of one; see `poison_jobs`.
    """
    return in_steps((("kinds", _KINDS), ("poison", _POISON)), jobs=poison_jobs(events, failures))


def _marked(events: DataFrame, failing: DataFrame) -> DataFrame:
    """
    Fingerprints and samples, of the failing jobs only, since hashing bodies is what costs.
    """
    spark = events.sparkSession
    if "body" not in events.columns:
        return failing.where("false").selectExpr(
            "server", "job", "CAST(NULL AS string) AS fingerprint", "CAST(NULL AS string) AS sample"
        )
    bodies = need(events, ("body",)).select("server", "job", "body", "lsn")
    begun = spark.sql(_BODIES, {"bytes": MAX_JSON_BYTES + 1}, failing=failing, events=bodies)
    mark = udf(lambda body: fingerprint(bytes(body)), "string")
    show = udf(lambda body, size: readable(bytes(body), size), "string")
    return begun.select("server", "job", mark("body").alias("fingerprint"),
                        show("body", "size").alias("sample"))  # fmt: skip
