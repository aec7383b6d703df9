"""
Where all jobs are, by id; hides how.

A *cold* job, one that was put and is ready and of which nothing else is known, is one ``bytes``
object, fields and body together: a third of the memory of an object with attributes, and nothing
for the garbage collector to look at, so that a million of them cost no pauses.  It becomes a
`Job` when a command changes it.  Ids are dense, so they index pages instead of being keys of a
dictionary.
"""

import struct
from array import array
from collections.abc import Iterator
from itertools import chain
from operator import add
from typing import Final, NamedTuple, cast

from beanstalk_twisted.binlog.cold import ColdJobs
from beanstalk_twisted.binlog.records import READY, RESERVED, BodyPlace, JobImage
from beanstalk_twisted.binlog.tags import Tags
from beanstalk_twisted.jobs.job import Job
from beanstalk_twisted.jobs.ordered import ID_MASK
from beanstalk_twisted.jobs.policy import PAGE_BITS

_COLD: Final = struct.Struct("<qIIIIQI")
"""created_ns, priority, delay_s, ttr_s, tube_id, lsn, segment."""

_PLACE: Final = struct.Struct("<QI")
"""
full_lsn, and the bytes of the body if that is in the log only, else 0: what stands behind the
fields of a cold job whose LSN has the bit `_PLACED`.  The LSN of others is that of their full
record, and their body follows.
"""

_PLACED: Final = 1 << 63
"""No log has so many records; a job of one that says so all the same is never cold."""

_PLACED_AT: Final = _COLD.size - 5
_PLACED_BIT: Final = 0x80
_PLACED_BYTES: Final = _COLD.size + _PLACE.size

_COLD_WORDS: Final = _COLD.size // 4
_LSN_WORD: Final = 6
_WHOLE: Final = struct.Struct(f"{_COLD.size}s")
_PAGE_BITS: Final = PAGE_BITS
_PAGE_SIZE: Final = 1 << _PAGE_BITS
_PAGE_MASK: Final = _PAGE_SIZE - 1
"""64 slots: 12 bytes a job when all are in use, and no more than 700 for one lone survivor."""

COLD_JOB_BYTES: Final = 145
"""
What a cold job takes of memory beside its body, its place in its tube's queue included.  This and
what follows was measured (CPython 3.11; tests/jobs/test_memory_use.py compares it).
"""

HOT_JOB_BYTES: Final = 512
"""The same of a `Job`, in any state; 400 to 500, and 380 where this is compiled."""

WARMED_BYTES: Final = HOT_JOB_BYTES - COLD_JOB_BYTES
"""How much more a cold job takes as a `Job`."""

TAGS_BYTES: Final = 100
"""What tags take beside the job, with `TAG_BYTES` for each byte that they take in the log."""

TAG_BYTES: Final = 8
"""A key of 19 bytes is kept twice, with entries of two to four dictionaries."""

LARGE_BYTES: Final = 4 << 10
"""Bytes of a cold job from which a look leaves it a `Job`, whose own size is then a small part."""

_NONE: Final[list[bytes | Job | None]] = [None] * _PAGE_SIZE


class JobFacts(NamedTuple):
    """
    What a walk through the table tells of a job.

    :ivar job: None if it is cold.
    """

    job_id: int
    tube_id: int
    created_ns: int
    body_bytes: int
    job: Job | None


class _Page:
    __slots__ = ("count", "entries")

    def __init__(self) -> None:
        self.entries: list[bytes | Job | None] = [None] * _PAGE_SIZE
        self.count = 0


