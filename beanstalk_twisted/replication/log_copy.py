"""The log and queue of a standby: what the active server has written, at the same places."""

from collections.abc import Callable, Iterator
from typing import Final

from twisted.internet.interfaces import IDelayedCall
from twisted.python.failure import Failure

from beanstalk_twisted.binlog import cold
from beanstalk_twisted.binlog.batches import Batch
from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.binlog.errors import Incompatible
from beanstalk_twisted.binlog.records.jobs import HOMED, Kind
from beanstalk_twisted.binlog.records.others import (
    JOB_ID,
    JOB_KINDS,
    TYPE,
    NotUnderstood,
    Record,
    TubeDef,
    decode_job,
    decode_record,
)
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import REHOMED, parse_segment_name, segment_name
from beanstalk_twisted.binlog.segments.frames import Frame
from beanstalk_twisted.binlog.space_budget import PreallocatedSegment
from beanstalk_twisted.binlog.writer import Writer
from beanstalk_twisted.replication.followed_log import FollowedLog, Piece
from beanstalk_twisted.rules.workqueue import WorkQueue
from beanstalk_twisted.storage.io_thread import Clock, Io

SYNC_S: Final = 1.0
"""Seconds between two syncs: what a power loss takes is read from the stream again."""


class SegmentFiles:
    """The files, in the I/O thread.

    They are written as it comes and synced once a second, by the same `Writer` as any log, so that
    the order of names and syncs is that of docs/binlog-format.md, "Writing".
    """

    def __init__(self, directory: Directory, segment_bytes: int) -> None:
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._writer = Writer(directory)
        self._is_dirty = False

    def go_on(self, seq: int) -> None:
        self._writer.resume(seq)

    def write(self, pieces: list[Piece], trim_seq: int) -> None:
        """Write, in order; then remove what is dead by then.

        :param trim_seq: segments below are dead, as these pieces say, or others before.
        :raise WriteFailed: the disk refused.
        """
        for piece in pieces:
            self._write(piece)
        if trim_seq:
            self._remove(lambda seq: seq < trim_seq)

    def sync(self) -> None:
        """:raise WriteFailed: the disk refused."""
        if self._is_dirty:
            self._writer.sync()
            self._is_dirty = False

    def close(self) -> None:
        """:raise WriteFailed: the disk refused."""
        self.sync()
        self._writer.close()

    def _write(self, piece: Piece) -> None:
        write = piece.write
        file = None
        if write.begins:
            # A predecessor is durable before its successor has a name.
            self.close()
            size = max(self._segment_bytes, len(write.content))
            file = PreallocatedSegment(write.segment, size, False)
        batch = Batch(
            write.segment, write.offset, (write.content,), write.last_lsn, file, write.seals, False
        )
        self._is_dirty = not self._writer.write(batch, sync=False)
        if piece.cut is not None:
            # The segment has begun, and is durable: nothing that was in its place is needed.
            before, end = piece.cut
            self._remove(lambda each: each > write.segment)
            name = segment_name(before)
            if name in self._directory.names():
                self._directory.cut(name, end)

    def _remove(self, is_dead: Callable[[int], bool]) -> None:
        for name in self._directory.names():
            seq = parse_segment_name(name)
            if seq is not None and is_dead(seq):
                # The record that says so is durable before.
                self.sync()
                self._directory.remove(name)


class LogCopy:
    """Hands pieces to the I/O thread, all that have come meanwhile at a time.

    :ivar waiting_bytes: of pieces that are not written.
    """

    def __init__(
        self, files: SegmentFiles, io: Io, reactor: Clock, failed: Callable[[Failure], None]
    ) -> None:
        """:param failed: called once, when the disk has refused."""
        self.waiting_bytes = 0
        self._files = files
        self._io = io
        self._reactor = reactor
        self._failed = failed
        self._pieces: list[Piece] = []
        self._trim_seq = self._trimmed = 0
        self._is_writing = self._has_failed = False
        self._syncing: IDelayedCall | None = None

    def begin(self, seq: int) -> None:
        """The next pieces go on in this segment; 0: they begin one."""
        if seq:
            self._is_writing = True
            self._io.run(lambda: self._files.go_on(seq)).addCallbacks(
                lambda _: self._written(0), self._refused
            )

    def stop(self) -> None:
        self._has_failed = True
        self._stop_syncs()

    def add(self, piece: Piece) -> None:
        self._pieces.append(piece)
        self.waiting_bytes += len(piece.write.content)
        self._go_on()

    def trim(self, seq: int) -> None:
        """Segments below are dead, as pieces say that were added."""
        if seq > self._trimmed:
            self._trim_seq = self._trimmed = seq
            self._go_on()

    async def close(self) -> None:
        """:raise WriteFailed: the disk refused."""
        self._stop_syncs()
        while self._is_writing:
            # One piece of work after the other: what was given to the disk is done then.
            await self._io.run(lambda: None)
        if not self._has_failed:
            await self._io.run(self._files.close)

    def _stop_syncs(self) -> None:
        if self._syncing is not None:
            self._syncing.cancel()
            self._syncing = None

    def _go_on(self) -> None:
        if self._is_writing or self._has_failed or not (self._pieces or self._trim_seq):
            return
        pieces, self._pieces = self._pieces, []
        trim_seq, self._trim_seq = self._trim_seq, 0
        size = sum(len(piece.write.content) for piece in pieces)
        self._is_writing = True
        writing = self._io.run(lambda: self._files.write(pieces, trim_seq))
        writing.addCallbacks(lambda _: self._written(size), self._refused)

    def _written(self, size: int) -> None:
        self._is_writing = False
        self.waiting_bytes -= size
        if self._syncing is None:
            self._syncing = self._reactor.callLater(SYNC_S, self._sync)
        self._go_on()

    def _sync(self) -> None:
        self._syncing = None
        self._io.run(self._files.sync).addErrback(self._refused)

    def _refused(self, failure: Failure) -> None:
        self._is_writing = False
        self._stop_syncs()
        if not self._has_failed:
            self._has_failed = True
            self._failed(failure)


