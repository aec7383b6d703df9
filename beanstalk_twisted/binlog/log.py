"""The open log: numbers records and turns them into batches of bytes.  No I/O, so no waiting."""

import struct
import zlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from beanstalk_twisted.binlog.batches import Batch, Opening, Position
from beanstalk_twisted.binlog.cold import Run
from beanstalk_twisted.binlog.errors import LeftHalfWay
from beanstalk_twisted.binlog.records.jobs import (
    FLAGS,
    NO_DATA,
    WAITED_FOR,
    JobImage,
    Kind,
    Reason,
    State,
)
from beanstalk_twisted.binlog.records.others import CleanStop, Record, TubeDef
from beanstalk_twisted.binlog.segments.format import (
    FRAME_TARGET_BYTES,
    RECORD,
    RECORD_BYTES,
    SEGMENT_HEADER_BYTES,
    TRAILER_BYTES,
    TUBE_IN_SEAL_BYTES,
    SegmentHeader,
)
from beanstalk_twisted.binlog.segments.frames import EncodedRecords, sum_bytes
from beanstalk_twisted.binlog.segments.framing import Framing
from beanstalk_twisted.binlog.space_budget import (
    ENDING_BYTES,
    FRAME_BYTES,
    PLENTY_BYTES,
    SERVER_GROWTH_BYTES,
    TUBE_GROWTH_BYTES,
    PreallocatedSegment,
    SpaceBudget,
    framed_bytes,
    new_job_bytes,
)

MAX_WAITING_RECORDS: Final = 10_000
"""Records that wait for the disk above which it is behind: more than a turn appends, and what
clients that are answered at once can append without end.
"""

RESERVE: Final = Kind.RESERVE


