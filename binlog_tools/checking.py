"""
Is this log sound?  The same look that a server takes when it starts; nothing is changed.
"""

from typing import NamedTuple

from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.binlog.survey import Survey

SOUND, TORN, DAMAGED = 0, 1, 3
"""Exit codes of ``binlog-inspect check``."""


class SegmentRow(NamedTuple):
    """
    What a segment holds.

    :ivar end: where its valid frames end, bytes.
    """

    name: str
    first_lsn: int
    last_lsn: int
    frames: int
    end: int


class Finding(NamedTuple):
    """
    The outcome of a check.

    :ivar exit_code: 0 sound, 1 torn tail only, 3 damaged.
    :ivar verdict: one line; ``details`` are more.
    """

    exit_code: int
    verdict: str
    details: list[str]
    segments: list[SegmentRow]


def check(directory: Directory) -> Finding:
    """
    Look at every frame, checksum and number of a log.

    :raise OSError: it cannot be read.
    """
    survey = Survey(directory, lambda done, total: None)
    segments = [
        SegmentRow(
            s.name, s.header.first_lsn, s.ending.next_lsn - 1, len(s.frame_offsets),
            s.ending.offset,
        )
        for s in survey.segments
    ]  # fmt: skip
    if survey.problems:
        details = [problem.what for problem in survey.problems]
        return Finding(DAMAGED, f"damaged: a server refuses {survey.path}", details, segments)
    if survey.torn:
        verdict = "torn tail: a server cuts it off, keeps a copy, and loses nothing it promised"
        return Finding(TORN, verdict, [str(survey.torn)], segments)
    records = survey.small.records
    return Finding(SOUND, f"sound: {records} records, durable to LSN {survey.durable_lsn}", [],
                   segments)  # fmt: skip
