"""Which log segments hold the bodies of living jobs, and how many bytes of them."""

from typing import Final

from beanstalk_twisted.binlog.records.jobs import RECORD_BYTES

Home = tuple[int, int]
"""A segment's living jobs: how many, and the bytes of their full records."""

EMPTY: Final = (0, 0)


class LiveBytes:
    """
    Living jobs by the segment of their newest full record.

    :ivar live_bytes: what the log would take if it held nothing but the living jobs.
    """

    def __init__(self) -> None:
        self.live_bytes = 0
        self._segments: dict[int, Home] = {}

    def of(self, segment: int) -> Home:
        """The living jobs of a segment."""
        return self._segments.get(segment, EMPTY)

    def enter(self, segment: int, body_bytes: int, count: int = 1) -> None:
        """The newest full record of a job is in this segment; of so many, with all their bodies."""
        if segment:
            size = RECORD_BYTES * count + body_bytes
            self.live_bytes += size
            known, total = self._segments.get(segment, EMPTY)
            self._segments[segment] = (known + count, total + size)

    def leave(self, segment: int, body_bytes: int) -> None:
        """It is no longer there, or the job is gone."""
        if segment:
            size = RECORD_BYTES + body_bytes
            self.live_bytes -= size
            count, total = self._segments[segment]
            if count > 1:
                self._segments[segment] = (count - 1, total - size)
            else:
                del self._segments[segment]
