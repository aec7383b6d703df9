"""
Bodies whose records cannot be trusted: the checksum of their frame's records fails, or the frame's
header is gone.

What is known of them is never more than a claim.  A record that names the right checksum for the
right bytes is hardly all wrong.  A heap holds the data of its records in their order and nothing
else, so that what no such record accounts for belongs to the records that are damaged.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from beanstalk_twisted.binlog.reading.segment import has_content
from beanstalk_twisted.binlog.records.decoding import (
    DATA_CRC,
    DATA_LEN,
    DATA_OFF,
    JOB_ID,
    JOB_KINDS,
    TTR_S,
    TYPE,
    Raw,
)
from beanstalk_twisted.binlog.records.jobs import FULL, KEY
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import MAX_FRAME_RECORDS, RECORD, RECORD_BYTES
from beanstalk_twisted.binlog.segments.frames import Buffer
from binlog_tools.salvage.carving import WITH_DATA, Body, Budget, Carver, span
from binlog_tools.salvage.scanning import Piece, Scan, start_of_data


def untrusted_bodies(scan: Scan, buffer: Buffer) -> Iterator[Body]:
    """All such bodies of a segment."""
    seq = scan.part.seq
    sound = [(p.frame.offset, p.frame.end) for p in scan.pieces or () if p.has_heap]
    elsewhere = _Extents([*sound, *scan.foreign])
    taken = [*sound, *scan.foreign]
    for piece in scan.pieces or ():
        found = [] if piece.has_records else list(_of_frame(seq, piece, buffer))
        for body in found:
            # What was written over it are no bytes of its own.
            for start, end in elsewhere.between(body.start, body.end):
                yield body._replace(start=start, end=end)
        if not piece.has_heap:
            taken += _taken(piece, found, buffer)
    occupied = _Extents(taken)
    heaps, shifts = Budget(), Budget()
    for offset, until in _Extents((each.offset, each.end) for each in scan.damaged).extents():
        for start, end in occupied.between(offset, min(until, scan.certain_end)):
            carver = Carver(buffer, start, end, scan.certain_end, seq, heaps, shifts)
            yield from carver.bodies()


class _Extents:
    """Bytes of a segment that are known to be taken."""

    def __init__(self, extents: Iterable[tuple[int, int]]) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in sorted(extents):
            if self._ends and start <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._starts.append(start)
                self._ends.append(end)

    def extents(self) -> Iterator[tuple[int, int]]:
        """Those that touch each other as one."""
        return zip(self._starts, self._ends, strict=True)

    def between(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """What is free there."""
        at = bisect_right(self._ends, start)
        while at < len(self._starts) and self._starts[at] < end:
            if self._starts[at] > start:
                yield start, self._starts[at]
            start = self._ends[at]
            at += 1
        if start < end:
            yield start, end


def _taken(piece: Piece, found: Sequence[Body], buffer: Buffer) -> Iterator[tuple[int, int]]:
    """
    What is of a frame for certain.  What does not check may have been written over what was there,
    or its header may have come from elsewhere.
    """
    frame = piece.frame
    has_bodies = piece.has_whole_heap and frame.heap_len > 0
    if piece.shift and has_bodies and not piece.has_records:
        # What was put in between may be another frame.
        yield frame.offset, frame.records_at + frame.n_rec * frame.rec_size
        yield frame.heap_at, frame.heap_at + frame.heap_len
    elif has_bodies or any(body.is_proven for body in found):
        yield frame.offset, frame.end
    elif piece.has_records:
        yield frame.offset, frame.heap_at
        for raw in frames.raw_records(buffer, frame):
            start = start_of_data(buffer, piece, raw) if raw[DATA_LEN] else None
            if start is not None:
                yield start, start + raw[DATA_LEN]


# Frames whose records do not check.


class _Record(NamedTuple):
    """
    The record number ``at`` of a frame.

    :ivar record_at: where it stands.
    :ivar data_at: where the data stand that it names the checksum of; None if it does not.
    """

    at: int
    record_at: int
    raw: Raw
    data_at: int | None


class _Rest(NamedTuple):
    """
    Bytes of a heap that no record accounts for, and the damaged records that they may belong to.
    """

    start: int
    end: int
    owners: list[_Record]


def _of_frame(seq: int, piece: Piece, buffer: Buffer) -> Iterator[Body]:
    frame = piece.frame
    if frame.heap_at > piece.limit:
        return
    named: list[_Record] = []
    damaged: list[_Record] = []
    for at in range(frame.n_rec):
        record = _record(piece, at, buffer)
        if record.data_at is not None:
            named.append(record)
        elif not _has_no_data(record.raw):
            damaged.append(record)

    def body(owner: _Record | None, start: int, end: int, is_named: bool) -> Body:
        job_id, record_at = (owner.raw[JOB_ID], owner.record_at) if owner else (0, 0)
        return Body(
            seq, job_id, record_at, start, min(end, piece.limit), frame.base_lsn, is_named,
            is_named or piece.has_whole_heap,
        )  # fmt: skip

    for each in named:
        if each.data_at is not None and not _is_of_no_job(each.raw):
            yield body(each, each.data_at, each.data_at + each.raw[DATA_LEN], True)
    for rest in _rests(named, damaged, frame.heap_len):
        for part in _split(rest):
            if all(_is_of_no_job(each.raw) for each in part.owners) and part.owners:
                continue
            owner = part.owners[0] if len(part.owners) == 1 else None
            found = body(owner, frame.heap_at + part.start, frame.heap_at + part.end, False)
            if piece.has_whole_heap or has_content(buffer, found.start, found.end):
                yield found


def _record(piece: Piece, at: int, buffer: Buffer) -> _Record:
    """
    A record where it was written, or where bytes that were put in have moved it to, if there it
    names the checksum of its data.
    """
    frame = piece.frame
    nominal = frame.records_at + at * frame.rec_size
    for record_at in (nominal, nominal + piece.shift) if piece.shift else (nominal,):
        if frame.records_at <= record_at <= piece.limit - RECORD_BYTES:
            raw = RECORD.unpack_from(buffer, record_at)
            data_at = start_of_data(buffer, piece, raw) if raw[DATA_LEN] else None
            if data_at is not None:
                return _Record(at, record_at, raw, data_at)
    return _Record(at, nominal, frames.raw_record(buffer, frame, at), None)


def _rests(named: list[_Record], damaged: list[_Record], heap_len: int) -> Iterator[_Rest]:
    at, behind = 0, -1
    ends = [(*span(each.raw), each.at) for each in named]
    for start, end, index in [*sorted(ends), (heap_len, heap_len, MAX_FRAME_RECORDS)]:
        if start > at:
            yield _Rest(at, start, [each for each in damaged if behind < each.at < index])
        at, behind = max(at, end), max(behind, index)


def _split(rest: _Rest) -> Iterator[_Rest]:
    """
    The bodies of several records, where two of these agree on where one ends and the next begins.
    """
    start = rest.start
    owners: list[_Record] = []
    ends = [(span(each.raw)[0]) for each in rest.owners[1:]] + [rest.end]
    before = rest.start
    for each, end in zip(rest.owners, ends, strict=False):
        own_start, own_end = span(each.raw)
        if start < own_start < rest.end and (own_start == before or own_end == end):
            yield _Rest(start, own_start, owners)
            start, owners = own_start, []
        owners.append(each)
        before = own_end
    yield _Rest(start, rest.end, owners)


def _has_no_data(raw: Raw) -> bool:
    """Whether it says of itself that it has none."""
    is_short = raw[TYPE] in JOB_KINDS and raw[TYPE] not in FULL
    return is_short and not (raw[DATA_OFF] or raw[DATA_LEN] or raw[DATA_CRC])


def _is_of_no_job(raw: Raw) -> bool:
    # Each job has a TTR; a remembered key names a job, and has none.
    is_key = raw[TYPE] == KEY and not raw[TTR_S]
    return is_key or (raw[TYPE] in WITH_DATA and not raw[JOB_ID])
