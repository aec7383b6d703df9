"""Many jobs at once: kicks of a whole tube, and bulk loading at startup (`ColdJobs`)."""

import struct
from array import array
from collections.abc import Container, Iterator, Sequence
from io import BytesIO
from itertools import accumulate, chain, compress, repeat
from operator import add
from struct import Struct
from typing import Final, NamedTuple, Protocol

from beanstalk_twisted.binlog.records.jobs import (
    MAX_COUNTER,
    READY,
    RESERVED,
    WAITED_FOR,
    WITHHELD_NS,
    Flag,
    Kind,
    Reason,
    State,
)
from beanstalk_twisted.binlog.segments.format import PLAIN_RECORD, RECORD_BYTES

_NO_FLAGS: Final = 0
KICKED: Final = int.from_bytes(bytes((Kind.KICK, READY, _NO_FLAGS, Reason.CLIENT)), "little")
"""The first four bytes of a KICK."""

kick_record: Final = PLAIN_RECORD.pack
"""Packs `KICKED`, what `LoggedJob` has in the order of a record, and the connection."""

Column = memoryview
"""A u32 of each record."""

RUN_RECORDS: Final = 1024
"""Records that are gathered: few enough to stay in the cache, enough to pay for a call on each."""

_WORDS: Final = RECORD_BYTES // 4
_LONGS: Final = RECORD_BYTES // 8

MAX_COUNT: Final = (1 << 16) - 1
"""A counter of these jobs: few are reserved more often, and two bytes are enough for it."""

_NS: Final = 1_000_000_000

# Where fields stand in a record, in words of 4 bytes; see docs/binlog-format.md, "Record".
_HEAD, _PRIORITY, _CREATED_LOW, _CREATED_HIGH, _DELAY_S, _TTR_S, _TUBE_ID = 0, 1, 4, 5, 8, 9, 10
_RESERVES, _DATA_OFF, _DATA_LEN = 11, 16, 17
_COUNTERS: Final = 5
# The same in words of 8.
_DEADLINE_LONG, _TIMEOUTS_AND_RELEASES, _BURIES_AND_KICKS = 3, 6, 7

_RECORDS: Final = Struct(f"{RECORD_BYTES}s")
_FLAGS: Final = Struct("<2xB77x")
_NOW: Final = Struct("<xBBx36xIIIIII16x")
"""State, flags, tube and the five counters of a record."""
_READY: Final = int(READY)
_RESERVED: Final = int(RESERVED)
_DELAYED: Final = int(State.DELAYED)
_ALIVE: Final = bytes(sorted(set(State) - {State.GONE}))
_EXT: Final = int(Flag.EXT)


class LoggedJob(Protocol):
    """The fields of a job that a KICK records."""

    job_id: int
    priority: int
    delay_s: int
    ttr_s: int
    reserves: int
    timeouts: int
    releases: int
    buries: int
    kicks: int


class Run(NamedTuple):
    """Records of jobs, of one kind and without data, one after the other in an array."""

    kind: Kind
    array: bytes

    @property
    def n_rec(self) -> int:
        return len(self.array) // RECORD_BYTES

    @property
    def commits(self) -> bool:
        return self.kind in WAITED_FOR


def kicks(jobs: Sequence[LoggedJob], tube_id: int, connection: int, now_ns: int) -> Run:
    """The records of kicked jobs: what `Job.kicked` and `JobImage.encode` make of each.

    :param jobs: as they are before, of one tube; at least one.
    """
    pack = kick_record
    try:
        rows = [
            pack(
                KICKED, job.priority, job.job_id, now_ns, job.delay_s, job.ttr_s, tube_id,
                job.reserves, job.timeouts, job.releases, job.buries, job.kicks + 1, connection,
            )
            for job in jobs
        ]  # fmt: skip
    except struct.error:
        # With counters that a record can hold.
        rows = [
            pack(
                KICKED, job.priority, job.job_id, now_ns, job.delay_s, job.ttr_s, tube_id,
                min(job.reserves, MAX_COUNTER), min(job.timeouts, MAX_COUNTER),
                min(job.releases, MAX_COUNTER), min(job.buries, MAX_COUNTER),
                min(job.kicks + 1, MAX_COUNTER), connection,
            )
            for job in jobs
        ]  # fmt: skip
    return Run(Kind.KICK, b"".join(rows))


class Standing(NamedTuple):
    """Where jobs stand, and their counters, in columns.

    :ivar states: numbers of `State`; none is reserved.
    """

    states: bytes
    deadlines_ns: Sequence[int]
    reserves: Column
    timeouts: Column
    releases: Column
    buries: Column
    kicks: Column


