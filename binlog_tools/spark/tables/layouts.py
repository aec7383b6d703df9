"""The tables as they are stored: columns, their meaning, partitions."""

from typing import Final

import pyarrow as pa

from binlog_tools.spark.definitions.columns import arrow_schema
from binlog_tools.spark.histories.records import CARRIED, COLUMNS, STARTS
from binlog_tools.spark.histories.tables import (
    ATTEMPTS,
    KINDS,
    LIFETIMES,
    POISON_JOBS,
    SNAPSHOT,
    TUBE_MINUTES,
    WORKERS,
)
from binlog_tools.spark.storing.tables import Layout

TAKEN: Final = (*COLUMNS, *CARRIED)
"""The columns of events that tables are made of."""

EVENTS: Final = arrow_schema(TAKEN)

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
    "wait_histogram": "length of waits in ns, three digits, to how many",
    "run_histogram": "length of runs in ns, three digits, to how many",
    "busy_ns": "time with at least one job, ns", "lost": "runs of which the end is not in the log",
    "fingerprint": "of the body; null without bodies",
    "sample": "beginning of the body of the example, readable", "as_of": "the moment that is shown",
    "is_inferred": "the state followed from time or a restart, not from a record",
    "poison_jobs.lsn": "newest record with its body", "open.lsn": "number of the record",
    "first_ns": "its first record, ns", "newest_ns": "its newest record, ns",
    "stopped_ns": "its ordered stop, ns; null: none",
    "snapshot.lsn": "newest record of the job", "snapshot.state": "at the moment that is shown",
    "date": "day of the deletion, UTC; of jobs that are alive, of the newest record",
    "tube_minutes.date": "day of the minute, UTC",
}  # fmt: skip
"""By column, or table and column where it means something else there."""

_DATE: Final = pa.field("date", pa.date32())


def _layout(name: str, schema: pa.Schema, partition_by: tuple[str, ...], *more: pa.Field) -> Layout:
    fields = [
        field.with_metadata({"comment": text}) if text else field
        for field in (*schema, *more)
        for text in (COMMENTS.get(f"{name}.{field.name}", COMMENTS.get(field.name)),)
    ]
    return Layout(name, pa.schema(fields), partition_by)


_BY_DAY: Final = ("server", "date")

LAYOUTS: Final = {
    layout.name: layout for layout in (
        _layout("lifetimes", LIFETIMES, _BY_DAY, _DATE),
        _layout("attempts", ATTEMPTS, _BY_DAY, _DATE),
        _layout("tube_minutes", TUBE_MINUTES, _BY_DAY, _DATE),
        _layout("workers", WORKERS, ("server", "incarnation")),
        _layout("poison_jobs", POISON_JOBS, _BY_DAY, _DATE),
        _layout("poison", KINDS, ()),
        _layout("snapshot", SNAPSHOT, ("server",)),
        _layout("starts", STARTS, ()),
        _layout("open", EVENTS, ("server",)),
    )
}  # fmt: skip
"""In the order in which they are committed."""

OPEN: Final = "open"
"""The events of jobs that are not settled: with them the next increment begins."""

INTERNAL: Final = frozenset({"starts", OPEN})
"""What the next increment begins with, besides the tables that questions are asked of."""
