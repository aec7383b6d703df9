"""The bytes of one segment after its header: frames, one after the other, then the seal."""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, TypeAlias

from beanstalk_twisted.binlog.batches import RehomedFrame
from beanstalk_twisted.binlog.records.jobs import Kind
from beanstalk_twisted.binlog.records.others import JOB_KINDS, Seal
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import (
    INDEX_ENTRY_BYTES,
    INDEX_STRIDE_BYTES,
    KIND_ID_AND_TIME,
    RECORD_BYTES,
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

Fact: TypeAlias = tuple[int, int, int]
"""Type, job id and time of a record, as `format.KIND_ID_AND_TIME` unpacks them."""


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

    def add(
        self, places: Sequence[Place], end: int, facts: Iterable[Fact],
        names: Mapping[int, bytes],
    ) -> None:  # fmt: skip
        """New frames, and what is in them: as a rule one of one or two records; they end at
        ``end``.

        :param names: of the tubes that are defined in them.
        """
        types = self._types.copy()
        first, last = self._jobs
        oldest, newest = self._times
        encoded_bytes = self.encoded_bytes
        for kind, job_id, ts_ns in facts:
            types[kind] = types.get(kind, 0) + 1
            if kind in JOB_KINDS:
                # `min` and `max` take longer than all else here.
                if job_id > last:
                    last = job_id
                if job_id < first:
                    first = job_id
                if ts_ns > newest:
                    newest = ts_ns
                if ts_ns < oldest:
                    oldest = ts_ns
        if names:
            # Should this be done again, nothing is different.
            self.tubes.update(names)
            encoded_bytes += sum([TUBE_IN_SEAL_BYTES + len(name) for name in names.values()])
        jobs, times, indexed = (first, last), (oldest, newest), self.indexed
        if places and (
            not indexed or places[-1][0] - self._frames[indexed - 1][0] >= INDEX_STRIDE_BYTES
        ):
            indexed = self._index(places)
            encoded_bytes += INDEX_ENTRY_BYTES * (indexed - self.indexed)
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
        self, records: frames.EncodedRecords, base_lsn: int, time_ns: int,
        durable_lsn: int | None = None,
    ) -> list[bytes]:  # fmt: skip
        """:param base_lsn: the first record's LSN, the others' follow.
        :param durable_lsn: the watermark; by default each frame vouches for itself, since nobody
            sees it before all of it is durable.
        """
        made: list[bytes] = []
        places: list[Place] = []
        facts: list[Iterable[Fact]] = []
        end = self.index.end
        for pieces in records.frames:
            array, heap = frames.join(pieces)
            n_rec = len(array) // RECORD_BYTES
            frame = frames.assemble(array, heap, n_rec, base_lsn, durable_lsn, time_ns, self._salt)
            made.append(frame)
            places.append((end, base_lsn, time_ns))
            facts.append(KIND_ID_AND_TIME.iter_unpack(array))
            end += len(frame)
            base_lsn += n_rec
        self.index.add(places, end, chain.from_iterable(facts), records.names)
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
        self.index.add(places, end, chain.from_iterable(map(RehomedFrame.facts, moved)), {})
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
