"""Schemas of the API's replies that several operations have, by name."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from beanstalk_twisted.storage.compactor import Kept
from beanstalk_twisted.web.api.fields import STATES
from beanstalk_twisted.web.routes import ACTIONS
from beanstalk_twisted.web.schemas import (
    ANYTHING,
    INTEGER,
    MAYBE_INTEGER,
    NUMBER,
    STRING,
    U32,
    Schema,
    count,
    many,
    of,
    record,
    ref,
)
from beanstalk_twisted.wire.layouts import Row, rows_of
from beanstalk_twisted.wire.stats import (
    ConnectionStats,
    JobStats,
    ListedJob,
    ReplicatedStats,
    ServerStats,
    Stats,
    TimesLeft,
)

_TYPES: Final[Mapping[object, str]] = {
    int: "integer", bool: "boolean", str: "string", float: "string", TimesLeft: "object",
}  # fmt: skip
"""JSON types of keys of statistics; numbers with a fraction are text there."""

_LINK: Final = re.compile(r"\[([^]]*)\]\([^)]*\)")


def _keys(*kinds: type[Stats]) -> Iterator[tuple[str, Schema]]:
    """Describe the keys of answers; one that not all of them have may be missing."""
    tables = [{row.key: row for row in rows_of(kind)} for kind in kinds]
    rows: dict[str, Row] = {}
    for table in tables:
        rows |= table
    for key, row in rows.items():
        is_there = all(key in table for table in tables) and not row.about.is_optional
        meaning = _LINK.sub(r"\1", row.about.meaning) + (row.about.unit and f" ({row.about.unit})")
        name = key.replace("-", "_")
        yield name if is_there else f"{name}?", of(_TYPES[row.kind], meaning)


_HELD_SINCE: Final[Mapping[str, Schema]] = {
    "reserved_seconds": of("number", "since it was reserved"),
    "touched_seconds": of("number", "since it was last reserved or touched"),
    "seconds_left": of("number", "of its TTR"),
}

_HISTOGRAM: Final = record({"bounds": many(NUMBER), "counts": many(INTEGER), "sum": NUMBER})

_STANDBY: Final = record({
    "name": STRING, "addresses": many(STRING), "position": count(), "lsn": count(),
    "is_in_sync": of("boolean", "Whether it may become active at once"),
})  # fmt: skip

_STREAM: Final = record(
    {
        "leader": of("string", "The NATS server that decides; empty if none does"),
        "copies": count("How many there are to be"),
        "current": many(STRING, "Servers whose copies have all"),
        "behind": many(STRING, "Servers that are gone, or whose copies lack something"),
    },
    "Where it is stored; null while NATS does not say", ["object", "null"],
)  # fmt: skip

SCHEMAS: Final[Mapping[str, Schema]] = {
    "Problem": record({
        "status": of("integer", minimum=400, maximum=599), "title": STRING, "detail": STRING,
    }),
    "Stats": record(
        {**dict(_keys(ServerStats)), **dict(_keys(ReplicatedStats))},
        "Keys of the protocol's answer, with _ for -", additionalProperties=True,
    ),
    "Tube": record(
        {
            "name": STRING, "ready": U32, "reserved": U32, "delayed": U32, "buried": U32,
            "urgent": U32, "using": U32, "watching": U32, "waiting": U32, "total_jobs": INTEGER,
            "deletes": INTEGER, "pauses": INTEGER, "timeouts": INTEGER,
            "pause_seconds_left": NUMBER, "oldest_ready_age_seconds": NUMBER,
            "next_delayed_seconds": of(["number", "null"]),
            "policy?": {**ANYTHING, "description": "of one tube only"},
            "body_bytes?": of("integer", "of the bodies of all its jobs; of one tube only"),
        },
        additionalProperties=True,
    ),
    "Job": record(
        {
            **dict(_keys(JobStats, ListedJob)),
            "state": of("string", enum=list(STATES)), "pri": U32, "body?": ref("Body"),
            "holder?": record(
                {"connection": count(), "peer": STRING, **_HELD_SINCE},
                "of a reserved job: who holds it, and since when",
            ),
        },
        additionalProperties=True,
    ),
    "Body": record({
        "size": INTEGER, "truncated": of("boolean"), "text?": of("string", "if it is UTF-8"),
        "base64?": of("string", "if it is not", contentEncoding="base64"),
    }),
    "Log": record(
        {
            "total_bytes": count(), "live_bytes": count(), "debt_bytes?": count(),
            "may_be_bytes?": count("from which size on it is compacted"), "segments": count(),
            "oldest_segment?": count(
                "its number; its jobs are those with where=file=NUMBER, see search", 1
            ),
            "oldest_jobs?": count("living jobs, and remembered keys, of the oldest segment"),
            "oldest_live_bytes?": count(),
            "oldest_kept": of("string", "why the oldest segment is still there", enum=list(Kept)),
            "unsynced_bytes": count("not known to be durable"),
            "oldest_unsynced_seconds": of("number", "how long the oldest of these has waited"),
            "preallocated_bytes": count("that records can still take of files that are there"),
            "allocated_bytes": count("of all its files"),
            "most_bytes": count("that these may have; 0 for no limit"),
            "disk_free_bytes": of(["integer", "null"], "null before it was asked"),
            "disk_size_bytes": of(["integer", "null"], "null before it was asked"),
            "is_full": of("boolean", "whether new jobs are refused for lack of space"),
            "unchecked_bytes": count("of segments whose bodies no check has reached yet"),
            "unarchived": of(["array", "null"], "finished segments that the archive lacks, and "
                             "their bytes; null without an archive", items=count()),
            "fsync_seconds": _HISTOGRAM,
            "group_commit_size": {**_HISTOGRAM, "description": "records written together"},
        },
        additionalProperties=True,
    ),
    "Segment": record({
        "number": count(), "name": STRING, "size": count("bytes of its header and frames"),
        "jobs": count("living jobs, and remembered keys, whose newest full record is here"),
        "live_bytes": count("of these records"), "is_sealed": of("boolean"),
        "is_archived": of(["boolean", "null"], "null without an archive"),
        "first_lsn": of(["integer", "null"], "null if its header cannot be read, or not yet"),
        "last_lsn": MAYBE_INTEGER, "age_seconds": of(["number", "null"], "since it was begun"),
    }),
    "Connection": record(
        {
            **dict(_keys(ConnectionStats)),
            "is_request": of("boolean", "whether it is that of a request of this API"),
            "held": many(record({"id": count(), **_HELD_SINCE})),
        },
        additionalProperties=True,
    ),
    "Group": record({
        "tube": STRING,
        "dead_from": of(
            ["string", "null"], "the tube that they are dead letters of; null if they are none"
        ),
        "dead_reason": of(["string", "null"], "why they died"),
        "fingerprint": of(["string", "null"], "with by=body: of each of the bodies"),
        "jobs": count(), "bytes": count(), "oldest_age": count(), "newest_age": count(),
        "sample": count("the first of them"), "body?": ref("Body"),
    }),
    "Run": record({
        "run": count(low=1), "action": of("string", enum=list(ACTIONS)),
        "to": of(["string", "null"]), "what": STRING,
        "state": of("string", enum=["running", "done", "stopped", "failed"]), "why": STRING,
        "count": count(), "done": count("jobs that were changed"),
        "skipped": count("jobs that were not, since they were not as meant any more"),
        "looked": count(), "total": count(),
        "unread": count(
            "jobs that were left alone since their bodies, which say if they are meant, cannot be "
            "read from the log"
        ),
    }),
    "Replication": record({
        "role": of("string", enum=["alone", "active", "standby"]),
        "why_not_ready?": of("string", "Empty if changes are served"), "name?": STRING,
        "active?": of("string", "Who is active; empty if that is not known"),
        "is_in_sync?": of("boolean", "Whether it is active, or may become so at once"),
        "position?": count("Of the newest message of the stream that it has"),
        "lease_s?": of(
            "number", "For how long the active server may still speak; 0 of a standby", minimum=0
        ),
        "lag_records?": count(), "lag_bytes?": count(), "lag_s?": of("number", minimum=0),
        "standbys?": many(_STANDBY), "takeovers?": count(), "fenced?": count(),
        "stream?": _STREAM,
    }),
}  # fmt: skip
