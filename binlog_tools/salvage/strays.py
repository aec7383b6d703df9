"""
Bodies whose records cannot be trusted: the checksum of their frame's records fails, or the frame's
header is gone.

What is known of them is never more than a claim.  A record that names the right checksum for the
right bytes is hardly all wrong.  A heap holds the data of its records in their order and nothing
else, so that what no such record accounts for belongs to the records that are damaged.
"""

import re
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from beanstalk_twisted.binlog import frames
from beanstalk_twisted.binlog.format import (
    ALIGN_BYTES,
    MAX_FRAME_RECORDS,
    RECORD,
    RECORD_BYTES,
)
from beanstalk_twisted.binlog.frames import Buffer
from beanstalk_twisted.binlog.records import (
    DATA_CRC,
    DATA_LEN,
    DATA_OFF,
    FULL,
    JOB_ID,
    JOB_KINDS,
    TYPE,
    Counters,
    Raw,
    Seal,
    State,
    TubeDef,
)
from beanstalk_twisted.binlog.segment import has_content
from binlog_tools.salvage.scanning import Piece, Scan, data_if_it_checks

GUESS_BYTES: Final = 1 << 28
"""
How many bytes of a segment are summed at most to find out how many damaged records stand between
a record and its data: a quarter of a second, and far more than any small damage takes.
"""

_TRY_BYTES: Final = 1024
"""What a try costs beside the summing."""

_WINDOW_BYTES: Final = 1 << 20
_FULL_RECORD: Final = re.compile(rb"(?s)(?=[\x01\x10][\x01-\x04][\x00-\x07][\x00-\x08])")
"""How a full record begins: type, state, flags and reason."""

_NAMED: Final = frozenset({TubeDef.kind, Counters.kind, Seal.kind})
"""Records that are not of a job and have data."""

_STATES: Final = frozenset(map(int, State))


class Body(NamedTuple):
    """
    A body and what may be known of it.

    :ivar job_id: the id that is claimed for it; 0 if there is none.
    :ivar record_at: where the record stands that it may belong to; 0 if nothing says which.
    :ivar start: where it begins in its segment; ``end`` where it ends.
    :ivar lsn: the first LSN of its frame; 0 if that frame's header is gone.
    :ivar is_named: whether that record names its checksum; ``is_proven`` whether any checksum says
        that it is as it was.
    """

    seq: int
    job_id: int
    record_at: int
    start: int
    end: int
    lsn: int
    is_named: bool
    is_proven: bool

    @property
    def may_mistake(self) -> bool:
        """
        Whether its id is likely to be what is damaged of its record: all else that could be was
        found to be right.
        """
        return (self.is_named and self.lsn > 0) or not self.job_id


def strays(scan: Scan, buffer: Buffer) -> Iterator[Body]:
    """
    All such bodies of a segment.
    """
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
    budget = _Budget()
    for offset, until in _Extents((each.offset, each.end) for each in scan.spoiled).extents():
        for start, end in occupied.between(offset, min(until, scan.certain_end)):
            yield from _Carver(buffer, start, end, seq, budget).bodies()


