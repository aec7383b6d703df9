"""Where all jobs are, by id; hides how."""

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from beanstalk_twisted.binlog.cold import KICKED as KICKED_HEAD
from beanstalk_twisted.binlog.cold import MAX_COUNT, ColdJobs, Run, kick_record
from beanstalk_twisted.binlog.cold import kicks as kicks_of
from beanstalk_twisted.binlog.records.jobs import BodyPlace, State
from beanstalk_twisted.binlog.tags import Tags
from beanstalk_twisted.jobs.figures import (
    BODY_OBJECT_BYTES,
    HELD_BYTES,
    RESTING_JOB_BYTES,
    tags_memory_bytes,
)
from beanstalk_twisted.jobs.job import GONE, KICK, READY, RESERVED, Job
from beanstalk_twisted.jobs.pages import (
    FULL_LSN,
    FULL_LSN_AT,
    KICKED,
    KICKED_AT,
    LOGGED,
    NEW_ROW,
    PAGE_BITS,
    PAGE_SIZE,
    ROW,
    ROW_BYTES,
    SEGMENT_AT,
    STANDING,
    STATE,
    STATE_AT,
    U32,
    JobFacts,
    Page,
    pack_all,
)

PAGE_MASK: Final = PAGE_SIZE - 1
READ: Final = ROW.unpack_from
WRITE: Final = ROW.pack_into
WRITE_NEW: Final = NEW_ROW.pack_into


