"""Writes small logs for tests: the real `Log` and `Writer`, with times, salts and names that are
the same each time.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any

from beanstalk_twisted.binlog.batches import Opening, Position, RehomedFrame
from beanstalk_twisted.binlog.bodies import LogBodyReader
from beanstalk_twisted.binlog.cold import Run
from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.binlog.log import Log
from beanstalk_twisted.binlog.records.jobs import NO_DATA, BodyPlace, JobImage, Kind, Reason, State
from beanstalk_twisted.binlog.records.others import Record, TubeDef, decode_record
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import (
    MIN_SEGMENT_BYTES,
    RECORD,
    SegmentHeader,
    parse_segment_name,
)
from beanstalk_twisted.binlog.segments.frames import EncodedRecords
from beanstalk_twisted.binlog.segments.framing import Framing, SegmentIndex
from beanstalk_twisted.binlog.writer import Writer
from tests.binlog.memory import MemoryDirectory

MS = 1_000_000
NS = 1_000_000_000
T0 = 1_763_640_000 * NS
SALT = 0x5EED5EED
UUID = bytes(range(16))
WRITER = "beanstalk-twisted/0.1.0"
FIRST = Position(
    seq=1, first_lsn=1, prev_end=0, trim_seq=1, store_uuid=UUID, flags=0, incarnation=1, time_ns=T0
)
DEFAULT_TUBE = TubeDef(1, b"default", T0)

Files = dict[str, bytes]


def image(kind: Kind = Kind.PUT, job_id: int = 1, **changes: Any) -> JobImage:
    """A ready job of tube 1, changed as told; a body only where the kind has one."""
    fields: dict[str, Any] = {
        "state": State.READY, "reason": Reason.CLIENT, "priority": 1024, "ts_ns": T0,
        "deadline_ns": 0, "delay_s": 0, "ttr_s": 60, "tube_id": 1, "connection": 7,
    }  # fmt: skip
    return JobImage(kind, job_id=job_id, **{**fields, **changes})


def put(job_id: int = 1, body: bytes = b"hello", **changes: Any) -> JobImage:
    return image(Kind.PUT, job_id, body=body, **changes)


def delete(job_id: int = 1, **changes: Any) -> JobImage:
    return image(Kind.DELETE, job_id, state=State.GONE, **changes)


def run_of(images: Sequence[JobImage]) -> Run:
    """The same records as a run; they are of one kind, and have no data."""
    return Run(images[0].kind, b"".join([image.encode(NO_DATA) for image in images]))


def encoded(*records: Record) -> EncodedRecords:
    """The records of a batch, none of which has to be in the frame of another."""
    made = EncodedRecords()
    for record in records:
        made.append(record)
    return made


def index_of(*records: Record) -> SegmentIndex:
    """What the seal of a segment with these records says."""
    framing = Framing(SALT)
    framing.add(encoded(*records), 1, T0)
    return framing.index


def records_of(run: Run) -> list[Record]:
    """What a run stands for."""
    return [decode_record(raw, b"") for raw in RECORD.iter_unpack(run.array)]


def as_read(chunks: Iterable[bytes]) -> list[RehomedFrame]:
    """Give frames as a start that frames them again has read them."""
    found = [(chunk, frames.known(chunk, 0)) for chunk in chunks]
    return [
        RehomedFrame(
            chunk[frame.records_at : frame.heap_at],
            chunk[frame.heap_at : frame.heap_at + frame.heap_len],
            frame.n_rec, frame.rec_size, frame.base_lsn, frame.durable_lsn, frame.time_ns,
        )
        for chunk, frame in found
    ]  # fmt: skip


class Scribe:
    """Appends to a log batch by batch; a millisecond passes with each.

    :ivar opening: what each further segment opens with.
    :ivar features: see `Opening`.
    """

    def __init__(
        self, directory: Directory | None = None, *, position: Position = FIRST,
        segment_bytes: int = MIN_SEGMENT_BYTES, opening: Iterable[Record] = (),
        next_job_id: int = 1, salt: int = SALT, features: int = 0,
    ) -> None:  # fmt: skip
        self.directory = directory if directory is not None else MemoryDirectory()
        self.now_ns = max(T0, position.time_ns)
        self.opening = list(opening)
        self.next_job_id = next_job_id
        self.features = features
        salts = count(salt)
        self.log = Log(position, segment_bytes, self._open, lambda: next(salts), WRITER)
        self.writer = Writer(self.directory)

    def _open(self, seq: int, now_ns: int) -> Opening:
        return Opening(self.next_job_id, self.opening, self.features)

    def write(self, *records: Record, sync: bool = True) -> int:
        """Write one batch.

        :return: the LSN of its last record.
        """
        for record in records:
            self.log.append(record)
        self.now_ns += MS
        while (batch := self.log.take(self.now_ns)) is not None:
            if self.writer.write(batch, sync):
                self.log.durable(batch.last_lsn)
        return self.log.last_lsn

    def end_segment(self) -> None:
        """Seal the segment; the next batch begins another."""
        self.log.rotate()
        seal = self.log.take(self.now_ns)
        assert seal is not None and seal.seals
        self.writer.write(seal, True)
        self.log.durable(seal.last_lsn)

    def mark(self) -> None:
        """The log falls idle."""
        self.writer.write(self.log.mark(), False)

    def finish(self) -> None:
        """End in order."""
        self.now_ns += MS
        self.writer.write(self.log.finish(self.now_ns), True)

    @property
    def memory(self) -> MemoryDirectory:
        """The directory, which is a simulated one."""
        assert isinstance(self.directory, MemoryDirectory)
        return self.directory

    def files(self) -> Files:
        """What was written."""
        return files_of(self.directory)


def files_of(directory: Directory) -> Files:
    """All files of a directory and their bytes, also those that are to become segments."""
    return {name: bytes(directory.read(name)) for name in directory.names()}


def segment_files(directory: Directory) -> Files:
    """The segments of a log and their bytes."""
    return {name: bytes(directory.read(name)) for name in segments_of(directory)}


def segments_of(directory: Directory) -> list[str]:
    """The names of the segments of a log, without those of spares."""
    return [name for name in directory.names() if parse_segment_name(name) is not None]


def header(**changes: Any) -> SegmentHeader:
    fields: dict[str, Any] = {
        "seq": 1, "first_lsn": 1, "created_ns": T0, "prev_end": 0, "trim_seq": 1,
        "next_job_id": 1, "store_uuid": UUID, "salt": SALT, "flags": 0, "incarnation": 1,
        "writer": WRITER,
    }  # fmt: skip
    return SegmentHeader(**{**fields, **changes})


def quiet(done: int, total: int) -> None:
    """No progress is shown."""


def flipped(content: bytes, offset: int, bit: int = 0) -> bytes:
    """The same bytes but for one bit."""
    changed = bytearray(content)
    changed[offset] ^= 1 << bit
    return bytes(changed)


def edited(files: Files, name: str, change: Callable[[bytes], bytes]) -> Files:
    """The same files but for one."""
    return {**files, name: change(files[name])}


def read_body(reader: LogBodyReader, place: BodyPlace, job_id: int) -> bytes:
    """Read the body of one job; what is wrong with it is raised."""
    (found,) = reader.read_all([(place, job_id)])
    if isinstance(found, Exception):
        raise found
    return found