class JobTable:
    """
    All jobs by id.

    :ivar memory_bytes: of memory that they take, with their bodies, places in queues and tags:
        counted, not measured; ``loaded_bytes`` of the bodies that are in memory, ``absent_bytes``
        of those that are in the log only.
    :ivar keeps_places: whether a cold job that is stated again knows where.
    """

    def __init__(self) -> None:
        self.memory_bytes = self.loaded_bytes = self.absent_bytes = 0
        self.keeps_places = False
        self._pages: dict[int, _Page] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, job_id: int) -> bool:
        return self._entry(job_id) is not None

    def __iter__(self) -> Iterator[int]:
        for number in sorted(self._pages):
            for slot, entry in enumerate(self._pages[number].entries):
                if entry is not None:
                    yield number << _PAGE_BITS | slot

    def pages(self) -> list[int]:
        """
        The numbers of the pages that there are, in no order.
        """
        return list(self._pages)

    def facts(self, number: int) -> list[JobFacts]:
        """
        What is known of the jobs of a page, none if there is no such page: 0.5 us for each.
        """
        page = self._pages.get(number)
        if page is None:
            return []
        start = number << _PAGE_BITS
        return [
            _facts(start | slot, entry)
            for slot, entry in enumerate(page.entries)
            if entry is not None
        ]

    def _entry(self, job_id: int) -> bytes | Job | None:
        page = self._pages.get(job_id >> _PAGE_BITS)
        return None if page is None else page.entries[job_id & _PAGE_MASK]

    def get(self, job_id: int) -> Job | None:
        """
        The job, for changing it.
        """
        page = self._pages.get(job_id >> _PAGE_BITS)
        if page is None:
            return None
        entry = page.entries[job_id & _PAGE_MASK]
        if isinstance(entry, bytes):
            job = page.entries[job_id & _PAGE_MASK] = _materialise(job_id, entry)
            self.memory_bytes += WARMED_BYTES
            return job
        return entry

    def pick(self, keys: list[int]) -> list[Job]:
        """
        The jobs of these keys of a queue; see `ordered`.  All are there, and none of them is cold.
        """
        pages = self._pages
        jobs = [pages[(key & ID_MASK) >> _PAGE_BITS].entries[key & _PAGE_MASK] for key in keys]
        # Looking at each one's class would take as long again.
        return cast("list[Job]", jobs)

    def look(self, job_id: int) -> Job | None:
        """
        The job as it is now, for reading only.
        """
        entry = self._entry(job_id)
        if not isinstance(entry, bytes):
            return entry
        # All who look at a large body look at the same one.
        return _materialise(job_id, entry) if len(entry) < LARGE_BYTES else self.get(job_id)

    def weigh(self, job_id: int) -> tuple[int, bool]:
        """
        :param job_id: of a job that is there.
        :return: the bytes of its body, and whether it has tags.
        """
        entry = self._entry(job_id)
        assert entry is not None
        if isinstance(entry, bytes):
            return _body_bytes(entry), False
        return entry.body_bytes, entry.tags is not None

    def add_cold(self, image: JobImage, lsn: int, segment: int) -> bool:
        """
        A ready job with nothing but what it was put with.

        :return: whether it was not there yet, and can be cold; otherwise nothing has changed.
        """
        (_, _, _, priority, job_id, ts_ns, _, delay_s, ttr_s, tube_id,
         _, _, _, _, _, _, body, _) = image  # fmt: skip
        page = self._pages.get(job_id >> _PAGE_BITS)
        if page is None:
            page = self._pages[job_id >> _PAGE_BITS] = _Page()
        slot = job_id & _PAGE_MASK
        if page.entries[slot] is not None or lsn >= _PLACED:
            return False
        page.entries[slot] = (
            _COLD.pack(ts_ns, priority, delay_s, ttr_s, tube_id, lsn, segment) + body
        )
        page.count += 1
        self._count += 1
        size = len(body)
        self.memory_bytes += COLD_JOB_BYTES + size
        self.loaded_bytes += size
        return True

    def add_all_cold(self, jobs: ColdJobs) -> None:
        """
        The same as `add_cold` for each of these jobs, with their LSNs if those are known, else 0;
        none of them is there yet.
        """
        entries = list(map(add, _packed(jobs), jobs.bodies))
        job_ids, count = jobs.job_ids, len(jobs.job_ids)
        if job_ids == list(range(job_ids[0], job_ids[0] + count)):
            self._fill(job_ids[0], entries)
        else:
            for job_id, entry in zip(job_ids, entries, strict=True):
                page = self._page(job_id >> _PAGE_BITS)
                slot = job_id & _PAGE_MASK
                assert page.entries[slot] is None
                page.entries[slot] = entry
                page.count += 1
        self._count += count
        size = sum(map(len, jobs.bodies))
        self.memory_bytes += COLD_JOB_BYTES * count + size
        self.loaded_bytes += size

    def _fill(self, first: int, entries: list[bytes]) -> None:
        """
        Jobs with ids one after the other.
        """
        at, end = 0, len(entries)
        while at < end:
            page = self._page(first + at >> _PAGE_BITS)
            slot = first + at & _PAGE_MASK
            count = min(_PAGE_SIZE - slot, end - at)
            assert page.entries[slot : slot + count] == _NONE[:count]
            page.entries[slot : slot + count] = entries[at : at + count]
            page.count += count
            at += count

    def _page(self, number: int) -> _Page:
        page = self._pages.get(number)
        if page is None:
            page = self._pages[number] = _Page()
        return page

    def add(self, job: Job) -> None:
        """
        A job that is not there yet.
        """
        job_id = job.job_id
        page = self._page(job_id >> _PAGE_BITS)
        slot = job_id & _PAGE_MASK
        assert page.entries[slot] is None
        page.entries[slot] = job
        page.count += 1
        self._count += 1
        self.memory_bytes += HOT_JOB_BYTES + data_memory_bytes(job.body_bytes, job.tags)
        self.loaded_bytes += job.body_bytes

    def remake(self, job: Job, body: bytes, tags: Tags | None) -> None:
        """
        Give a job that is there another body and other tags.
        """
        before = 0 if job.body is None else job.body_bytes
        self.absent_bytes -= job.body_bytes - before
        self.memory_bytes -= data_memory_bytes(before, job.tags)
        job.body, job.body_bytes, job.tags = body, len(body), tags
        self.memory_bytes += data_memory_bytes(job.body_bytes, tags)
        self.loaded_bytes += job.body_bytes - before

    def rehome(self, job_id: int, segment: int, lsn: int = 0) -> int:
        """
        A job's full record is now in another segment.

        :param lsn: the record's, if it is another one; 0 for the same one.
        :return: where it was.
        """
        page, slot = self._pages[job_id >> _PAGE_BITS], job_id & _PAGE_MASK
        entry = page.entries[slot]
        if isinstance(entry, bytes):
            *fields, cold_lsn, old = _COLD.unpack_from(entry)
            full_lsn, absent, at = _place(entry)
            if at == _COLD.size and not (lsn and self.keeps_places):
                page.entries[slot] = _COLD.pack(*fields, cold_lsn, segment) + entry[at:]
            else:
                packed = _COLD.pack(*fields, cold_lsn | _PLACED, segment)
                page.entries[slot] = packed + _PLACE.pack(lsn or full_lsn, absent) + entry[at:]
            return int(old)
        assert entry is not None
        old, entry.segment = entry.segment, segment
        entry.full_lsn = lsn or entry.full_lsn
        return int(old)

    # Bodies that are in the log only.

    def place(self, job_id: int) -> BodyPlace | None:
        """
        Where the full record of a job is whose body is in the log only; None of any other.
        """
        entry = self._entry(job_id)
        if isinstance(entry, bytes):
            full_lsn, absent, _ = _place(entry)
            return BodyPlace(_segment(entry), full_lsn) if absent else None
        if entry is None or entry.body is not None:
            return None
        return BodyPlace(entry.segment, entry.full_lsn)

    def has_body(self, job_id: int) -> bool:
        """
        Whether a job is there, and its body is in memory.
        """
        return self._entry(job_id) is not None and self.place(job_id) is None

    def may_leave(self, job_id: int) -> bool:
        """
        Whether the body of a job could be in the log only, now or later: it is in memory, and its
        place is known.
        """
        entry = self._entry(job_id)
        if isinstance(entry, bytes):
            full_lsn, absent, at = _place(entry)
            return bool(full_lsn and _segment(entry)) and not absent and len(entry) > at
        if entry is None or entry.body is None:
            return False
        return bool(entry.full_lsn and entry.segment and entry.body_bytes)

    def drop_body(self, job_id: int, durable_lsn: int) -> bool:
        """
        Leave a job's body to the log, unless a session holds the job, or its full record is not
        known durable.

        :return: whether that was done.
        """
        page = self._pages.get(job_id >> _PAGE_BITS)
        entry = None if page is None else page.entries[job_id & _PAGE_MASK]
        if page is None or entry is None:
            return False
        if isinstance(entry, bytes):
            full_lsn, absent, at = _place(entry)
            size, segment = len(entry) - at, _segment(entry)
            may_go = not absent
        else:
            size, full_lsn, segment = entry.body_bytes, entry.full_lsn, entry.segment
            may_go = entry.body is not None and entry.state is not RESERVED
        if not (may_go and size and segment and 0 < full_lsn <= durable_lsn):
            return False
        if isinstance(entry, bytes):
            *fields, lsn, _ = _COLD.unpack_from(entry)
            packed = _COLD.pack(*fields, lsn | _PLACED, segment)
            page.entries[job_id & _PAGE_MASK] = packed + _PLACE.pack(full_lsn, size)
        else:
            entry.body = None
        self.memory_bytes -= size
        self.loaded_bytes -= size
        self.absent_bytes += size
        return True

    def load_body(self, job_id: int, body: bytes) -> None:
        """
        A job's body, which was in the log only, is in memory again.
        """
        page, slot = self._pages[job_id >> _PAGE_BITS], job_id & _PAGE_MASK
        entry = page.entries[slot]
        if isinstance(entry, bytes):
            fields = entry[: _COLD.size]
            full_lsn, absent, _ = _place(entry)
            assert absent == len(body)
            page.entries[slot] = fields + _PLACE.pack(full_lsn, 0) + body
        else:
            assert entry is not None and entry.body is None and entry.body_bytes == len(body)
            entry.body = body
        self.memory_bytes += len(body)
        self.loaded_bytes += len(body)
        self.absent_bytes -= len(body)

    def remove(self, job: Job) -> None:
        """
        A job is gone, which was got for that.
        """
        job_id = job.job_id
        page = self._pages[job_id >> _PAGE_BITS]
        page.entries[job_id & _PAGE_MASK] = None
        size = 0 if job.body is None else job.body_bytes
        self.memory_bytes -= HOT_JOB_BYTES + size
        self.loaded_bytes -= size
        self.absent_bytes -= job.body_bytes - size
        if job.tags is not None:
            self.memory_bytes -= tags_memory_bytes(job.tags)
        page.count -= 1
        self._count -= 1
        if not page.count:
            del self._pages[job_id >> _PAGE_BITS]


