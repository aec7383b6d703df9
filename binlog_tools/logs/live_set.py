"""The jobs that a log leaves alive, at its end or at some point of it."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.errors import Damaged
from beanstalk_twisted.binlog.reading.survival import LogState
from beanstalk_twisted.binlog.records.jobs import FULL, Flag, JobImage, Kind, State
from beanstalk_twisted.binlog.records.others import (
    DATA_LEN,
    DATA_OFF,
    DEADLINE_NS,
    DELAY_S,
    FLAGS,
    JOB_KINDS,
    RESERVES,
    STATE,
    TS_NS,
    NotUnderstood,
    Start,
    decode_record,
)
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import RECORD, RECORD_BYTES, segment_name
from beanstalk_twisted.binlog.segments.frames import Buffer, Frame
from beanstalk_twisted.binlog.tags import BadTags, Tags, split_tags
from binlog_tools.logs.quantities import LATEST_NS, MAX_NUMBER, NS
from binlog_tools.logs.reading import Broken, OpenSegment, names_ahead, segments, tubes_named
from binlog_tools.logs.sources import Source
from binlog_tools.logs.stored import StoredJob

OPEN_SEGMENTS: Final = 16
"""As in `replay.OPEN_SEGMENTS`."""


class Point(NamedTuple):
    """A place in a log: behind the last record that has this LSN at most and was logged at this
    time at the latest.
    """

    lsn: int = MAX_NUMBER
    time_ns: int = LATEST_NS


END: Final = Point()


class LiveJob(NamedTuple):
    """A job that is alive.

    :ivar seq: the segment with its newest full record, ``at`` the place of its body there.
    """

    record: bytes
    created_ns: int
    seq: int
    at: int
    size: int
    tags: Tags | None = None

    @property
    def data_bytes(self) -> int:
        """What body and tags take in the log."""
        return self.size if self.tags is None else self.size + self.tags.encoded_bytes


class LiveSet(LogState):
    """The jobs, tubes, pauses, policies and remembered keys after each frame that is taken.

    For each job its newest record and the place of its body are kept: some 400 bytes.

    :ivar jobs: by id; in the order of their first records.
    :ivar lacking: newest records of jobs whose bodies have not come yet.
    """

    def __init__(self) -> None:
        super().__init__()
        self.jobs: dict[int, LiveJob] = {}
        self.lacking: dict[int, bytes] = {}
        self.last_lsn = 0
        self._reserved: set[int] = set()

    def take(self, buffer: Buffer, frame: Frame, seq: int, count: int | None = None) -> None:
        self.time_ns = max(self.time_ns, frame.time_ns)
        count = frame.n_rec if count is None else count
        self.last_lsn = frame.base_lsn + count - 1
        view = memoryview(buffer)
        for index, (kind, job_id) in enumerate(frames.kinds_and_ids(buffer, frame)):
            if index >= count:
                break
            at = frame.records_at + index * frame.rec_size
            if kind not in JOB_KINDS:
                with suppress(NotUnderstood):
                    record = decode_record(*frames.whole_record(buffer, frame, index))
                    self.note(record, seq, frame.base_lsn + index)
                    if isinstance(record, Start):
                        self._end_reservations()
            elif kind in FULL:
                job = self.jobs[job_id] = full_job(buffer, at, seq, frame.heap_at)
                self.lacking.pop(job_id, None)
                if job.record[1] == State.RESERVED:
                    self._reserved.add(job_id)
            elif kind == Kind.DELETE:
                self.about_to_delete(buffer, frame, index)
                self.jobs.pop(job_id, None)
                self.lacking.pop(job_id, None)
            else:
                self._change(job_id, bytes(view[at : at + RECORD_BYTES]))

    def about_to_delete(self, buffer: Buffer, frame: Frame, index: int) -> None:
        """Called before the deletion of a job that is still there, for subclasses."""

    def _change(self, job_id: int, record: bytes) -> None:
        job = self.jobs.get(job_id)
        if job is None:
            self.lacking[job_id] = record
        else:
            self.jobs[job_id] = job._replace(record=record)
        if record[1] == State.RESERVED:
            self._reserved.add(job_id)

    def _end_reservations(self) -> None:
        """A server has started: who had reserved jobs is gone, and no record says so of each."""
        for job_id in self._reserved:
            job = self.jobs.get(job_id)
            if job is not None and job.record[1] == State.RESERVED:
                self.jobs[job_id] = job._replace(record=_made_ready(job.record))
            newest = self.lacking.get(job_id)
            if newest is not None and newest[1] == State.RESERVED:
                self.lacking[job_id] = _made_ready(newest)
        self._reserved.clear()


def _made_ready(record: bytes) -> bytes:
    raw = list(RECORD.unpack(record))
    raw[STATE], raw[DEADLINE_NS] = State.READY, 0
    return RECORD.pack(*raw)


def full_job(buffer: Buffer, at: int, seq: int, heap_at: int) -> LiveJob:
    """:param heap_at: where the heap begins that its body is in."""
    record = bytes(memoryview(buffer)[at : at + RECORD_BYTES])
    raw = RECORD.unpack(record)
    body_at, size = heap_at + raw[DATA_OFF], raw[DATA_LEN]
    tags = None
    if raw[FLAGS] & Flag.EXT:
        data = memoryview(buffer)[body_at : body_at + size]
        extensions = 2 + int.from_bytes(data[:2], "little")
        with suppress(BadTags):
            tags = split_tags(bytes(data[:extensions]))[0]
        body_at, size = body_at + extensions, max(0, size - extensions)
    return LiveJob(record, raw[TS_NS], seq, body_at, size, tags)


def sound_segments(source: Source, first_seq: int = 0) -> Iterator[OpenSegment]:
    """:param first_seq: segments below it are dead.
    :raise Damaged: the log is neither sound nor torn.
    """
    for opened in segments(source):
        if opened.seq < first_seq:
            continue
        if isinstance(opened, Broken):
            raise _damaged(source, opened.name, 0, opened.problem.why)
        yield opened


def sound_frames(opened: OpenSegment) -> Iterator[Frame]:
    """:raise Damaged: the segment is damaged before its end."""
    for piece in opened.pieces():
        if isinstance(piece, Frame):
            yield piece
        elif opened.end is None:
            return
        else:
            raise _damaged(opened.source, opened.name, piece.offset, piece.why)


def _damaged(source: Source, name: str, offset: int, why: str) -> Damaged:
    return Damaged(
        f"damaged binlog: {source.path}: {name}: offset {offset}: {why}; nothing was changed. "
        f"See 'binlog-inspect check {source.path}'; 'binlog-inspect salvage' goes on behind damage."
    )


class Snapshot(NamedTuple):
    """A log at some point.

    :ivar unknown: jobs that were alive then, but whose state or body the log no longer tells.
    """

    live: LiveSet
    unknown: frozenset[int]
    first_lsn: int
    since_ns: int


def live_at(source: Source, point: Point = END, first_seq: int = 0) -> Snapshot:
    """The jobs that are alive at a point.  Bodies, and jobs that were put before the log begins,
    are taken from later records, in which compaction has stated them again.

    :param first_seq: segments below it are dead.
    :raise Damaged: the log is not sound.
    """
    live = LiveSet()
    later = _Later(live)
    first_lsn = 0
    for opened in sound_segments(source, first_seq):
        if not first_lsn:
            first_lsn = opened.header.first_lsn
            later.since_ns = opened.header.created_ns
        live.tubes.update(names_ahead(opened))
        for frame in sound_frames(opened):
            count = records_before(frame, point)
            if count:
                live.take(opened.buffer, frame, opened.seq, count)
            if count < frame.n_rec:
                live.tubes.update(tubes_named(opened.buffer, frame))
                later.take(opened.buffer, frame, opened.seq, count)
    unknown = frozenset(later.unknown | live.lacking.keys())
    return Snapshot(live, unknown, first_lsn, later.since_ns)


def records_before(frame: Frame, point: Point) -> int:
    if frame.time_ns > point.time_ns:
        return 0
    return max(0, min(frame.n_rec, point.lsn - frame.base_lsn + 1))


class _Later:
    """Records behind a point.

    :ivar unknown: jobs that were alive then, in a state that nothing tells.
    """

    def __init__(self, live: LiveSet) -> None:
        self._live = live
        self._touched: set[int] = set()
        self._has_start = False
        self.since_ns = 0
        self.unknown: set[int] = set()

    def take(self, buffer: Buffer, frame: Frame, seq: int, first: int) -> None:
        view, lacking = memoryview(buffer), self._live.lacking
        for index, (kind, job_id) in enumerate(frames.kinds_and_ids(buffer, frame)):
            if index < first:
                continue
            if kind == Start.kind:
                self._has_start = True
            if kind not in JOB_KINDS or job_id in self._live.jobs:
                continue
            if kind == Kind.PUT:
                self._touched.add(job_id)
            elif job_id in self._touched:
                continue
            elif kind == Kind.COPY:
                at = frame.records_at + index * frame.rec_size
                job, newest = full_job(view, at, seq, frame.heap_at), lacking.pop(job_id, None)
                if newest is None and self._became_ready(job):
                    self._lose(job_id)
                else:
                    self._live.jobs[job_id] = job._replace(record=newest or job.record)
            elif kind in FULL or job_id not in lacking:
                # A job that was moved or updated since was another one before.
                self._lose(job_id)

    def _lose(self, job_id: int) -> None:
        self._touched.add(job_id)
        self.unknown.add(job_id)

    def _became_ready(self, job: LiveJob) -> bool:
        """Whether it may have become ready since the point without a record: a delay ended, or the
        reservation of a client that had gone when a server started.
        """
        raw = RECORD.unpack(job.record)
        if raw[STATE] != State.READY:
            return False
        # Whatever delayed it is older than the log.
        delay_ends = self.since_ns + raw[DELAY_S] * NS
        return delay_ends > self._live.time_ns or bool(self._has_start and raw[RESERVES])


class Bodies:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._open: dict[int, Buffer] = {}

    def of(self, job: LiveJob) -> bytes:
        buffer = self._open.get(job.seq)
        if buffer is None:
            if len(self._open) >= OPEN_SEGMENTS:
                del self._open[next(iter(self._open))]
            buffer = self._open[job.seq] = self._source.read(segment_name(job.seq))
        return bytes(memoryview(buffer)[job.at : job.at + job.size])


def stored(job: LiveJob, tubes: dict[int, bytes], body: bytes = b"") -> StoredJob:
    """A living job as the newest record has it, its birth, tags and body as the full one.

    :raise NotUnderstood: the record says what this version does not know.
    """
    raw = RECORD.unpack(job.record)
    if raw[FLAGS] & Flag.EXT:
        raw = (*raw[:FLAGS], 0, *raw[FLAGS + 1 :])
    image = decode_record(raw, b"")
    assert isinstance(image, JobImage)
    image = image._replace(ts_ns=job.created_ns, body=body, tags=job.tags)
    return StoredJob.of(image, tubes.get(image.tube_id, b""))


def promoted(job: StoredJob, now_ns: int) -> StoredJob:
    """Make a delayed job ready whose time has come."""
    if job.state is State.DELAYED and job.deadline_ns <= now_ns:
        return job._replace(state=State.READY, deadline_ns=0)
    return job
