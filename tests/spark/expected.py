"""The rows that a log should give, by the second reader, which is written from the format alone.

Slow, one record at a time, and sharing no code with what it is compared to but the names.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.binlog import independent_reader as reader

EVENTS = {
    1: "put", 2: "reserve", 3: "release", 4: "bury", 5: "kick", 6: "touch", 7: "delete",
    8: "ttr-expired", 9: "disconnect-release", 10: "move", 11: "update", 12: "group-ended",
    16: "copy", 32: "tube-def", 33: "pause", 34: "key", 35: "policy", 40: "state", 48: "trim",
    49: "seal", 51: "start", 52: "clean-stop", 53: "clock-step",
}  # fmt: skip
STATES = {0: "gone", 1: "ready", 2: "reserved", 3: "buried", 4: "delayed"}
REASONS = [
    "none",
    "client",
    "disconnect",
    "ttr",
    "delay",
    "admin",
    "import",
    "restart",
    "damaged",
    "expired",
    "max-reserves",
    "returned",
    "cancelled",
]
DEAD_REASONS = {1: "release", 2: "disconnect", 3: "ttr", 9: "max-age", 10: "max-reserves"}
OF_JOBS = {*range(1, 13), 16}
TAKEN = {"jobs": OF_JOBS, "history": {*OF_JOBS, 51, 52}, "all": {*EVENTS}}
FULL = {1, 10, 11, 16}
KEY, POLICY = 34, 35
NEVER_NS = (1 << 63) - 1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Row = dict[str, Any]


def rows_of(raw: bytes, end: int | None = None, records: str = "jobs", copies: str = "drop",
            server: str | None = None) -> list[Row]:  # fmt: skip
    """The rows of a sound segment."""
    segment = reader.read_segment(raw, end)
    assert segment is not None and not segment["is_torn"]
    names = {
        record["tube_id"]: record["data"].decode("utf-8", "backslashreplace")
        for frame in segment["frames"]
        for record in frame["records"]
        if record["type"] == 32
    }
    header = segment["header"]
    starts = [record["lsn"] for frame in segment["frames"] for record in frame["records"]
              if record["type"] == 51 and header["flags"] & 4]  # fmt: skip
    return [
        row_of(record, frame, header, names, server or header["store_uuid"])
        | {"incarnation": header["incarnation"] - sum(lsn > record["lsn"] for lsn in starts)}
        for frame in segment["frames"]
        for record in frame["records"]
        if record["type"] in TAKEN[records] and (copies == "keep" or not record["flags"] & 2)
    ]


def row_of(record: Row, frame: Row, header: Row, names: dict[int, str], server: str) -> Row:
    """One row, by the meaning of each column in docs/spark.md."""
    kind = record["type"]
    job = kind in OF_JOBS
    extensions, body = reader.taken_apart(record) if kind in FULL else ({}, None)
    deadline = record["deadline_ns"] or None if job or kind in (33, KEY) else None
    deadline = None if deadline == NEVER_NS else deadline
    has_tube = (job or kind in (32, 33, KEY, POLICY, 40)) and record["tube_id"]
    counted = ("reserves", "timeouts", "releases", "buries", "kicks")
    return {
        "server": server, "segment": header["seq"],
        "offset": frame["offset"], "lsn": record["lsn"], "event": EVENTS[kind],
        "time": moment(record["ts_ns"]), "time_ns": record["ts_ns"],
        "logged": moment(frame["time_ns"]), "logged_ns": frame["time_ns"],
        "job": record["job_id"] if job or kind == KEY else None,
        "tube": names[record["tube_id"]] if has_tube else None,
        "state": STATES[record["state"]] if job else None,
        "priority": record["priority"] if job else None,
        "delay_s": record["delay_s"] if job or kind == 33 else None,
        "ttr_s": record["ttr_s"] if job else None,
        "deadline": moment(deadline) if deadline is not None else None, "deadline_ns": deadline,
        **{name: record[name] if job else None for name in counted},
        "reason": REASONS[record["reason"]],
        "connection": (record["aux"] or None) if job else None,
        "copy": bool(record["flags"] & 2), "relaxed": bool(record["flags"] & 4),
        "bytes": len(body) if body is not None else None, "body": body,
        **tags_of(extensions), "policy": None, "problem": None,
        **({"unique_key": text_of(record["data"])} if kind == KEY else {}),
        **({"policy": text_of(record["data"])} if kind == POLICY else {}),
    }  # fmt: skip


def tags_of(extensions: Row) -> Row:
    """The columns of what a job carries beside its body."""
    unique_s, unique = extensions.get("unique", (None, None))
    limit, concurrency = extensions.get("concurrency", (None, None))
    reason, dead_ns, dead_from = extensions.get("dead", (None, None, None))
    return {
        "unique_key": text_of(unique), "unique_s": unique_s,
        "concurrency_key": text_of(concurrency), "concurrency_limit": limit,
        "job_group": text_of(extensions.get("group")), "after": text_of(extensions.get("after")),
        "dead_from": text_of(dead_from),
        "dead_reason": None if reason is None else DEAD_REASONS.get(reason, str(reason)),
        "dead_at": None if dead_ns is None else moment(dead_ns), "dead_at_ns": dead_ns,
        "origin": text_of(extensions.get("origin")),
        "metadata": text_of(extensions.get("metadata")),
    }  # fmt: skip


def text_of(name: bytes | None) -> str | None:
    return None if name is None else name.decode("utf-8", "backslashreplace")


def moment(ns: int) -> datetime:
    return EPOCH + timedelta(microseconds=ns // 1000)
