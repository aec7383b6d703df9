"""The newest state and the body of each job that survives of a directory of beanstalkd."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.files import Files
from beanstalk_twisted.binlog.reading.survey import Progress
from beanstalk_twisted.binlog.segments.frames import Buffer
from beanstalk_twisted.wire import grammar
from binlog_tools.logs.quantities import NS
from binlog_tools.logs.stored import LOST_AND_FOUND
from binlog_tools.v7 import records
from binlog_tools.v7.files import Skipped, files_of, open_file, walk
from binlog_tools.v7.records import BURIED, READY, Fields, Record

MAX_LISTED: Final = 1_000
"""All are counted."""


class Kind(StrEnum):
    """The first alone is the trace of a mere crash."""

    TORN = "torn"
    DAMAGED = "damaged"
    CONTRADICTS = "contradicts"
    MISSING = "missing"
    FOREIGN = "foreign"


class Finding(NamedTuple):
    """Something that is not as it should be.

    :ivar end: up to where bytes were skipped; ``offset`` if none were.
    :ivar job_id: the job concerned, 0 if that cannot be said.
    """

    kind: Kind
    file: str
    offset: int
    end: int
    job_id: int
    what: str

    def __str__(self) -> str:
        whose = f" (job {self.job_id})" if self.job_id else ""
        return f"{self.file}: offset {self.offset}: {self.kind}{whose}: {self.what}"


class Findings:
    """All findings of a directory.

    :ivar listed: the first `MAX_LISTED`.
    :ivar machine: the kind of machine that wrote it, if its logs cannot be read here.
    """

    def __init__(self) -> None:
        self.listed: list[Finding] = []
        self.counts: Counter[Kind] = Counter()
        self.skipped_bytes = 0
        self.machine = ""

    def add(self, finding: Finding) -> None:
        self.counts[finding.kind] += 1
        self.skipped_bytes += finding.end - finding.offset
        if finding.kind is Kind.FOREIGN:
            self.machine = finding.what
        if len(self.listed) < MAX_LISTED:
            self.listed.append(finding)

    @property
    def verdict(self) -> str:
        """``sound``, ``torn`` if a crash explains all of them, or ``damaged``."""
        if not self.counts:
            return "sound"
        return "torn" if self.counts.keys() == {Kind.TORN} else "damaged"


OPEN_FILES: Final = 16
"""Mapped at once, each for a file descriptor."""

PROGRESS_RECORDS: Final = 65_536
"""Between two calls of a `Progress`: a fraction of a second."""

DOUBTFUL_TTR_S: Final = 60
"""The ttr of such a job if its own makes no sense: what most clients put by default."""

_BEFORE_THE_LOG: Final = -(1 << 62)
"""Jobs that were buried in files that are gone come before all others."""


class Job(NamedTuple):
    """:ivar body_bytes: without the CR LF.
    :ivar buried_at: orders the buried jobs by when they were buried.
    :ivar ids_before: the highest id in full records before its own.
    """

    fields: Fields
    tube: bytes
    file: str
    offset: int
    body_at: int
    body_bytes: int
    buried_at: int = 0
    ids_before: int = 0


class _Orphan(NamedTuple):
    state: int
    buried_at: int
    file: str
    offset: int


@dataclass
class Counts:
    """How many of each were met; ``orphaned``: short records of jobs whose files are gone."""

    files: int = 0
    bytes: int = 0
    full: int = 0
    short: int = 0
    deleted: int = 0
    orphaned: int = 0


class Survivors:
    """The surviving jobs of a directory, and what was found on the way.

    A record changes the job it names only if it agrees with that job in what never changes, so one
    damaged record costs no other job; docs/beanstalkd-binlog.md, "Damage".

    :ivar gaps: first and last number of each run of files that is missing in the middle.
    :ivar max_job_id: the highest id in any record that could be right.
    """

    def __init__(self, directory: Files, progress: Progress) -> None:
        """:raise OSError: the directory cannot be read."""
        self.path = directory.path
        self.jobs: dict[int, Job] = {}
        self.findings = Findings()
        self.counts = Counts()
        self.max_job_id = 0
        self._buffer_of = lru_cache(OPEN_FILES)(directory.read)
        self._doubtful: dict[int, Job] = {}
        self._without_id: list[Job] = []
        self._orphans: dict[int, _Orphan] = {}
        self._tubes: dict[bytes, bytes] = {}
        self._max_full_id = 0
        self._position = 0
        self._file = ""
        self._progress = progress
        names = files_of(directory.names())
        runs = pairwise(names)
        self.gaps = [(before + 1, after - 1) for before, after in runs if after - before > 1]
        for first, last in self.gaps:
            self._file = f"binlog.{first}"
            upto = f" to binlog.{last}" if last > first else ""
            self._note(Kind.MISSING, 0, 0, 0, f"the file{upto} is missing")
        self._read_all(directory, names.values())
        for job_id, orphan in self._orphans.items():
            self._file = orphan.file
            self._note(Kind.MISSING, orphan.offset, orphan.offset, job_id, "its body is in no file")

    @property
    def next_job_id(self) -> int:
        doubtful = (job.fields.job_id for job in self.doubtful())
        return max((self.max_job_id, *doubtful)) + 1

    def body(self, job: Job) -> bytes:
        return bytes(self._buffer_of(job.file)[job.body_at : job.body_at + job.body_bytes])

    def ready_and_delayed(self) -> Iterator[Job]:
        """In the order of their bodies on disk; reserved ones are ready."""
        for job in self.jobs.values():
            if job.fields.state == records.RESERVED:
                yield job._replace(fields=job.fields._replace(state=READY))
            elif job.fields.state != BURIED:
                yield job

    def buried(self) -> list[Job]:
        found = (job for job in self.jobs.values() if job.fields.state == BURIED)
        return sorted(found, key=lambda job: job.buried_at)

    def doubtful(self) -> Iterator[Job]:
        """Bodies whose records are not right, as buried jobs of `LOST_AND_FOUND`.  An id that is
        not free, or cannot be one, is given anew above all others.
        """
        next_id = self.max_job_id + 1
        for job in (*self._doubtful.values(), *self._without_id):
            job_id = job.fields.job_id
            is_own = self._doubtful.get(job_id) is job and job_id not in self.jobs
            if not (is_own and 1 <= job_id <= self.max_job_id):
                job_id, next_id = next_id, next_id + 1
            yield job._replace(fields=_mended(job.fields, job_id), tube=LOST_AND_FOUND)

    @property
    def doubtful_jobs(self) -> int:
        return len(self._doubtful) + len(self._without_id)

    def states(self) -> Mapping[str, int]:
        """Count jobs by state; reserved ones are ready."""
        found = Counter(job.fields.state for job in self.jobs.values())
        return {
            "ready": found[READY] + found[records.RESERVED],
            "delayed": found[records.DELAYED],
            "buried": found[BURIED],
        }

    def _read_all(self, directory: Files, names: Collection[str]) -> None:
        done, total = 0, sum(len(directory.read(name)) for name in names)
        for name in names:
            buffer = self._buffer_of(name)
            self._file = name
            self.counts.files += 1
            self.counts.bytes += len(buffer)
            self._read(buffer, done, total)
            done += len(buffer)
            self._progress(done, total)

    def _read(self, buffer: Buffer, done: int, total: int) -> None:
        opened = open_file(buffer)
        if opened.machine:
            self._note(Kind.FOREIGN, 0, len(buffer), 0, opened.problem)
        elif opened.problem:
            self._note(Kind.DAMAGED, 0, 0 if opened.layout else len(buffer), 0, opened.problem)
        elif opened.layout is None:
            self._note(Kind.TORN, 0, len(buffer), 0, "it was cut short before its first record")
        if opened.layout is None:
            return
        for found in walk(buffer, opened.layout):
            self._position += 1
            if not self._position % PROGRESS_RECORDS:
                self._progress(done + found.offset, total)
            if isinstance(found, Skipped):
                self._skipped(found)
            elif found.is_full:
                self._full(found)
            else:
                self._short(found)

    def _skipped(self, found: Skipped) -> None:
        kind = Kind.DAMAGED if found.why else Kind.TORN
        what = found.why or "the record is not complete"
        self._note(kind, found.offset, found.end, found.job_id, what)
        if kind is Kind.TORN and found.job_id <= records.MAX_JOB_ID:
            self.max_job_id = max(self.max_job_id, found.job_id)
        if found.rest is None:
            return
        job = self._job(found.rest)
        standing = self.jobs.get(found.rest.fields.job_id)
        if standing and self._is_copy(job, standing):
            return
        job_id = job.fields.job_id
        if job_id in self.jobs or job_id in self._doubtful:
            self._without_id.append(job)
        else:
            self._doubtful[job_id] = job

    def _full(self, record: Record) -> None:
        self.counts.full += 1
        job = self._job(record)
        job_id = record.fields.job_id
        self.max_job_id = max(self.max_job_id, job_id)
        standing = self.jobs.get(job_id)
        if standing is None:
            self.jobs[job_id] = self._first(job)
        elif self._is_copy(job, standing):
            if job.fields.created_ns != standing.fields.created_ns:
                self._contradicts(job_id, job.offset, "its time of creation is another one")
            self.jobs[job_id] = _in_its_place(job, standing)
        elif job.tube == standing.tube and job.fields.created_ns == standing.fields.created_ns:
            self._differing_copy(job, standing)
        else:
            self._rival(job, standing)
        self._max_full_id = max(self._max_full_id, job_id)

    def _job(self, record: Record) -> Job:
        tube = self._tubes.setdefault(record.tube, record.tube)
        return Job(
            record.fields, tube, self._file, record.offset, record.body_at, record.body_bytes,
            self._position, self._max_full_id,
        )  # fmt: skip

    def _first(self, job: Job) -> Job:
        job_id = job.fields.job_id
        orphan = self._orphans.pop(job_id, None)
        doubted = self._doubtful.get(job_id)
        if doubted and self._is_copy(job, doubted):
            del self._doubtful[job_id]
        if job.fields.state != BURIED:
            return job
        if orphan and orphan.state == BURIED:
            return job._replace(buried_at=orphan.buried_at)
        return job._replace(buried_at=_BEFORE_THE_LOG + self._position)

    def _differing_copy(self, job: Job, standing: Job) -> None:
        """The older body is longer on disk; a torn write may leave zeros in the newer one."""
        what = f"its body is not that in {standing.file} at {standing.body_at}"
        self._contradicts(job.fields.job_id, job.offset, what)
        fields = job.fields._replace(
            body_size=standing.fields.body_size, ttr_ns=standing.fields.ttr_ns
        )
        self.jobs[job.fields.job_id] = standing._replace(
            fields=fields, buried_at=_in_its_place(job, standing).buried_at
        )
        self._without_id.append(job)

    def _rival(self, job: Job, standing: Job) -> None:
        """Two jobs with one id.  Ids ascend: the older one is right if no other id was left for it,
        or if higher ones stand between the two.
        """
        job_id = job.fields.job_id
        what = f"another job with this id is in {standing.file} at {standing.offset}"
        self._contradicts(job_id, job.offset, what)
        is_in_order = standing.ids_before < job_id
        has_no_other = job_id - standing.ids_before == 1 or self._max_full_id > job_id
        if is_in_order and has_no_other:
            self._without_id.append(job)
        else:
            self._without_id.append(standing)
            self.jobs[job_id] = job._replace(buried_at=_BEFORE_THE_LOG + self._position)

    def _is_copy(self, job: Job, other: Job) -> bool:
        return (
            job.tube == other.tube
            and job.body_bytes == other.body_bytes
            and self.body(job) == self.body(other)
        )

    def _short(self, record: Record) -> None:
        self.counts.short += 1
        fields = record.fields
        self.max_job_id = max(self.max_job_id, fields.job_id)
        standing = self.jobs.get(fields.job_id)
        if standing is None:
            self._orphan(record)
        elif _lasting(fields) != _lasting(standing.fields):
            self._contradicts(fields.job_id, record.offset, "it is not of the job with this id")
        elif fields.state == records.GONE:
            self.counts.deleted += 1
            del self.jobs[fields.job_id]
        else:
            self.jobs[fields.job_id] = standing._replace(fields=fields, buried_at=self._position)

    def _orphan(self, record: Record) -> None:
        fields = record.fields
        doubted = self._doubtful.get(fields.job_id)
        if doubted:
            if fields.state == records.GONE and fields.created_ns == doubted.fields.created_ns:
                self.counts.deleted += 1
                del self._doubtful[fields.job_id]
            return
        self.counts.orphaned += 1
        if fields.state == records.GONE:
            self._orphans.pop(fields.job_id, None)
        else:
            self._orphans[fields.job_id] = _Orphan(
                fields.state, self._position, self._file, record.offset
            )

    def _note(self, kind: Kind, offset: int, end: int, job_id: int, what: str) -> None:
        self.findings.add(Finding(kind, self._file, offset, end, job_id, what))

    def _contradicts(self, job_id: int, offset: int, what: str) -> None:
        self._note(Kind.CONTRADICTS, offset, offset, job_id, what)


def _in_its_place(job: Job, standing: Job) -> Job:
    was_buried = standing.fields.state == BURIED
    at = standing.buried_at if was_buried else job.buried_at
    return job._replace(buried_at=at, ids_before=standing.ids_before)


def _lasting(fields: Fields) -> tuple[int, int, int]:
    return fields.created_ns, fields.ttr_ns, fields.body_size


def _mended(fields: Fields, job_id: int) -> Fields:
    ttr_s = max(1, fields.ttr_ns // NS)
    return fields._replace(
        job_id=job_id, state=BURIED, delay_ns=0, deadline_ns=0,
        ttr_ns=(ttr_s if ttr_s <= grammar.MAX_U32 else DOUBTFUL_TTR_S) * NS,
        created_ns=min(max(fields.created_ns, 0), (1 << 63) - 1),
    )  # fmt: skip
