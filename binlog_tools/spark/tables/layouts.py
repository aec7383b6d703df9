"""The tables of jobs as they are stored: columns, what they mean, partitions."""

from typing import Final

import pyarrow as pa

from binlog_tools.spark.histories import entries, starts
from binlog_tools.spark.histories.increments import OPEN
from binlog_tools.spark.histories.sla import SLA
from binlog_tools.spark.histories.tables import (
    ATTEMPTS,
    KINDS,
    LIFETIMES,
    TUBE_MINUTES,
    WORKERS,
    schema_of,
)
from binlog_tools.spark.storing.files import Layout
from binlog_tools.spark.tables.by_job import EVENTS_SCHEMA

COMMENTS: Final = {
    "server": "store's UUID, or its name", "job": "id of the job", "tube": "name of the tube",
    "state": "at the server's last moment",
    "outcome": "done, dead, expired, cancelled, deleted or alive",
    "last_event": "newest event of the job", "put": "when it was put",
    "first": "first record here", "last": "newest record here",
    "life_ns": "from put to deletion, ns", "priority": "0: the most urgent",
    "bytes": "size of the body", "attempts": "reservations",
    "waits": "waits that a reserve ended", "wait_ns": "time in ready, without what lasts, ns",
    "run_ns": "time reserved, without what lasts, ns",
    "delayed_ns": "time delayed, without what lasts, ns",
    "buried_ns": "time buried, without what lasts, ns", "is_whole": "its put is in the log",
    "deaths": "how often it became a dead letter",
    "lifetimes.dead_from": "tube that it died in last", "lifetimes.dead_at": "when it died last",
    "revivals": "how often kick-dead took it back",
    "incarnation": "start of the server, from 1", "connection": "of the worker",
    "attempt": "counter of reserves", "started": "when it was reserved",
    "ended": "when the run ended", "started_ns": "when it was reserved, ns",
    "ended_ns": "when the run ended, ns",
    "ended_by": "event, return or cancel; restart or unlogged: not in the log; null: it runs",
    "minute": "its beginning",
    "tube_minutes.oldest_ns":
        "how long the job had waited that was ready longest at the minute's end, ns",
    "sla.oldest_ns": "longest wait that still lasted at the end of one of the hour's minutes, ns",
    "wait_histogram": "length of waits in ns, three digits, to how many",
    "run_histogram": "length of runs in ns, three digits, to how many",
    "busy_ns": "time with at least one job, ns", "lost": "runs of which the end is not in the log",
    "fingerprint": "of the body; null without bodies",
    "sample": "beginning of the body of the example, readable", "as_of": "the moment that is shown",
    "is_inferred": "the state followed from time or a restart, not from a record",
    "failing.lsn": "newest record with its body", "open.lsn": "number of the record",
    "snapshot.lsn": "newest record of the job", "snapshot.state": "at the moment that is shown",
    "settled": "never changes again: the job is gone",
    "date": "day of the rows, UTC",
}  # fmt: skip
"""By column, or table and column where it means something else there."""

_SETTLED: Final = pa.field("settled", pa.bool_())
_DATE: Final = pa.field("date", pa.date32())


def _layout(name: str, schema: pa.Schema, partition_by: tuple[str, ...], *more: pa.Field) -> Layout:
    fields = [
        field.with_metadata({"comment": text}) if text else field
        for field in (*schema, *more)
        for text in (COMMENTS.get(f"{name}.{field.name}", COMMENTS.get(field.name)),)
    ]
    return Layout(name, pa.schema(fields), partition_by)


_BY_JOB: Final = ("settled", "server", "date")
_BY_DAY: Final = ("server", "date")

BESIDE: Final = frozenset({"entries", "starts", "failing", "open"})
"""What no question is asked of."""

LAYOUTS: Final = {
    layout.name: layout for layout in (
        _layout("lifetimes", LIFETIMES, _BY_JOB, _SETTLED, _DATE),
        _layout("attempts", ATTEMPTS, _BY_JOB, _SETTLED, _DATE),
        _layout("workers", WORKERS, ("server", "incarnation")),
        _layout("tube_minutes", TUBE_MINUTES, _BY_DAY, _DATE),
        _layout("sla", SLA, _BY_DAY, _DATE),
        _layout("entries", entries.SCHEMA, _BY_JOB, _SETTLED, _DATE),
        _layout("starts", starts.SCHEMA, ()),
        _layout("failing", KINDS, ("settled",), pa.field("lsn", pa.int64()), _DATE, _SETTLED),
        _layout("open", EVENTS_SCHEMA, _BY_DAY, *OPEN),
    )
}  # fmt: skip
"""In the order in which they are committed; those `BESIDE` are what the next run goes on from.  The
``date`` of lifetimes, attempts and open events, and of entries and kinds of jobs that are not gone,
is the day on which the job was first seen: what is known of such a day's jobs is replaced together,
or stays.  Settled entries have the day of their minute."""

POISON: Final = _layout("poison", KINDS, ())

POISON_JOBS: Final = _layout("poison_jobs", schema_of("""
  server tube string; job bigint; fingerprint state string;
  failures timeouts releases buries disconnects bigint; last timestamp; is_dead boolean;
  sample string"""), ("server",))  # fmt: skip

SNAPSHOT: Final = _layout("snapshot", schema_of("""
  server string; job bigint; tube state string; is_inferred boolean;
  priority delay_s ttr_s bigint; deadline timestamp; deadline_ns connection bigint;
  incarnation int; put timestamp; age_ns bytes reserves timeouts releases buries kicks bigint;
  last_event string; lsn bigint;
  unique_key concurrency_key job_group after dead_from dead_reason string; dead_at timestamp;
  origin string; as_of timestamp"""), ("server",))  # fmt: skip

SINGLE: Final = {
    layout.name: layout for layout in (
        _layout("lifetimes", LIFETIMES, _BY_DAY, _DATE),
        _layout("attempts", ATTEMPTS, _BY_DAY, _DATE),
        LAYOUTS["tube_minutes"], LAYOUTS["workers"], POISON, POISON_JOBS, SNAPSHOT,
    )
}  # fmt: skip
"""Of tables that are written whole, by commands of their own."""
