"""
Where all jobs are, by id; hides how.

A job that no session holds *rests*, whatever its state: its fields are a row of `ROW_BYTES` in the
page of its id, one behind the other, and its body, if that is in memory, is a ``bytes`` object of
its own.  So a resting job is no object with attributes, a fifth of the memory of one, and nothing
for the garbage collector to look at: a million of them cost no pauses.  Ids are dense, so they
index pages instead of being keys of a dictionary.

While a session holds it, a job is a `Job`, and so is always one that has tags, or that was counted
more often than a row can say.  `get` makes a `Job` of a row, for reading or for whoever changes it;
what the change has made of it is kept by `keep`, as a row or as it is.
"""

import struct
from array import array
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.cold import MAX_COUNT, ColdJobs, Standing
from beanstalk_twisted.binlog.records import READY, RESERVED, BodyPlace, JobImage, State
from beanstalk_twisted.binlog.runs import KICKED, Run, kick_record
from beanstalk_twisted.binlog.runs import kicks as kicks_of
from beanstalk_twisted.binlog.tags import Tags
from beanstalk_twisted.jobs.job import KICK, Job
from beanstalk_twisted.jobs.policy import PAGE_BITS

_ROW: Final = struct.Struct("<qQqHBxIIIIIIQHHHH")
"""
created_ns, lsn, deadline_ns, kicks, state, priority, delay_s, ttr_s, tube_id, segment, body_bytes,
full_lsn, reserves, timeouts, releases, buries.  The state is GONE if there is no such job, or it is
a `Job`.
"""

ROW_BYTES: Final = _ROW.size

_STATE_AT: Final = 26
_CREATED: Final = struct.Struct("<q")
_KICKED: Final = struct.Struct("<QqHB")
"""lsn, deadline_ns, kicks, state."""
_KICKED_AT: Final = 8
_STANDING: Final = struct.Struct("<24xHBxI")
"""kicks, state, priority."""
_LOGGED: Final = struct.Struct("<24xHBxIII20xHHHH")
"""The same, delay_s, ttr_s, reserves, timeouts, releases, buries."""
_U32: Final = struct.Struct("<I")
_TUBE_AT: Final = 40
_SEGMENT_AT: Final = 44
_SIZE_AT: Final = 48
_FULL_LSN: Final = struct.Struct("<Q")
_FULL_LSN_AT: Final = 52

_ROW_WORDS: Final = ROW_BYTES // 4
_LSN_WORD: Final = _KICKED_AT // 4
_DEADLINE_WORD: Final = 4
_STATE_WORD: Final = 6
_COUNTS_WORD: Final = 15
_SHIFT: Final = 16
_SEGMENT_WORD: Final = _SEGMENT_AT // 4
_SIZE_WORD: Final = _SIZE_AT // 4
_FULL_LSN_WORD: Final = _FULL_LSN_AT // 4

_PAGE_BITS: Final = PAGE_BITS
_PAGE_SIZE: Final = 1 << _PAGE_BITS
_PAGE_MASK: Final = _PAGE_SIZE - 1
"""32 slots: 10 bytes a job when all are in use, and no more than 2,800 for one lone survivor."""

_STATES: Final = tuple(State(number) for number in range(len(State)))

RESTING_JOB_BYTES: Final = 140
"""
What a resting job takes of memory beside its body, its place in its tube's queue included, and that
its body is an object.  This and what follows was measured (CPython 3.11;
tests/jobs/test_memory_use.py compares it).
"""

BODY_OBJECT_BYTES: Final = 30
"""What a body takes of that, which is not in memory."""

HOT_JOB_BYTES: Final = 512
"""What a `Job` takes; 400 to 500, and 380 where this is compiled."""

HELD_BYTES: Final = HOT_JOB_BYTES - RESTING_JOB_BYTES
"""How much more a job takes as a `Job`."""

TAGS_BYTES: Final = 100
"""What tags take beside the job, with `TAG_BYTES` for each byte that they take in the log."""

TAG_BYTES: Final = 8
"""A key of 19 bytes is kept twice, with entries of two to four dictionaries."""

_NONE: Final[list[bytes | Job | None]] = [None] * _PAGE_SIZE


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