SLICE_RECORDS: Final = 250
"""Records that are applied in one slice, one by one: 2 ms."""

BULK_RECORDS: Final = 2000
"""Jobs that are applied together, in a slice of their own: 2 ms."""

FEW: Final = 8
"""Puts of one frame below which each is applied by itself: to cut columns costs as much."""

_PUTS: Final = bytes([Kind.PUT])


class Applying:
    """Applies the pieces of one log to one queue, and tells the log of each record."""

    def __init__(self, queue: WorkQueue, log: FollowedLog) -> None:
        self._queue = queue
        self._log = log

    def apply(self, piece: Piece) -> Iterator[None]:
        """:raise Incompatible: a record is not understood."""
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
            following.not_below(self._log.next_job_id)
            if header.flags & REHOMED:
                # Its first records may rest on names of the segment before it.
                self._name_tubes(piece)
            else:
                yield from (None for _ in following.begin_segment(header.created_ns))
        count = 0
        for frame in piece.frames:
            if frame.next_lsn - 1 <= piece.known_lsn:
                # A frame of a segment that failed stands here now: earlier versions wrote on so.
                for raw in frames.raw_records(piece.write.content, frame):
                    if raw[TYPE] in HOMED:
                        self._queue.state.move_home(raw[JOB_ID], piece.write.segment)
            elif (
                frame.base_lsn > piece.known_lsn and frame.n_rec >= FEW
                and frames.ids_if_all(piece.write.content, frame, _PUTS)
            ):  # fmt: skip
                yield from self._apply_puts(piece, frame)
            else:
                for at in range(max(0, piece.known_lsn + 1 - frame.base_lsn), frame.n_rec):
                    work = self._apply_record(piece, frame, at)
                    if work is not None:
                        yield from work
                    count += 1
                    if not count % SLICE_RECORDS:
                        yield None

    def _name_tubes(self, piece: Piece) -> None:
        """Records that were framed anew may stand before the names of their tubes."""
        for frame, at in piece.of_types(frozenset({TubeDef.kind})):
            raw, data = frames.whole_record(piece.write.content, frame, at)
            record = decode_record(raw, data)
            assert isinstance(record, TubeDef)
            self._queue.following.name(record.tube_id, record.name)

    def _apply_puts(self, piece: Piece, frame: Frame) -> Iterator[None]:
        """A frame of nothing but puts: columns, as a start reads them."""
        content, segment = piece.write.content, piece.write.segment
        tubes, queue = self._queue.state.tubes, self._queue
        ids = frames.ids_if_all(content, frame, _PUTS) or []
        array, heap = (
            frames.record_arrays(content, frame, range(frame.n_rec))[0],
            frames.heap(content, frame),
        )
        self._log.note_job(max(ids))
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
        segment, lsn = piece.write.segment, frame.base_lsn + at
        if raw[TYPE] not in JOB_KINDS:
            return self._apply_other(decode_record(raw, data), segment, lsn)
        self._log.note_job(raw[JOB_ID])
        kept_lsn = lsn if self._queue.state.jobs.keeps_places else 0
        self._queue.following.job(decode_job(raw, data), kept_lsn, segment, frame.time_ns)
        return None

    def _apply_other(self, record: Record, segment: int, lsn: int) -> Iterator[None]:
        self._log.note(record, segment, lsn)
        self._queue.following.not_below(self._log.next_job_id, self._log.next_tube_id)
        yield from (None for _ in self._queue.following.other(record, segment))
