"""Deleted jobs whose bodies a log or its archive still has.  Damage is passed over."""

import json
from collections.abc import Iterator
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.reading.survival import Doubt, Hidden, HiddenRecords, hidden_in
from beanstalk_twisted.binlog.records.jobs import FULL, Kind
from beanstalk_twisted.binlog.records.others import JOB_ID, JOB_KINDS, TS_NS, TUBE_ID, TYPE
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import MAX_TUBE_NAME_BYTES, RECORD_BYTES
from beanstalk_twisted.binlog.segments.frames import Buffer, Frame
from binlog_tools.inspect.dumping import Fields, Gap
from binlog_tools.inspect.listing import fields_of_job, released
from binlog_tools.logs.live_set import Bodies, LiveJob, LiveSet, full_job, stored
from binlog_tools.logs.new_log import Floors, NewDirectory, NewLog, Origin, OriginSource, Written
from binlog_tools.logs.quantities import format_time_exactly
from binlog_tools.logs.reading import Broken, OpenSegment, names_ahead, segments
from binlog_tools.logs.sources import Source
from binlog_tools.logs.stored import LOST_AND_FOUND, Selection, StoredJob
from binlog_tools.rewrite.rewriting import write_file

INDEX_NAME: Final = "index.jsonl"


class DeletedJob(NamedTuple):
    """A job as it was just before it was deleted.

    :ivar lsn: of the deletion, ``deleted_ns`` its time.
    :ivar doubt: what records that cannot be read may have done to it before; None: nothing.
    """

    job_id: int
    live: LiveJob
    lsn: int
    deleted_ns: int
    doubt: Doubt | None = None


class Deleted(NamedTuple):
    """``without_body`` counts deleted jobs that the log has no body of any more."""

    jobs: list[DeletedJob]
    tubes: dict[int, bytes]
    without_body: int
    gaps: list[Gap]
    floors: Floors
    origin: OriginSource


class _Watch(LiveSet):
    """A live set that notes what is taken out of it, and what cannot be read."""

    def __init__(self, selection: Selection) -> None:
        super().__init__()
        self._selection = selection
        self.found: dict[int, DeletedJob] = {}
        self.without_body = 0
        self.hidden: list[Hidden] = []
        self._full_lsns: dict[int, int] = {}
        self._lsns: dict[int, int] = {}
        self._known: dict[int, tuple[int, int]] = {}
        self._gaps: list[Gap] = []
        self._missing: list[tuple[int, Gap]] = []
        self._uuid = ""
        self._next_seq = self._next_lsn = 0
        self._next_full_id = 1

    def take_segment(self, opened: OpenSegment | Broken) -> None:
        if self._next_seq and opened.seq > self._next_seq:
            gap = Gap.missing(self._next_seq, opened.seq - 1)
            self._missing.append((opened.seq - 1, gap))
        self._next_seq = opened.seq + 1
        if isinstance(opened, Broken):
            self._gaps.append(Gap.of(opened))
            return
        header, buffer = opened.header, opened.buffer
        self._uuid = header.store_uuid.hex()
        self._next_full_id = max(self._next_full_id, header.next_job_id)
        self.tubes.update(names_ahead(opened))
        if self._next_lsn and header.first_lsn > self._next_lsn:
            self.hidden.append(Hidden(self._next_lsn, header.first_lsn - 1))
        self._next_lsn = max(self._next_lsn, header.first_lsn)
        is_damaged = False
        for piece in opened.pieces():
            self._next_lsn = max(self._next_lsn, piece.next_lsn or 0)
            if isinstance(piece, Frame):
                self.take(buffer, piece, opened.seq)
                for kind, job_id in frames.kinds_and_ids(buffer, piece):
                    if kind in FULL:
                        self._next_full_id = max(self._next_full_id, job_id + 1)
                continue
            if not is_damaged:
                is_damaged = True
                self.hidden += hidden_in(buffer, header, opened.end)
            self._gaps.append(Gap.of(opened, piece))
            if piece.frame is not None and frames.has_sound_records(buffer, piece.frame):
                self.take_damaged(buffer, piece.frame, opened.seq)

    def result(self, source: Source) -> Deleted:
        gaps = self._gaps
        if self._missing:
            # Segments that a TRIM has freed are not missed.
            trim_seq = source.survey().small.trim_seq
            gaps = gaps + [gap for last_seq, gap in self._missing if last_seq >= trim_seq]
        last_lsn = max(self._next_lsn - 1, 0)
        return Deleted(
            list(self.deleted()), self.tubes, self.without_body, gaps,
            Floors(last_lsn, self._next_full_id, self.time_ns),
            OriginSource(source.path, self._uuid, last_lsn),
        )  # fmt: skip

    def take(self, buffer: Buffer, frame: Frame, seq: int, count: int | None = None) -> None:
        self._note_lsns(buffer, frame)
        super().take(buffer, frame, seq, count)

    def _note_lsns(self, buffer: Buffer, frame: Frame) -> None:
        """Note the newest records of each job; those before anything is hidden need no LSNs."""
        if not self.hidden:
            return
        for lsn, (kind, job_id) in enumerate(frames.kinds_and_ids(buffer, frame), frame.base_lsn):
            if kind in JOB_KINDS and kind != Kind.DELETE:
                self._lsns[job_id] = lsn
            if kind in FULL:
                self._full_lsns[job_id] = lsn

    def about_to_delete(self, buffer: Buffer, frame: Frame, index: int) -> None:
        raw = frames.raw_record(buffer, frame, index)
        job_id, lsn = raw[JOB_ID], frame.base_lsn + index
        known = self._full_lsns.pop(job_id, 0), self._lsns.pop(job_id, 0)
        chosen = self._selection
        if not chosen.since_ns <= frame.time_ns < chosen.until_ns:
            return
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
            self._known[job_id] = known

    def deleted(self) -> Iterator[DeletedJob]:
        hidden = HiddenRecords(self.hidden)
        for job_id, found in sorted(self.found.items()):
            doubt = hidden.doubt(job_id, *self._known[job_id], deleted_lsn=found.lsn)
            yield found._replace(doubt=doubt)

    def take_damaged(self, buffer: Buffer, frame: Frame, seq: int) -> None:
        """A job whose own body is not sound has none any more: the one before may be another."""
        self._note_lsns(buffer, frame)
        for index, raw in enumerate(frames.raw_records(buffer, frame)):
            job_id, kind = raw[JOB_ID], raw[TYPE]
            at = frame.records_at + index * frame.rec_size
            if kind == Kind.DELETE:
                self.about_to_delete(buffer, frame, index)
                self.jobs.pop(job_id, None)
            elif kind not in JOB_KINDS or job_id not in self.jobs:
                continue
            elif kind not in FULL:
                self._change(job_id, bytes(memoryview(buffer)[at : at + RECORD_BYTES]))
            elif frames.has_data(buffer, frame, raw):
                self.jobs[job_id] = full_job(buffer, at, seq, frame.heap_at)
            elif kind != Kind.COPY:
                del self.jobs[job_id]