class JobTable:
    """All jobs by id.

    A job that no session holds *rests*, whatever its state: its fields are a row of `ROW_BYTES` in
    the page of its id, and its body, if that is in memory, is a ``bytes`` object of its own.  So a
    resting job takes a fifth of the memory of an object with attributes, and the garbage collector
    has nothing to look at: a million of them cost no pauses.  Ids are dense, so they index pages
    instead of being keys of a dictionary.

    While a session holds it, a job is a `Job`, and so is always one that has tags, or that was
    counted more often than a row can say.  `get` makes a `Job` of a row, for reading or for whoever
    changes it; what the change has made of it is kept by `keep`, as a row or as it is.

    :ivar count: how many there are; ``held`` how many of them are a `Job`.
    :ivar loaded_bytes: of the bodies that are in memory; ``absent_bytes`` of those that are in the
        log only, which ``absent`` jobs have; ``tags_bytes`` what tags take of memory.
    :ivar keeps_places: whether whoever adds jobs of a log is to tell the LSNs of their full
        records: their bodies may leave memory.
    """

    def __init__(self) -> None:
        self.count = self.held = self.absent = 0
        self.loaded_bytes = self.absent_bytes = self.tags_bytes = 0
        self.keeps_places = False
        self._pages: dict[int, Page] = {}
        self._newest = Page(-1)

    @property
    def memory_bytes(self) -> int:
        """What they take of memory, with their bodies, places in queues and tags: counted, not
        measured.
        """
        rows = RESTING_JOB_BYTES * self.count + HELD_BYTES * self.held
        return rows + self.tags_bytes + self.loaded_bytes - BODY_OBJECT_BYTES * self.absent

    def __len__(self) -> int:
        return self.count

    def __contains__(self, job_id: int) -> bool:
        page = self._pages.get(job_id >> PAGE_BITS)
        return page is not None and page.has(job_id & PAGE_MASK)

    def __iter__(self) -> Iterator[int]:
        for number in sorted(self._pages):
            page = self._pages[number]
            for slot in range(PAGE_SIZE):
                if page.has(slot):
                    yield number << PAGE_BITS | slot

    def pages(self) -> list[int]:
        return list(self._pages)

    def facts(self, number: int) -> list[JobFacts]:
        page = self._pages.get(number)
        return [] if page is None else page.facts()

    def get(self, job_id: int) -> Job | None:
        """The job as it is now; if it rests, a copy, for reading or for a change of it."""
        page = self._pages.get(job_id >> PAGE_BITS)
        if page is None:
            return None
        slot = job_id & PAGE_MASK
        entry = page.entries[slot]
        if isinstance(entry, Job):
            return entry
        row = READ(page.rows, slot * ROW_BYTES)
        # Not by `__new__` alone, which calls `__init__` where this is compiled.
        return Job(job_id, entry, None, row) if row[STATE] else None

    def kicks(
        self, job_ids: Sequence[int], tube_id: int, connection: int, now_ns: int
    ) -> Run:  # fmt: skip
        """:param job_ids: of jobs of a tube, which no session holds; at least one.
        :return: the records of these jobs when they are kicked.
        """
        pages, logged, record = self._pages, LOGGED.unpack_from, kick_record
        records = []
        for job_id in job_ids:
            kicks, state, priority, delay_s, ttr_s, reserves, timeouts, releases, buries = logged(
                pages[job_id >> PAGE_BITS].rows, (job_id & PAGE_MASK) * ROW_BYTES
            )
            if not state:
                return kicks_of([self.job(each) for each in job_ids], tube_id, connection, now_ns)
            records.append(record(
                KICKED_HEAD, priority, job_id, now_ns, delay_s, ttr_s, tube_id,
                reserves, timeouts, releases, buries, kicks + 1, connection,
            ))  # fmt: skip
        return Run(KICK, b"".join(records))

    def kick(self, job_ids: list[int], lsn: int, *, in_order: bool) -> list[int]:
        """These jobs are kicked.

        :param in_order: whether their ids are ascending.
        :param lsn: of the first one's record, the others' follow; 0 if they are known durable.
        :return: their priorities.
        """
        pages, step, at, end = self._pages, 1 if lsn else 0, 0, len(job_ids)
        priorities: list[int] = []
        while at < end:
            job_id = job_ids[at]
            page, slot = pages[job_id >> PAGE_BITS], job_id & PAGE_MASK
            kicked = None
            last = at + PAGE_SIZE - 1
            if in_order and not slot and last < end and job_ids[last] == job_id + PAGE_MASK:
                kicked = page.kick(lsn)
            if kicked is None:
                kicked = [self._kick_one(page, job_id, lsn)]
            priorities += kicked
            at += len(kicked)
            lsn += step * len(kicked)
        return priorities

    def _kick_one(self, page: Page, job_id: int, lsn: int) -> int:
        """:return: the job's priority."""
        rows, at = page.rows, (job_id & PAGE_MASK) * ROW_BYTES
        kicks, state, priority = STANDING.unpack_from(rows, at)
        if state and kicks < MAX_COUNT:
            KICKED.pack_into(rows, at + KICKED_AT, lsn, 0, kicks + 1, READY)
            return int(priority)
        job = self.job(job_id)
        job.state, job.deadline_ns, job.lsn = READY, 0, lsn
        job.kicks += 1
        self.keep(job)
        return job.priority

    def job(self, job_id: int) -> Job:
        job = self.get(job_id)
        assert job is not None
        return job

    def look(self, job_id: int) -> Job | None:
        """As `get`, for reading only."""
        return self.get(job_id)

    def weigh(self, job_id: int) -> tuple[int, bool]:
        """:return: the bytes of the body of a job that is there, and whether it has tags."""
        page, slot = self._pages[job_id >> PAGE_BITS], job_id & PAGE_MASK
        entry = page.entries[slot]
        if isinstance(entry, Job):
            return entry.body_bytes, entry.tags is not None
        return page.body_bytes(slot), False

    def add_row(
        self, job_id: int, body: bytes, created_ns: int, lsn: int, segment: int, state: State,
        priority: int, deadline_ns: int, delay_s: int, ttr_s: int, tube_id: int,
    ) -> bool:  # fmt: skip
        """A new job that nobody holds, and that has no tags.

        :return: whether it was not there yet; otherwise nothing has changed.
        """
        page, slot = self._page(job_id >> PAGE_BITS), job_id & PAGE_MASK
        at = slot * ROW_BYTES
        if page.entries[slot] is not None or page.rows[at + STATE_AT]:
            return False
        size = len(body)
        WRITE_NEW(
            page.rows, at, created_ns, lsn, deadline_ns, state, priority, delay_s, ttr_s, tube_id,
            segment, size, lsn,
        )  # fmt: skip
        page.entries[slot] = body
        page.count += 1
        self.count += 1
        self.loaded_bytes += size
        return True

    def add_all_cold(self, jobs: ColdJobs) -> None:
        """As `add_row` for each of these jobs, none of which is there yet; their LSNs are 0 where
        those are not known.
        """
        rows = pack_all(jobs)
        job_ids, count = jobs.job_ids, len(jobs.job_ids)
        if job_ids == list(range(job_ids[0], job_ids[0] + count)):
            self._fill(job_ids[0], rows, jobs.bodies)
        else:
            at = 0
            for job_id, body in zip(job_ids, jobs.bodies, strict=True):
                page, slot = self._page(job_id >> PAGE_BITS), job_id & PAGE_MASK
                assert not page.has(slot)
                page.entries[slot] = body
                page.rows[slot * ROW_BYTES : (slot + 1) * ROW_BYTES] = rows[at : at + ROW_BYTES]
                page.count += 1
                at += ROW_BYTES
        self.count += count
        self.loaded_bytes += jobs.body_bytes
        if jobs.are_left:
            self._count_loaded(-jobs.bodies.count(None), -jobs.body_bytes)

    def _fill(self, first: int, rows: memoryview, bodies: Sequence[bytes | None]) -> None:
        at, end = 0, len(bodies)
        while at < end:
            number, slot = first + at >> PAGE_BITS, first + at & PAGE_MASK
            count = min(PAGE_SIZE - slot, end - at)
            entries: list[bytes | Job | None] = [*bodies[at : at + count]]
            filled = rows[at * ROW_BYTES : (at + count) * ROW_BYTES]
            if count == PAGE_SIZE and number not in self._pages:
                self._pages[number] = Page(number, entries, bytearray(filled))
            else:
                page = self._page(number)
                assert not page.count or page.is_free(slot, slot + count)
                page.entries[slot : slot + count] = entries
                page.rows[slot * ROW_BYTES : (slot + count) * ROW_BYTES] = filled
                page.count += count
            at += count

    def _page(self, number: int) -> Page:
        page = self._pages.get(number)
        return self._new_page(number) if page is None else page

    def _new_page(self, number: int) -> Page:
        """The last one that was made stays while it is empty, until it is made the next: of jobs
        that come and go one by one each would make one.
        """
        page = self._newest
        if page.count:
            page = Page(number)
        else:
            self._pages.pop(page.number, None)
            page.number = number
        self._newest = self._pages[number] = page
        return page

    def add(self, job: Job) -> None:
        job_id = job.job_id
        page = self._page(job_id >> PAGE_BITS)
        slot = job_id & PAGE_MASK
        assert not page.has(slot)
        page.entries[slot] = job
        page.count += 1
        self.count += 1
        self.held += 1
        self.tags_bytes += tags_memory_bytes(job.tags)
        self.loaded_bytes += job.body_bytes

    def keep(self, job: Job) -> None:
        """A job that is there has changed: from now on it is so."""
        if job.state is RESERVED or job.tags is not None:
            self.hold(job)
            return
        page, slot = self._pages[job.job_id >> PAGE_BITS], job.job_id & PAGE_MASK
        try:
            WRITE(
                page.rows, slot * ROW_BYTES, job.created_ns, job.lsn, job.deadline_ns, job.kicks,
                job.state, job.priority, job.delay_s, job.ttr_s, job.tube_id, job.segment,
                job.body_bytes, job.full_lsn, job.reserves, job.timeouts, job.releases, job.buries,
            )  # fmt: skip
        except struct.error:
            # A row cannot say how often all was done with it.
            self.hold(job)
            return
        if page.entries[slot] is job:
            page.entries[slot] = job.body
            self.held -= 1

    def hold(self, job: Job) -> None:
        """The same of one that cannot rest: from now on it is this object."""
        page, slot = self._pages[job.job_id >> PAGE_BITS], job.job_id & PAGE_MASK
        page.rows[slot * ROW_BYTES + STATE_AT] = GONE
        if page.entries[slot] is not job:
            page.entries[slot] = job
            self.held += 1

    def remake(self, job: Job, body: bytes, tags: Tags | None) -> None:
        """Give a job that is there another body and other tags; `keep` comes next."""
        page, slot = self._pages[job.job_id >> PAGE_BITS], job.job_id & PAGE_MASK
        if page.entries[slot] is not job:
            page.entries[slot] = body
        before = 0 if job.body is None else job.body_bytes
        if job.body is None:
            self.absent -= 1
        self.absent_bytes -= job.body_bytes - before
        self.tags_bytes += tags_memory_bytes(tags) - tags_memory_bytes(job.tags)
        job.body, job.body_bytes, job.tags = body, len(body), tags
        self.loaded_bytes += job.body_bytes - before

    def rehome(self, job_id: int, segment: int, lsn: int = 0) -> int:
        """A job's full record is now in another segment.

        :param lsn: the record's, if it is another one; 0 for the same one.
        :return: the segment where it was.
        """
        page, slot = self._pages[job_id >> PAGE_BITS], job_id & PAGE_MASK
        entry = page.entries[slot]
        if isinstance(entry, Job):
            old, entry.segment = entry.segment, segment
            entry.full_lsn = lsn or entry.full_lsn
            return old
        old = page.home(slot)[0]
        at = slot * ROW_BYTES
        U32.pack_into(page.rows, at + SEGMENT_AT, segment)
        if lsn:
            FULL_LSN.pack_into(page.rows, at + FULL_LSN_AT, lsn)
        return old

    # Bodies that are in the log only.

    def place(self, job_id: int) -> BodyPlace | None:
        """Where the full record of a job is whose body is in the log only; None of any other."""
        page, slot = self._pages.get(job_id >> PAGE_BITS), job_id & PAGE_MASK
        entry = None if page is None else page.entries[slot]
        if isinstance(entry, Job):
            return None if entry.body is not None else BodyPlace(entry.segment, entry.full_lsn)
        if page is None or entry is not None or not page.has(slot):
            return None
        return BodyPlace(*page.home(slot))

    def has_body(self, job_id: int) -> bool:
        return job_id in self and self.place(job_id) is None

    def may_leave(self, job_id: int) -> bool:
        """Whether a body is in memory that could be in the log only, now or later."""
        page, slot = self._pages.get(job_id >> PAGE_BITS), job_id & PAGE_MASK
        entry = None if page is None else page.entries[slot]
        if page is None or entry is None:
            return False
        if isinstance(entry, Job):
            return bool(entry.body and entry.full_lsn and entry.segment)
        return bool(entry) and all(page.home(slot))

    def drop_body(self, job_id: int, durable_lsn: int) -> bool:
        """:return: whether a job's body was left to the log: its full record is known durable."""
        page, slot = self._pages.get(job_id >> PAGE_BITS), job_id & PAGE_MASK
        entry = None if page is None else page.entries[slot]
        if page is None or entry is None:
            return False
        if isinstance(entry, Job):
            body, segment, full_lsn = entry.body, entry.segment, entry.full_lsn
        else:
            body = entry
            segment, full_lsn = page.home(slot)
        if not (body and segment and 0 < full_lsn <= durable_lsn):
            return False
        if isinstance(entry, Job):
            entry.body = None
        else:
            page.entries[slot] = None
        self._count_loaded(-1, -len(body))
        return True

    def drop_reserved(self, job_id: int, place: BodyPlace) -> bool:
        """Drop the body of a job that a session holds, if its full record is still there.

        :return: whether that was done.
        """
        page = self._pages.get(job_id >> PAGE_BITS)
        entry = None if page is None else page.entries[job_id & PAGE_MASK]
        if not isinstance(entry, Job) or entry.state is not RESERVED or not entry.body:
            return False
        return BodyPlace(entry.segment, entry.full_lsn) == place and self.drop_body(
            job_id, entry.full_lsn
        )

    def load_body(self, job_id: int, body: bytes) -> None:
        page, slot = self._pages[job_id >> PAGE_BITS], job_id & PAGE_MASK
        entry = page.entries[slot]
        if isinstance(entry, Job):
            assert entry.body is None and entry.body_bytes == len(body)
            entry.body = body
        else:
            assert entry is None and page.body_bytes(slot) == len(body)
            page.entries[slot] = body
        self._count_loaded(1, len(body))

    def _count_loaded(self, bodies: int, body_bytes: int) -> None:
        """So many bodies have come into memory; a negative number has left it."""
        self.loaded_bytes += body_bytes
        self.absent_bytes -= body_bytes
        self.absent -= bodies

    def remove(self, job: Job) -> None:
        job_id, size = job.job_id, job.body_bytes
        page, slot = self._pages[job_id >> PAGE_BITS], job_id & PAGE_MASK
        if page.entries[slot] is job:
            self.held -= 1
        else:
            page.rows[slot * ROW_BYTES + STATE_AT] = 0
        page.entries[slot] = None
        if job.body is None:
            self.absent -= 1
            self.absent_bytes -= size
        else:
            self.loaded_bytes -= size
        if job.tags is not None:
            self.tags_bytes -= tags_memory_bytes(job.tags)
        self.count -= 1
        page.count -= 1
        if not page.count and page is not self._newest:
            del self._pages[job_id >> PAGE_BITS]
