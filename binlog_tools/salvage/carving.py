"""Full records in places where no frame's header is left to say that they are some."""

import re
import zlib
from bisect import bisect_right, insort
from collections.abc import Iterator
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.records.jobs import FULL, Flag, Reason, State
from beanstalk_twisted.binlog.records.others import (
    DATA_CRC,
    DATA_LEN,
    DATA_OFF,
    JOB_ID,
    JOB_KINDS,
    STATE,
    TYPE,
    WITH_DATA,
    Raw,
)
from beanstalk_twisted.binlog.segments.format import (
    ALIGN_BYTES,
    MAX_FRAME_RECORDS,
    RECORD,
    RECORD_BYTES,
)
from beanstalk_twisted.binlog.segments.frames import Buffer

GUESS_BYTES: Final = 1 << 28
"""Summed at most to find the heaps of a segment: a quarter of a second, far more than any small
damage takes."""

_TRY_BYTES: Final = 1024
"""What a try costs beside the summing."""

SHIFT_BYTES: Final = 4096
"""A page: how far bodies of a frame without a header may have moved.  Each byte has to be tried."""

_WINDOW_BYTES: Final = 1 << 20
_LIVING: Final = frozenset(State) - {State.GONE}
_FLAGS: Final = range(2 * max(Flag))
_FULL_RECORD: Final = re.compile(
    b"(?s)(?=%b)"
    % b"".join(b"[%b]" % re.escape(bytes(sorted(each))) for each in (FULL, _LIVING, _FLAGS, Reason))
)
"""Its first bytes: type, state, flags and reason."""

_STATES: Final = frozenset(map(int, State))