def find_deleted(source: Source, selection: Selection) -> Deleted:
    """Choose jobs by time, LSN, tube and id of their deletions.

    :raise OSError: the log cannot be read.
    """
    watch = _Watch(selection)
    for opened in segments(source):
        watch.take_segment(opened)
    return watch.result(source)


def restored(source: Source, deleted: Deleted) -> Iterator[tuple[DeletedJob, StoredJob]]:
    bodies = Bodies(source)
    for found in deleted.jobs:
        job = released(stored(found.live, deleted.tubes, bodies.of(found.live)))
        # What said the name of its tube may be damaged.
        has_name = 0 < len(job.tube) <= MAX_TUBE_NAME_BYTES
        yield found, job if has_name else job._replace(tube=LOST_AND_FOUND)


def fields_of_deleted(found: DeletedJob, job: StoredJob) -> Fields:
    """Describe a job that `restored` gives, without its body, by the names of docs/inspect.md."""
    fields = fields_of_job(job, len(job.body), found.deleted_ns)
    deleted = format_time_exactly(found.deleted_ns)
    return {**fields, "deleted": deleted, "deleted_lsn": found.lsn, **fields_of_doubt(found)}


def fields_of_doubt(found: DeletedJob) -> Fields:
    doubt = found.doubt
    return {
        "job": found.job_id, "why": doubt and str(doubt.why),
        "outdated": doubt is not None and doubt.is_outdated, "hole": doubt and doubt.hole,
    }  # fmt: skip


def into_log(source: Source, deleted: Deleted, output: str) -> Written:
    origin = Origin("undelete", [deleted.origin])
    with NewLog(output, origin, floors=deleted.floors) as log:
        for _, job in restored(source, deleted):
            log.add(job)
        return log.finish()


def into_files(source: Source, deleted: Deleted, folder: str) -> int:
    """Write each body into a file ``<id>.body``, and what they are into ``index.jsonl``.

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
