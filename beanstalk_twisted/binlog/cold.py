"""
Many jobs at once that were put and are ready, and of which nothing else is known: `ColdJobs`.

Most jobs of a long queue are such.  Their records are cut into columns, by memoryviews and the
iterators of C, so that no record becomes an object: 0.65 us a job from the log to its tube,
instead of 4 one by one.  Whatever is not as plain as that is left to `replay`, which reads it
record by record, and says what is wrong with it.
"""

from collections.abc import Container, Sequence
from itertools import chain, compress, repeat
from operator import add
from struct import Struct
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.format import RECORD_BYTES
from beanstalk_twisted.binlog.records import READY, Flag

Column = memoryview
"""A u32 of each record."""

RUN_RECORDS: Final = 1024
"""Records that are gathered: few enough to stay in the cache, enough to pay for a call on each."""

_WORDS: Final = RECORD_BYTES // 4
_LONGS: Final = RECORD_BYTES // 8

# Where fields stand in a record, in words of 4 bytes; see docs/binlog-format.md, "Record".
_HEAD, _PRIORITY, _CREATED_LOW, _CREATED_HIGH, _DELAY_S, _TTR_S, _TUBE_ID = 0, 1, 4, 5, 8, 9, 10
_RESERVES, _DATA_OFF, _DATA_LEN = 11, 16, 17
# The same in words of 8.
_TIMEOUTS_AND_RELEASES, _BURIES_AND_KICKS = 6, 7

_RECORDS: Final = Struct(f"{RECORD_BYTES}s")
_PLAIN: Final = Struct("<xBBx36xI20s16x")
"""State, flags, tube and the five counters of a record."""
_NO_COUNTS: Final = bytes(20)
_READY: Final = int(READY)
_EXT: Final = int(Flag.EXT)


class ColdJobs(NamedTuple):
    """
    Jobs that were put and are ready, and of which nothing else is known.

    :ivar bodies: in the order of ``job_ids``, as all columns.
    :ivar created_low: of the times in nanoseconds at which they were put, the lower 32 bits.
    :ivar created_high: the upper ones.
    :ivar segment: the log segment that holds their full records, or is about to.
    :ivar lsns: of these records; empty if nobody has asked for them.
    """

    job_ids: list[int]
    bodies: list[bytes]
    created_low: Column
    created_high: Column
    priority: Column
    delay_s: Column
    ttr_s: Column
    tube_id: Column
    segment: int
    lsns: Sequence[int] = ()


class Records:
    """
    Full records of one segment that are gathered, to be taken together.

    :ivar job_ids: of which jobs.
    """

    def __init__(self) -> None:
        self.job_ids: list[int] = []
        self._arrays: list[memoryview] = []
        self._heaps: list[memoryview] = []
        self._counts: list[int] = []
        self._bases: list[int] = []
        self._heap_bytes = 0
        self._lsns: list[int] = []

    def add(
        self, job_ids: Sequence[int], arrays: Sequence[memoryview], heap: memoryview,
        lsns: Sequence[int] = (),
    ) -> None:  # fmt: skip
        """
        Records of a frame.

        :param arrays: one behind the other they are the records of these jobs.
        :param lsns: of these records, if they are asked for, then of all that are added.
        """
        self._lsns += lsns
        self._arrays += arrays
        self._heaps.append(heap)
        self._counts.append(len(job_ids))
        self._bases.append(self._heap_bytes)
        self._heap_bytes += len(heap)
        self.job_ids += job_ids

    def take(self, tubes: Container[int], segment: int) -> tuple[ColdJobs, Sequence[int]]:
        """
        The jobs that are cold, and which of the records are not of such.

        :param tubes: the ids that have a name.
        """
        records = b"".join(self._arrays)
        words = memoryview(records).cast("I")
        bases = chain.from_iterable(map(repeat, self._bases, self._counts))
        starts = list(map(add, words[_DATA_OFF::_WORDS].tolist(), bases))
        ends = list(map(add, starts, words[_DATA_LEN::_WORDS].tolist()))
        job_ids, lsns, others = self.job_ids, self._lsns, list[int]()
        if not (_are_plain(records, tubes) and self._are_inside(ends)):
            keep = self._which(records, ends, tubes)
            others = [at for at, is_cold in enumerate(keep) if not is_cold]
            records = b"".join(compress(chain.from_iterable(_RECORDS.iter_unpack(records)), keep))
            job_ids = list(compress(job_ids, keep))
            starts, ends = list(compress(starts, keep)), list(compress(ends, keep))
            lsns = list(compress(lsns, keep))
        bodies = self._cut(list(map(slice, starts, ends)))
        jobs = _cold_jobs(job_ids, bodies, memoryview(records).cast("I"), segment)
        return jobs._replace(lsns=lsns), others

    def _cut(self, places: list[slice]) -> list[bytes]:
        """
        Small bodies are cut out of a copy, which is quicker; of one large one that is alone there
        is none but where it stays.
        """
        if len(self.job_ids) == 1:
            return [bytes(self._heaps[0][place]) for place in places]
        return list(map(b"".join(self._heaps).__getitem__, places))

    def _which(self, records: bytes, ends: list[int], tubes: Container[int]) -> list[bool]:
        limits = chain.from_iterable(map(repeat, self._limits(), self._counts))
        return [
            state == _READY and not flags & _EXT and counts == _NO_COUNTS
            and tube_id in tubes and end <= limit
            for (state, flags, tube_id, counts), end, limit
            in zip(_PLAIN.iter_unpack(records), ends, limits, strict=True)
        ]  # fmt: skip

    def _limits(self) -> list[int]:
        """
        Where the heap of each frame ends.
        """
        return [*self._bases[1:], self._heap_bytes]

    def _are_inside(self, ends: list[int]) -> bool:
        """
        Whether no record's data end behind the heap of its frame.
        """
        at = 0
        for count, limit in zip(self._counts, self._limits(), strict=True):
            if max(ends[at : at + count]) > limit:
                return False
            at += count
        return True


def _are_plain(records: bytes, tubes: Container[int]) -> bool:
    """
    Whether all are of cold jobs, in the usual form: one kind, one tube or few.
    """
    words, longs = memoryview(records).cast("I"), memoryview(records).cast("Q")
    count = len(words) // _WORDS
    return (
        records[1] == _READY and not records[2] & _EXT
        and bytes(words[_HEAD::_WORDS]) == records[:4] * count
        and bytes(words[_RESERVES::_WORDS]) == bytes(4 * count)
        and bytes(longs[_TIMEOUTS_AND_RELEASES::_LONGS]) == bytes(8 * count)
        and bytes(longs[_BURIES_AND_KICKS::_LONGS]) == bytes(8 * count)
        and all(tube_id in tubes for tube_id in values(words[_TUBE_ID::_WORDS]))
    )  # fmt: skip


def values(column: Column) -> Sequence[int]:
    """
    The different numbers in a column.
    """
    if bytes(column) == bytes(column[:1]) * len(column):
        return column[:1].tolist()
    return list(set(column.tolist()))


def _cold_jobs(
    job_ids: list[int], bodies: list[bytes], words: memoryview, segment: int
) -> ColdJobs:  # fmt: skip
    return ColdJobs(
        job_ids, bodies, words[_CREATED_LOW::_WORDS], words[_CREATED_HIGH::_WORDS],
        words[_PRIORITY::_WORDS], words[_DELAY_S::_WORDS], words[_TTR_S::_WORDS],
        words[_TUBE_ID::_WORDS], segment,
    )  # fmt: skip