class _Page:
    """
    Jobs whose ids differ in their last bits only.

    :ivar entries: by these bits, each job that is a `Job`, and the body of one that is a row, None
        if that is in the log only; ``rows`` the rows.
    :ivar count: of jobs.
    """

    __slots__ = ("count", "entries", "rows")

    def __init__(self) -> None:
        self.entries: list[bytes | Job | None] = [None] * _PAGE_SIZE
        self.rows = bytearray(ROW_BYTES * _PAGE_SIZE)
        self.count = 0

    def has(self, slot: int) -> bool:
        """
        Whether there is such a job.
        """
        return self.entries[slot] is not None or self.rows[slot * ROW_BYTES + _STATE_AT] > 0

    def home(self, slot: int) -> tuple[int, int]:
        """
        :return: the segment and the LSN of the full record of a row.
        """
        at = slot * ROW_BYTES
        segment = _U32.unpack_from(self.rows, at + _SEGMENT_AT)[0]
        return segment, _FULL_LSN.unpack_from(self.rows, at + _FULL_LSN_AT)[0]

    def body_bytes(self, slot: int) -> int:
        """
        The bytes of the body of a row, wherever that is.
        """
        return int(_U32.unpack_from(self.rows, slot * ROW_BYTES + _SIZE_AT)[0])


