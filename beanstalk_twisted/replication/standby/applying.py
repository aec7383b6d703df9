"""
Applying the writes of a log that is followed to the queue, by the same `apply` as a start does, and
in slices, so that nobody waits for a large one.  No I/O.
"""

from collections.abc import Iterator
from typing import Final

from beanstalk_twisted.binlog import cold
from beanstalk_twisted.binlog.errors import Incompatible
from beanstalk_twisted.binlog.records.decoding import (
    JOB_ID,
    JOB_KINDS,
    TYPE,
    NotUnderstood,
    Record,
    decode_job,
    decode_record,
)
from beanstalk_twisted.binlog.records.jobs import HOMED, Kind
from beanstalk_twisted.binlog.records.others import TubeDef
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import REHOMED
from beanstalk_twisted.binlog.segments.frames import Frame
from beanstalk_twisted.replication.followed_log import FollowedLog, Piece
from beanstalk_twisted.rules.workqueue import WorkQueue

SLICE_RECORDS: Final = 250
"""Records that are applied in one slice, one by one: 2 ms."""

BULK_RECORDS: Final = 2000
"""Jobs that are applied together, in a slice of their own: 2 ms."""

FEW: Final = 8
"""Puts of one frame below which each is applied by itself: to cut columns costs as much."""

_PUTS: Final = bytes([Kind.PUT])


class Applying:
    """Applies the pieces of one log to one queue."""

    def __init__(self, queue: WorkQueue, log: FollowedLog) -> None:
        """:param log: is told of each record as it is applied."""
        self._queue = queue
        self._log = log

    def apply(self, piece: Piece) -> Iterator[None]:
        """
        Apply what `FollowedLog.take` has given; slice by slice.

        :raise Incompatible: a record is not understood.
        """
        try:
            yield from self._apply(piece)
        except NotUnderstood as problem:
            raise Incompatible(
                f"segment {piece.write.segment} of the stream, offset {piece.write.offset}: "
                f"{problem}; nothing was lost. Install the version of the active server here, "
                f"then start again."
            ) from problem

    def _apply(self, piece: Piece) -> Iterator[None]:
        following, header = self._queue.following, piece.header
        if header is not None:
            following.not_below(header.next_job_id)
            if header.flags & REHOMED:
                # Its first records may rest on names of the segment before it.
                self._name_tubes(piece)
            else:
                yield from self._slices(following.begin_segment(header.created_ns))
        count = 0
        for frame in piece.frames:
            if frame.next_lsn - 1 <= piece.known_lsn:
                self._move(piece, frame)
            elif frame.base_lsn > piece.known_lsn and self._has_puts(piece, frame):
                yield from self._apply_puts(piece, frame)
                continue
            else:
                for at in range(max(0, piece.known_lsn + 1 - frame.base_lsn), frame.n_rec):
                    work = self._apply_record(piece, frame, at)
                    if work is not None:
                        yield from work
                    count += 1
                    if not count % SLICE_RECORDS:
                        yield None

    def _slices(self, work: Iterator[object]) -> Iterator[None]:
        return (None for _ in work)

    def _name_tubes(self, piece: Piece) -> None:
        """Records that were framed anew may stand before the names of their tubes."""
        for frame, at in piece.of_types(frozenset({TubeDef.kind})):
            raw, data = frames.whole_record(piece.write.content, frame, at)
            record = decode_record(raw, data)
            assert isinstance(record, TubeDef)
            self._queue.following.name(record.tube_id, record.name)

    def _move(self, piece: Piece, frame: Frame) -> None:
        """A frame of a segment that failed stands here now."""
        for raw in frames.raw_records(piece.write.content, frame):
            if raw[TYPE] in HOMED:
                self._queue.state.move_home(raw[JOB_ID], piece.write.segment)

    def _has_puts(self, piece: Piece, frame: Frame) -> bool:
        if frame.n_rec < FEW:
            return False
        return bool(frames.ids_if_all(piece.write.content, frame, _PUTS))

    def _apply_puts(self, piece: Piece, frame: Frame) -> Iterator[None]:
        """A frame of nothing but puts: columns, as a start reads them."""
        content, segment = piece.write.content, piece.write.segment
        tubes, queue = self._queue.state.tubes, self._queue
        ids = frames.ids_if_all(content, frame, _PUTS) or []
        array, heap = (
            frames.record_arrays(content, frame, range(frame.n_rec))[0],
            frames.heap(content, frame),
        )
        self._log.has_job()
        size = frame.rec_size
        for first in range(0, len(ids), BULK_RECORDS):
            last = min(first + BULK_RECORDS, len(ids))
            records = cold.Records()
            lsns = frames.lsns(frame, range(first, last)) if queue.state.jobs.keeps_places else ()
            records.add(ids[first:last], [array[first * size : last * size]], heap, lsns)
            jobs, others = records.take(tubes.ids, segment, frame.time_ns)
            if jobs.job_ids:
                queue.following.puts(jobs)
            for count, at in enumerate(others, start=1):
                self._apply_record(piece, frame, first + at)
                if not count % SLICE_RECORDS:
                    yield None
            yield None

    def _apply_record(self, piece: Piece, frame: Frame, at: int) -> Iterator[None] | None:
        """:return: what is left to be done, if it is done in slices."""
        raw, data = frames.whole_record(piece.write.content, frame, at)
        if raw[TYPE] not in JOB_KINDS:
            return self._apply_other(decode_record(raw, data), piece.write.segment)
        self._log.has_job()
        lsn = frame.base_lsn + at if self._queue.state.jobs.keeps_places else 0
        self._queue.following.job(decode_job(raw, data), lsn, piece.write.segment, frame.time_ns)
        return None

    def _apply_other(self, record: Record, segment: int) -> Iterator[None]:
        self._log.has_other(record)
        yield from self._slices(self._queue.following.other(record, segment))
