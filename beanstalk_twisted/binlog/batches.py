"""Value types shared by `Log`, `Writer` and recovery."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from beanstalk_twisted.binlog.records.others import TUBE_ID, Raw, Record
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import KIND_ID_AND_TIME, RECORD
from beanstalk_twisted.binlog.space_budget import PreallocatedSegment


class Batch(NamedTuple):
    """Bytes for one segment, and where they go.

    :ivar file: ``chunks`` start with the header of a new segment, which this file becomes, and
        ``offset`` is 0; None if the segment is there already.
    :ivar seals: the segment ends with them.
    :ivar commits: replies wait for a record in it.
    """

    seq: int
    offset: int
    chunks: tuple[bytes, ...]
    last_lsn: int
    file: PreallocatedSegment | None
    seals: bool
    commits: bool

    @property
    def begins(self) -> bool:
        return self.file is not None

    @property
    def syncs(self) -> bool:
        """Whether to write them means to wait for the disk."""
        return self.file is not None or self.seals

    @property
    def end(self) -> int:
        end = self.offset
        for chunk in self.chunks:
            end += len(chunk)
        return end


class Opening(NamedTuple):
    """The head of a new segment: the state of the server at that moment.

    :ivar features: the incompat bits that records, or jobs that may be stated again, need.
    """

    next_job_id: int
    records: Sequence[Record]
    features: int = 0


class RehomedFrame(NamedTuple):
    """A frame to be framed anew in another segment: the same records with the same LSNs."""

    array: bytes
    heap: bytes
    n_rec: int
    rec_size: int
    base_lsn: int
    durable_lsn: int
    time_ns: int

    def raw_records(self) -> Iterator[Raw]:
        return (
            RECORD.unpack_from(self.array, at) for at in range(0, len(self.array), self.rec_size)
        )

    def facts(self) -> Iterator[tuple[int, int, int]]:
        """What a seal says of its records."""
        return (
            KIND_ID_AND_TIME.unpack_from(self.array, at)
            for at in range(0, len(self.array), self.rec_size)
        )

    def encode(self, salt: int) -> bytes:
        return frames.assemble(
            self.array, (self.heap,), n_rec=self.n_rec, rec_size=self.rec_size,
            base_lsn=self.base_lsn, durable_lsn=self.durable_lsn, time_ns=self.time_ns, salt=salt,
        )  # fmt: skip


class Position(NamedTuple):
    """Where a log goes on: all that its first segment's header needs.

    :ivar first_lsn: the first LSN of that segment; all below it is durable.
    :ivar rehomed: frames whose LSNs begin there.
    :ivar ends: where the frames of each older segment end, by sequence number.
    :ivar incompat: what a reader of the re-homed frames has to know.
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
    incompat: int = 0

    @property
    def rehomed_tubes(self) -> set[int]:
        """The tubes that the re-homed records use; the new segment has to name them."""
        raws = (raw for frame in self.rehomed for raw in frame.raw_records())
        return {raw[TUBE_ID] for raw in raws if raw[TUBE_ID]}

    @property
    def next_lsn(self) -> int:
        return self.first_lsn + sum(frame.n_rec for frame in self.rehomed)
