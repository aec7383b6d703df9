"""What a log says beside its jobs: the names and pauses of tubes, and how far its numbers have
come.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.records.others import (
    AUX,
    JOB_ID,
    JOB_KINDS,
    CleanStop,
    Pause,
    RememberedKey,
    Seal,
    Start,
    Trim,
    TubeDef,
    TubePolicy,
    decode_record,
)
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import SegmentHeader
from beanstalk_twisted.binlog.segments.frames import Buffer, Frame

_KINDS_OF_JOBS: Final = bytes(sorted(JOB_KINDS))


class FoundKey(NamedTuple):
    """A remembered key, and where the log has it."""

    record: RememberedKey
    segment: int
    lsn: int


class SmallState:
    """All that a log says beside its jobs; the newest record of a thing holds.

    :ivar next_job_id: every lower id has been given out.
    :ivar next_tube_id: every lower tube id has been given out.
    :ivar time_ns: newest time in the log, 0 in a new one.
    :ivar trim_seq: segments below are dead.
    :ivar is_clean: the last server ended in order.
    :ivar policies: by tube id.
    :ivar keys: remembered keys, by tube id and key.
    """

    def __init__(self) -> None:
        self.next_job_id = 1
        self.next_tube_id = 1
        self.time_ns = 0
        self.trim_seq = 0
        self.is_clean = True
        self._seq = 0
        self.tubes: dict[int, bytes] = {}
        self.pauses: dict[int, Pause] = {}
        self.policies: dict[int, TubePolicy] = {}
        self.keys: dict[tuple[int, bytes], FoundKey] = {}
        self.records = 0

    def absorb(self, newer: "SmallState") -> None:
        """Take in what the next segment says."""
        self.next_job_id = max(self.next_job_id, newer.next_job_id)
        self.next_tube_id = max(self.next_tube_id, newer.next_tube_id)
        self.time_ns = max(self.time_ns, newer.time_ns)
        self.trim_seq = max(self.trim_seq, newer.trim_seq)
        self.is_clean = newer.is_clean and newer.records > 0
        self.tubes.update(newer.tubes)
        self.pauses.update(newer.pauses)
        self.policies.update(newer.policies)
        self.keys.update(newer.keys)
        self.records += newer.records

    def note_header(self, header: SegmentHeader) -> None:
        """Take in what a segment's header says."""
        self._seq = header.seq
        self.next_job_id = max(self.next_job_id, header.next_job_id)
        self.trim_seq = max(self.trim_seq, header.trim_seq)

    def note_frame(self, buffer: Buffer, frame: Frame) -> None:
        """Take in a frame.

        :raise NotUnderstood: it holds what this version does not know.
        """
        self.time_ns = max(self.time_ns, frame.time_ns)
        self.records += frame.n_rec
        job_ids = frames.ids_if_all(buffer, frame, _KINDS_OF_JOBS)
        if job_ids:
            self.is_clean = False
            self.next_job_id = max(self.next_job_id, max(job_ids) + 1)
        else:
            self._note_each(buffer, frame)

    def _note_each(self, buffer: Buffer, frame: Frame) -> None:
        kinds = list(frames.kinds_and_ids(buffer, frame))
        job_ids = [job_id for kind, job_id in kinds if kind in JOB_KINDS]
        if job_ids:
            self.is_clean = False
            self.next_job_id = max(self.next_job_id, max(job_ids) + 1)
        if len(job_ids) < len(kinds):
            self._note_others(buffer, frame, kinds)

    def _note_others(
        self, buffer: Buffer, frame: Frame, kinds: Sequence[tuple[int, int]]
    ) -> None:  # fmt: skip
        """Take in the records of a frame that are not of jobs; the last record says how it ends."""
        for at, (kind, _) in enumerate(kinds):
            if kind in JOB_KINDS:
                self.is_clean = False
            else:
                self._note_other(buffer, frame, at)

    def _note_other(self, buffer: Buffer, frame: Frame, at: int) -> None:
        raw, data = frames.whole_record(buffer, frame, at)
        record = decode_record(raw, data)
        self.is_clean = isinstance(record, CleanStop) or (
            self.is_clean and isinstance(record, Seal)
        )
        match record:
            case TubeDef():
                self.tubes[record.tube_id] = record.name
                self.next_tube_id = max(self.next_tube_id, record.tube_id + 1)
            case Pause():
                self.pauses[record.tube_id] = record
            case TubePolicy():
                self.policies[record.tube_id] = record
            case RememberedKey():
                lsn = frame.base_lsn + at
                self.keys[record.tube_id, record.key] = FoundKey(record, self._seq, lsn)
            case Trim():
                self.trim_seq = max(self.trim_seq, record.seq)
            case Start():
                self.next_job_id = max(self.next_job_id, raw[JOB_ID])
                self.next_tube_id = max(self.next_tube_id, raw[AUX])
