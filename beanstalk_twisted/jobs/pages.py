"""Jobs in memory: one that nobody holds as a row, bytes with all but its id and its body; and pages
of them.
"""

import struct
from array import array
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.cold import ColdJobs, Standing
from beanstalk_twisted.jobs.job import GONE, READY, Job

PAGE_BITS: Final = 5
"""An id without so many bits is the number of its page."""

ROW: Final = struct.Struct("<qQqHBxIIIIIIQHHHH")
"""A `job.Row`.  Its state is GONE if there is no such job, or it is a `Job`."""

STATE: Final = 4
"""Where that is in a `job.Row`."""

NEW_ROW: Final = struct.Struct("<qQq2xBxIIIIIIQ8x")
"""The same without the counts of what was done with the job: they are 0."""

ROW_BYTES: Final = ROW.size

KICKS_AT: Final = 24
STATE_AT: Final = 26
KICKED: Final = struct.Struct("<QqHB")
"""lsn, deadline_ns, kicks, state."""
KICKED_AT: Final = 8
STANDING: Final = struct.Struct("<24xHBxI")
"""kicks, state, priority."""
LOGGED: Final = struct.Struct("<24xHBxIII20xHHHH")
"""The same, delay_s, ttr_s, reserves, timeouts, releases, buries."""
I64: Final = struct.Struct("<q")
U32: Final = struct.Struct("<I")
TUBE_AT: Final = 40
SEGMENT_AT: Final = 44
SIZE_AT: Final = 48
FULL_LSN: Final = struct.Struct("<Q")
FULL_LSN_AT: Final = 52

_ROW_WORDS: Final = ROW_BYTES // 4
_LSN_WORD: Final = KICKED_AT // 4
_DEADLINE_WORD: Final = 4
_STATE_WORD: Final = 6
_PRIORITY_WORD: Final = 7
_COUNTS_WORD: Final = 15
_SHIFT: Final = 16
_SIZE_WORD: Final = SIZE_AT // 4
_FULL_LSN_WORD: Final = FULL_LSN_AT // 4

PAGE_SIZE: Final = 1 << PAGE_BITS
"""32 slots: 10 bytes a job when all are in use, and no more than 2,800 for one lone survivor."""

_ALL_READY: Final = bytes([READY]) * PAGE_SIZE
_MOST_BYTE: Final = 255
_NEXT_BYTE: Final = bytes([*range(1, _MOST_BYTE + 1), 0])
_ZEROS: Final = memoryview(array("I", [0] * PAGE_SIZE))


class JobFacts(NamedTuple):
    """What a walk through the table tells of a job.

    :ivar job: None if it rests.
    """

    job_id: int
    tube_id: int
    created_ns: int
    body_bytes: int
    job: Job | None


