"""The three ways in which the record that gave a job its newest body gets lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from beanstalk_twisted.binlog.records.jobs import Kind
from tests.binlog import independent_reader
from tests.binlog.scribe import Files, edited, flipped
from tests.tools.salvage.logs import Bytes
from tests.tools.salvage.served_logs import updated_log


def place_of_update(files: Files) -> tuple[Bytes, int]:
    """The frame with the UPDATE of job 1, and where the record stands in its segment."""
    [found] = [
        (Bytes(name, start, start + frame["frame_len"]), start + 64 + at * frame["rec_size"])
        for name, raw in files.items()
        for frame in (independent_reader.read_segment(raw) or {})["frames"]
        for start in [frame["offset"]]
        for at, record in enumerate(frame["records"])
        if record["type"] == Kind.UPDATE
    ]
    return found


def without_segment(files: Files) -> Files:
    frame, _ = place_of_update(files)
    return {name: raw for name, raw in files.items() if name != frame.name}


def with_zeroed_frame(files: Files) -> Files:
    (name, start, end), _ = place_of_update(files)
    return edited(files, name, lambda raw: raw[:start] + bytes(end - start) + raw[end:])


def with_flipped_bit(files: Files) -> Files:
    frame, at = place_of_update(files)
    return edited(files, frame.name, lambda raw: flipped(raw, at + 40, 3))


DAMAGES: Final[dict[str, Callable[[Files], Files]]] = {
    "segment removed": without_segment,
    "frame zeroed": with_zeroed_frame,
    "bit flipped": with_flipped_bit,
}


def damaged(how: str, is_deleted: bool = False) -> Files:
    """A log that a server wrote, after one of the damages."""
    return DAMAGES[how](updated_log(is_deleted).files)
