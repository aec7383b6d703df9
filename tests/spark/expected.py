"""
The rows that a log should give, by the second reader, which is written from the format alone.

Slow, one record at a time, and sharing no code with what it is compared to but the names.
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.binlog import independent_reader as reader

EVENTS = {
    1: "put", 2: "reserve", 3: "release", 4: "bury", 5: "kick", 6: "touch", 7: "delete",
    8: "ttr-expired", 9: "disconnect-release", 16: "copy", 32: "tube-def", 33: "pause",
    40: "state", 48: "trim", 49: "seal", 51: "start", 52: "clean-stop", 53: "clock-step",
}  # fmt: skip
STATES = {0: "gone", 1: "ready", 2: "reserved", 3: "buried", 4: "delayed"}
REASONS = ["none", "client", "disconnect", "ttr", "delay", "admin", "import", "restart", "damaged"]
OF_JOBS = {*range(1, 10), 16}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Row = dict[str, Any]


def rows_of(raw: bytes, end: int | None = None, records: str = "jobs", copies: str = "drop",
            server: str | None = None) -> list[Row]:  # fmt: skip
    """
    The rows of a sound segment.

    :param end: where its successor says that it ends.
    """
    segment = reader.read_segment(raw, end)
    assert segment is not None and not segment["is_torn"]
    names = {
        record["tube_id"]: record["data"].decode("utf-8", "backslashreplace")
        for frame in segment["frames"]
        for record in frame["records"]
        if record["type"] == 32
    }
    header = segment["header"]
    return [
        row_of(record, frame, header, names, server or header["store_uuid"])
        for frame in segment["frames"]
        for record in frame["records"]
        if (records == "all" or record["type"] in OF_JOBS)
        and (copies == "keep" or not record["flags"] & 2)
    ]


def row_of(record: Row, frame: Row, header: Row, names: dict[int, str], server: str) -> Row:
    """
    One row, by the meaning of each column in docs/spark.md.
    """
    kind = record["type"]
    job = kind in OF_JOBS
    body = body_of(record) if kind in (1, 16) else None
    deadline = record["deadline_ns"] or None if job or kind == 33 else None
    has_tube = (job or kind in (32, 33, 40)) and record["tube_id"]
    counted = ("reserves", "timeouts", "releases", "buries", "kicks")
    return {
        "server": server, "incarnation": header["incarnation"], "segment": header["seq"],
        "offset": frame["offset"], "lsn": record["lsn"], "event": EVENTS[kind],
        "time": moment(record["ts_ns"]), "time_ns": record["ts_ns"],
        "logged": moment(frame["time_ns"]), "logged_ns": frame["time_ns"],
        "job": record["job_id"] if job else None,
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
        "bytes": len(body) if body is not None else None, "body": body, "problem": None,
    }  # fmt: skip


def body_of(record: Row) -> bytes:
    """
    The body without the extensions before it.
    """
    data: bytes = record["data"]
    if not record["flags"] & 1:
        return data
    return data[2 + struct.unpack_from("<H", data)[0] :]


def moment(ns: int) -> datetime:
    """
    A moment to the microsecond, never later than it was.
    """
    return EPOCH + timedelta(microseconds=ns // 1000)