class JobTable:
    """
    All jobs by id.

    :ivar memory_bytes: of memory that they take, with their bodies, places in queues and tags:
        counted, not measured; ``loaded_bytes`` of the bodies that are in memory, ``absent_bytes``
        of those that are in the log only.
    :ivar keeps_places: whether whoever adds jobs of a log is to tell the LSNs of their full
        records: their bodies may leave memory.
    """

    def __init__(self) -> None:
        self.memory_bytes = self.loaded_bytes = self.absent_bytes = 0
        self.keeps_places = False
        self._pages: dict[int, _Page] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, job_id: int) -> bool:
        page = self._pages.get(job_id >> _PAGE_BITS)
        return page is not None and page.has(job_id & _PAGE_MASK)

    def __iter__(self) -> Iterator[int]:
        for number in sorted(self._pages):
            page = self._pages[number]
            for slot in range(_PAGE_SIZE):
                if page.has(slot):
                    yield number << _PAGE_BITS | slot

    def pages(self) -> list[int]:
        """
        The numbers of the pages that there are, in no order.
        """
        return list(self._pages)

    def facts(self, number: int) -> list[JobFacts]:
        """
        What is known of the jobs of a page, none if there is no such page: 1 us for each.
        """
        page = self._pages.get(number)
        if page is None:
            return []
        start = number << _PAGE_BITS
        return [_facts(start, page, slot) for slot in range(_PAGE_SIZE) if page.has(slot)]

    def get(self, job_id: int) -> Job | None:
        """
        The job as it is now; if it rests, a copy, for reading or for a change of it.
        """
        page = self._pages.get(job_id >> _PAGE_BITS)
        if page is None:
            return None
        slot = job_id & _PAGE_MASK
        entry = page.entries[slot]
        if isinstance(entry, Job):
            return entry
        fields = _ROW.unpack_from(page.rows, slot * ROW_BYTES)
        return _job(job_id, fields, entry) if fields[4] else None

    def kicks(
        self, job_ids: Sequence[int], tube_id: int, connection: int, now_ns: int
    ) -> Run:  # fmt: skip
        """
        :param job_ids: of jobs of a tube, which no session holds; at least one.
        :return: the records of these jobs when they are kicked.
        """
        pages, unpack, pack = self._pages, _LOGGED.unpack_from, kick_record
        records = []
        for job_id in job_ids:
            kicks, state, priority, delay_s, ttr_s, reserves, timeouts, releases, buries = unpack(
                pages[job_id >> _PAGE_BITS].rows, (job_id & _PAGE_MASK) * ROW_BYTES
            )
            if not state:
                return kicks_of([self.job(each) for each in job_ids], tube_id, connection, now_ns)
            records.append(pack(
                KICKED, priority, job_id, now_ns, delay_s, ttr_s, tube_id,
                reserves, timeouts, releases, buries, kicks + 1, connection,
            ))  # fmt: skip
        return Run(KICK, now_ns, min(job_ids), max(job_ids), b"".join(records))

    def kick(self, job_ids: Sequence[int], lsn: int) -> list[tuple[int, int]]:
        """
        These jobs are kicked.

        :param lsn: of the first one's record, the others' follow; 0 if they are known durable.
        :return: their priorities and ids.
        """
        pages, step = self._pages, 1 if lsn else 0
        unpack, pack_into = _STANDING.unpack_from, _KICKED.pack_into
        jobs = []
        for job_id in job_ids:
            rows, at = pages[job_id >> _PAGE_BITS].rows, (job_id & _PAGE_MASK) * ROW_BYTES
            kicks, state, priority = unpack(rows, at)
            if state and kicks < MAX_COUNT:
                pack_into(rows, at + _KICKED_AT, lsn, 0, kicks + 1, READY)
            else:
                priority = self._kick_one(job_id, lsn)
            jobs.append((priority, job_id))
            lsn += step
        return jobs

    def _kick_one(self, job_id: int, lsn: int) -> int:
        job = self.job(job_id)
        job.state, job.deadline_ns, job.lsn = READY, 0, lsn
        job.kicks += 1
        self.keep(job)
        return job.priority

    def job(self, job_id: int) -> Job:
        """
        As `get`, of a job that is there.
        """
        job = self.get(job_id)
        assert job is not None
        return job

    def look(self, job_id: int) -> Job | None:
        """
        The same, for reading only.
        """
        return self.get(job_id)

    def weigh(self, job_id: int) -> tuple[int, bool]:
        """
        :param job_id: of a job that is there.
        :return: the bytes of its body, and whether it has tags.
        """
        page, slot = self._pages[job_id >> _PAGE_BITS], job_id & _PAGE_MASK
        entry = page.entries[slot]
        if isinstance(entry, Job):
            return entry.body_bytes, entry.tags is not None
        return page.body_bytes(slot), False

    def add_row(self, image: JobImage, lsn: int, segment: int) -> bool:
        """
        A new job that nobody holds, and that has no tags.

        :return: whether it was not there yet, and can rest; otherwise nothing has changed.
        """
        (_, state, _, priority, job_id, ts_ns, deadline_ns, delay_s, ttr_s, tube_id,
         reserves, timeouts, releases, buries, kicks, _, body, _) = image  # fmt: skip
        if reserves | timeouts | releases | buries | kicks > MAX_COUNT:
            return False
        page = self._pages.get(job_id >> _PAGE_BITS)
        if page is None:
            page = self._pages[job_id >> _PAGE_BITS] = _Page()
        slot = job_id & _PAGE_MASK
        at = slot * ROW_BYTES
        if page.entries[slot] is not None or page.rows[at + _STATE_AT]:
            return False
        size = len(body)
        _ROW.pack_into(
            page.rows, at, ts_ns, lsn, deadline_ns, kicks, state, priority, delay_s, ttr_s,
            tube_id, segment, size, lsn, reserves, timeouts, releases, buries,
        )  # fmt: skip
        page.entries[slot] = body
        page.count += 1
        self._count += 1
        self.memory_bytes += RESTING_JOB_BYTES + size
        self.loaded_bytes += size
        return True

    def add_all_cold(self, jobs: ColdJobs) -> None:
        """
        The same as `add_row` for each of these jobs, with their LSNs if those are known, else 0;
        none of them is there yet.
        """
        rows = _rows(jobs)
        job_ids, count = jobs.job_ids, len(jobs.job_ids)
        if job_ids == list(range(job_ids[0], job_ids[0] + count)):
            self._fill(job_ids[0], rows, jobs.bodies)
        else:
            at = 0
            for job_id, body in zip(job_ids, jobs.bodies, strict=True):
                page, slot = self._page(job_id >> _PAGE_BITS), job_id & _PAGE_MASK
                assert not page.has(slot)
                page.entries[slot] = body
                page.rows[slot * ROW_BYTES : (slot + 1) * ROW_BYTES] = rows[at : at + ROW_BYTES]
                page.count += 1
                at += ROW_BYTES
        self._count += count
        size = sum(map(len, jobs.bodies))
        self.memory_bytes += RESTING_JOB_BYTES * count + size
        self.loaded_bytes += size

    def _fill(self, first: int, rows: memoryview, bodies: list[bytes]) -> None:
        """
        Jobs with ids one after the other.
        """
        at, end = 0, len(bodies)
        while at < end:
            page = self._page(first + at >> _PAGE_BITS)
            slot = first + at & _PAGE_MASK
            count = min(_PAGE_SIZE - slot, end - at)
            first_row, end_row = slot * ROW_BYTES, (slot + count) * ROW_BYTES
            assert page.entries[slot : slot + count] == _NONE[:count]
            assert not any(page.rows[first_row + _STATE_AT : end_row : ROW_BYTES])
            page.entries[slot : slot + count] = bodies[at : at + count]
            page.rows[first_row:end_row] = rows[at * ROW_BYTES : (at + count) * ROW_BYTES]
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
        assert not page.has(slot)
        page.entries[slot] = job
        page.count += 1
        self._count += 1
        self.memory_bytes += HOT_JOB_BYTES + data_memory_bytes(job.body_bytes, job.tags)
        self.loaded_bytes += job.body_bytes

    def rest(self, job: Job, image: JobImage) -> bool:
        """
        A job that is there has become what an image says: a job that nobody holds.

        :param job: as it was before; it has no tags.
        :return: whether it can rest; otherwise nothing has changed.
        """
        (_, state, _, priority, job_id, _, deadline_ns, delay_s, ttr_s, tube_id,
         reserves, timeouts, releases, buries, kicks, _, _, _) = image  # fmt: skip
        page, slot = self._pages[job_id >> _PAGE_BITS], job_id & _PAGE_MASK
        if reserves | timeouts | releases | buries | kicks > MAX_COUNT:
            return False
        _ROW.pack_into(
            page.rows, slot * ROW_BYTES, job.created_ns, job.lsn, deadline_ns, kicks, state,
            priority, delay_s, ttr_s, tube_id, job.segment, job.body_bytes, job.full_lsn, reserves,
            timeouts, releases, buries,
        )  # fmt: skip
        if isinstance(page.entries[slot], Job):
            page.entries[slot] = job.body
            self.memory_bytes -= HELD_BYTES
        return True

    def keep(self, job: Job) -> None:
        """
        A job that is there has changed: from now on it is so.
        """
        page, slot = self._pages[job.job_id >> _PAGE_BITS], job.job_id & _PAGE_MASK
        entry = page.entries[slot]
        if job.state is not RESERVED and job.tags is None and _fits(job):
            _pack(page.rows, slot * ROW_BYTES, job)
            if entry is job:
                page.entries[slot] = job.body
                self.memory_bytes -= HELD_BYTES
        elif entry is not job:
            page.entries[slot] = job
            page.rows[slot * ROW_BYTES + _STATE_AT] = 0
            self.memory_bytes += HELD_BYTES

    def remake(self, job: Job, body: bytes, tags: Tags | None) -> None:
        """
        Give a job that is there another body and other tags; `keep` comes next.
        """
        page, slot = self._pages[job.job_id >> _PAGE_BITS], job.job_id & _PAGE_MASK
        if page.entries[slot] is not job:
            page.entries[slot] = body
        before = 0 if job.body is None else job.body_bytes
        if job.body is None:
            self.memory_bytes += BODY_OBJECT_BYTES
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
        if isinstance(entry, Job):
            old, entry.segment = entry.segment, segment
            entry.full_lsn = lsn or entry.full_lsn
            return old
        old = page.home(slot)[0]
        at = slot * ROW_BYTES
        _U32.pack_into(page.rows, at + _SEGMENT_AT, segment)
        if lsn:
            _FULL_LSN.pack_into(page.rows, at + _FULL_LSN_AT, lsn)
        return old

    # Bodies that are in the log only.

    def place(self, job_id: int) -> BodyPlace | None:
        """
        Where the full record of a job is whose body is in the log only; None of any other.
        """
        page, slot = self._pages.get(job_id >> _PAGE_BITS), job_id & _PAGE_MASK
        entry = None if page is None else page.entries[slot]
        if isinstance(entry, Job):
            return None if entry.body is not None else BodyPlace(entry.segment, entry.full_lsn)
        if page is None or entry is not None or not page.has(slot):
            return None
        return BodyPlace(*page.home(slot))

    def has_body(self, job_id: int) -> bool:
        """
        Whether a job is there, and its body is in memory.
        """
        return job_id in self and self.place(job_id) is None

    def may_leave(self, job_id: int) -> bool:
        """
        Whether the body of a job could be in the log only, now or later: it is in memory, and its
        place is known.
        """
        page, slot = self._pages.get(job_id >> _PAGE_BITS), job_id & _PAGE_MASK
        entry = None if page is None else page.entries[slot]
        if page is None or entry is None:
            return False
        if isinstance(entry, Job):
            return bool(entry.body and entry.full_lsn and entry.segment)
        return bool(entry) and all(page.home(slot))

    def drop_body(self, job_id: int, durable_lsn: int) -> bool:
        """
        Leave a job's body to the log, unless a session holds the job, or its full record is not
        known durable.

        :return: whether that was done.
        """
        page, slot = self._pages.get(job_id >> _PAGE_BITS), job_id & _PAGE_MASK
        entry = None if page is None else page.entries[slot]
        if page is None or entry is None:
            return False
        if isinstance(entry, Job):
            body = None if entry.state is RESERVED else entry.body
            segment, full_lsn = entry.segment, entry.full_lsn
        else:
            body = entry
            segment, full_lsn = page.home(slot)
        if not (body and segment and 0 < full_lsn <= durable_lsn):
            return False
        if isinstance(entry, Job):
            entry.body = None
        else:
            page.entries[slot] = None
        self._count_loaded(-len(body), -BODY_OBJECT_BYTES)
        return True

    def load_body(self, job_id: int, body: bytes) -> None:
        """
        A job's body, which was in the log only, is in memory again.
        """
        page, slot = self._pages[job_id >> _PAGE_BITS], job_id & _PAGE_MASK
        entry = page.entries[slot]
        if isinstance(entry, Job):
            assert entry.body is None and entry.body_bytes == len(body)
            entry.body = body
        else:
            assert entry is None and page.body_bytes(slot) == len(body)
            page.entries[slot] = body
        self._count_loaded(len(body), BODY_OBJECT_BYTES)

    def _count_loaded(self, body_bytes: int, object_bytes: int) -> None:
        self.memory_bytes += body_bytes + object_bytes
        self.loaded_bytes += body_bytes
        self.absent_bytes -= body_bytes

    def remove(self, job: Job) -> None:
        """
        A job is gone, which was got for that.
        """
        job_id = job.job_id
        page, slot = self._pages[job_id >> _PAGE_BITS], job_id & _PAGE_MASK
        if page.entries[slot] is job:
            self.memory_bytes -= HOT_JOB_BYTES
        else:
            page.rows[slot * ROW_BYTES + _STATE_AT] = 0
            self.memory_bytes -= RESTING_JOB_BYTES
        page.entries[slot] = None
        if job.body is None:
            self.memory_bytes += BODY_OBJECT_BYTES
            self.absent_bytes -= job.body_bytes
        else:
            self.memory_bytes -= job.body_bytes
            self.loaded_bytes -= job.body_bytes
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


