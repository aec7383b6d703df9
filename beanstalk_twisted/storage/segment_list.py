"""The segments of an open log, as monitoring shows them."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.binlog.log import Log
from beanstalk_twisted.binlog.segments.format import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    decode_segment_header,
    segment_name,
)
from beanstalk_twisted.jobs.figures import LiveBytes
from beanstalk_twisted.storage.io_thread import Io

SLICE_HEADERS: Final = 10
"""Headers that are read in one piece of work of the I/O thread, 0.3 ms: commits wait no longer."""

MAX_KNOWN: Final = 10_000
"""Headers that are remembered, some 2 MB; those of more segments are read again."""


class Begun(NamedTuple):
    """What a header says; times are log time."""

    first_lsn: int
    created_ns: int


class SegmentFacts(NamedTuple):
    """A segment.

    :ivar size: bytes of its header and frames, also of those about to be written.
    :ivar jobs: living jobs, and remembered keys, whose newest full record is here; ``live_bytes``
        the bytes of these records.
    :ivar is_archived: None without an archive.
    :ivar first_lsn: None if the header cannot be read (yet); ``last_lsn``, ``created_ns`` likewise.
    """

    number: int
    name: str
    size: int
    jobs: int
    live_bytes: int
    is_sealed: bool
    is_archived: bool | None
    first_lsn: int | None
    last_lsn: int | None
    created_ns: int | None


class SegmentList:
    """Describes segments, oldest first.

    Sizes and living jobs are known in memory.  When a segment began, and with which LSN, stands in
    its header: that is read in the I/O thread, a few at a time, and kept once it cannot change.
    """

    def __init__(
        self, log: Log, live: LiveBytes, directory: Directory, io: Io,
        is_archived: Callable[[int], bool | None],
    ) -> None:  # fmt: skip
        self._log = log
        self._live = live
        self._directory = directory
        self._io = io
        self._is_archived = is_archived
        self._known: dict[int, Begun] = {}
        self._is_reading = False

    async def page(self, after: int, most: int) -> list[SegmentFacts]:
        """:param after: the number after which the page begins; 0 for the first page."""
        log = self._log
        numbers = list(islice((seq for seq in log.ends if seq > after), most))
        if len(numbers) < most and log.segment > after:
            numbers.append(log.segment)
        if not numbers:
            return []
        begun = await self._begun([*numbers, numbers[-1] + 1])
        return [self._facts(seq, begun) for seq in numbers if seq in log.ends or seq >= log.segment]

    async def _begun(self, numbers: Sequence[int]) -> dict[int, Begun]:
        """Read what is not known; while others read, it stays unknown, so that they never queue
        up.
        """
        missing = [seq for seq in numbers if seq not in self._known and seq <= self._log.segment]
        read: dict[int, Begun] = {}
        if not self._is_reading:
            self._is_reading = True
            try:
                for at in range(0, len(missing), SLICE_HEADERS):
                    some = missing[at : at + SLICE_HEADERS]
                    read |= await self._io.run(partial(_read, self._directory, some))
            finally:
                self._is_reading = False
            self._keep(read)
        return {seq: begun for seq in numbers if (begun := self._known.get(seq) or read.get(seq))}

    def _keep(self, read: dict[int, Begun]) -> None:
        """A segment with a successor that is durable is never begun anew."""
        for gone in [seq for seq in self._known if seq < self._log.oldest]:
            del self._known[gone]
        for seq, begun in read.items():
            successor = read.get(seq + 1)
            is_settled = successor is not None and successor.first_lsn <= self._log.durable_lsn
            if is_settled and len(self._known) < MAX_KNOWN:
                self._known[seq] = begun

    def _facts(self, seq: int, begun: dict[int, Begun]) -> SegmentFacts:
        log, head, behind = self._log, begun.get(seq), begun.get(seq + 1)
        jobs, live_bytes = self._live.of(seq)
        last_lsn = None if behind is None else behind.first_lsn - 1
        if seq >= log.segment and head is not None:
            last_lsn = log.last_lsn
        return SegmentFacts(
            seq, segment_name(seq), log.ends.get(seq, log.newest_bytes), jobs, live_bytes,
            seq < log.written_seq, self._is_archived(seq), None if head is None else head.first_lsn,
            last_lsn, None if head is None else head.created_ns,
        )  # fmt: skip


def _read(directory: Directory, numbers: Sequence[int]) -> dict[int, Begun]:
    found = {}
    for seq in numbers:
        try:
            raw = bytes(directory.read(segment_name(seq), 0, SEGMENT_HEADER_BYTES))
        except OSError:
            continue
        header = decode_segment_header(raw)
        if isinstance(header, SegmentHeader):
            found[seq] = Begun(header.first_lsn, header.created_ns)
    return found
