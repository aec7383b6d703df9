"""
Is this log sound?  The same look that a server takes when it starts; nothing is changed.
"""

import errno
from collections import deque
from typing import NamedTuple

from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.binlog.errors import BinlogError
from beanstalk_twisted.binlog.replay import Replay
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
    if not survey.segments and not survey.problems:
        raise FileNotFoundError(errno.ENOENT, "there is no log here", directory.path)
    segments = [
        SegmentRow(
            s.name, s.header.first_lsn, s.ending.next_lsn - 1, len(s.frame_offsets),
            s.ending.offset,
        )
        for s in survey.segments
    ]  # fmt: skip
    details = [problem.what for problem in survey.problems] or _what_jobs_lack(survey)
    if details:
        return Finding(DAMAGED, f"damaged: a server refuses {survey.path}", details, segments)
    if survey.torn:
        verdict = "torn tail: a server cuts it off, keeps a copy, and loses nothing it promised"
        return Finding(TORN, verdict, [str(survey.torn)], segments)
    records = survey.small.records
    return Finding(SOUND, f"sound: {records} records, durable to LSN {survey.durable_lsn}", [],
                   segments)  # fmt: skip


def _what_jobs_lack(survey: Survey) -> list[str]:
    """
    Bytes may be sound and yet not say all that a server needs to load the jobs.
    """
    try:
        deque(Replay(survey).survivors(survey.small.time_ns), maxlen=0)
    except BinlogError as problem:
        return [str(problem)]
    return []