class Body(NamedTuple):
    """A body and what may be known of it.

    :ivar job_id: the id that is claimed for it; 0 if there is none.
    :ivar record_at: where the record stands that it may belong to; 0 if nothing says which.
    :ivar lsn: the first LSN of its frame; 0 if that frame's header is gone.
    :ivar is_named: whether that record names its checksum; ``is_proven`` whether any does.
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
        """Return True if only its id is likely to be damaged: all else of its record is right."""
        return (self.is_named and self.lsn > 0) or not self.job_id


def span(raw: Raw) -> tuple[int, int]:
    """The place of a record's data in its frame's heap."""
    return raw[DATA_OFF], raw[DATA_OFF] + raw[DATA_LEN]


class Budget:
    def __init__(self) -> None:
        self._left = GUESS_BYTES

    def allows(self, width: int) -> bool:
        """Count another try, and tell whether it is allowed."""
        self._left -= width + _TRY_BYTES
        return self._left >= 0


class Carver:
    """Finds full records that stand in a place without any frame, and their bodies.

    A record that names the right checksum for bytes that stand where its frame's heap must have
    been is hardly all wrong.
    """

    def __init__(
        self, buffer: Buffer, start: int, end: int, limit: int, seq: int, heaps: Budget,
        shifts: Budget,
    ) -> None:  # fmt: skip
        """:param limit: bodies end before it: other frames may stand between them and records."""
        self._view = memoryview(buffer)
        self._start = start
        self._end = end
        self._limit = limit
        self._seq = seq
        self._heap_budget = heaps
        self._shift_budget = shifts
        self._found: dict[int, Body] = {}
        self._taken: list[tuple[int, int]] = []
        self._heaps: list[int] = []
        self._moved: list[tuple[int, int]] = []
        self._shift = 0

    def bodies(self) -> Iterator[Body]:
        """Yield them in the order of their places; none stands within another."""
        places = list(self._candidates())
        # Where they were written comes first; bytes that were put in or taken out move them.
        places.sort(key=lambda at: at % ALIGN_BYTES != 0)
        lone = [
            at
            for at in places
            if (at % ALIGN_BYTES == 0 or self._shift_budget.allows(0))
            and not self._is_within(at)
            and not self._carve(at)
        ]
        # Guesses come last: they must not hide what is where it should be.
        for at, heap_at in self._moved:
            self._carve_moved(at, heap_at)
        for at in lone:
            if self._shift_budget.allows(0) and not self._is_within(at):
                self._carve_lone(at)
        yield from (self._found[at] for at in sorted(self._found))

    def _candidates(self) -> Iterator[int]:
        for window in range(self._start, self._end, _WINDOW_BYTES):
            chunk = self._view[window : min(self._end, window + _WINDOW_BYTES + 3)]
            for match in _FULL_RECORD.finditer(chunk):
                at = window + match.start()
                if match.start() >= _WINDOW_BYTES or at + RECORD_BYTES > self._end:
                    continue
                raw = self._raw(at)
                if raw[JOB_ID] and raw[DATA_LEN] and at + span(raw)[1] < self._limit:
                    yield at

    def _is_within(self, at: int) -> bool:
        last = bisect_right(self._taken, (at, self._limit)) - 1
        return last >= 0 and at < self._taken[last][1]

    def _carve(self, at: int) -> bool:
        heap_at = self._heap_of(at)
        if heap_at is None:
            return False
        self._heaps.append(heap_at)
        for record_at in range(at, heap_at, RECORD_BYTES):
            raw = self._raw(record_at)
            if raw[TYPE] not in FULL or not raw[DATA_LEN]:
                continue
            if self._holds(raw, heap_at):
                self._take(record_at, heap_at, raw)
            else:
                self._moved.append((record_at, heap_at))
        return True

    def _carve_moved(self, at: int, heap_at: int) -> None:
        """Take the data of a record whose heap is known, if they were moved within that."""
        raw = self._raw(at)
        if at in self._found or self._is_within(at):
            return
        if not self._holds(raw, heap_at + self._shift):
            self._shift = self._shift_of(raw, heap_at, self._shift)
        if self._holds(raw, heap_at + self._shift):
            self._take(at, heap_at + self._shift, raw)

    def _carve_lone(self, at: int) -> None:
        raw = self._raw(at)
        for heap_at in self._heaps:
            is_tried = at < heap_at and self._shift_budget.allows(raw[DATA_LEN])
            if is_tried and self._holds(raw, heap_at):
                self._take(at, heap_at, raw)
                return
        likely = self._array_end(at)
        shift = self._shift_of(raw, likely, 0)
        if shift and likely + shift >= at + RECORD_BYTES:
            self._take(at, likely + shift, raw)

    def _shift_of(self, raw: Raw, heap_at: int, before: int) -> int:
        """By how many bytes the data were moved; ``before``, as the last, if nothing tells."""
        end = span(raw)[1]
        if raw[TYPE] not in JOB_KINDS or raw[STATE] not in _STATES or heap_at + end > self._limit:
            return before
        for by in range(1, SHIFT_BYTES + 1):
            for shift in (before + by, before - by):
                if not self._shift_budget.allows(raw[DATA_LEN]):
                    return before
                if self._holds(raw, heap_at + shift):
                    return shift
        return before

    def _take(self, record_at: int, heap_at: int, raw: Raw) -> None:
        start, end = span(raw)
        self._found[record_at] = Body(
            self._seq, raw[JOB_ID], record_at, heap_at + start, heap_at + end, 0, True, True
        )  # fmt: skip
        insort(self._taken, (record_at, record_at + RECORD_BYTES))
        insort(self._taken, (heap_at + start, heap_at + end))

    def _raw(self, at: int) -> Raw:
        return RECORD.unpack_from(self._view, at)

    def _heap_of(self, at: int) -> int | None:
        """It begins behind the last of the records that follow; some of those may be damaged."""
        raw = self._raw(at)
        likely = self._array_end(at)
        if self._holds(raw, likely):
            return likely
        last = min(self._limit - span(raw)[1], at + MAX_FRAME_RECORDS * RECORD_BYTES)
        for heap_at in range(at + RECORD_BYTES, last + 1, RECORD_BYTES):
            if not self._heap_budget.allows(raw[DATA_LEN]):
                return None
            if self._holds(raw, heap_at):
                return heap_at
        return None

    def _array_end(self, at: int) -> int:
        while at + RECORD_BYTES <= self._end:
            kind, state = self._view[at : at + 2]
            if (kind not in JOB_KINDS and kind not in WITH_DATA) or state not in _STATES:
                break
            at += RECORD_BYTES
        return at

    def _holds(self, raw: Raw, heap_at: int) -> bool:
        start, end = span(raw)
        if heap_at + end > self._limit or heap_at + start < self._start:
            return False
        return zlib.crc32(self._view[heap_at + start : heap_at + end]) == raw[DATA_CRC]
