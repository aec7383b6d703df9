"""
What the seal of a finished segment says about it; docs/binlog-format.md, "Seal and trailer".
"""

import zlib
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.format import (
    INDEX_ENTRY_BYTES,
    INDEX_STRIDE_BYTES,
    SEAL_HEAD,
    SEGMENT_HEADER_BYTES,
    TRAILER,
    TRAILER_BYTES,
    TRAILER_MAGIC,
    TUBE_IN_SEAL_BYTES,
    TYPE_IN_SEAL_BYTES,
)
from beanstalk_twisted.binlog.records import (
    JOB_ID,
    JOB_KINDS,
    TS_NS,
    TYPE,
    JobImage,
    Kind,
    Raw,
    Record,
    TubeDef,
)

TYPES: Final = 32
"""More than there are types of records."""

CHANGES: Final = frozenset(JOB_KINDS) - {Kind.COPY}
"""The types of records that something has happened to a job by."""

NO_SPAN: Final = (1 << 64, -(1 << 64))
"""The smallest and the largest of no numbers."""

Place = tuple[int, int, int]
"""Where a frame begins, the LSN of its first record, and its time."""

Span = tuple[int, int]


class Seen(NamedTuple):
    """
    A segment so far.

    :ivar end: the offset behind its newest frame.
    :ivar types: how many records there are of each type.
    :ivar jobs: the smallest and the largest id of a job; ``times`` likewise.
    :ivar indexed: how many frames are indexed.
    :ivar tube_bytes: what the names of tubes take in the seal, at most.
    """

    end: int
    types: dict[int, int]
    jobs: Span
    times: Span
    indexed: int
    tube_bytes: int


class SegmentIndex:
    """
    Collects what the seal of a segment will say about it.

    What is added is added whole, by the exchange of one reference: whatever ends it before that,
    all is as it was.

    :ivar tubes: the names of the tubes in it.
    """

    def __init__(self) -> None:
        self.tubes: dict[int, bytes] = {}
        self._frames: list[Place] = []
        self._seen = Seen(SEGMENT_HEADER_BYTES, {}, NO_SPAN, NO_SPAN, 0, 0)

    def copy(self) -> "SegmentIndex":
        """
        Another one, that says the same.
        """
        other = SegmentIndex()
        other.tubes, other._frames, other._seen = self.tubes.copy(), self._frames.copy(), self._seen
        return other

    @property
    def end(self) -> int:
        """
        The offset behind the newest frame.
        """
        return self._seen.end

    @property
    def records(self) -> int:
        """
        How many records there are.
        """
        return sum(self._seen.types.values())

    @property
    def indexed(self) -> int:
        """
        How many frames are indexed.
        """
        return self._seen.indexed

    @property
    def has_changes(self) -> bool:
        """
        Whether a job was changed in it; a copy changes nothing.
        """
        return not CHANGES.isdisjoint(self._seen.types)

    def add(self, places: Sequence[Place], end: int, records: Sequence[Record]) -> None:
        """
        New frames, and what is in them: as a rule one of one or two records.

        :param end: where they end.
        """
        seen = self._seen
        types = seen.types.copy()
        first, last = seen.jobs
        oldest, newest = seen.times
        tubes: dict[int, bytes] = {}
        for record in records:
            kind = record.kind
            types[kind] = types.get(kind, 0) + 1
            if isinstance(record, JobImage):
                job_id, ts_ns = record.job_id, record.ts_ns
                if not first <= job_id <= last:
                    first, last = min(first, job_id), max(last, job_id)
                if not oldest <= ts_ns <= newest:
                    oldest, newest = min(oldest, ts_ns), max(newest, ts_ns)
            elif isinstance(record, TubeDef):
                tubes[record.tube_id] = record.name
        self._enter(places, end, types, (first, last), (oldest, newest), tubes)

    def add_rehomed(self, places: Sequence[Place], end: int, records: Iterable[Raw]) -> None:
        """
        Frames that have moved here, and what is in them.
        """
        types = self._seen.types.copy()
        (first, last), (oldest, newest) = self._seen.jobs, self._seen.times
        for raw in records:
            types[raw[TYPE]] = types.get(raw[TYPE], 0) + 1
            if raw[TYPE] in JOB_KINDS:
                first, last = min(first, raw[JOB_ID]), max(last, raw[JOB_ID])
                oldest, newest = min(oldest, raw[TS_NS]), max(newest, raw[TS_NS])
        self._enter(places, end, types, (first, last), (oldest, newest), {})

    def grow(self, size: int) -> None:
        """
        A frame of which the seal says nothing.
        """
        self._seen = self._seen._replace(end=self._seen.end + size)

    def _enter(
        self, places: Sequence[Place], end: int, types: dict[int, int], jobs: Span, times: Span,
        tubes: dict[int, bytes],
    ) -> None:  # fmt: skip
        """
        The names of tubes may be there twice, and frames that are not counted do not count.
        """
        seen = self._seen
        tube_bytes = seen.tube_bytes
        if tubes:
            tube_bytes += sum(TUBE_IN_SEAL_BYTES + len(name) for name in tubes.values())
            self.tubes.update(tubes)
        indexed = self._index(places)
        self._seen = Seen(end, types, jobs, times, indexed, tube_bytes)

    def _index(self, places: Sequence[Place]) -> int:
        """
        Index those frames that are far enough behind the one before.

        :return: how many there are then, when they count.
        """
        count = self._seen.indexed
        del self._frames[count:]
        last = self._frames[-1][0] if count else -INDEX_STRIDE_BYTES
        for place in places:
            if place[0] - last >= INDEX_STRIDE_BYTES:
                self._frames.append(place)
                last = place[0]
        return len(self._frames)

    @property
    def encoded_bytes(self) -> int:
        """
        The length of `encode`, or a little more: types that are still to come are counted in.
        """
        seen = self._seen
        frames = INDEX_ENTRY_BYTES * seen.indexed
        return SEAL_HEAD.size + frames + TYPE_IN_SEAL_BYTES * TYPES + seen.tube_bytes

    def encode(self) -> bytes:
        """
        :return: the data of the SEAL record.
        """
        seen = self._seen
        spans = (0, 0, 0, 0) if seen.jobs == NO_SPAN else (*seen.jobs, *seen.times)
        head = SEAL_HEAD.pack(
            1, seen.indexed, self.records, *spans, len(seen.types), len(self.tubes)
        )
        frames = self._frames[: seen.indexed]
        columns = (
            [lsn.to_bytes(8, "little") for _, lsn, _ in frames]
            + [time.to_bytes(8, "little", signed=True) for _, _, time in frames]
            + [(offset // 8).to_bytes(4, "little") for offset, _, _ in frames]
        )
        types = [
            kind.to_bytes(4, "little") + count.to_bytes(4, "little")
            for kind, count in sorted(seen.types.items())
        ]
        tubes = [
            tube_id.to_bytes(4, "little") + len(name).to_bytes(2, "little") + name
            for tube_id, name in self.tubes.items()
        ]
        return b"".join([head, *columns, *types, *tubes])


def encode_trailer(seal_offset: int, last_lsn: int, n_rec: int, n_index: int) -> bytes:
    """
    The last 40 bytes of a sealed segment; docs/binlog-format.md, "Seal and trailer".
    """
    unchecked = TRAILER.pack(seal_offset, last_lsn, n_rec, n_index, 0, TRAILER_MAGIC)
    crc = zlib.crc32(unchecked[:28])
    trailer = TRAILER.pack(seal_offset, last_lsn, n_rec, n_index, crc, TRAILER_MAGIC)
    assert len(trailer) == TRAILER_BYTES
    return trailer