def tags_memory_bytes(tags: Tags) -> int:
    """
    :return: what a job's tags take of memory.
    """
    return TAGS_BYTES + TAG_BYTES * tags.encoded_bytes


def data_memory_bytes(body_bytes: int, tags: Tags | None) -> int:
    """
    :param body_bytes: of its body, as far as that is in memory.
    :return: what a job takes of memory beside itself.
    """
    return body_bytes if tags is None else body_bytes + tags_memory_bytes(tags)


def _packed(jobs: ColdJobs) -> Iterator[bytes]:
    """
    What `_COLD` packs, of one job after the other.
    """
    packed = bytearray(_COLD.size * len(jobs.job_ids))
    words = memoryview(packed).cast("I")
    for at, column in enumerate((
        jobs.created_low, jobs.created_high, jobs.priority, jobs.delay_s, jobs.ttr_s, jobs.tube_id,
    )):  # fmt: skip
        words[at::_COLD_WORDS] = column
    if jobs.lsns:
        halves = memoryview(array("Q", jobs.lsns)).cast("B").cast("I")
        words[_LSN_WORD::_COLD_WORDS] = halves[::2]
        words[_LSN_WORD + 1 :: _COLD_WORDS] = halves[1::2]
    segments = array("I", [jobs.segment]) * len(jobs.job_ids)
    words[_COLD_WORDS - 1 :: _COLD_WORDS] = memoryview(segments)
    return chain.from_iterable(_WHOLE.iter_unpack(packed))


