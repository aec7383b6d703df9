"""Makes small logs of beanstalkd for tests, from docs/beanstalkd-binlog.md and not from our
code.
"""

import struct
from collections.abc import Mapping
from typing import Any

from binlog_tools.v7.survivors import Job, Survivors
from tests.binlog.memory import MemoryDirectory

NS = 1_000_000_000
T0 = 1_763_640_000 * NS
READY, RESERVED, BURIED, DELAYED = 1, 2, 3, 4

FIXED_7 = struct.Struct("<QI4xqqi4xqq5IB3x")
FIXED_5 = struct.Struct("<QI4xQQi4xQQ5IB")
FIXED_386 = struct.Struct("<QIqqiqq5IB3x")

VERSION_7 = struct.pack("<i", 7)
VERSION_5 = struct.pack("<i", 5)


def fields(job_id: int, body: bytes, **changes: Any) -> list[int]:
    """The fixed part of a ready job that was put ``job_id`` ms after `T0`."""
    values = {
        "pri": 1024, "delay": 0, "ttr": 60 * NS, "body_size": len(body) + 2,
        "created": T0 + job_id * 1_000_000, "deadline": 0, "reserves": 0, "timeouts": 0,
        "releases": 0, "buries": 0, "kicks": 0, "state": READY,
    }  # fmt: skip
    assert changes.keys() <= values.keys()
    return [job_id, *{**values, **changes}.values()]


def full(job_id: int, body: bytes = b"hello", tube: bytes = b"default", **changes: Any) -> bytes:
    head = struct.pack("<i", len(tube)) + tube
    return head + FIXED_7.pack(*fields(job_id, body, **changes)) + body + b"\r\n"


def short(job_id: int, state: int, body: bytes = b"hello", **changes: Any) -> bytes:
    """A short record of the job that `full` makes with this id and body."""
    return bytes(4) + FIXED_7.pack(*fields(job_id, body, state=state, **changes))


def gone(job_id: int, body: bytes = b"hello", **changes: Any) -> bytes:
    return short(job_id, 0, body, **changes)


def _in_us(values: list[int]) -> list[int]:
    return [value // 1000 if at in (2, 3, 5, 6) else value for at, value in enumerate(values)]


def full_5(job_id: int, body: bytes = b"hello", tube: bytes = b"default", **changes: Any) -> bytes:
    head = struct.pack("<Q", len(tube)) + tube
    return head + FIXED_5.pack(*_in_us(fields(job_id, body, **changes))) + body + b"\r\n"


def short_5(job_id: int, state: int, body: bytes = b"hello", **changes: Any) -> bytes:
    return bytes(8) + FIXED_5.pack(*_in_us(fields(job_id, body, state=state, **changes)))


def gone_5(job_id: int, body: bytes = b"hello", **changes: Any) -> bytes:
    return short_5(job_id, 0, body, **changes)


def file_7(*records: bytes, zeros: int = 0) -> bytes:
    return VERSION_7 + b"".join(records) + bytes(zeros)


def file_5(*records: bytes, zeros: int = 0) -> bytes:
    return VERSION_5 + b"".join(records) + bytes(zeros)


def read(files: Mapping[str, bytes] | bytes) -> Survivors:
    """What survives of a directory, or of one file; and see that nothing was changed."""
    held = files if isinstance(files, Mapping) else {"binlog.1": files}
    directory = MemoryDirectory(dict(held))
    found = Survivors(directory, lambda done, total: None)
    assert directory.operations == 0
    return found


def bodies(found: Survivors) -> dict[int, bytes]:
    """The bodies of the surviving jobs, the doubtful ones left out."""
    return {job_id: found.body(job) for job_id, job in found.jobs.items()}


def whole(found: Survivors, job: Job) -> tuple[object, ...]:
    """All that a client may see of a job."""
    return (*job.fields, job.tube, found.body(job))


def wholes(found: Survivors) -> dict[int, tuple[object, ...]]:
    return {job_id: whole(found, job) for job_id, job in found.jobs.items()}


def buried(found: Survivors) -> list[int]:
    """The ids of the buried jobs, in their order."""
    return [job.fields.job_id for job in found.buried()]


def kinds(found: Survivors) -> list[str]:
    return [str(finding.kind) for finding in found.findings.listed]
