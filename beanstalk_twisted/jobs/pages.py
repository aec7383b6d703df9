"""
Jobs whose ids differ in their last bits only: as rows, or as `Job`.
"""

from typing import Final, NamedTuple

from beanstalk_twisted.jobs.job import Job
from beanstalk_twisted.jobs.policy import PAGE_BITS
from beanstalk_twisted.jobs.rows import (
    CREATED,
    FULL_LSN,
    FULL_LSN_AT,
    ROW_BYTES,
    SEGMENT_AT,
    SIZE_AT,
    STATE_AT,
    TUBE_AT,
    U32,
)

PAGE_SIZE: Final = 1 << PAGE_BITS
"""32 slots: 10 bytes a job when all are in use, and no more than 2,800 for one lone survivor."""


class JobFacts(NamedTuple):
    """
    What a walk through the table tells of a job.

    :ivar job: None if it rests.
    """

    job_id: int
    tube_id: int
    created_ns: int
    body_bytes: int
    job: Job | None


class Page:
    """
    Jobs whose ids differ in their last bits only.

    :ivar entries: by these bits, each job that is a `Job`, and the body of one that is a row, None
        if that is in the log only; ``rows`` the rows.
    :ivar number: what all of these ids have in common.
    :ivar count: of jobs.
    """

    __slots__ = ("count", "entries", "number", "rows")

    def __init__(self, number: int) -> None:
        self.number = number
        self.entries: list[bytes | Job | None] = [None] * PAGE_SIZE
        self.rows = bytearray(ROW_BYTES * PAGE_SIZE)
        self.count = 0

    def has(self, slot: int) -> bool:
        """
        Whether there is such a job.
        """
        return self.entries[slot] is not None or self.rows[slot * ROW_BYTES + STATE_AT] > 0

    def home(self, slot: int) -> tuple[int, int]:
        """
        :return: the segment and the LSN of the full record of a row.
        """
        at = slot * ROW_BYTES
        segment = U32.unpack_from(self.rows, at + SEGMENT_AT)[0]
        return segment, FULL_LSN.unpack_from(self.rows, at + FULL_LSN_AT)[0]

    def body_bytes(self, slot: int) -> int:
        """
        The bytes of the body of a row, wherever that is.
        """
        return int(U32.unpack_from(self.rows, slot * ROW_BYTES + SIZE_AT)[0])

    def facts(self) -> list[JobFacts]:
        """
        What is known of its jobs: 1 us for each.
        """
        return [self._facts_of(slot) for slot in range(PAGE_SIZE) if self.has(slot)]

    def _facts_of(self, slot: int) -> JobFacts:
        job_id, entry = self.number << PAGE_BITS | slot, self.entries[slot]
        if isinstance(entry, Job):
            return JobFacts(job_id, entry.tube_id, entry.created_ns, entry.body_bytes, entry)
        at = slot * ROW_BYTES
        tube_id = U32.unpack_from(self.rows, at + TUBE_AT)[0]
        created_ns = CREATED.unpack_from(self.rows, at)[0]
        return JobFacts(job_id, tube_id, created_ns, self.body_bytes(slot), None)