class Page:
    """Jobs whose ids differ in their last bits only.

    :ivar entries: by these bits, each job that is a `Job`, and the body of one that is a row, None
        if that is in the log only; ``rows`` the rows.
    :ivar number: what all of these ids have in common.
    :ivar count: of jobs.
    """

    __slots__ = ("count", "entries", "number", "rows")

    def __init__(
        self, number: int, entries: list[bytes | Job | None] | None = None,
        rows: bytearray | None = None,
    ) -> None:  # fmt: skip
        """:param entries: of a page of rows, without a free slot; else it is empty."""
        self.number = number
        self.entries = entries or [None] * PAGE_SIZE
        self.rows = rows or bytearray(ROW_BYTES * PAGE_SIZE)
        self.count = len(entries or ())

    def has(self, slot: int) -> bool:
        return self.entries[slot] is not None or self.rows[slot * ROW_BYTES + STATE_AT] > 0

    def is_free(self, start: int, end: int) -> bool:
        return not any(map(self.has, range(start, end)))

    def home(self, slot: int) -> tuple[int, int]:
        """:return: the segment and the LSN of the full record of a row."""
        at = slot * ROW_BYTES
        segment = U32.unpack_from(self.rows, at + SEGMENT_AT)[0]
        return segment, FULL_LSN.unpack_from(self.rows, at + FULL_LSN_AT)[0]

    def body_bytes(self, slot: int) -> int:
        return int(U32.unpack_from(self.rows, slot * ROW_BYTES + SIZE_AT)[0])

    def kick(self, lsn: int) -> list[int] | None:
        """All its slots have jobs that are kicked, in order: as one by one, in a fifth of the time.

        :param lsn: of the first one's record, the others' follow; 0 if they are known durable.
        :return: their priorities; None if that cannot be done here: nothing has changed.
        """
        rows = self.rows
        kicks = rows[KICKS_AT::ROW_BYTES]
        if GONE in rows[STATE_AT::ROW_BYTES] or _MOST_BYTE in kicks:
            return None
        rows[KICKS_AT::ROW_BYTES] = kicks.translate(_NEXT_BYTE)
        rows[STATE_AT::ROW_BYTES] = _ALL_READY
        words = memoryview(rows).cast("I")
        words[_DEADLINE_WORD::_ROW_WORDS] = words[_DEADLINE_WORD + 1 :: _ROW_WORDS] = _ZEROS
        if lsn:
            halves = memoryview(array("Q", range(lsn, lsn + PAGE_SIZE))).cast("B").cast("I")
            words[_LSN_WORD::_ROW_WORDS] = halves[::2]
            words[_LSN_WORD + 1 :: _ROW_WORDS] = halves[1::2]
        return words[_PRIORITY_WORD::_ROW_WORDS].tolist()

    def facts(self) -> list[JobFacts]:
        """What is known of its jobs: 1 us for each."""
        return [self._facts_of(slot) for slot in range(PAGE_SIZE) if self.has(slot)]

    def _facts_of(self, slot: int) -> JobFacts:
        job_id, entry = self.number << PAGE_BITS | slot, self.entries[slot]
        if isinstance(entry, Job):
            return JobFacts(job_id, entry.tube_id, entry.created_ns, entry.body_bytes, entry)
        at = slot * ROW_BYTES
        tube_id = U32.unpack_from(self.rows, at + TUBE_AT)[0]
        created_ns = I64.unpack_from(self.rows, at)[0]
        return JobFacts(job_id, tube_id, created_ns, self.body_bytes(slot), None)


def pack_all(jobs: ColdJobs) -> memoryview:
    """What `ROW` packs, of one job after the other."""
    count = len(jobs.job_ids)
    same = ROW.pack(0, 0, 0, 0, READY, 0, 0, 0, 0, jobs.segment, 0, 0, 0, 0, 0, 0)
    packed = memoryview(bytearray(same * count))
    words = packed.cast("I")
    for at, column in (
        (0, jobs.created_low), (1, jobs.created_high), (_PRIORITY_WORD, jobs.priority),
        (8, jobs.delay_s), (9, jobs.ttr_s), (10, jobs.tube_id), (_SIZE_WORD, jobs.sizes),
    ):  # fmt: skip
        words[at::_ROW_WORDS] = column
    if jobs.lsns:
        halves = memoryview(jobs.lsns).cast("B").cast("I")
        for at in (_LSN_WORD, _FULL_LSN_WORD):
            words[at::_ROW_WORDS] = halves[::2]
            words[at + 1 :: _ROW_WORDS] = halves[1::2]
    if jobs.standing is not None:
        _stand(words, jobs.standing)
    return packed


def _stand(words: memoryview, standing: Standing) -> None:
    states, deadlines_ns, reserves, timeouts, releases, buries, kicks = standing
    halves = memoryview(array("q", deadlines_ns)).cast("B").cast("I")
    words[_DEADLINE_WORD::_ROW_WORDS] = halves[::2]
    words[_DEADLINE_WORD + 1 :: _ROW_WORDS] = halves[1::2]
    for at, low, high in (
        (_STATE_WORD, kicks, states), (_COUNTS_WORD, reserves, timeouts),
        (_COUNTS_WORD + 1, releases, buries),
    ):  # fmt: skip
        both = [one | other << _SHIFT for one, other in zip(low, high, strict=True)]
        words[at::_ROW_WORDS] = memoryview(array("I", both))
