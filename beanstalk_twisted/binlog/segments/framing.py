"""The bytes of one segment after its header: frames, one after the other, then the seal."""

import zlib
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

from beanstalk_twisted.binlog.batches import RehomedFrame
from beanstalk_twisted.binlog.cold import Appended, Run
from beanstalk_twisted.binlog.records.jobs import JobImage, Kind
from beanstalk_twisted.binlog.records.others import (
    JOB_ID,
    JOB_KINDS,
    TS_NS,
    TYPE,
    Raw,
    Seal,
    TubeDef,
)
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import (
    FRAME_TARGET_BYTES,
    INDEX_ENTRY_BYTES,
    INDEX_STRIDE_BYTES,
    MAX_FRAME_RECORDS,
    SEAL_HEAD,
    SEGMENT_HEADER_BYTES,
    TRAILER,
    TRAILER_MAGIC,
    TUBE_IN_SEAL_BYTES,
    TYPE_IN_SEAL_BYTES,
)
from beanstalk_twisted.binlog.segments.seals import IndexedFrame, SealIndex

TYPES: Final = 32
"""More than there are types of records."""

CHANGES: Final = frozenset(JOB_KINDS) - {Kind.COPY}
"""The types of records that something has happened to a job by."""

NO_SPAN: Final = (1 << 64, -(1 << 64))
"""The smallest and the largest of no numbers."""

Place = tuple[int, int, int]
"""Where a frame begins, the LSN of its first record, and its time."""


class SegmentIndex:
    """Collects what the seal of a segment will say about it.

    What is added is added whole: the last line of each method changes all that counts, by the
    exchange of references, and whatever ends it before that, all is as it was.

    :ivar end: the offset after the newest frame.
    :ivar encoded_bytes: the length of `encode`, or a little more: types that are still to come are
        counted in.
    """

    def __init__(self) -> None:
        self.end = SEGMENT_HEADER_BYTES
        self.indexed = 0
        self.tubes: dict[int, bytes] = {}
        self._frames: list[Place] = []
        self._types: dict[int, int] = {}
        self._jobs = self._times = NO_SPAN
        self.encoded_bytes = SEAL_HEAD.size + TYPE_IN_SEAL_BYTES * TYPES

    def copy(self) -> "SegmentIndex":
        other = SegmentIndex()
        other.end, other.indexed, other.tubes = self.end, self.indexed, self.tubes.copy()
        other._frames, other._types = self._frames.copy(), self._types
        other._jobs, other._times, other.encoded_bytes = self._jobs, self._times, self.encoded_bytes
        return other

    @property
    def records(self) -> int:
        return sum(self._types.values())

    @property
    def has_changes(self) -> bool:
        """Whether a job was changed in it; a copy changes nothing."""
        return not CHANGES.isdisjoint(self._types)

    def add(self, places: Sequence[Place], end: int, records: Sequence[Appended]) -> None:
        """New frames, and what is in them: as a rule one of one or two records; they end at
        ``end``.
        """
        types = self._types.copy()
        first, last = self._jobs
        oldest, newest = self._times
        encoded_bytes = self.encoded_bytes
        for record in records:
            kind = record.kind
            types[kind] = types.get(kind, 0) + 1
            if isinstance(record, JobImage):
                # `min` and `max` take longer than all else here.
                job_id, ts_ns = record.job_id, record.ts_ns
                if job_id > last:
                    last = job_id
                if job_id < first:
                    first = job_id
                if ts_ns > newest:
                    newest = ts_ns
                if ts_ns < oldest:
                    oldest = ts_ns
            elif isinstance(record, TubeDef):
                # Should this be done again, nothing is different.
                self.tubes[record.tube_id] = record.name
                encoded_bytes += TUBE_IN_SEAL_BYTES + len(record.name)
            elif isinstance(record, Run):
                types[kind] += record.n_rec - 1
                first, last = min(first, record.first_id), max(last, record.last_id)
                oldest, newest = min(oldest, record.ts_ns), max(newest, record.ts_ns)
        jobs, times, indexed = (first, last), (oldest, newest), self.indexed
        if places and (
            not indexed or places[-1][0] - self._frames[indexed - 1][0] >= INDEX_STRIDE_BYTES
        ):
            indexed = self._index(places)
            encoded_bytes += INDEX_ENTRY_BYTES * (indexed - self.indexed)
        self.end, self.indexed, self._types, self._jobs, self._times, self.encoded_bytes = (
            end, indexed, types, jobs, times, encoded_bytes,
        )  # fmt: skip

    def add_rehomed(self, places: Sequence[Place], end: int, records: Iterable[Raw]) -> None:
        types = self._types.copy()
        (first, last), (oldest, newest) = self._jobs, self._times
        for raw in records:
            types[raw[TYPE]] = types.get(raw[TYPE], 0) + 1
            if raw[TYPE] in JOB_KINDS:
                first, last = min(first, raw[JOB_ID]), max(last, raw[JOB_ID])
                oldest, newest = min(oldest, raw[TS_NS]), max(newest, raw[TS_NS])
        jobs, times, indexed = (first, last), (oldest, newest), self._index(places)
        encoded_bytes = self.encoded_bytes + INDEX_ENTRY_BYTES * (indexed - self.indexed)
        self.end, self.indexed, self._types, self._jobs, self._times, self.encoded_bytes = (
            end, indexed, types, jobs, times, encoded_bytes,
        )  # fmt: skip

    def _index(self, places: Sequence[Place]) -> int:
        """Note frames that are far enough after the one before.

        :return: how many are noted then; more do not count.
        """
        count = self.indexed
        last = self._frames[count - 1][0] if count else -INDEX_STRIDE_BYTES
        if not places or places[-1][0] - last < INDEX_STRIDE_BYTES:
            return count
        del self._frames[count:]
        for place in places:
            if place[0] - last >= INDEX_STRIDE_BYTES:
                self._frames.append(place)
                last = place[0]
        return len(self._frames)

    def encode(self) -> bytes:
        has_jobs = self._jobs != NO_SPAN
        indexed = tuple(IndexedFrame(*place) for place in self._frames[: self.indexed])
        return SealIndex(
            self.records, self._jobs if has_jobs else (0, 0), self._times if has_jobs else (0, 0),
            indexed, self._types, self.tubes,
        ).encode()  # fmt: skip


