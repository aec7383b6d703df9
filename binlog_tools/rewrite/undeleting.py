"""
Jobs that were deleted, and whose bodies a log or its archive still has.

Damage is passed over: what can be read behind it is used.
"""

import json
import zlib
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.records.decoding import (
    DATA_CRC,
    JOB_ID,
    TS_NS,
    TUBE_ID,
    TYPE,
    NotUnderstood,
    Raw,
)
from beanstalk_twisted.binlog.records.jobs import FULL, Kind, State
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import MAX_TUBE_NAME_BYTES
from beanstalk_twisted.binlog.segments.frames import Buffer, Frame
from binlog_tools.inspect.dumping import Fields, Gap
from binlog_tools.inspect.listing import fields_of_job, released
from binlog_tools.logs.live_set import Bodies, LiveJob, LiveSet, full_job, stored
from binlog_tools.logs.new_directory import NewDirectory
from binlog_tools.logs.new_log import Floors, NewLog, Origin, OriginSource, Written
from binlog_tools.logs.quantities import format_time_exactly
from binlog_tools.logs.reading import Broken, Hole, has_records, names_ahead, segments
from binlog_tools.logs.selection import Selection
from binlog_tools.logs.sources import Source
from binlog_tools.logs.stored import LOST_AND_FOUND, StoredJob
from binlog_tools.rewrite.dropping import write_file

INDEX_NAME: Final = "index.jsonl"
"""In a folder of bodies: what each of them is."""


class DeletedJob(NamedTuple):
    """
    A job as it was just before it was deleted.

    :ivar lsn: of the deletion, ``deleted_ns`` its time.
    """

    job_id: int
    live: LiveJob
    lsn: int
    deleted_ns: int


class Deleted(NamedTuple):
    """
    What was found.

    :ivar without_body: deleted jobs that the log has no body of any more.
    :ivar gaps: what cannot be read.
    """

    jobs: list[DeletedJob]
    tubes: dict[int, bytes]
    without_body: int
    gaps: list[Gap]
    floors: Floors
    origin: OriginSource


class _Watch(LiveSet):
    """A live set that notes what is taken out of it."""

    def __init__(self, selection: Selection) -> None:
        super().__init__()
        self._selection = selection
        self.found: dict[int, DeletedJob] = {}
        self.without_body = 0

    def about_to_delete(self, buffer: Buffer, frame: Frame, index: int) -> None:
        chosen = self._selection
        if not chosen.since_ns <= frame.time_ns < chosen.until_ns:
            return
        raw = frames.raw_record(buffer, frame, index)
        job_id, lsn = raw[JOB_ID], frame.base_lsn + index
        if chosen.jobs is not None and job_id not in chosen.jobs:
            return
        if not chosen.lsns.first <= lsn <= chosen.lsns.last:
            return
        if chosen.tubes is not None and self.tubes.get(raw[TUBE_ID]) not in chosen.tubes:
            return
        live = self.jobs.get(job_id)
        if live is None:
            self.without_body += 1
        else:
            self.found[job_id] = DeletedJob(job_id, live, lsn, raw[TS_NS])

    def take_damaged(self, buffer: Buffer, frame: Frame, seq: int) -> None:
        """
        The bodies of a frame whose records check and whose heap does not.  A job whose own is not
        sound has none any more: the one before may be another.
        """
        if not has_records(buffer, frame, frame.end):
            return
        for index, raw in enumerate(frames.raw_records(buffer, frame)):
            job_id = raw[JOB_ID]
            if raw[TYPE] not in FULL or job_id not in self.jobs:
                continue
            if _has_data(buffer, frame, raw):
                at = frame.records_at + index * frame.rec_size
                self.jobs[job_id] = full_job(buffer, at, seq, frame.heap_at)
            elif raw[TYPE] != Kind.COPY:
                del self.jobs[job_id]