def _rows(jobs: ColdJobs) -> memoryview:
    """
    What `_ROW` packs, of one job after the other.
    """
    count = len(jobs.job_ids)
    packed = memoryview(bytearray(ROW_BYTES * count))
    words = packed.cast("I")
    for at, column in (
        (0, jobs.created_low), (1, jobs.created_high), (7, jobs.priority), (8, jobs.delay_s),
        (9, jobs.ttr_s), (10, jobs.tube_id),
        (_SIZE_WORD, memoryview(array("I", map(len, jobs.bodies)))),
        (_STATE_WORD, memoryview(array("I", [READY << _SHIFT]) * count)),
        (_SEGMENT_WORD, memoryview(array("I", [jobs.segment]) * count)),
    ):  # fmt: skip
        words[at::_ROW_WORDS] = column
    if jobs.lsns:
        halves = memoryview(array("Q", jobs.lsns)).cast("B").cast("I")
        for at in (_LSN_WORD, _FULL_LSN_WORD):
            words[at::_ROW_WORDS] = halves[::2]
            words[at + 1 :: _ROW_WORDS] = halves[1::2]
    if jobs.standing is not None:
        _stand(words, jobs.standing)
    return packed


def _stand(words: memoryview, standing: Standing) -> None:
    """
    Fill in where jobs stand.
    """
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


