"""
What the seal of a finished segment says about it; docs/binlog-format.md, "Seal and trailer".
"""

import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from beanstalk_twisted.binlog.format import (
    INDEX_ENTRY_BYTES,
    INDEX_STRIDE_BYTES,
    SEAL_HEAD,
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


class SegmentIndex:
    """
    Collects what the seal of a segment will say about it.

    :ivar frames: offset, base LSN and time of the indexed ones.
    :ivar types: how many records there are of each type.
    :ivar tubes: the names of the tubes in it.
    """

    def __init__(self) -> None:
        self.frames: list[tuple[int, int, int]] = []
        self.types: Counter[int] = Counter()
        self.tubes: dict[int, bytes] = {}
        self._jobs = self._times = NO_SPAN
        self._tube_bytes = 0

    @property
    def has_changes(self) -> bool:
        """
        Whether a job was changed in it; a copy changes nothing.
        """
        return not CHANGES.isdisjoint(self.types)

    def add_frame(self, offset: int, base_lsn: int, time_ns: int) -> None:
        """
        A frame begins at ``offset``.
        """
        if not self.frames or offset - self.frames[-1][0] >= INDEX_STRIDE_BYTES:
            self.frames.append((offset, base_lsn, time_ns))

    def add_records(self, records: Sequence[Record]) -> None:
        """
        The records of one frame: as a rule one or two.
        """
        types = self.types
        for record in records:
            types[record.kind] += 1
            if isinstance(record, JobImage):
                self._note_job(record.job_id, record.ts_ns)
            elif isinstance(record, TubeDef):
                self.tubes[record.tube_id] = record.name
                self._tube_bytes += TUBE_IN_SEAL_BYTES + len(record.name)

    def add_rehomed(self, records: Iterable[Raw]) -> None:
        """
        Records that have moved here, in one frame.
        """
        for raw in records:
            self.types[raw[TYPE]] += 1
            if raw[TYPE] in JOB_KINDS:
                self._note_job(raw[JOB_ID], raw[TS_NS])

    def _note_job(self, job_id: int, ts_ns: int) -> None:
        first, last = self._jobs
        if not first <= job_id <= last:
            self._jobs = min(first, job_id), max(last, job_id)
        oldest, newest = self._times
        if not oldest <= ts_ns <= newest:
            self._times = min(oldest, ts_ns), max(newest, ts_ns)

    @property
    def encoded_bytes(self) -> int:
        """
        The length of `encode`, or a little more: types that are still to come are counted in.
        """
        frames = INDEX_ENTRY_BYTES * len(self.frames)
        return SEAL_HEAD.size + frames + TYPE_IN_SEAL_BYTES * TYPES + self._tube_bytes

    def encode(self) -> bytes:
        """
        :return: the data of the SEAL record.
        """
        spans = (0, 0, 0, 0) if self._jobs == NO_SPAN else (*self._jobs, *self._times)
        head = SEAL_HEAD.pack(
            1, len(self.frames), self.types.total(), *spans, len(self.types), len(self.tubes)
        )
        columns = (
            [lsn.to_bytes(8, "little") for _, lsn, _ in self.frames]
            + [time.to_bytes(8, "little", signed=True) for _, _, time in self.frames]
            + [(offset // 8).to_bytes(4, "little") for offset, _, _ in self.frames]
        )
        types = [
            kind.to_bytes(4, "little") + count.to_bytes(4, "little")
            for kind, count in sorted(self.types.items())
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
