"""Small logs batch by batch, and damage to one of the batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from beanstalk_twisted.binlog.records.others import TubeDef
from tests.binlog import independent_reader
from tests.binlog.scribe import DEFAULT_TUBE, T0, Files, Scribe, delete, edited, flipped, put
from tests.tools.salvage.logs import FULL, Bytes

MAIL = TubeDef(2, b"mail", T0)
FILL = b"x" * 600
"""The body of the last job of a segment; see `killed`."""


def batches_of(files: Files, name: str) -> list[independent_reader.Fields]:
    """The frames of a segment that are not sync marks."""
    segment = independent_reader.read_segment(files[name])
    assert segment is not None
    return [frame for frame in segment["frames"] if frame["n_rec"]]


def with_bad_records(files: Files, name: str, batch: int) -> Files:
    """The last record of a batch is not as it was."""
    frame = batches_of(files, name)[batch]
    at = frame["offset"] + 80 * (frame["n_rec"] - 1)
    return edited(files, name, lambda raw: flipped(raw, at + 64 + 5))


def with_bad_heap(files: Files, name: str, body: bytes) -> Files:
    """One byte of a body is not as it was."""
    return edited(files, name, lambda raw: flipped(raw, raw.index(body)))


def killed(*batches: list, opening: tuple = (DEFAULT_TUBE,)) -> Files:  # type: ignore[type-arg]
    """A log; each batch was confirmed.  What it opens with is a batch of its own, number 0.  A
    segment ends behind a batch that ends with the body `FILL`.
    """
    scribe = Scribe(opening=list(opening))
    scribe.write()
    for batch in batches:
        scribe.write(*batch)
        if getattr(batch[-1], "body", b"") == FILL:
            scribe.end_segment()
        else:
            scribe.mark()
    return scribe.files()


def three_segments() -> Files:
    """A job in each; the first is deleted in the second."""
    return killed([put(1), put(9, FILL)], [put(2), delete(1), put(8, FILL)], [put(3)])


class Full(NamedTuple):
    """A full record of a sound log: where it stands, its frame's header and its body."""

    job_id: int
    lsn: int
    header: Bytes
    record: Bytes
    data: Bytes
    body: bytes


def full_records(files: Files) -> list[Full]:
    """All of a log that have the last body of their job, as the reader that was written from the
    document finds them; a job that was updated has had another one before.
    """
    found = [
        _full(name, frame, at)
        for name in sorted(files)
        for frame in batches_of(files, name)
        for at, record in enumerate(frame["records"])
        if record["type"] in FULL and record["data_len"]
    ]
    newest = {full.job_id: full.body for full in sorted(found, key=lambda full: full.lsn)}
    return [full for full in found if full.body == newest[full.job_id]]


def _full(name: str, frame: independent_reader.Fields, at: int) -> Full:
    record, start = frame["records"][at], frame["offset"]
    record_at = start + 64 + at * 80
    data_at = start + 64 + frame["n_rec"] * 80 + record["data_off"]
    return Full(
        record["job_id"], frame["base_lsn"] + at, Bytes(name, start, start + 64),
        Bytes(name, record_at, record_at + 80),
        Bytes(name, data_at, data_at + record["data_len"]),
        independent_reader.taken_apart(record)[1],
    )  # fmt: skip


def overwritten(files: Files, region: Bytes, filling: Callable[[bytes], bytes]) -> Files:
    name, start, end = region
    return edited(files, name, lambda raw: raw[:start] + filling(raw[start:end]) + raw[end:])


def inverted(block: bytes) -> bytes:
    return bytes(each ^ 0x55 for each in block)
