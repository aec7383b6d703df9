"""Recovery: the surviving jobs of a sound log, and the position to append at.
Differs from beanstalkd: priorities, counters, pauses and the order of burial outlive a restart.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

from beanstalk_twisted.binlog import cold
from beanstalk_twisted.binlog.batches import Position, RehomedFrame
from beanstalk_twisted.binlog.cold import ColdJobs
from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.binlog.errors import Damaged, Incompatible
from beanstalk_twisted.binlog.reading.loss_warnings import loss_warnings
from beanstalk_twisted.binlog.reading.segment import file_content_end
from beanstalk_twisted.binlog.reading.selection import Found, Pick, Place, Selection, picks_of
from beanstalk_twisted.binlog.reading.survey import Progress, Segment, Survey
from beanstalk_twisted.binlog.reading.survival import RULES
from beanstalk_twisted.binlog.records.jobs import READY, JobImage, Kind, as_loaded
from beanstalk_twisted.binlog.records.others import NotUnderstood, Record, decode_job
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import (
    AFTER_UNCLEAN_STOP,
    RECORD,
    REHOMED,
    SEGMENT_HEADER_BYTES,
    parse_segment_name,
)
from beanstalk_twisted.binlog.segments.frames import Buffer, Frame

PART_BYTES: Final = 1 << 20
"""How much of a segment is mapped or copied at a time while jobs are loaded: a server that starts
needs little more memory than it did when it ended.  Most frames have this size
(`FRAME_TARGET_BYTES`); a larger one is mapped by itself.
"""

OPEN_PARTS: Final = 32
"""Parts that are mapped at once while jobs are gone through in the order of their ids, mostly that
of the segments: each takes a file descriptor.
"""


class Survivor(NamedTuple):
    """A job of the log that was not deleted.

    :ivar segment_seq: where its full record is, or is about to be; ``lsn`` that record's LSN.
    """

    image: JobImage
    segment_seq: int
    lsn: int = 0


class Other(NamedTuple):
    """A record of a tube, and the segment that holds it, or is about to."""

    record: Any
    segment_seq: int


class Part(NamedTuple):
    """Some frames of a segment, one after the other: their offsets there, and where the last one
    ends.
    """

    segment: Segment
    offsets: Sequence[int]
    end: int

    @property
    def start(self) -> int:
        return self.offsets[0]

    def frames(self, buffer: Buffer) -> Iterator[Frame]:
        start = self.start
        return (frames.known(buffer, offset - start) for offset in reversed(self.offsets))


def parts(segment: Segment, most: int = PART_BYTES) -> Iterator[Part]:
    """All frames of a segment, in parts of so many bytes or of one frame, the last one first."""
    offsets = segment.frame_offsets
    last, end = len(offsets), segment.ending.offset
    while last:
        first = min(bisect_left(offsets, end - most), last - 1)
        yield Part(segment, offsets[first:last], end)
        last, end = first, offsets[first]


def read(directory: Directory, progress: Progress) -> "Replay":
    """Read a log.  Nothing is changed.

    :raise Damaged: durable records cannot be read.
    :raise Incompatible: it is of another version, kind or store.
    :raise OSError: it cannot be read at all.
    """
    survey = Survey(directory, progress)
    survey.refuse_if_unsound()
    return Replay(survey)


def read_records(directory: Directory, progress: Progress) -> "Replay":
    """As `read`, but for the bodies of the segments that are then ``unchecked``.  A log that is
    refused is read whole, to report all that is wrong.
    """
    survey = Survey(directory, progress, leaves_bodies=True)
    return read(directory, progress) if survey.problems else Replay(survey)


class Replay:
    """A log that was found sound.

    :ivar unchecked: the segments whose bodies were not looked at yet; who does takes them out.
    """

    def __init__(self, survey: Survey) -> None:
        self.survey = survey
        self.small = survey.small
        self.unchecked = survey.unchecked
        self._segments = survey.segments

    @property
    def is_new(self) -> bool:
        return not self._segments

    @property
    def tubes(self) -> Mapping[int, bytes]:
        return self.small.tubes

    @property
    def largest_part(self) -> int:
        """The most bytes that are mapped at once while jobs are loaded."""
        sizes = (part.end - part.start for each in self._segments for part in parts(each))
        return max(sizes, default=0)

    def position(self, store_uuid: bytes) -> Position:
        """Continue in a new segment that begins with all that is not known durable."""
        if not self._segments:
            return Position(1, 1, 0, 1, store_uuid, 0, 1, 0)
        newest = self._segments[-1]
        rehomed = list(self._undurable(newest))[::-1]
        flags = (0 if self.small.is_clean else AFTER_UNCLEAN_STOP) | (REHOMED if rehomed else 0)
        ends = {segment.header.seq: segment.ending.offset for segment in self._segments}
        durable_end = ends[newest.header.seq] = self._end_of(newest, self.survey.durable_lsn)
        return Position(
            newest.header.seq + 1, rehomed[0].base_lsn if rehomed else newest.ending.next_lsn,
            durable_end, max(self.small.trim_seq, 1), newest.header.store_uuid,
            flags, newest.header.incarnation + 1, self.small.time_ns, rehomed, ends,
            newest.header.incompat if rehomed else 0,
        )  # fmt: skip

    def tidy(self, directory: Directory) -> str:
        """Keep a copy of a torn tail, and make durable what the next segment builds on, in case the
        last server was killed before it could.  Called before the next segment is written.

        :return: where the copy is, or an empty string.
        """
        directory.sync()
        torn = self.survey.torn
        newest = self._segments[-1] if self._segments else None
        if newest and self.small.is_clean:
            self._write_end_again(directory, newest)
        if torn is None or newest is None:
            return ""
        name = f"{newest.name}-{torn.offset}-{newest.header.incarnation}.torn"
        return directory.quarantine(name, self.survey.read(newest, torn.offset, torn.end))

    def _write_end_again(self, directory: Directory, newest: Segment) -> None:
        """If the last server's sync of it failed, another sync alone may write nothing."""
        begin, size = self._end_of(newest, self.survey.last_watermark(newest)), newest.size
        file = directory.open(newest.name)
        try:
            for at in range(begin, size, PART_BYTES):
                part = directory.copy_part(newest.name, at, min(at + PART_BYTES, size))
                file.write_at(at, [part])
        finally:
            file.close()
        directory.cut(newest.name, size)

    def notes(self, kept_at: str) -> list[str]:
        """Return sentences for the server's log; ``kept_at`` is what `tidy` has returned."""
        notes = [str(warning) for warning in loss_warnings(self.survey)]
        if self.survey.torn is not None:
            notes.append(f"{self.survey.torn}. They were cut off; a copy is in {kept_at}")
        if not (self.small.is_clean or self.is_new):
            notes.append("the last server on this log ended without an ordered stop")
        return notes

    def give_space(self, directory: Directory) -> None:
        """The disk is full: give back the space of the newest segment that was never written."""
        for newest in self._segments[-1:]:
            end = file_content_end(directory, newest.name, newest.ending.offset, newest.size)
            directory.cut(newest.name, end)

    def remove_dead(self, directory: Directory, segments: bool) -> None:
        """Remove what was being made before the next segment is, and dead segments when that is
        durable, since their TRIM may not have been until then.
        """
        for name in self.survey.dead:
            if (parse_segment_name(name) is not None) == segments:
                directory.remove(name)

    def release(self, directory: Directory) -> None:
        """Cut what the next segment has taken over.  Call this when that is durable."""
        if self._segments and not self.small.is_clean:
            newest = self._segments[-1]
            directory.cut(newest.name, self._end_of(newest, self.survey.durable_lsn))

    def others(self, now_ns: int, kinds: Iterable[type[Record]] = RULES) -> Iterator[Other]:
        """The records in force that are of no job, as a server is to load them."""
        for kind in kinds:
            for record, seq, lsn in self.small.in_force(kind, now_ns, is_start=True):
                if record.tube_id in self.small.tubes:
                    moves = lsn > self.survey.durable_lsn
                    yield Other(record, seq + (1 if moves else 0))

    def survivors(self, now_ns: int) -> Iterator[Survivor]:
        """Each surviving job, ascending by id, as a server is to load it: reserved jobs are ready
        again, and no delay is longer than it was asked for, whatever the clock did.

        :raise Damaged: the log has state of jobs without their bodies.
        """
        selection = Selection()
        found: list[Found] = []
        for part in self._parts():
            for pick in self._picks(selection, part, self._read(part)):
                found += pick.found()
        self._refuse_without_bodies(selection)
        found += selection.changed
        found.sort(key=itemgetter(0))
        buffers: dict[tuple[str, int], Buffer] = {}
        for job in found:
            segment, start, end, _, _ = job[2]
            buffer = buffers.get((segment.name, start))
            if buffer is None:
                if len(buffers) >= OPEN_PARTS:
                    del buffers[next(iter(buffers))]
                buffer = buffers[segment.name, start] = self.survey.read(segment, start, end)
            yield self._survivor(job, buffer, now_ns)

    def survivors_in_bulk(
        self, now_ns: int, with_lsns: bool = False, bodies_below: int = 1 << 63
    ) -> Iterator[ColdJobs | Survivor]:  # fmt: skip
        """The same jobs in another order, most of them together, newest part of the log first; no
        more than a part is mapped.

        :param with_lsns: whether the LSNs of those had together are wanted.
        :param bodies_below: bytes at the beginning of the log that are read with the bodies of
            these jobs; those after them are left where they are, if LSNs are wanted.
        """
        if not frames.CAN_CUT_COLUMNS:
            yield from self.survivors(now_ns)
            return
        selection = Selection()
        left = sum(segment.ending.offset for segment in self._segments)
        for part in self._parts():
            left -= part.end - part.start
            yield from self._of_part(selection, part, now_ns, with_lsns, left >= bodies_below)
        self._refuse_without_bodies(selection)

    def _of_part(
        self, selection: Selection, part: Part, now_ns: int, with_lsns: bool, leaves_bodies: bool
    ) -> Iterator[ColdJobs | Survivor]:  # fmt: skip
        """What a part has beside what is newer, and lets go of it."""
        found: list[Found] = []
        buffer = self._read(part)
        for run in _runs(self._picks(selection, part, buffer)):
            yield from self._cold(run, found, now_ns, with_lsns, leaves_bodies)
        changed, selection.changed = selection.changed, []
        for run in _runs(picks_of(changed, buffer)):
            yield from self._cold(run, found, now_ns, with_lsns, leaves_bodies)
        found.sort(key=itemgetter(0))
        for job in found:
            yield self._survivor(job, buffer, now_ns)

    def _parts(self) -> Iterator[Part]:
        for segment in reversed(self._segments):
            yield from parts(segment)

    def _read(self, part: Part) -> Buffer:
        return self.survey.read(part.segment, part.start, part.end)

    def _picks(self, selection: Selection, part: Part, buffer: Buffer) -> Iterator[Pick]:
        segment, durable_lsn = part.segment, self.survey.durable_lsn
        for frame in part.frames(buffer):
            home = segment.header.seq + (1 if frame.base_lsn > durable_lsn else 0)
            place = Place(segment, part.start, part.end, frame, home)
            indexes, job_ids = selection.pick(buffer, place)
            if indexes:
                yield Pick(buffer, place, indexes, job_ids)

    def _cold(
        self, run: list[Pick], found: list[Found], now_ns: int, with_lsns: bool,
        leaves_bodies: bool,
    ) -> Iterator[ColdJobs]:  # fmt: skip
        """:param found: gets what has to be had one by one."""
        records = cold.Records()
        for buffer, place, indexes, job_ids, newest in run:
            arrays = frames.record_arrays(buffer, place.frame, indexes)
            lsns = frames.lsns(place.frame, indexes) if with_lsns else ()
            records.add(job_ids, arrays, frames.heap(buffer, place.frame), lsns, newest)
        jobs, others = records.take(
            self.small.tubes, run[0].place.home, now_ns, leaves_bodies
        )  # fmt: skip
        if others:
            each = [found_one for pick in run for found_one in pick.found()]
            found += [each[at] for at in others]
        if jobs.job_ids:
            yield jobs

    def _survivor(self, found: Found, buffer: Buffer, now_ns: int) -> Survivor:
        """:param buffer: the part that the job's full record is in."""
        job_id, at, place, newest = found
        try:
            raw, data = frames.whole_record(buffer, place.frame, at)
            if self.unchecked and not frames.has_sound_data(raw, data):
                raise self._damaged(f"the body of job {job_id} is damaged")
            image = decode_job(raw, data)
            if newest is not None or image.state is not READY:
                image = _newest_state(image, newest, now_ns)
        except NotUnderstood as problem:
            offset = place.start + place.frame.offset
            raise Incompatible(
                f"not a usable binlog: {self.survey.path}; nothing was changed: "
                f"{place.segment.name}: offset {offset}: job {job_id}: {problem}"
            ) from None
        if image.tube_id not in self.small.tubes:
            raise self._damaged(
                f"job {image.job_id} is in tube number {image.tube_id}, "
                "whose name is not in the log"
            )
        return Survivor(image, place.home, place.frame.base_lsn + at)

    def _refuse_without_bodies(self, selection: Selection) -> None:
        newest = selection.without_body
        if newest:
            ids = ", ".join(map(str, sorted(newest)[:10]))
            raise self._damaged(f"{len(newest)} jobs have state but no body in the log (ids {ids})")

    def _damaged(self, what: str) -> Damaged:
        return Damaged(
            f"binlog directory {self.survey.path}: {what}; nothing was changed. "
            f"Run 'binlog-inspect check {self.survey.path}' to see more, and "
            f"'{self.survey.salvage_command}' to get all that is not damaged."
        )

    def _undurable(self, newest: Segment) -> Iterator[RehomedFrame]:
        """Frames above the watermark, the last one first: all in the newest segment."""
        for part in parts(newest):
            buffer = self._read(part)
            for frame in part.frames(buffer):
                if frame.n_rec and frame.base_lsn <= self.survey.durable_lsn:
                    return
                if not frame.n_rec:
                    continue
                yield RehomedFrame(
                    bytes(buffer[frame.records_at : frame.heap_at]),
                    bytes(frames.heap(buffer, frame)), frame.n_rec, frame.rec_size,
                    frame.base_lsn, frame.durable_lsn, frame.time_ns,
                )  # fmt: skip

    def _end_of(self, segment: Segment, lsn: int) -> int:
        """Where the last frame ends of those with records up to an LSN.  A sync mark is never
        synced itself, so nothing may build on one at the end.
        """
        for part in parts(segment):
            for frame in part.frames(self._read(part)):
                if frame.n_rec and frame.next_lsn - 1 <= lsn:
                    return part.start + frame.end
        return SEGMENT_HEADER_BYTES


def _runs(picks: Iterable[Pick]) -> Iterator[list[Pick]]:
    """Picks of one home, enough for `cold.RUN_RECORDS`, oldest first; ``picks`` newest first."""
    run: list[Pick] = []
    count = 0
    for pick in picks:
        if run and (count >= cold.RUN_RECORDS or pick.place.home != run[-1].place.home):
            yield run[::-1]
            run, count = [], 0
        run.append(pick)
        count += len(pick.indexes)
    if run:
        yield run[::-1]


def _newest_state(image: JobImage, newest: bytes | None, now_ns: int) -> JobImage:
    if newest is not None:
        state = decode_job(RECORD.unpack(newest), b"")
        # What `_replace` would do in three times the time; there may be many.
        fields = (Kind.COPY, *state[1:5], image.ts_ns, *state[6:16], image.body, image.tags)
        image = tuple.__new__(JobImage, fields)
    return as_loaded(image, now_ns)
