"""The records of a run of frames as columns of numbers, each gathered when it is asked for."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from beanstalk_twisted.binlog.segments.format import (
    RECORD_BYTES,
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
)
from binlog_tools.spark.segments.framing import Ints, Run, Stretch, Words, runs, words_of

Mask = npt.NDArray[np.bool_]

WORDS: Final = RECORD_BYTES // 8
"""A record is ten numbers of 8 bytes; docs/binlog-format.md, "Record"."""

# Where the fields of a record stand: which word, and in it which half or byte.
TYPE, STATE, FLAGS, REASON = ((0, byte) for byte in range(4))
PRIORITY: Final = (0, 1)
JOB_ID, TS_NS, DEADLINE_NS = 1, 2, 3
DELAY_S, TTR_S = (4, 0), (4, 1)
TUBE_ID, RESERVES = (5, 0), (5, 1)
TIMEOUTS, RELEASES = (6, 0), (6, 1)
BURIES, KICKS = (7, 0), (7, 1)
DATA_OFF, DATA_LEN = (8, 0), (8, 1)
DATA_CRC, AUX = (9, 0), (9, 1)


class Rows:
    """The records of a run, in LSN order; some of them after `keep`."""

    def __init__(self, buffer: memoryview, run: Run) -> None:
        self._run = run
        self._words = words_of(buffer)
        self._kept: Ints | None = None
        self._gathered: dict[int, Words] = {}
        if (run.rec_size == RECORD_BYTES).all():
            self._at = _places(run)
        else:
            self._words = _compact(buffer, run)
            self._at = np.arange(0, len(self._words), WORDS)

    def __len__(self) -> int:
        return len(self._at)

    def keep(self, mask: Mask) -> None:
        if mask.all():
            return
        self._kept = np.flatnonzero(mask) if self._kept is None else self._kept[mask]
        self._at = self._at[mask]
        self._gathered = {word: values[mask] for word, values in self._gathered.items()}

    def word(self, number: int) -> Words:
        if number not in self._gathered:
            self._gathered[number] = self._words[number:].take(self._at)
        return self._gathered[number]

    def byte(self, place: tuple[int, int]) -> npt.NDArray[np.uint8]:
        """A field of one byte."""
        word, byte = place
        return self.word(word).view(np.uint8)[byte::8]

    def half(self, place: tuple[int, int]) -> Ints:
        """A field of four bytes, not signed."""
        word, half = place
        return self.word(word).view(np.uint32)[half::2].astype(np.int64)

    def whole(self, word: int) -> Ints:
        """A field of eight bytes, signed."""
        return self.word(word).view(np.int64)

    def of_frame(self, column: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """What is said of frames, for each record."""
        repeated = np.repeat(column, self._run.n_rec)
        return repeated if self._kept is None else repeated[self._kept]

    def lsn(self) -> Ints:
        first = int(self._run.base_lsn[0])
        if self._kept is None:
            return np.arange(first, first + len(self))
        return self._kept + first


def _places(run: Run) -> Ints:
    before = np.cumsum(run.n_rec) - run.n_rec
    starts = np.repeat(run.records_at // 8 - before * WORDS, run.n_rec)
    return starts + np.arange(0, len(starts) * WORDS, WORDS)


def _compact(buffer: memoryview, run: Run) -> Words:
    """The first 80 bytes of each record, of frames whose records are longer, or of many sizes."""
    copy = np.empty((int(run.n_rec.sum()), RECORD_BYTES), np.uint8)
    at = 0
    for start, count, size in zip(run.records_at, run.n_rec, run.rec_size, strict=True):
        shape, strides = (int(count), RECORD_BYTES), (int(size), 1)
        copy[at : at + count] = np.ndarray(shape, np.uint8, buffer, int(start), strides)
        at += count
    return copy.reshape(-1).view("<u8")


def rows_of(
    buffer: memoryview, header: SegmentHeader, stretch: Stretch
) -> Iterator[tuple[Run, Rows]]:
    """The records of a stretch, run by run, as far as it is intact by the headers of its frames."""
    for run in runs(buffer, header, stretch, "headers"):
        if isinstance(run, Run):
            yield run, Rows(buffer, run)


def lsns_of(buffer: memoryview, header: SegmentHeader, kind: int) -> tuple[int, ...]:
    lsns: list[int] = []
    stretch = Stretch(SEGMENT_HEADER_BYTES, len(buffer), header.first_lsn)
    for _, rows in rows_of(buffer, header, stretch):
        lsns += rows.lsn()[rows.byte(TYPE) == kind].tolist()
    return tuple(lsns)