class Log:
    """A log that is open for appending.

    A record that has no room in the newest segment seals it: what was appended before becomes a
    batch of its own, and the next segment begins with the small state of the server (see "Other
    records" in docs/binlog-format.md), taken at that very moment, so that it agrees with the
    records before it.  So nothing is ever written past the space that a segment was given.

    A batch is made before anything here changes.  Should an exception end a step half-way all the
    same, the log gives no batch any more: what were written next might lie behind bytes that never
    are.

    :ivar segment: sequence number of the segment the next record will lie in.
    :ivar durable_lsn: highest LSN known durable, inclusive.
    :ivar segment_bytes: the usual size of a segment.
    :ivar commits_reserves: whether replies wait for reservations too.
    :ivar most_bytes: that its files may have together; 0 for no limit.
    :ivar ends: where the frames of each finished segment end, by sequence number, ascending.
    :ivar oldest: sequence number of the oldest segment.
    """

    _header: SegmentHeader

    def __init__(
        self, position: Position, segment_bytes: int, opening: Callable[[int, int], Opening],
        salt: Callable[[], int], writer: str,
    ) -> None:  # fmt: skip
        """:param opening: gives the server's small state, by the segment's number and log time.
        :param salt: a new random u32 at each call.
        :param writer: name and version for the headers, ASCII, at most 32 bytes.
        """
        self.segment = position.seq
        self.last_lsn = self._taken_lsn = self._framed_lsn = position.next_lsn - 1
        self.durable_lsn = position.first_lsn - 1
        self._begun_lsn = self.last_lsn
        self.segment_bytes = segment_bytes
        self.budget = SpaceBudget(segment_bytes)
        self.most_bytes = 0
        self.commits_reserves = False
        self._most_waiting = MAX_WAITING_RECORDS
        self._trim_seq = position.trim_seq
        self.ends = dict(position.ends)
        self.oldest = next(iter(self.ends), self.segment)
        self._sealed_bytes = sum(self.ends.values())
        self._opening = opening
        self._salt = salt
        self._writer = writer
        self._position = position._replace(rehomed=())
        self._time_ns = position.time_ns
        self._rehomed = tuple(position.rehomed)
        # Of batches that are not known durable: the last LSN, and where they end in which segment.
        self._unsafe: deque[tuple[int, tuple[int, int]]] = deque()
        self._safe = (position.seq - 1, position.prev_end)
        self._pending: deque[Batch] = deque()
        self._pending_bytes = 0
        self._open = EncodedRecords()
        self._commits = self._is_ending = self._is_midway = False
        self._file: PreallocatedSegment | None = None
        self._limit = self._heads = self._head_bytes = 0
        self._framing = Framing(0)
        self._begin_segment(position.prev_end, position.flags, position.incompat)

    @property
    def records_written(self) -> int:
        return self.last_lsn - self._begun_lsn

    @property
    def has_open(self) -> bool:
        return bool(self._open.frames or self._pending or self._file or self._is_ending)

    @property
    def is_waited_for(self) -> bool:
        """Whether a client waits for the next batch, or a segment begins or ends with it."""
        return bool(self._commits or self._pending or self._file or self._is_ending)

    @property
    def is_behind(self) -> bool:
        """Whether so much waits for the disk that what nobody waits for is left out."""
        return self.last_lsn - self._taken_lsn > self._most_waiting

    @property
    def open_bytes(self) -> int:
        return self._open.size + self._pending_bytes

    @property
    def undurable_bytes(self) -> int:
        seq, end = self._safe
        return self._framing.end - (end if seq == self.segment else 0)

    @property
    def total_bytes(self) -> int:
        return self._sealed_bytes + self._framing.end

    @property
    def newest_bytes(self) -> int:
        return self._framing.end

    @property
    def allocated_bytes(self) -> int:
        """Bytes of all its files, those made ready ahead too."""
        sealed = self._sealed_bytes + TRAILER_BYTES * len(self.ends)
        return sealed + self._limit + self.budget.preallocated_bytes

    def may_allocate(self, size: int) -> bool:
        return not self.most_bytes or self.allocated_bytes + size <= self.most_bytes

    @property
    def written_seq(self) -> int:
        """Segments below this one will not be written any more by batches that are to come."""
        return self._pending[0].seq if self._pending else self.segment

    @property
    def has_changes(self) -> bool:
        """Whether the segment that is being written has a change of a job, and not only copies."""
        return self._framing.index.has_changes

    def hold_up(self, is_held_up: bool) -> None:
        """Leave out what nobody waits for from now on, or no longer."""
        self._most_waiting = -1 if is_held_up else MAX_WAITING_RECORDS

    def rotate(self) -> None:
        """Let the next batch seal the segment, whatever its size; there is one in any case."""
        self._is_ending = True

    def trimmed(self, seq: int) -> None:
        """The oldest segment is dead, and that is durable."""
        self._sealed_bytes -= self.ends.pop(seq)
        self.oldest = next(iter(self.ends), self.segment)
        self._trim_seq = seq + 1

    # Appending.

    def make_room(self, body_bytes: int, time_ns: int) -> None:
        """The next two records, the definition of a tube and one of a job, must lie in one segment:
        begin another if this one is too full.
        """
        if 2 * body_bytes + PLENTY_BYTES <= self.budget.rest:
            return
        least = new_job_bytes(body_bytes)
        if least > self.budget.rest:
            self._change_segment(least, time_ns)

    @property
    def features(self) -> int:
        return self._header.incompat

    def allow(self, features: int, time_ns: int) -> None:
        """Begin a segment that may hold what needs these features, unless it is one."""
        if features & ~self.features:
            self._change_segment(0, time_ns)
            self._header = self._header._replace(incompat=self.features | features)

    def append(self, record: Record) -> int:
        size = RECORD_BYTES + record.data_bytes
        if isinstance(record, TubeDef):
            name_bytes = TUBE_IN_SEAL_BYTES + len(record.name)
            self._fit(size, name_bytes)
            self.budget.name_tube(len(record.name))
            self.budget.rest -= name_bytes
        else:
            self._fit(size, 0)
        is_reserve = self.commits_reserves and record.kind == Kind.RESERVE
        commits = self._commits or is_reserve or record.commits
        lsn, rest = self.last_lsn + 1, self.budget.rest - size
        self._open.append(record)
        self.budget.rest, self.last_lsn, self._commits = rest, lsn, commits
        return lsn

    def append_job(
        self, kind: Kind, state: State, reason: Reason, priority: int, job_id: int, ts_ns: int,
        deadline_ns: int, delay_s: int, ttr_s: int, tube_id: int, reserves: int, timeouts: int,
        releases: int, buries: int, kicks: int, connection: int, body: bytes = b"",
    ) -> int:  # fmt: skip
        """`append` for the `JobImage` of a job without tags, without the image."""
        size, budget = RECORD_BYTES + len(body), self.budget
        # As `_fit`, without a call.
        if self._open.newest_bytes + size > FRAME_TARGET_BYTES or size > budget.rest:
            self._fit(size, 0)
        records = self._open
        heap_bytes = records.heap_bytes
        offset, length, crc = (heap_bytes, len(body), zlib.crc32(body)) if body else NO_DATA
        try:
            record = RECORD.pack(
                kind, state, FLAGS[kind], reason, priority, job_id, ts_ns, deadline_ns, delay_s,
                ttr_s, tube_id, reserves, timeouts, releases, buries, kicks, offset, length, crc,
                connection,
            )  # fmt: skip
        except struct.error:
            record = b""
        if not record:
            # With counters that a record can hold.  Not in the handler: that far down a function an
            # exception in one cannot leave it without memory (CPython 3.11).
            record = JobImage(
                kind, state, reason, priority, job_id, ts_ns, deadline_ns, delay_s, ttr_s, tube_id,
                reserves, timeouts, releases, buries, kicks, connection,
            ).encode((offset, length, crc))  # fmt: skip
        is_reserve = self.commits_reserves and kind is RESERVE
        commits = self._commits or is_reserve or kind in WAITED_FOR
        lsn, rest = self.last_lsn + 1, budget.rest - size
        newest_bytes, heap_bytes = records.newest_bytes + size, heap_bytes + length
        # Exchanging references needs no memory, so after that all happens, or nothing.
        records.newest.append((record, body))
        records.newest_bytes, records.heap_bytes = newest_bytes, heap_bytes
        budget.rest, self.last_lsn, self._commits = rest, lsn, commits
        return lsn

    def append_run(self, make: Callable[[], Run]) -> int:
        """Append records, no more than `SpaceBudget.run_records`; return the first one's LSN."""
        run = make()
        count, size = run.n_rec, len(run.array)
        self._fit(size, 0)
        records = self._open
        commits = self._commits or run.commits
        first_lsn, last_lsn = self.last_lsn + 1, self.last_lsn + count
        rest, newest_bytes = self.budget.rest - size, records.newest_bytes + size
        records.newest.append((run.array, b""))
        records.newest_bytes = newest_bytes
        self.budget.rest, self.last_lsn, self._commits = rest, last_lsn, commits
        return first_lsn

    def append_whole(self, records: Sequence[Record]) -> int:
        """Append at least one record, `frames.MAX_FRAME_RECORDS` at most and no definition of a
        tube, in one frame, `MAX_FRAME_BYTES` at most; return the first one's LSN.  `make_room` was
        called for `space_budget.whole_bytes`.
        """
        size = sum_bytes(records)
        self._fit(size, 0)
        first_lsn, last_lsn = self.last_lsn + 1, self.last_lsn + len(records)
        rest = self.budget.rest - size
        self._open.append_whole(records)
        self.budget.rest, self.last_lsn, self._commits = rest, last_lsn, True
        return first_lsn

    def _fit(self, size: int, name_bytes: int) -> None:
        """Begin a frame if the newest one has no room for this many bytes of records and data, and
        before that a segment, if this one has none for all that, and a name in the seal.
        """
        begins_frame = not self._open.has_room(size)
        own = size + name_bytes + (FRAME_BYTES if begins_frame else 0)
        if own > self.budget.rest:
            self._change_segment(own + FRAME_BYTES, self._time_ns)
            begins_frame = not self._open.has_room(size)
        if begins_frame:
            self._open.begin_frame()
            self.budget.rest -= FRAME_BYTES

    def name_tubes(self, names: Mapping[int, bytes]) -> None:
        """The new segment's re-homed records use these tubes too.  Only before its first batch."""
        assert self._is_fresh
        self._extend([TubeDef(tube_id, names[tube_id]) for tube_id in sorted(names)])
        self._settle_in()

    def _extend(self, records: Sequence[Record]) -> None:
        """Append records that no reply waits for; the caller has counted their room."""
        for record in records:
            self._open.append(record)
        self.last_lsn += len(records)

    # Batches.

    def take(self, time_ns: int) -> Batch | None:
        """Close the open batch, or give one that a full segment has closed before.

        :param time_ns: log time; frames never go back in time.
        :return: what to write, or None when there is nothing.
        :raise LeftHalfWay: an earlier step has ended with an exception.
        """
        if not self._open.frames and not self.has_open:
            return None
        if self._is_ending and not self._is_fresh:
            self._change_segment(0, time_ns)
        self._begin_step()
        self._is_ending = False
        if self._pending:
            batch = self._pending.popleft()
            self._pending_bytes -= sum(map(len, batch.chunks))
        else:
            batch = self._close(time_ns, seals=False)
        self._taken_lsn = batch.last_lsn
        self._is_midway = False
        return batch

    def _begin_step(self) -> None:
        if self._is_midway:
            raise LeftHalfWay(
                "the log was left half-way by an error before this one; nothing that was answered "
                "is lost. Start the server again."
            )
        self._is_midway = True

    def mark(self) -> Batch:
        """An empty frame that carries the newest watermark.  Only while nothing is open."""
        assert not self.has_open
        self._begin_step()
        start = self._framing.end
        frame = self._framing.mark(self.last_lsn + 1, self._time_ns, self.durable_lsn)
        self._count_rest()
        batch = Batch(self.segment, start, (frame,), self.last_lsn, None, False, False)
        self._is_midway = False
        return batch

    def finish(self, time_ns: int) -> Batch:
        """CLEAN_STOP and the seal, for an ordered stop.  All before it must be durable."""
        self._is_ending = False
        assert not self.has_open
        self._begin_step()
        self._extend([CleanStop(max(self._time_ns, time_ns))])
        batch = self._close(time_ns, seals=True)
        self._is_midway = False
        return batch

    def durable(self, lsn: int) -> None:
        if lsn > self.durable_lsn:
            self.durable_lsn = lsn
        unsafe = self._unsafe
        while unsafe and unsafe[0][0] <= lsn:
            self._safe = unsafe.popleft()[1]

    def _close(self, time_ns: int, seals: bool) -> Batch:
        if time_ns < self._time_ns:
            time_ns = self._time_ns
        file, start = self._file, 0 if self._file else self._framing.index.end
        # Several steps are made on a copy, which takes the place of the other when all are done.
        framing = self._framing.copy() if seals or self._rehomed else self._framing
        framed = framing.add_rehomed(self._rehomed) if self._rehomed else []
        framed += framing.add(self._open, self._framed_lsn + 1, time_ns, self.durable_lsn)
        chunks = [self._header.encode(), *framed] if file else framed
        last_lsn = self.last_lsn
        if seals:
            last_lsn += 1
            chunks += framing.seal(last_lsn, time_ns, self.durable_lsn)
        batch = tuple.__new__(
            Batch, (self.segment, start, tuple(chunks), last_lsn, file, seals, self._commits)
        )
        self._unsafe.append((last_lsn, (self.segment, framing.index.end)))
        self._framing, self._time_ns, self._rehomed = framing, time_ns, ()
        self.last_lsn = self._framed_lsn = last_lsn
        self._open, self._file, self._commits = EncodedRecords(), None, False
        self._count_rest()
        return batch

    # Segments.

    def shrink(self, batch: Batch) -> Batch | None:
        """The disk does not have the space for the new segment: ask for half.

        :param batch: the first one; nothing was appended after it.
        :return: the same in a smaller file, or None if it would not fit.
        """
        assert batch.file is not None and not self._open.frames
        self._limit = batch.file.size // 2
        self._count_rest()
        if self.budget.rest < new_job_bytes(0):
            return None
        return batch._replace(file=batch.file._replace(size=self._limit))

    @property
    def _is_fresh(self) -> bool:
        return self._file is not None and self._open.size == self._heads

    def _change_segment(self, least: int, time_ns: int) -> None:
        self._begin_step()
        if not self._is_fresh:
            batch = self._close(time_ns, seals=True)
            self._pending.append(batch)
            self._pending_bytes += sum(map(len, batch.chunks))
            prev_end = self.ends[self.segment] = self._framing.end
            self._sealed_bytes += prev_end
            self.segment += 1
            self._begin_segment(prev_end)
        if least > self.budget.rest:
            self._settle_in(least)
        self._is_midway = False

    def _begin_segment(self, prev_end: int, flags: int = 0, incompat: int = 0) -> None:
        """The next batch begins a segment, which opens with the state as it is at this moment."""
        opening = self._opening(self.segment, self._time_ns)
        incompat |= opening.features
        first_lsn = self._framed_lsn + 1 - sum(frame.n_rec for frame in self._rehomed)
        salt = self._salt()
        self._header = SegmentHeader(
            self.segment, first_lsn, self._time_ns, prev_end, self._trim_seq,
            opening.next_job_id, self._position.store_uuid, salt, flags,
            self._position.incarnation, self._writer, incompat,
        )  # fmt: skip
        self._framing = Framing(salt)
        self._extend(opening.records)
        self._head_bytes = self._open.size
        self._settle_in()

    def _settle_in(self, least: int = 0) -> None:
        """Choose the file for the segment that begins, with ``least`` free bytes for what comes
        first.
        """
        if self._file is not None:
            self.budget.give_back(self._file)
        self._heads = self._open.size
        names = self._open.names.values()
        # What is written again here, the next segments do not open with.
        opening = SEGMENT_HEADER_BYTES + framed_bytes(self._open.size) + ENDING_BYTES
        opening += self._framing.index.encoded_bytes
        opening += sum(TUBE_IN_SEAL_BYTES + len(name) for name in names)
        rehomed = sum(FRAME_BYTES + len(each.array) + len(each.heap) for each in self._rehomed)
        begun = opening + rehomed
        usual = self.budget.usual_size(begun, self._head_bytes)
        self._file = self.budget.choose(begun + max(least, new_job_bytes(0)), usual)
        self._limit = self._file.size
        growth = SERVER_GROWTH_BYTES + TUBE_GROWTH_BYTES * len(names)
        self.budget.begin(self._limit - begun, opening + growth, self._head_bytes)

    def _count_rest(self) -> None:
        """All is framed: how much is left can be said exactly."""
        index = self._framing.index
        self.budget.rest = self._limit - index.end - ENDING_BYTES - index.encoded_bytes
