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


class SegmentIndex:
    """
    Collects what the seal of a segment will say about it.

    :ivar frames: offset, base LSN and time of the indexed ones.
    :ivar types: how many records there are of each type.
    :ivar tubes: the names of the tubes in it.
    :ivar jobs: smallest and largest job id; ``times`` likewise.
    """

    def __init__(self) -> None:
        self.frames: list[tuple[int, int, int]] = []
        self.types: Counter[int] = Counter()
        self.tubes: dict[int, bytes] = {}
        self.jobs: tuple[int, int] = (0, 0)
        self.times: tuple[int, int] = (0, 0)
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
        The records of one frame.
        """
        self.types.update([record.kind for record in records])
        images = [record for record in records if isinstance(record, JobImage)]
        self._widen([image.job_id for image in images], [image.ts_ns for image in images])
        for record in records if len(images) < len(records) else ():
            if isinstance(record, TubeDef):
                self.tubes[record.tube_id] = record.name
                self._tube_bytes += TUBE_IN_SEAL_BYTES + len(record.name)

    def add_rehomed(self, records: Iterable[Raw]) -> None:
        """
        Records that have moved here, in one frame.
        """
        raws = list(records)
        self.types.update(raw[TYPE] for raw in raws)
        images = [raw for raw in raws if raw[TYPE] in JOB_KINDS]
        self._widen([raw[JOB_ID] for raw in images], [raw[TS_NS] for raw in images])

    def _widen(self, job_ids: list[int], times: list[int]) -> None:
        self.jobs = _widen(self.jobs, job_ids)
        self.times = _widen(self.times, times)

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
        head = SEAL_HEAD.pack(
            1, len(self.frames), self.types.total(), *self.jobs, *self.times,
            len(self.types), len(self.tubes),
        )  # fmt: skip
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


def _widen(span: tuple[int, int], values: list[int]) -> tuple[int, int]:
    if not values:
        return span
    if span == (0, 0):
        return min(values), max(values)
    return min(span[0], min(values)), max(span[1], max(values))


def encode_trailer(seal_offset: int, last_lsn: int, n_rec: int, n_index: int) -> bytes:
    """
    The last 40 bytes of a sealed segment; docs/binlog-format.md, "Seal and trailer".
    """
    unchecked = TRAILER.pack(seal_offset, last_lsn, n_rec, n_index, 0, TRAILER_MAGIC)
    crc = zlib.crc32(unchecked[:28])
    trailer = TRAILER.pack(seal_offset, last_lsn, n_rec, n_index, crc, TRAILER_MAGIC)
    assert len(trailer) == TRAILER_BYTES
    return trailer