def encode_trailer(seal_offset: int, last_lsn: int, n_rec: int, n_index: int) -> bytes:
    """The last 40 bytes of a sealed segment; docs/binlog-format.md, "Seal and trailer"."""
    unchecked = TRAILER.pack(seal_offset, last_lsn, n_rec, n_index, 0, TRAILER_MAGIC)
    crc = zlib.crc32(unchecked[:28])
    return TRAILER.pack(seal_offset, last_lsn, n_rec, n_index, crc, TRAILER_MAGIC)


class Framing:
    """Frames records for one segment, for the server's log as well as the tools.

    Bytes are made first.  Only when all of a call's are there does the state change, in one step:
    so an exception, for want of memory above all, leaves no place in the segment that was counted
    and never written.

    :ivar index: what the seal will say.
    """

    def __init__(self, salt: int) -> None:
        """:param salt: the segment's, a u32."""
        self.index = SegmentIndex()
        self._salt = salt

    def copy(self) -> "Framing":
        other = Framing(self._salt)
        other.index = self.index.copy()
        return other

    @property
    def end(self) -> int:
        return self.index.end

    def add(
        self, records: Sequence[Appended], base_lsn: int, time_ns: int,
        durable_lsn: int | None = None, all_bytes: int = 0, whole: Sequence[frames.Span] = (),
    ) -> list[bytes]:  # fmt: skip
        """:param base_lsn: the first record's LSN, the others' follow.
        :param durable_lsn: the watermark; by default each frame vouches for itself, since nobody
            sees it before all of it is durable.
        :param all_bytes: what the records take, data included, if that is known.
        :param whole: see `frames.split`.
        :return: the frames, as few as the limits allow.
        """
        made: list[bytes] = []
        places, end = [], self.index.end
        is_one = 0 < all_bytes <= FRAME_TARGET_BYTES and len(records) <= MAX_FRAME_RECORDS
        for part in (records,) if is_one else frames.split(records, whole):
            if made:
                base_lsn += frames.records_in(made[-1])
            frame = frames.encode(part, base_lsn, durable_lsn, time_ns, self._salt)
            made.append(frame)
            places.append((end, base_lsn, time_ns))
            end += len(frame)
        self.index.add(places, end, records)
        return made

    def add_rehomed(self, moved: Sequence[RehomedFrame]) -> list[bytes]:
        """:return: frames that have moved here, bound to this segment, with their LSNs and
        times.
        """
        made, places, end = [], [], self.index.end
        for frame in moved:
            made.append(frame.encode(self._salt))
            places.append((end, frame.base_lsn, frame.time_ns))
            end += len(made[-1])
        # One frame's records at a time: as tuples they take several times their bytes.
        records = chain.from_iterable(map(RehomedFrame.raw_records, moved))
        self.index.add_rehomed(places, end, records)
        return made

    def mark(self, next_lsn: int, time_ns: int, durable_lsn: int) -> bytes:
        frame = frames.encode((), next_lsn, durable_lsn, time_ns, self._salt)
        self.index.end += len(frame)
        return frame

    def seal(self, lsn: int, time_ns: int, durable_lsn: int | None = None) -> tuple[bytes, bytes]:
        """:return: the frame with the SEAL of this LSN, and the trailer; ``end`` is between
        them.
        """
        index = self.index
        seal = Seal(time_ns, index.encode())
        frame = frames.encode([seal], lsn, durable_lsn, time_ns, self._salt)
        trailer = encode_trailer(index.end, lsn, index.records, index.indexed)
        index.end += len(frame)
        return frame, trailer