def _facts(job_id: int, entry: bytes | Job) -> JobFacts:
    if isinstance(entry, Job):
        return JobFacts(job_id, entry.tube_id, entry.created_ns, entry.body_bytes, entry)
    created_ns, _, _, _, tube_id, _, _ = _COLD.unpack_from(entry)
    return JobFacts(job_id, tube_id, created_ns, _body_bytes(entry), None)


def _place(cold: bytes) -> tuple[int, int, int]:
    """
    :return: the LSN of a cold job's full record; the size of its body if that is in the log only,
        else 0; and where the body begins if it is not.
    """
    if cold[_PLACED_AT] & _PLACED_BIT:
        full_lsn, absent = _PLACE.unpack_from(cold, _COLD.size)
        return full_lsn, absent, _PLACED_BYTES
    return _COLD.unpack_from(cold)[5], 0, _COLD.size


def _segment(cold: bytes) -> int:
    return int(_COLD.unpack_from(cold)[6])


def _body_bytes(cold: bytes) -> int:
    if cold[_PLACED_AT] & _PLACED_BIT:
        absent = _PLACE.unpack_from(cold, _COLD.size)[1]
        return int(absent) or len(cold) - _PLACED_BYTES
    return len(cold) - _COLD.size


def _materialise(job_id: int, cold: bytes) -> Job:
    created_ns, priority, delay_s, ttr_s, tube_id, lsn, segment = _COLD.unpack_from(cold)
    if lsn & _PLACED:
        full_lsn, absent, at = _place(cold)
        job = Job(job_id, tube_id, created_ns, None if absent else cold[at:])
        job.body_bytes = job.body_bytes or absent
        job.full_lsn = full_lsn
        lsn ^= _PLACED
    else:
        job = Job(job_id, tube_id, created_ns, cold[_COLD.size :])
        job.full_lsn = lsn
    job.state = READY
    job.priority, job.delay_s, job.ttr_s = priority, delay_s, ttr_s
    job.lsn, job.segment = lsn, segment
    return job
