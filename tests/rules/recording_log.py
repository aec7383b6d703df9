"""
A log that is a list.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from beanstalk_twisted.binlog.records import JobImage, Record
from beanstalk_twisted.rules.changes import SpaceBudget, Unlimited


class RecordingLog:
    """
    Keeps all records; the first has LSN 1.

    :ivar wholes: the first and last LSN of those that were appended as a whole.
    """

    def __init__(self) -> None:
        self.segment = 1
        self.records: list[Record] = []
        self.wholes: list[tuple[int, int]] = []
        self.budget: SpaceBudget = Unlimited()
        self.is_behind = False
        self.has_extensions = False

    def allow_extensions(self, time_ns: int) -> None:
        """
        See `JobLog.allow_extensions`.
        """
        self.has_extensions = True

    def make_room(self, body_bytes: int, time_ns: int) -> None:
        """
        There is no end to it.
        """

    def append_run(self, records: Iterator[Record]) -> int:
        """
        Keep records and number the first.
        """
        first = len(self.records) + 1
        self.records += records
        assert 0 <= len(self.records) - first < self.budget.run_records
        return first

    def append_whole(self, records: Sequence[Record]) -> int:
        """
        Keep records and number the first.
        """
        first = len(self.records) + 1
        self.records += records
        self.wholes.append((first, len(self.records)))
        return first

    def append(self, record: Record) -> int:
        """
        Keep a record and number it.
        """
        self.records.append(record)
        return len(self.records)

    def begin_segment(self, head: Sequence[Record]) -> None:
        """
        Let the next records lie in another segment, behind these.
        """
        self.segment += 1
        self.records += head

    def images(self, job_id: int | None = None) -> list[JobImage]:
        """
        Give the images of one job, or of all.
        """
        images = [record for record in self.records if isinstance(record, JobImage)]
        return [image for image in images if job_id is None or image.job_id == job_id]

    def committed_lsn(self, job_id: int | None = None) -> int:
        """
        Give the LSN of the newest record that replies wait for, of one job or of all; 0 if none.
        """
        for lsn in range(len(self.records), 0, -1):
            record = self.records[lsn - 1]
            is_meant = job_id is None or (isinstance(record, JobImage) and record.job_id == job_id)
            if record.commits and is_meant:
                return lsn
        return 0