def _has_data(buffer: Buffer, frame: Frame, raw: Raw) -> bool:
    """Whether a record's data have the checksum that it names."""
    try:
        return zlib.crc32(frames.data_of(buffer, frame, raw)) == raw[DATA_CRC]
    except NotUnderstood:
        return False


def find_deleted(source: Source, selection: Selection) -> Deleted:
    """
    The jobs whose deletions are chosen by time, LSN, tube and id.

    :raise OSError: it cannot be read.
    """
    watch = _Watch(selection)
    gaps: list[Gap] = []
    uuid, last_lsn, next_job_id = "", 0, 1
    for opened in segments(source):
        if isinstance(opened, Broken):
            gaps.append(Gap.of(opened))
            continue
        uuid = opened.header.store_uuid.hex()
        next_job_id = max(next_job_id, opened.header.next_job_id)
        watch.tubes.update(names_ahead(opened))
        for piece in opened.pieces():
            if isinstance(piece, Hole):
                gaps.append(Gap.of(opened, piece))
                if piece.frame is not None:
                    watch.take_damaged(opened.buffer, piece.frame, opened.seq)
                continue
            watch.take(opened.buffer, piece, opened.seq)
            last_lsn = max(last_lsn, piece.next_lsn - 1)
            ids = [job_id for kind, job_id in frames.kinds_and_ids(opened.buffer, piece)
                   if kind in FULL]  # fmt: skip
            next_job_id = max([next_job_id, *(job_id + 1 for job_id in ids)])
    floors = Floors(last_lsn, next_job_id, watch.time_ns)
    jobs = sorted(watch.found.values(), key=lambda job: job.job_id)
    return Deleted(
        jobs, watch.tubes, watch.without_body, gaps, floors,
        OriginSource(source.path, uuid, last_lsn),
    )  # fmt: skip


def restored(
    source: Source, deleted: Deleted, has_state: Callable[[State], bool] = lambda state: True
) -> Iterator[tuple[DeletedJob, StoredJob]]:
    """Each job with its body; who had it reserved has it no more."""
    bodies = Bodies(source)
    for found in deleted.jobs:
        job = _in_a_tube(stored(found.live, deleted.tubes))
        if has_state(job.state):
            yield found, released(job)._replace(body=bodies.of(found.live))


def _in_a_tube(job: StoredJob) -> StoredJob:
    """A job whose tube has no name, since what said it is damaged, gets one."""
    has_name = 0 < len(job.tube) <= MAX_TUBE_NAME_BYTES
    return job if has_name else job._replace(tube=LOST_AND_FOUND)


def fields_of_deleted(found: DeletedJob, job: StoredJob) -> Fields:
    """A job that `restored` gives, by the names of docs/inspect.md, but for its body."""
    fields = fields_of_job(job, len(job.body), found.deleted_ns)
    deleted = format_time_exactly(found.deleted_ns)
    return {**fields, "deleted": deleted, "deleted_lsn": found.lsn}


def into_log(source: Source, deleted: Deleted, output: str) -> Written:
    """Write the jobs into a new log, under their old ids."""
    origin = Origin("undelete", [deleted.origin])
    with NewLog(output, origin, floors=deleted.floors) as log:
        for _, job in restored(source, deleted):
            log.add(job)
        return log.finish()


def into_files(source: Source, deleted: Deleted, folder: str) -> int:
    """
    Write each body into a file ``<id>.body``, and what they are into ``index.jsonl``.

    :raise OSError: the folder is not empty, or cannot be written.
    """
    count = size = 0
    with NewDirectory(folder) as new:
        index = new.directory.create(INDEX_NAME)
        for found, job in restored(source, deleted):
            name = f"{job.job_id}.body"
            write_file(new.directory, name, job.body)
            line = {"v": 1, **fields_of_deleted(found, job), "file": name}
            raw = json.dumps(line, separators=(",", ":")).encode() + b"\n"
            index.write_at(size, [raw])
            size += len(raw)
            count += 1
        index.sync()
        index.close()
        new.publish()
    return count