class ColdJobs(NamedTuple):
    """Unreserved jobs without tags, in columns for bulk loading at startup.

    Records are cut by memoryviews and the iterators of C, so that none becomes an object.  Jobs of
    which nothing is known but that they were put take 0.65 us each from the log to their tube;
    others take a third of the time that they would one by one.  What is not as plain as that is
    left to `replay`, which reads it record by record, and says what is wrong with it.

    :ivar bodies: in the order of ``job_ids``, as all columns; if they ``are_left`` to the log, None
        for all but empty ones.
    :ivar sizes: bytes of each; ``body_bytes`` of all.
    :ivar created_low: of the times in nanoseconds at which they were put, the lower 32 bits.
    :ivar created_high: the upper ones.
    :ivar segment: the log segment that holds their full records, or is about to.
    :ivar lsns: of these records; empty if nobody has asked for them.
    :ivar standing: None if all are ready, and nothing was done with them since they were put.
    """

    job_ids: list[int]
    bodies: Sequence[bytes | None]
    are_left: bool
    sizes: Column
    body_bytes: int
    created_low: Column
    created_high: Column
    priority: Column
    delay_s: Column
    ttr_s: Column
    tube_id: Column
    segment: int
    lsns: "array[int]"
    standing: Standing | None = None


class Records:
    """Full records of one segment that are gathered, to be taken together."""

    def __init__(self) -> None:
        self.job_ids: list[int] = []
        self._arrays: list[memoryview] = []
        self._heaps: list[memoryview] = []
        self._counts: list[int] = []
        self._bases: list[int] = []
        self._heap_bytes = 0
        self._lsns = array("Q")
        self._has_lsns = True
        self._newest: list[bytes] = []

    def add(
        self, job_ids: Sequence[int], arrays: Sequence[memoryview], heap: memoryview,
        lsns: Sequence[int] = (), newest: Sequence[bytes] = (),
    ) -> None:  # fmt: skip
        """Records of a frame.

        :param arrays: joined they are the records of these jobs.
        :param lsns: of these records, if they are asked for, then of all that are added.
        :param newest: the newest records of these jobs, if they are others, then of all that are
            added.
        """
        self._lsns.extend(lsns)
        # A frame has one for each of its records, or 0 for all.
        self._has_lsns = self._has_lsns and bool(lsns and lsns[0])
        self._newest += newest
        self._arrays += arrays
        self._heaps.append(heap)
        self._counts.append(len(job_ids))
        self._bases.append(self._heap_bytes)
        self._heap_bytes += len(heap)
        self.job_ids += job_ids

    def take(
        self, tubes: Container[int], segment: int, now_ns: int, leaves_bodies: bool = False
    ) -> tuple[ColdJobs, Sequence[int]]:  # fmt: skip
        """The jobs that can be had in columns, as `as_loaded` makes them, and which of the records
        are not of such.

        :param tubes: the ids that have a name.
        :param leaves_bodies: whether bodies stay where they are, if the LSNs of all are known.
        """
        leaves_bodies = leaves_bodies and self._has_lsns
        records = b"".join(self._arrays)
        words = memoryview(records).cast("I")
        offsets, sizes = words[_DATA_OFF::_WORDS].tolist(), words[_DATA_LEN::_WORDS].tolist()
        if not self._newest and _are_plain(records, tubes):
            bodies = self._bodies(offsets, sizes, leaves_bodies)
            if bodies is not None:
                return _cold_jobs(
                    self.job_ids, bodies, leaves_bodies, words, words, segment, self._lsns
                ), ()  # fmt: skip
        starts, ends = self._places(offsets, sizes)
        newest = b"".join(self._newest) or records
        keep = self._which(records, newest, ends, tubes)
        newest = _kept(newest, keep)
        if leaves_bodies:
            bodies = _left(list(compress(sizes, keep)))
        else:
            bodies = self._cut(list(compress(starts, keep)), list(compress(ends, keep)))
        jobs = _cold_jobs(
            list(compress(self.job_ids, keep)), bodies, leaves_bodies,
            memoryview(_kept(records, keep)).cast("I"), memoryview(newest).cast("I"), segment,
            array("Q", compress(self._lsns, keep)),
        )  # fmt: skip
        others = [at for at, is_cold in enumerate(keep) if not is_cold]
        return jobs._replace(standing=_standing(newest, now_ns)), others

    def _bodies(
        self, offsets: list[int], sizes: list[int], leaves_bodies: bool
    ) -> list[bytes | None] | None:  # fmt: skip
        """All bodies; None if one is not inside its frame's heap."""
        if self._are_in_a_row(offsets, sizes):
            return _left(sizes) if leaves_bodies else self._read(sizes)
        starts, ends = self._places(offsets, sizes)
        own_ends = zip(self._by_frame(ends), self._limits(), strict=True)
        if any(max(each) > limit for each, limit in own_ends):
            return None
        return _left(sizes) if leaves_bodies else self._cut(starts, ends)

    def _places(self, offsets: list[int], sizes: list[int]) -> tuple[list[int], list[int]]:
        """:return: where bodies begin and end in all heaps, one after the other."""
        bases = chain.from_iterable(map(repeat, self._bases, self._counts))
        starts = list(map(add, offsets, bases))
        return starts, list(map(add, starts, sizes))

    def _are_in_a_row(self, offsets: list[int], sizes: list[int]) -> bool:
        """Whether bodies lie in order in each heap, as they do if all of a frame is taken."""
        frames = zip(self._by_frame(offsets), self._by_frame(sizes), self._heaps, strict=True)
        for own_offsets, own_sizes, heap in frames:
            places = list(accumulate(own_sizes, initial=0))
            if places.pop() > len(heap) or places != own_offsets:
                return False
        return True

    def _by_frame(self, column: list[int]) -> Iterator[list[int]]:
        at = 0
        for count in self._counts:
            yield column[at : at + count]
            at += count

    def _read(self, sizes: list[int]) -> list[bytes | None]:
        """Bodies in a row, in a third of the time of `_cut`."""
        if len(sizes) == 1:
            return self._cut([0], sizes)
        bodies: list[bytes | None] = []
        for own_sizes, heap in zip(self._by_frame(sizes), self._heaps, strict=True):
            bodies += map(BytesIO(heap).read, own_sizes)
        return bodies

    def _cut(self, starts: list[int], ends: list[int]) -> list[bytes | None]:
        """Small bodies are cut out of a copy, which is quicker; a large one that is alone is not
        copied.
        """
        places = map(slice, starts, ends)
        if len(self.job_ids) == 1:
            return [bytes(self._heaps[0][place]) for place in places]
        return list(map(b"".join(self._heaps).__getitem__, places))

    def _which(
        self, records: bytes, newest: bytes, ends: list[int], tubes: Container[int]
    ) -> list[bool]:  # fmt: skip
        limits = chain.from_iterable(map(repeat, self._limits(), self._counts))
        return [
            state in _ALIVE and not (flags | newest_flags) & _EXT and tube_id in tubes
            and reserves | timeouts | releases | buries | kicks <= MAX_COUNT and end <= limit
            for (flags,), (
                state, newest_flags, tube_id, reserves, timeouts, releases, buries, kicks
            ), end, limit
            in zip(_FLAGS.iter_unpack(records), _NOW.iter_unpack(newest), ends, limits, strict=True)
        ]  # fmt: skip

    def _limits(self) -> list[int]:
        return [*self._bases[1:], self._heap_bytes]


