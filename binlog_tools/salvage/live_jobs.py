"""Which jobs live, by all records that can be read, from the oldest to the newest."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from beanstalk_twisted.binlog.reading.segment import has_content
from beanstalk_twisted.binlog.reading.selection import JobIds
from beanstalk_twisted.binlog.reading.survival import LogState
from beanstalk_twisted.binlog.records.jobs import FULL, KEY, Kind
from beanstalk_twisted.binlog.records.others import (
    DATA_CRC,
    DATA_LEN,
    DATA_OFF,
    JOB_ID,
    JOB_KINDS,
    TTR_S,
    TUBE_ID,
    TYPE,
    WITH_DATA,
    NotUnderstood,
    Raw,
    RememberedKey,
    Seal,
    TubeDef,
    decode_record,
)
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import (
    MAX_FRAME_RECORDS,
    MAX_TUBE_NAME_BYTES,
    RECORD,
    RECORD_BYTES,
)
from beanstalk_twisted.binlog.segments.frames import Buffer
from beanstalk_twisted.binlog.segments.seals import decode_seal
from binlog_tools.logs.stored import TYPE_NAMES
from binlog_tools.salvage.carving import Body, Budget, Carver, span
from binlog_tools.salvage.scanning import Piece, Scan, data_if_it_checks, start_of_data


def untrusted_bodies(scan: Scan, buffer: Buffer) -> Iterator[Body]:
    """Bodies of a segment's damaged places, whose records cannot be trusted."""
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
        return zip(self._starts, self._ends, strict=True)

    def between(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        at = bisect_right(self._ends, start)
        while at < len(self._starts) and self._starts[at] < end:
            if self._starts[at] > start:
                yield start, self._starts[at]
            start = self._ends[at]
            at += 1
        if start < end:
            yield start, end


def _taken(piece: Piece, found: Sequence[Body], buffer: Buffer) -> Iterator[tuple[int, int]]:
    """What does not check is left out: it may have been written over what was there, or its header
    may have come from elsewhere.
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


class _Record(NamedTuple):
    at: int
    record_at: int
    raw: Raw
    data_at: int | None


class _Rest(NamedTuple):
    """Bytes of a heap that no record accounts for, and the damaged records that they may be of."""

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
        else:
            raw = record.raw
            is_short = raw[TYPE] in JOB_KINDS and raw[TYPE] not in FULL
            # Some say of themselves that they have no data.
            if not is_short or raw[DATA_OFF] or raw[DATA_LEN] or raw[DATA_CRC]:
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
    """A record where it was written, or where bytes that were put in have moved it to."""
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
    """Split it where two records agree on where one body ends and the next begins."""
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


def _is_of_no_job(raw: Raw) -> bool:
    # Each job has a TTR; a remembered key names a job, and has none.
    is_key = raw[TYPE] == KEY and not raw[TTR_S]
    return is_key or (raw[TYPE] in WITH_DATA and not raw[JOB_ID])


class Place(NamedTuple):
    """A full record, and the heap of its frame, by offsets in the segment."""

    seq: int
    record_at: int
    heap_at: int
    heap_end: int
    lsn: int


class Entry:
    """A job that lives as far as is known.

    :ivar lsn: of its newest record; ``seq`` the segment that is in.
    :ivar newest: that record, None if it is the one at ``full``.
    :ivar full: its newest full record whose body checks, None if there is none.
    :ivar damaged: its newest full record, if the body of that does not check; else None.
    """

    __slots__ = ("damaged", "full", "lsn", "newest", "seq")

    def __init__(self) -> None:
        self.full: Place | None = None
        self.damaged: Place | None = None
        self.newest: bytes | None = None
        self.lsn = self.seq = 0


class LiveJobs(LogState):
    """All that the records say.  Holes do no harm: a record says all of its job but the body.

    :ivar claims: bodies whose records cannot be trusted, by the ids that are claimed for them.
    :ivar unknown_records: LSN and type of records of a newer version.
    """

    def __init__(self) -> None:
        super().__init__()
        self.table: dict[int, Entry] = {}
        self.deleted = JobIds()
        self.claims: dict[int, list[Body]] = {}
        self.unknown_records: list[tuple[int, int]] = []

    def absorb(self, scan: Scan, buffer: Buffer) -> None:
        """Take in a segment; the older ones first."""
        seq = scan.part.seq
        if scan.part.header is not None:
            self.note_header(scan.part.header)
        claims: dict[int, list[Body]] = {}
        for body in untrusted_bodies(scan, buffer) if scan.pieces is not None else ():
            claims.setdefault(body.lsn, []).append(body)
        # Those of which no LSN is known come first: what was deleted later is gone.
        self._claim(claims.pop(0, []))
        for piece in scan.in_order(buffer):
            self._claim(claims.pop(piece.frame.base_lsn, []))
            if piece.has_records:
                self._absorb_frame(seq, piece, buffer)

    def _claim(self, bodies: list[Body]) -> None:
        for body in bodies:
            self.claims.setdefault(body.job_id, []).append(body)

    def _absorb_frame(self, seq: int, piece: Piece, buffer: Buffer) -> None:
        frame = piece.frame
        self.time_ns = max(self.time_ns, frame.time_ns)
        self.records += frame.n_rec
        for at, (kind, job_id) in enumerate(frames.kinds_and_ids(buffer, frame)):
            if kind not in JOB_KINDS:
                self._absorb_other(seq, piece, at, kind, buffer)
            elif kind == Kind.DELETE:
                self._delete(job_id)
            else:
                self._absorb_job(seq, piece, at, kind, job_id, buffer)
            if kind in JOB_KINDS and job_id >= self.next_job_id:
                self.next_job_id = job_id + 1

    def _delete(self, job_id: int) -> None:
        self.table.pop(job_id, None)
        self.claims.pop(job_id, None)
        self.deleted.add(job_id)

    def _absorb_job(
        self, seq: int, piece: Piece, at: int, kind: int, job_id: int, buffer: Buffer
    ) -> None:
        entry = self.table.get(job_id)
        if entry is None:
            entry = self.table[job_id] = Entry()
        frame = piece.frame
        entry.lsn, entry.seq = frame.base_lsn + at, seq
        record_at = frame.records_at + at * frame.rec_size
        entry.newest = None
        if kind in FULL:
            moved: int | None = 0
            if not piece.has_heap:
                raw = frames.raw_record(buffer, frame, at)
                start = start_of_data(buffer, piece, raw)
                moved = None if start is None else start - frame.heap_at - raw[DATA_OFF]
            if moved is not None:
                entry.full = _place(seq, piece, record_at, moved, entry.lsn)
                entry.damaged = None
                return
            entry.damaged = _place(seq, piece, record_at, 0, entry.lsn)
        entry.newest = bytes(memoryview(buffer)[record_at : record_at + RECORD_BYTES])

    def _absorb_other(self, seq: int, piece: Piece, at: int, kind: int, buffer: Buffer) -> None:
        if kind not in TYPE_NAMES:
            if not kind & 0x80:
                self.unknown_records.append((piece.frame.base_lsn + at, kind))
            return
        raw = frames.raw_record(buffer, piece.frame, at)
        data = data_if_it_checks(buffer, piece, raw)
        if kind == Seal.kind:
            seal = decode_seal(data or b"")
            for tube_id, name in seal.tubes.items() if seal else ():
                self._name(tube_id, name)
        elif kind == TubeDef.kind:
            self._name(raw[TUBE_ID], data)
        elif data is not None or kind not in WITH_DATA:
            with suppress(NotUnderstood):
                record = decode_record(raw, data or b"")
                self.note(record, seq, piece.frame.base_lsn + at)
                if isinstance(record, RememberedKey):
                    # It was written because the job is gone, wherever its deletion stood.
                    self._delete(record.job_id)

    def _name(self, tube_id: int, name: bytes | None) -> None:
        if name and len(name) <= MAX_TUBE_NAME_BYTES:
            self.tubes[tube_id] = name


def _place(seq: int, piece: Piece, record_at: int, moved: int, lsn: int) -> Place:
    heap_at = piece.frame.heap_at + moved
    heap_end = min(heap_at + piece.frame.heap_len, piece.limit)
    return Place(seq, record_at, heap_at, heap_end, lsn)
