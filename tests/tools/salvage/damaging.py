"""
Small logs batch by batch, and damage to one of the batches.
"""

from __future__ import annotations

from beanstalk_twisted.binlog.records import TubeDef
from tests.binlog import independent_reader
from tests.binlog.scribe import (
    DEFAULT_TUBE,
    T0,
    Files,
    Scribe,
    delete,
    edited,
    flipped,
    put,
)

MAIL = TubeDef(2, b"mail", T0)
FILL = b"x" * 600
"""The body of the last job of a segment; see `killed`."""


def batches_of(files: Files, name: str) -> list[independent_reader.Fields]:
    """
    The frames of a segment that are not sync marks.
    """
    segment = independent_reader.read_segment(files[name])
    assert segment is not None
    return [frame for frame in segment["frames"] if frame["n_rec"]]


def with_bad_records(files: Files, name: str, batch: int) -> Files:
    """
    The last record of a batch is not as it was.
    """
    frame = batches_of(files, name)[batch]
    at = frame["offset"] + 80 * (frame["n_rec"] - 1)
    return edited(files, name, lambda raw: flipped(raw, at + 64 + 5))


def with_bad_heap(files: Files, name: str, body: bytes) -> Files:
    """
    One byte of a body is not as it was.
    """
    return edited(files, name, lambda raw: flipped(raw, raw.index(body)))


def killed(*batches: list, opening: tuple = (DEFAULT_TUBE,)) -> Files:  # type: ignore[type-arg]
    """
    A log; each batch was confirmed.  What it opens with is a batch of its own, number 0.  A segment
    ends behind a batch that ends with the body `FILL`.
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
    """
    A job in each; the first is deleted in the second.
    """
    return killed([put(1), put(9, FILL)], [put(2), delete(1), put(8, FILL)], [put(3)])
