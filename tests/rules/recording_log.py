"""A log that is a list, on a disk that gives as much as a test says."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from beanstalk_twisted.binlog.cold import Run
from beanstalk_twisted.binlog.records.jobs import JobImage
from beanstalk_twisted.binlog.records.others import Record
from beanstalk_twisted.rules.changes import ALL, SpaceBudget, Unlimited
from tests.binlog.scribe import records_of


class Budget:
    """A `SpaceBudget` that has room for what a test says; all of it may be set at any time.

    :ivar largest: bytes of the largest body of a new job that has room; None: none has.
    :ivar largest_copy: the same of a job that is copied.
    :ivar changes: how many more changes have room, counted down as they ask.
    :ivar asked: bytes and number of jobs of each new job that has asked.
    """

    def __init__(
        self, *, is_short: bool = False, has_segment: bool = True, run_records: int = ALL,
        largest: int | None = ALL, largest_copy: int | None = ALL, changes: int = ALL,
    ) -> None:  # fmt: skip
        self.is_short, self.has_segment, self.run_records = is_short, has_segment, run_records
        self.rest = ALL
        self.largest, self.largest_copy, self.changes = largest, largest_copy, changes
        self.asked: list[tuple[int, int]] = []

    def is_ample(self, body_bytes: int) -> bool:
        """Have `takes_put` asked."""
        return False

    def takes_segment(self) -> bool:
        return self.has_segment

    def takes_put(self, body_bytes: int, jobs: int) -> bool:
        """See `SpaceBudget.takes_put`."""
        self.asked.append((body_bytes, jobs))
        return self.largest is not None and body_bytes <= self.largest

    def takes_change(self, jobs: int) -> bool:
        """See `SpaceBudget.takes_change`."""
        self.changes -= 1
        return self.changes >= 0

    def takes_copy(self, body_bytes: int, jobs: int) -> bool:
        """See `SpaceBudget.takes_copy`."""
        return self.largest_copy is not None and body_bytes <= self.largest_copy


def full_disk(changes: int = 0) -> Budget:
    """Make the budget of a disk that has room for deletions, so many other changes, and no more."""
    return Budget(
        is_short=True, has_segment=False, run_records=0, largest=None, largest_copy=None,
        changes=changes,
    )  # fmt: skip


class RecordingLog:
    """Keeps all records; the first has LSN 1.

    :ivar wholes: the first and last LSN of those that were appended as a whole.
    """

    def __init__(self) -> None:
        self.segment = 1
        self.records: list[Record] = []
        self.wholes: list[tuple[int, int]] = []
        self.budget: SpaceBudget = Unlimited()
        self.is_behind = self.commits_reserves = False
        self.features = 0

    def allow(self, features: int, time_ns: int) -> None:
        """See `JobLog.allow`."""
        self.features |= features

    def make_room(self, body_bytes: int, time_ns: int) -> None:
        """There is no end to it."""

    def append_run(self, make: Callable[[], Run]) -> int:
        """Keep records and number the first."""
        first = len(self.records) + 1
        self.records += records_of(make())
        assert 0 <= len(self.records) - first < self.budget.run_records
        return first

    def append_whole(self, records: Sequence[Record]) -> int:
        """Keep records and number the first."""
        first = len(self.records) + 1
        self.records += records
        self.wholes.append((first, len(self.records)))
        return first

    def append(self, record: Record) -> int:
        """Keep a record and number it."""
        self.records.append(record)
        return len(self.records)

    def begin_segment(self, head: Sequence[Record]) -> None:
        """Let the next records lie in another segment, behind these."""
        self.segment += 1
        self.records += head

    def images(self, job_id: int | None = None) -> list[JobImage]:
        """Give the images of one job, or of all."""
        images = [record for record in self.records if isinstance(record, JobImage)]
        return [image for image in images if job_id is None or image.job_id == job_id]

    def committed_lsn(self, job_id: int | None = None) -> int:
        """Give the LSN of the newest record that replies wait for, of one job or of all; 0 if
        none.
        """
        for lsn in range(len(self.records), 0, -1):
            record = self.records[lsn - 1]
            is_meant = job_id is None or (isinstance(record, JobImage) and record.job_id == job_id)
            if record.commits and is_meant:
                return lsn
        return 0
