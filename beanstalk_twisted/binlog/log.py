"""
The open log: numbers records and turns them into batches of bytes.  No I/O, so no waiting.

Whoever changes a job appends its record here in the same step and gets its LSN; at the end of a
turn the committer takes the batch and has a `writer.Writer` carry it out in another thread.  While
that runs, new records collect for the next batch: that is all there is to group commit.

A segment that has reached its size is sealed by the batch that filled it; the next segment begins
with the small state of the server (see "Other records" in docs/binlog-format.md), taken at that
very moment, so that it agrees with the records before it.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from beanstalk_twisted.binlog import frames
from beanstalk_twisted.binlog.format import (
    FRAME_HEADER,
    FRAME_HEADER_BYTES,
    RECORD,
    RECORD_BYTES,
    REHOMED,
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
)
from beanstalk_twisted.binlog.records import (
    FULL,
    JOB_ID,
    TUBE_ID,
    TYPE,
    CleanStop,
    JobImage,
    Raw,
    Record,
    Seal,
    TubeDef,
)
from beanstalk_twisted.binlog.seal import SegmentIndex, encode_trailer


class Batch(NamedTuple):
    """
    Bytes for one segment, and where they go.

    :ivar begins: ``chunks`` start with the header of a new segment, ``offset`` is 0.
    :ivar seals: the segment ends with them.
    :ivar commits: replies wait for a record in it.
    """

    seq: int
    offset: int
    chunks: tuple[bytes, ...]
    last_lsn: int
    begins: bool
    seals: bool
    commits: bool

    @property
    def end(self) -> int:
        """
        Length of the segment when this is written.
        """
        return self.offset + sum(map(len, self.chunks))


class Opening(NamedTuple):
    """
    What the head of a new segment says about the server at that moment.
    """

    next_job_id: int
    records: Sequence[Record]


class RehomedFrame(NamedTuple):
    """
    A frame to be framed anew in another segment: the same records with the same LSNs.
    """

    array: bytes
    heap: bytes
    n_rec: int
    rec_size: int
    base_lsn: int
    durable_lsn: int
    time_ns: int

    def raw_records(self) -> Iterator[Raw]:
        """
        The fields of its records.
        """
        return (
            RECORD.unpack_from(self.array, at) for at in range(0, len(self.array), self.rec_size)
        )

    @classmethod
    def parse(cls, frame: bytes) -> "RehomedFrame":
        """
        :param frame: as we encoded it.
        """
        (_, _, _, _, n_rec, base_lsn, durable_lsn, time_ns, _, heap_len, _, rec_size, _, _) = (
            FRAME_HEADER.unpack_from(frame)
        )
        heap_at = FRAME_HEADER_BYTES + n_rec * rec_size
        return cls(
            frame[FRAME_HEADER_BYTES:heap_at], frame[heap_at : heap_at + heap_len], n_rec,
            rec_size, base_lsn, durable_lsn, time_ns,
        )  # fmt: skip

    def encode(self, salt: int) -> bytes:
        """
        :return: the frame, bound to the segment with this salt.
        """
        return frames.assemble(
            self.array, self.heap, n_rec=self.n_rec, rec_size=self.rec_size,
            base_lsn=self.base_lsn, durable_lsn=self.durable_lsn, time_ns=self.time_ns, salt=salt,
        )  # fmt: skip


class Position(NamedTuple):
    """
    Where a log goes on: all that its first segment's header needs.

    :ivar first_lsn: the first LSN of that segment; all below it is durable.
    :ivar rehomed: frames whose LSNs begin there.
    :ivar ends: where the frames of each older segment end, by sequence number.
    """

    seq: int
    first_lsn: int
    prev_end: int
    trim_seq: int
    store_uuid: bytes
    flags: int
    incarnation: int
    time_ns: int
    rehomed: Sequence[RehomedFrame] = ()
    ends: Mapping[int, int] = MappingProxyType({})

    @property
    def rehomed_tubes(self) -> set[int]:
        """
        The tubes that the re-homed records use; the new segment has to name them.
        """
        raws = (raw for frame in self.rehomed for raw in frame.raw_records())
        return {raw[TUBE_ID] for raw in raws if raw[TUBE_ID]}

    @property
    def next_lsn(self) -> int:
        """
        The LSN of the first new record.
        """
        return self.first_lsn + sum(frame.n_rec for frame in self.rehomed)


class _Unsafe(NamedTuple):
    """
    A batch that is not known durable, kept for `Log.rehome`.

    :ivar end: where its frames end in its segment.
    """

    seq: int
    end: int
    last_lsn: int
    frames: tuple[bytes, ...]


class Rehoming(NamedTuple):
    """
    What has moved to the segment that takes a failed one's place.

    :ivar job_ids: the jobs whose full records have moved.
    """

    segment: int
    job_ids: list[int]


class Log:
    """
    A log that is open for appending.

    :ivar segment: sequence number of the segment the next record will lie in.
    :ivar last_lsn: LSN of the newest record.
    :ivar durable_lsn: highest LSN known durable, inclusive.
    :ivar records_written: how many records were appended.
    :ivar segment_bytes: size at which a segment is sealed; one batch may overshoot it.
    """

    def __init__(
        self,
        position: Position,
        segment_bytes: int,
        opening: Callable[[int, int], Opening],
        salt: Callable[[], int],
        writer: str,
        keeps_unsafe: bool = True,
    ) -> None:
        """
        :param opening: the server's small state, asked at the start of each segment with the
            segment's number and the log time.
        :param salt: a new random u32 at each call.
        :param keeps_unsafe: whether frames are kept until they are durable, for `rehome`.
        :param writer: name and version for the headers, ASCII, at most 32 bytes.
        """
        self.segment = position.seq
        self.last_lsn = position.next_lsn - 1
        self.durable_lsn = position.first_lsn - 1
        self.records_written = 0
        self.segment_bytes = segment_bytes
        self._trim_seq = position.trim_seq
        self._ends = dict(position.ends)
        self._sealed_bytes = sum(self._ends.values())
        self._opening = opening
        self._salt = salt
        self._writer = writer
        self._keeps_unsafe = keeps_unsafe
        self._position = position
        self._time_ns = position.time_ns
        self._rehomed = tuple(position.rehomed)
        self._unsafe: deque[_Unsafe] = deque()
        self._safe = (position.seq - 1, position.prev_end)
        self._names: dict[int, bytes] = {}
        self._open: list[Record] = []
        self._open_bytes = 0
        self._commits = False
        self._begins = True
        self._is_ending = False
        self._offset = self._limit = 0
        self._index = SegmentIndex()
        self._begin_segment(position.prev_end, position.flags)

    @property
    def has_open(self) -> bool:
        """
        Whether a batch could be taken.
        """
        return self._begins or self._is_ending or bool(self._open)

    @property
    def open_bytes(self) -> int:
        """
        About how many bytes the next batch will have.
        """
        return self._open_bytes

    @property
    def total_bytes(self) -> int:
        """
        Bytes of all segments.
        """
        return self._sealed_bytes + self._offset

    @property
    def oldest(self) -> int:
        """
        Sequence number of the oldest segment.
        """
        return next(iter(self._ends), self.segment)

    @property
    def has_changes(self) -> bool:
        """
        Whether the segment that is being written holds a change of a job, copies left aside.
        """
        return self._index.has_changes

    def rotate(self) -> None:
        """
        Let the next batch seal the segment, whatever its size; there is one, even without records.
        """
        self._is_ending = True

    def end_of(self, seq: int) -> int:
        """
        Where the frames of a finished segment end.
        """
        return self._ends[seq]

    def trimmed(self, seq: int) -> None:
        """
        The oldest segment is dead, and that is durable.
        """
        self._sealed_bytes -= self._ends.pop(seq)
        self._trim_seq = seq + 1

    def append(self, record: Record) -> int:
        """
        :return: the record's LSN.
        """
        self._open.append(record)
        self._open_bytes += RECORD_BYTES + len(record.data)
        self.last_lsn += 1
        self.records_written += 1
        if record.commits:
            self._commits = True
        return self.last_lsn

    def take(self, time_ns: int) -> Batch | None:
        """
        Close the open batch.

        :param time_ns: log time; frames never go back in time.
        :return: what to write, or None when there is nothing.
        """
        if not self.has_open:
            return None
        self._time_ns = max(self._time_ns, time_ns)
        begins, commits = self._begins, self._commits
        start = 0 if begins else self._offset
        framed = [*self._reframed(), *self._framed(self._open)]
        chunks = [self._header, *framed] if begins else list(framed)
        seq, self._open, self._begins, self._commits = self.segment, [], False, False
        self._open_bytes = 0
        seals = self._offset >= self._limit or self._is_ending
        if seals:
            seal, trailer = self._sealed(time_ns)
            framed.append(seal)
            chunks += (seal, trailer)
        last_lsn = self.last_lsn
        kept = tuple(framed) if self._keeps_unsafe else ()
        self._unsafe.append(_Unsafe(seq, self._offset, last_lsn, kept))
        if seals:
            self._next_segment()
        return Batch(seq, start, tuple(chunks), last_lsn, begins, seals, commits)

    def mark(self) -> Batch:
        """
        A sync mark: an empty frame that carries the newest watermark.  Only while nothing is open.
        """
        assert not self.has_open
        start = self._offset
        frame = self._frame([], self.last_lsn + 1)
        return Batch(self.segment, start, (frame,), self.last_lsn, False, False, False)

    def finish(self, time_ns: int) -> Batch:
        """
        The last batch of an ordered stop: CLEAN_STOP and the seal.  All before it must be durable.
        """
        self.append(CleanStop(max(self._time_ns, time_ns)))
        batch = self.take(time_ns)
        assert batch is not None
        if batch.seals:
            # The segment was full: the clean stop ended it, nothing may follow.
            return batch
        seal = self._sealed(self._time_ns)
        return batch._replace(chunks=(*batch.chunks, *seal), last_lsn=self.last_lsn, seals=True)

    def durable(self, lsn: int) -> None:
        """
        All records up to ``lsn`` are known durable.
        """
        self.durable_lsn = max(self.durable_lsn, lsn)
        while self._unsafe and self._unsafe[0].last_lsn <= lsn:
            batch = self._unsafe.popleft()
            self._safe = (batch.seq, batch.end)

    def rehome(self, time_ns: int) -> Rehoming:
        """
        A write or a sync has failed: begin a segment with all that is not known durable, which cuts
        the failed one off where it was.  The next batch publishes it.
        """
        seq, prev_end = self._safe
        for gone in [each for each in self._ends if each > seq]:
            del self._ends[gone]
        self._ends[seq] = prev_end
        self._sealed_bytes = sum(self._ends.values())
        parsed = [RehomedFrame.parse(frame) for batch in self._unsafe for frame in batch.frames]
        self._rehomed = tuple(frame for frame in parsed if frame.n_rec)
        self._unsafe.clear()
        names = {**self._names, **self._index.tubes}
        self.segment = seq + 1
        self._time_ns = max(self._time_ns, time_ns)
        self._begin_segment(prev_end, flags=REHOMED)
        self._name_tubes(names)
        return Rehoming(self.segment, self._moved_jobs())

    def _name_tubes(self, names: Mapping[int, bytes]) -> None:
        """
        Name the tubes of all records that the failed segment named.
        """
        named = {record.tube_id for record in self._open if isinstance(record, TubeDef)}
        for tube_id in sorted(names.keys() - named):
            self.append(TubeDef(tube_id, names[tube_id]))

    def _moved_jobs(self) -> list[int]:
        raws = (raw for frame in self._rehomed for raw in frame.raw_records())
        moved = [raw[JOB_ID] for raw in raws if raw[TYPE] in FULL]
        images = (record for record in self._open if isinstance(record, JobImage))
        return moved + [image.job_id for image in images if image.kind in FULL]

    def _begin_segment(self, prev_end: int, flags: int) -> None:
        """
        The next batch begins a segment, which opens with the state as it is at this moment.
        """
        opening = self._opening(self.segment, self._time_ns)
        first_lsn = self.last_lsn + 1 - len(self._open)
        first_lsn -= sum(frame.n_rec for frame in self._rehomed)
        salt = self._seg_salt = self._salt()
        self._header = SegmentHeader(
            self.segment, first_lsn, self._time_ns, prev_end, self._trim_seq,
            opening.next_job_id, self._position.store_uuid, salt, flags,
            self._position.incarnation, self._writer,
        ).encode()  # fmt: skip
        self._names = self._index.tubes
        self._index = SegmentIndex()
        self._offset = SEGMENT_HEADER_BYTES
        self._begins = True
        self._is_ending = False
        for record in opening.records:
            self.append(record)
        opening_bytes = self._open_bytes
        # However much state a segment opens with, it takes at least as much in new records, and at
        # least half its size.
        self._limit = max(
            self.segment_bytes,
            SEGMENT_HEADER_BYTES + opening_bytes + max(self.segment_bytes // 2, opening_bytes),
        )

    def _next_segment(self) -> None:
        prev_end = self._ends[self.segment] = self._offset
        self._sealed_bytes += prev_end
        self.segment += 1
        self._begin_segment(prev_end, flags=0)

    def _reframed(self) -> list[bytes]:
        chunks = []
        for frame in self._rehomed:
            self._index.add_frame(self._offset, frame.base_lsn, frame.time_ns)
            self._index.add_rehomed(frame.raw_records())
            chunk = frame.encode(self._seg_salt)
            self._offset += len(chunk)
            chunks.append(chunk)
        self._rehomed = ()
        return chunks

    def _framed(self, records: Sequence[Record]) -> list[bytes]:
        lsn = self.last_lsn - len(records) + 1
        chunks = []
        for run in frames.split(records):
            self._index.add_frame(self._offset, lsn, self._time_ns)
            chunks.append(self._frame(run, lsn))
            self._index.add_records(run)
            lsn += len(run)
        return chunks

    def _frame(self, records: Sequence[Record], base_lsn: int) -> bytes:
        frame = frames.encode(
            records, base_lsn=base_lsn, durable_lsn=self.durable_lsn, time_ns=self._time_ns,
            salt=self._seg_salt,
        )  # fmt: skip
        self._offset += len(frame)
        return frame

    def _sealed(self, time_ns: int) -> tuple[bytes, bytes]:
        """
        The SEAL's frame and the trailer.
        """
        n_rec, n_index = self._index.types.total(), len(self._index.frames)
        seal_offset = self._offset
        lsn = self.append(Seal(time_ns, self._index.encode()))
        frame = self._frame(self._open, lsn)
        self._open = []
        self._open_bytes = 0
        return frame, encode_trailer(seal_offset, lsn, n_rec, n_index)