class _Extents:
    """
    Bytes of a segment that are known to be taken.
    """

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
        """
        Those that touch each other as one.
        """
        return zip(self._starts, self._ends, strict=True)

    def between(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """
        What is free there.
        """
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
    if has_bodies or any(body.is_proven for body in found):
        yield frame.offset, frame.end
    elif piece.has_records:
        yield frame.offset, frame.heap_at
        for raw in frames.raw_records(buffer, frame):
            if raw[DATA_LEN] and data_if_it_checks(buffer, piece, raw) is not None:
                start, end = _span(raw)
                yield frame.heap_at + start, frame.heap_at + end


# Frames whose records do not check.


class _Record(NamedTuple):
    at: int
    raw: Raw


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
    spoilt: list[_Record] = []
    for at, raw in enumerate(frames.raw_records(buffer, frame)):
        if raw[DATA_LEN] and data_if_it_checks(buffer, piece, raw) is not None:
            named.append(_Record(at, raw))
        elif not _has_no_data(raw):
            spoilt.append(_Record(at, raw))

    def body(owner: _Record | None, start: int, end: int, is_named: bool) -> Body:
        record_at = frame.records_at + owner.at * frame.rec_size if owner else 0
        return Body(
            seq, owner.raw[JOB_ID] if owner else 0, record_at, frame.heap_at + start,
            min(frame.heap_at + end, piece.limit), frame.base_lsn, is_named,
            is_named or piece.has_whole_heap,
        )  # fmt: skip

    for each in named:
        if not _is_of_no_job(each.raw):
            yield body(each, *_span(each.raw), True)
    for rest in _rests(named, spoilt, frame.heap_len):
        for part in _split(rest):
            if all(_is_of_no_job(each.raw) for each in part.owners) and part.owners:
                continue
            owner = part.owners[0] if len(part.owners) == 1 else None
            found = body(owner, part.start, part.end, False)
            if piece.has_whole_heap or has_content(buffer, found.start, found.end):
                yield found


def _rests(named: list[_Record], spoilt: list[_Record], heap_len: int) -> Iterator[_Rest]:
    at, behind = 0, -1
    ends = [(*_span(each.raw), each.at) for each in named]
    for start, end, index in [*sorted(ends), (heap_len, heap_len, MAX_FRAME_RECORDS)]:
        if start > at:
            yield _Rest(at, start, [each for each in spoilt if behind < each.at < index])
        at, behind = max(at, end), max(behind, index)


def _split(rest: _Rest) -> Iterator[_Rest]:
    """
    The bodies of several records, where two of these agree on where one ends and the next begins.
    """
    start = rest.start
    owners: list[_Record] = []
    ends = [(_span(each.raw)[0]) for each in rest.owners[1:]] + [rest.end]
    before = rest.start
    for each, end in zip(rest.owners, ends, strict=False):
        own_start, own_end = _span(each.raw)
        if start < own_start < rest.end and (own_start == before or own_end == end):
            yield _Rest(start, own_start, owners)
            start, owners = own_start, []
        owners.append(each)
        before = own_end
    yield _Rest(start, rest.end, owners)


def _span(raw: Raw) -> tuple[int, int]:
    return raw[DATA_OFF], raw[DATA_OFF] + raw[DATA_LEN]


def _has_no_data(raw: Raw) -> bool:
    """
    Whether it says of itself that it has none.
    """
    is_short = raw[TYPE] in JOB_KINDS and raw[TYPE] not in FULL
    return is_short and not (raw[DATA_OFF] or raw[DATA_LEN] or raw[DATA_CRC])


def _is_of_no_job(raw: Raw) -> bool:
    return raw[TYPE] in _NAMED and not raw[JOB_ID]


# Places where no frame's header checks.


class _Budget:
    """
    How much may still be summed in vain; see `GUESS_BYTES`.
    """

    def __init__(self) -> None:
        self._left = GUESS_BYTES

    def allows(self, width: int) -> bool:
        """
        Whether another try is allowed, which is counted.
        """
        self._left -= width + _TRY_BYTES
        return self._left >= 0


class _Carver:
    """
    Finds full records that stand in a place without any frame, and their bodies.
    """

    def __init__(self, buffer: Buffer, start: int, end: int, seq: int, budget: _Budget) -> None:
        self._view = memoryview(buffer)
        self._start = start
        self._end = end
        self._seq = seq
        self._budget = budget

    def bodies(self) -> Iterator[Body]:
        """
        In the order of their places; none that stands within another.
        """
        behind = self._start
        for at in self._candidates():
            if at < behind:
                continue
            heap_at = self._heap_of(at)
            if heap_at is None:
                continue
            for found in self._of_array(at, heap_at):
                behind = max(behind, found.end)
                yield found

    def _candidates(self) -> Iterator[int]:
        for window in range(self._start, self._end, _WINDOW_BYTES):
            chunk = self._view[window : min(self._end, window + _WINDOW_BYTES + 3)]
            for match in _FULL_RECORD.finditer(chunk):
                at = window + match.start()
                if at % ALIGN_BYTES == 0 and match.start() < _WINDOW_BYTES and self._fits(at):
                    yield at

    def _fits(self, at: int) -> bool:
        if at + RECORD_BYTES > self._end:
            return False
        raw = self._raw(at)
        return bool(raw[JOB_ID] and raw[DATA_LEN]) and at + _span(raw)[1] < self._end

    def _raw(self, at: int) -> Raw:
        return RECORD.unpack_from(self._view, at)

    def _heap_of(self, at: int) -> int | None:
        """
        Where the heap begins that a record's data is in: behind the last of the records that
        follow, of which some may be damaged.
        """
        raw = self._raw(at)
        likely = self._array_end(at)
        if self._holds(raw, likely):
            return likely
        last = min(self._end - _span(raw)[1], at + MAX_FRAME_RECORDS * RECORD_BYTES)
        for heap_at in range(at + RECORD_BYTES, last + 1, RECORD_BYTES):
            if not self._budget.allows(raw[DATA_LEN]):
                return None
            if self._holds(raw, heap_at):
                return heap_at
        return None

    def _array_end(self, at: int) -> int:
        while at + RECORD_BYTES <= self._end:
            kind = self._view[at]
            if (kind not in JOB_KINDS and kind not in _NAMED) or self._view[at + 1] not in _STATES:
                break
            at += RECORD_BYTES
        return at

    def _holds(self, raw: Raw, heap_at: int) -> bool:
        start, end = _span(raw)
        if heap_at + end > self._end:
            return False
        return zlib.crc32(self._view[heap_at + start : heap_at + end]) == raw[DATA_CRC]

    def _of_array(self, at: int, heap_at: int) -> Iterator[Body]:
        for record_at in range(at, heap_at, RECORD_BYTES):
            raw = self._raw(record_at)
            if raw[TYPE] in FULL and raw[DATA_LEN] and self._holds(raw, heap_at):
                start, end = _span(raw)
                yield Body(
                    self._seq, raw[JOB_ID], record_at, heap_at + start, heap_at + end, 0,
                    True, True,
                )  # fmt: skip