def _left(sizes: list[int]) -> list[bytes | None]:
    """No bodies; an empty one is nowhere else."""
    return [None] * len(sizes) if all(sizes) else [None if size else b"" for size in sizes]


def _are_plain(records: bytes, tubes: Container[int]) -> bool:
    """Whether all are of cold jobs, in the usual form: one kind, one tube or few."""
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
    if bytes(column) == bytes(column[:1]) * len(column):
        return column[:1].tolist()
    return list(set(column.tolist()))


def _cold_jobs(
    job_ids: list[int], bodies: list[bytes | None], are_left: bool, words: memoryview,
    newest: memoryview, segment: int, lsns: "array[int]",
) -> ColdJobs:  # fmt: skip
    sizes = words[_DATA_LEN::_WORDS]
    return ColdJobs(
        job_ids, bodies, are_left, sizes, sum(sizes.tolist()),
        words[_CREATED_LOW::_WORDS], words[_CREATED_HIGH::_WORDS],
        newest[_PRIORITY::_WORDS], newest[_DELAY_S::_WORDS], newest[_TTR_S::_WORDS],
        newest[_TUBE_ID::_WORDS], segment, lsns,
    )  # fmt: skip


def _kept(records: bytes, keep: list[bool]) -> bytes:
    if all(keep):
        return records
    return b"".join(compress(chain.from_iterable(_RECORDS.iter_unpack(records)), keep))


def _standing(newest: bytes, now_ns: int) -> Standing:
    words = memoryview(newest).cast("I")
    states = newest[1::RECORD_BYTES]
    deadlines = memoryview(newest).cast("q")[_DEADLINE_LONG::_LONGS].tolist()
    if _RESERVED in states or _DELAYED in states:
        delays = words[_DELAY_S::_WORDS].tolist()
        deadlines = [
            _deadline_ns(*each, now_ns) for each in zip(states, deadlines, delays, strict=True)
        ]
        states = states.replace(bytes((_RESERVED,)), bytes((_READY,)))
    return Standing(
        states, deadlines, *(words[at::_WORDS] for at in range(_RESERVES, _RESERVES + _COUNTERS))
    )


def _deadline_ns(state: int, deadline_ns: int, delay_s: int, now_ns: int) -> int:
    """As `as_loaded` makes it."""
    if state == _RESERVED:
        return 0
    if state != _DELAYED or deadline_ns >= WITHHELD_NS:
        return deadline_ns
    return min(deadline_ns, now_ns + delay_s * _NS)
