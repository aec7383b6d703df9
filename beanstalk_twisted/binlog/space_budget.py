"""How much a log can surely still take: in its newest segment, and in those preallocated."""

from collections import deque
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.segments.format import (
    ALIGN_BYTES,
    FRAME_HEADER_BYTES,
    FRAME_TARGET_BYTES,
    INDEX_ENTRY_BYTES,
    MAX_TUBE_NAME_BYTES,
    RECORD_BYTES,
    TRAILER_BYTES,
    TUBE_IN_SEAL_BYTES,
)

FRAME_BYTES: Final = FRAME_HEADER_BYTES + ALIGN_BYTES + INDEX_ENTRY_BYTES
"""What a frame takes beside its records and its heap."""

DELETE_BYTES: Final = FRAME_HEADER_BYTES + RECORD_BYTES
"""What the deletion of a job takes, and any other change that has no data."""

NEW_JOB_BYTES: Final = 2 * RECORD_BYTES + 2 * MAX_TUBE_NAME_BYTES + TUBE_IN_SEAL_BYTES
"""The record of a job and the definition of its tube, there and in the seal, but for the body."""

DELETE_WITH_KEY_BYTES: Final = 2 * RECORD_BYTES + MAX_TUBE_NAME_BYTES + 2 * FRAME_BYTES
"""The same of one that leaves a key of 200 bytes: two records in one frame, see `whole_bytes`."""

