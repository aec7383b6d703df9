"""
Full records in places where no frame's header is left to say that they are some.

A record that names the right checksum for bytes that stand where its frame's heap must have been is
hardly all wrong.
"""

import re
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

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

WITH_DATA: Final = frozenset({TubeDef.kind, Counters.kind, Seal.kind})
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


def span(raw: Raw) -> tuple[int, int]:
    """
    Where a record says that its data are, in its frame's heap.
    """
    return raw[DATA_OFF], raw[DATA_OFF] + raw[DATA_LEN]


class Budget:
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


class Carver:
    """
    Finds full records that stand in a place without any frame, and their bodies.
    """

    def __init__(
        self, buffer: Buffer, start: int, end: int, limit: int, seq: int, budget: Budget
    ) -> None:  # fmt: skip
        """
        :param limit: bodies end before it: other frames may have been put between them and their
            records.
        """
        self._view = memoryview(buffer)
        self._start = start
        self._end = end
        self._limit = limit
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
        return bool(raw[JOB_ID] and raw[DATA_LEN]) and at + span(raw)[1] < self._limit

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
        last = min(self._limit - span(raw)[1], at + MAX_FRAME_RECORDS * RECORD_BYTES)
        for heap_at in range(at + RECORD_BYTES, last + 1, RECORD_BYTES):
            if not self._budget.allows(raw[DATA_LEN]):
                return None
            if self._holds(raw, heap_at):
                return heap_at
        return None

    def _array_end(self, at: int) -> int:
        while at + RECORD_BYTES <= self._end:
            kind = self._view[at]
            if (kind not in JOB_KINDS and kind not in WITH_DATA) or self._view[
                at + 1
            ] not in _STATES:
                break
            at += RECORD_BYTES
        return at

    def _holds(self, raw: Raw, heap_at: int) -> bool:
        start, end = span(raw)
        if heap_at + end > self._limit:
            return False
        return zlib.crc32(self._view[heap_at + start : heap_at + end]) == raw[DATA_CRC]

    def _of_array(self, at: int, heap_at: int) -> Iterator[Body]:
        for record_at in range(at, heap_at, RECORD_BYTES):
            raw = self._raw(record_at)
            if raw[TYPE] in FULL and raw[DATA_LEN] and self._holds(raw, heap_at):
                start, end = span(raw)
                yield Body(
                    self._seq, raw[JOB_ID], record_at, heap_at + start, heap_at + end, 0,
                    True, True,
                )  # fmt: skip
