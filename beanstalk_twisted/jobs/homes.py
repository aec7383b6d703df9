"""
Which log segments hold the bodies of living jobs, and how many bytes of them.
"""

from typing import Final

from beanstalk_twisted.binlog.records import RECORD_BYTES

Home = tuple[int, int]
"""A segment's living jobs: how many, and the bytes of their full records."""

EMPTY: Final = (0, 0)


class Homes:
    """
    Living jobs by the segment of their newest full record.

    :ivar live_bytes: what the log would take if it held nothing but the living jobs.
    """

    def __init__(self) -> None:
        self.live_bytes = 0
        self._segments: dict[int, Home] = {}

    def of(self, segment: int) -> Home:
        """
        The living jobs of a segment.
        """
        return self._segments.get(segment, EMPTY)

    def enter(self, segment: int, body_bytes: int) -> None:
        """
        A job's newest full record is in this segment.
        """
        self._change(segment, 1, RECORD_BYTES + body_bytes)

    def leave(self, segment: int, body_bytes: int) -> None:
        """
        It is no longer there, or the job is gone.
        """
        self._change(segment, -1, -RECORD_BYTES - body_bytes)

    def _change(self, segment: int, jobs: int, record_bytes: int) -> None:
        if not segment:
            return
        self.live_bytes += record_bytes
        count, size = self._segments.get(segment, EMPTY)
        if count + jobs:
            self._segments[segment] = (count + jobs, size + record_bytes)
        else:
            del self._segments[segment]