def _facts(start: int, page: _Page, slot: int) -> JobFacts:
    """
    :param start: the first id of the page.
    """
    entry = page.entries[slot]
    if isinstance(entry, Job):
        return JobFacts(start | slot, entry.tube_id, entry.created_ns, entry.body_bytes, entry)
    at = slot * ROW_BYTES
    tube_id = _U32.unpack_from(page.rows, at + _TUBE_AT)[0]
    created_ns = _CREATED.unpack_from(page.rows, at)[0]
    return JobFacts(start | slot, tube_id, created_ns, page.body_bytes(slot), None)


def _fits(job: Job) -> bool:
    """
    Whether a row can say how often all was done with a job.
    """
    return job.reserves | job.timeouts | job.releases | job.buries | job.kicks <= MAX_COUNT


def _pack(rows: bytearray, at: int, job: Job) -> None:
    _ROW.pack_into(
        rows, at, job.created_ns, job.lsn, job.deadline_ns, job.kicks, job.state, job.priority,
        job.delay_s, job.ttr_s, job.tube_id, job.segment, job.body_bytes, job.full_lsn,
        job.reserves, job.timeouts, job.releases, job.buries,
    )  # fmt: skip


def _job(job_id: int, fields: tuple[int, ...], body: bytes | None) -> Job:
    """
    :param fields: as `_ROW` unpacks them.
    """
    # Not by `__new__` alone, which calls `__init__` where this is compiled.
    job = Job(job_id, fields[8], fields[0], body)
    (_, job.lsn, job.deadline_ns, job.kicks, state, job.priority, job.delay_s, job.ttr_s, _,
     job.segment, job.body_bytes, job.full_lsn, job.reserves, job.timeouts, job.releases,
     job.buries) = fields  # fmt: skip
    job.state = _STATES[state]
    return job