KEY_ENDS: Final = -(-DELETE_WITH_KEY_BYTES // DELETE_BYTES) - 1
"""How many deletions more a deletion takes if it leaves a key."""

TAIL_BYTES: Final = NEW_JOB_BYTES + DELETE_WITH_KEY_BYTES + FRAME_BYTES
"""Bytes at the end of a segment that may stay unused, since each change makes room for its tube
too.
"""

TUBE_BYTES: Final = RECORD_BYTES + TUBE_IN_SEAL_BYTES + MAX_TUBE_NAME_BYTES
"""The definition of a tube, there and in the seal, but for its name in one of the two."""

TUBE_STATE_BYTES: Final = 3 * RECORD_BYTES + 96 + TUBE_IN_SEAL_BYTES
"""What a segment says of each tube when it opens, beside its name twice: definition, pause,
counters, and in these three numbers of up to 15 digits.
"""

SERVER_GROWTH_BYTES: Final = 512
"""How much longer the next state of the server may be: 30 counters, up to 17 digits each."""

TUBE_GROWTH_BYTES: Final = RECORD_BYTES + 48
"""Likewise for each tube: it may be paused by then, and has three counters."""

ENDING_BYTES: Final = 2 * (FRAME_BYTES + RECORD_BYTES) + 2 * FRAME_BYTES + TRAILER_BYTES
"""Kept free in each segment besides its seal: CLEAN_STOP, the seal's own record, two sync marks,
the trailer.
"""

PLENTY_BYTES: Final = 2 * NEW_JOB_BYTES + FRAME_BYTES
"""A new job takes no more than this and twice its body: quicker to say than `new_job_bytes`."""

HALF_FRAME_BYTES: Final = FRAME_TARGET_BYTES // 2
"""Records of this many bytes begin at most one frame; see `frames.EncodedRecords`."""

MAX_RUN_RECORDS: Final = HALF_FRAME_BYTES // RECORD_BYTES
"""Records of a `cold.Run`: so it begins a new frame at most once."""

CHANGES_SHARE: Final = 4
"""One part in so many of a segment is kept for changes that are no deletions, before jobs are
taken: in 16 MiB go 116,000 of them.  As much again is allocated ahead, so that no put has to wait.
"""

AMPLE_SHARE: Final = 16
"""One part in this number of what is free beyond all promises may be used before these are counted
again.  A record takes its own bytes, and promises room for deletions: those of the smallest job
with a key are 7 times its record.
"""

UNKNOWN: Final = 1 << 62
"""In place of `SpaceBudget.ample`: more than any segment has."""

STALE_SHARE: Final = 4
"""A preallocated segment that lacks one part in this number of what is usual now is deleted."""


class PreallocatedSegment(NamedTuple):
    """A file that is to become a segment.

    :ivar number: its name, until then.
    :ivar is_ready: whether its bytes are allocated already.
    """

    number: int
    size: int
    is_ready: bool


class Demand(NamedTuple):
    """What the queue wants room for: living jobs, each to be deleted one day; bytes of jobs that
    wait for room, and of the largest of these.
    """

    jobs: int = 0
    waiting: int = 0
    largest: int = 0


def framed_bytes(record_bytes: int) -> int:
    """The most that records, heap included, take in frames: any two frames that follow each other
    are larger together than `FRAME_TARGET_BYTES`.
    """
    return record_bytes + FRAME_BYTES * (1 + 2 * record_bytes // FRAME_TARGET_BYTES)


def new_job_bytes(body_bytes: int) -> int:
    size = framed_bytes(NEW_JOB_BYTES + body_bytes)
    # A large record may end one frame and begin another, beside its own.
    return size + FRAME_BYTES if body_bytes + RECORD_BYTES > HALF_FRAME_BYTES else size


def whole_bytes(records: int, data_bytes: int) -> int:
    """What records of one frame take as if they were the body of one job: the frame may begin after
    half of one, and end it.
    """
    return records * RECORD_BYTES + data_bytes + 2 * FRAME_BYTES


class SpaceBudget:
    """The space that a log has been given.

    A preallocated segment can be used even when the disk is full.  Then, what is left is given away
    in this order:

    - to the deletion of every job there is: a job is taken only if its deletion has room too;
    - to compaction, which needs a segment's worth to free another (`takes_copies`);
    - to other changes of jobs (`takes_change`);
    - to new jobs (`takes_put`), as long as there is some for the others.

    So a full disk can always be emptied, and space that is freed is used again.  All numbers are
    what a change takes at most: in a frame of its own.

    Differs from beanstalkd: it reserves the same for each job, but not for changes; there, a job
    whose change cannot be written is in no state at all (prot.c, process_queue after walwrite
    fails).

    :ivar rest: bytes of the newest segment that are still free for records.
    :ivar overhead: bytes of the next segments that are never free for records.
    :ivar is_short: whether the disk has refused to give more.
    :ivar room_bytes: bytes that a segment usually has for records behind those that it opens with:
        at least as many as those, so that half of what is written is new.
    :ivar reserve: bytes that jobs are not taken into, beside their deletions.
    :ivar usual_bytes: that the next segments usually have; see `usual_size`.
    :ivar stale: files that are too small to be used: see `take_stale`.
    :ivar ample: while `rest` is above it, there is room for all that is promised, and nobody waits.
    """

    def __init__(self, segment_bytes: int) -> None:
        self.ample = UNKNOWN
        self.rest = self.overhead = 0
        self.is_short = False
        self.room_bytes = self.usual_bytes = segment_bytes
        self.reserve = segment_bytes + segment_bytes // CHANGES_SHARE
        self.stale: list[PreallocatedSegment] = []
        self._segment_bytes = segment_bytes
        self._head_bytes = 0
        self._preallocated: deque[PreallocatedSegment] = deque()
        self._usable_ahead = 0
        self._number = 0

    @property
    def free(self) -> int:
        """Bytes that records can surely still take, in preallocated segments too."""
        return self._free_rest + self._usable_ahead

    @property
    def _free_rest(self) -> int:
        return max(0, self.rest - TAIL_BYTES)

    @property
    def preallocated_bytes(self) -> int:
        return sum([segment.size for segment in [*self._preallocated, *self.stale]])

    def usual_size(self, begun_bytes: int, head_bytes: int) -> int:
        """The size of a segment that begins with this many bytes: the size that was asked for, if
        half of that is free; otherwise as much is free as there is to open with.

        :param head_bytes: of them, those that each segment opens with.
        """
        half = self._segment_bytes // 2
        return max(self._segment_bytes, begun_bytes + max(half, head_bytes))

    @property
    def run_records(self) -> int:
        """How many records without data a run may have: they surely fit into the newest segment,
        and into half of a frame.
        """
        return min(max(0, self.rest) // (RECORD_BYTES + FRAME_BYTES), MAX_RUN_RECORDS)

    def begin(self, rest: int, overhead: int, head_bytes: int) -> None:
        """A segment begins, which opens with ``head_bytes``; see `rest` and `overhead`."""
        self.rest, self.overhead, self._head_bytes = rest, overhead, head_bytes
        self.room_bytes = max(self._segment_bytes, head_bytes)
        self.reserve = self.room_bytes + self.room_bytes // CHANGES_SHARE
        self.usual_bytes = self.usual_size(overhead, head_bytes)
        if not self.is_short:
            least = self.usual_bytes - self.usual_bytes // STALE_SHARE
            stale = [each for each in self._preallocated if each.size < least]
            for segment in stale:
                self._preallocated.remove(segment)
            self.stale += stale
        self._count()

    def take_stale(self) -> list[PreallocatedSegment]:
        stale, self.stale = self.stale, []
        return stale

    def name_tube(self, name_bytes: int) -> None:
        self.overhead += TUBE_STATE_BYTES + 2 * name_bytes
        self.usual_bytes = self.usual_size(self.overhead, self._head_bytes)
        self._count()

    def takes_put(self, body_bytes: int, jobs: int) -> bool:
        """Whether there is room for a new job, and for the deletion of it and of ``jobs``
        others.
        """
        beside = self.reserve + (jobs + 1) * DELETE_BYTES
        plenty = 2 * body_bytes + PLENTY_BYTES
        if plenty <= self.rest and plenty + beside <= self.rest - TAIL_BYTES + self._usable_ahead:
            return True
        return self._takes(body_bytes, beside)

    def is_ample(self, body_bytes: int) -> bool:
        """Whether there surely is room for a new job, as `takes_put` says after a longer look."""
        return self.rest - 2 * body_bytes - PLENTY_BYTES > self.ample

    def takes_segment(self) -> bool:
        """Whether the next segment may begin before this one is full: there is a file for it."""
        return (bool(self._preallocated) and not self.is_short) or self._refuses()

    def takes_change(self, jobs: int) -> bool:
        """Whether there is room for a change, for compaction, and for the deletion of all jobs.  As
        long as the disk gives more there is.
        """
        if not self.is_short:
            return True
        return self.free >= self.room_bytes + (jobs + 1) * DELETE_BYTES

    def takes_copies(self, record_bytes: int, jobs: int) -> bool:
        """Whether the living records of a segment can be written again, so that it can be freed."""
        # Where nothing lives, only a TRIM is written; `takes_copy` leaves room for that.
        own = framed_bytes(record_bytes) + (NEW_JOB_BYTES if record_bytes else RECORD_BYTES)
        return not self.is_short or self.free >= own + jobs * DELETE_BYTES

    def takes_copy(self, body_bytes: int, jobs: int) -> bool:
        """Whether there is room for one of them: large ones may not fit, although all would."""
        return self._takes(body_bytes, TAIL_BYTES + jobs * DELETE_BYTES)

    def _takes(self, body_bytes: int, beside: int) -> bool:
        """Whether there is room for a job's full record, in one piece, and so many bytes beside."""
        own, free = new_job_bytes(body_bytes), self.free
        if own > self.rest:
            if not any(own <= segment.size - self.overhead for segment in self._preallocated):
                return self._refuses()
            free -= self._free_rest
        return free >= own + beside or self._refuses()

    def _refuses(self) -> bool:
        """Whoever is refused may wait: `wanted` is asked again."""
        self.ample = UNKNOWN
        return False

    # What the log does with it.

    def choose(self, least: int, usual: int) -> PreallocatedSegment:
        """The file for a new segment: of ``least`` bytes, ``usual`` if it has to be made."""
        if not self.is_short:
            least = max(least, usual - usual // STALE_SHARE)
        for segment in self._preallocated:
            if segment.size >= least:
                self._preallocated.remove(segment)
                self._count()
                return segment
        return self._another(max(least, usual), is_ready=False)

    def give_back(self, segment: PreallocatedSegment) -> None:
        if segment.is_ready:
            self._preallocated.appendleft(segment)
            self._count()

    def wanted(self, demand: Demand) -> PreallocatedSegment | None:
        promised = demand.jobs * DELETE_BYTES + self.reserve + demand.waiting
        wasted = self._free_rest if demand.largest > self.rest else 0
        left = self.free - wasted - promised - self.room_bytes // CHANGES_SHARE
        if left < 0:
            return self._another(self.usual_bytes, is_ready=True)
        if not demand.waiting:
            self.ample = self.rest - left // AMPLE_SHARE
        # Last, so that one that the disk cannot give does not stand in the way of the usual ones.
        size = self.overhead + demand.largest
        is_large = demand.largest > max(self.rest, self.usual_bytes - self.overhead)
        if is_large and not any(segment.size >= size for segment in self._preallocated):
            return self._another(size, is_ready=True)
        return None

    def add(self, segment: PreallocatedSegment) -> None:
        self._preallocated.append(segment)
        self._count()

    def _count(self) -> None:
        self.ample = UNKNOWN
        unusable = self.overhead + TAIL_BYTES
        self._usable_ahead = sum(max(0, each.size - unusable) for each in self._preallocated)

    def leave(self) -> list[PreallocatedSegment]:
        """The log ends: return the files that are no longer needed."""
        preallocated = [*self._preallocated, *self.take_stale()]
        self._preallocated.clear()
        self._count()
        return preallocated

    def _another(self, size: int, is_ready: bool) -> PreallocatedSegment:
        self._number += 1
        return PreallocatedSegment(self._number, size, is_ready)
