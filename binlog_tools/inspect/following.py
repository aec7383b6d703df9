"""Following a log that a server writes."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from beanstalk_twisted.binlog.reading.segment import walk
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import (
    FRAME_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
)
from beanstalk_twisted.binlog.segments.frames import Frame
from binlog_tools.inspect.dumping import Entry, Gap, Records
from binlog_tools.logs.reading import OpenSegment, names_ahead
from binlog_tools.logs.sources import NoLog, Source

READ_BYTES: Final = 1 << 20


class _Tail:
    """The segment that is followed, from ``at`` on."""

    def __init__(self, source: Source, name: str, seq: int, header: SegmentHeader) -> None:
        self.name = name
        self.seq = seq
        self.header = header
        self.at = SEGMENT_HEADER_BYTES
        self._source = source
        source.hold(name)

    def frames(self, limit: int | None) -> Iterator[tuple[bytes, Frame]]:
        """The whole frames from ``at`` on; it moves with them.

        :param limit: where the segment ends, if that is known.
        """
        size = READ_BYTES
        while True:
            size = size if limit is None else min(size, limit - self.at)
            chunk = bytes(self._source.read(self.name, self.at, self.at + max(0, size)))
            used = wanted = 0
            while True:
                found = frames.decode(chunk, used, len(chunk), self.header.salt)
                if not isinstance(found, Frame):
                    wanted = self._wanted(chunk, used)
                    break
                self.at += found.end - found.offset
                yield chunk, found
                used = found.end
            if wanted > len(chunk) - used and wanted > size:
                size = wanted
            elif not used:
                return
            else:
                size = READ_BYTES

    def _wanted(self, chunk: bytes, at: int) -> int:
        if len(chunk) - at < FRAME_HEADER_BYTES:
            return 0
        found = frames.decode_header(chunk, at, len(chunk), self.header.salt)
        return found.end - found.offset if isinstance(found, Frame) else 0


class Follower:
    """Yields records as they come, across the ends of segments and when old ones are deleted.

    A frame that is not whole is looked at again until the segment has a successor; only then is it
    damaged.
    """

    def __init__(self, source: Source, records: Records, wait: Callable[[], None]) -> None:
        self._source = source
        self._records = records
        self._wait = wait
        self._next_lsn = 0
        self._tail: _Tail | None = None

    def entries(self, first_seq: int = 0) -> Iterator[Entry | Gap]:
        """All records from a segment on, and then those that come, without end.

        :raise NoLog: there is none.
        """
        yield from self._enter(first_seq)
        while self._tail is not None:
            # The order counts: what is complete when the successor exists will not grow.
            successor = self._successor()
            yield from self._new(successor)
            if successor is None:
                self._wait()
            else:
                self._source.forget_before(self._tail.seq + 1)
                yield from self._enter(self._tail.seq + 1)

    def _enter(self, seq: int) -> Iterator[Gap]:
        """Go on in the first segment from ``seq`` on that is still there."""
        while True:
            names = self._source.segment_names(keeps_deleted=True)
            found = next(((n, name) for n, name in names.items() if n >= seq), None)
            if found is None:
                raise NoLog(self._source.path)
            try:
                header = self._source.header(found[1])
                if isinstance(header, SegmentHeader):
                    self._tail = _Tail(self._source, found[1], found[0], header)
                    break
                yield Gap(found[1], 0, 0, None, header.why)
                seq = found[0] + 1
            except FileNotFoundError:
                continue
        if self._next_lsn and header.first_lsn > self._next_lsn:
            why = "a server has deleted the segments that held them"
            yield Gap(found[1], 0, self._next_lsn, header.first_lsn, why)
        tail = self._tail
        # A re-homed segment may say its names behind their use; it is whole when it appears.
        with suppress(FileNotFoundError):
            buffer = self._source.read(tail.name)
            opened = OpenSegment(self._source, tail.name, tail.seq, tail.header, buffer, None)
            self._records.learn(names_ahead(opened))

    def _successor(self) -> SegmentHeader | None:
        assert self._tail is not None
        names = self._source.segment_names(keeps_deleted=True)
        # Ours may be gone together with the next ones.
        later = [seq for seq in names if seq > self._tail.seq]
        if not later:
            return None
        name = names[min(later)]
        try:
            header = self._source.header(name)
        except FileNotFoundError:
            return self._successor()
        return header if isinstance(header, SegmentHeader) else None

    def _new(self, successor: SegmentHeader | None) -> Iterator[Entry | Gap]:
        tail = self._tail
        assert tail is not None
        is_next = successor is not None and successor.seq == tail.seq + 1
        limit = successor.prev_end if successor is not None and is_next else None
        for chunk, frame in tail.frames(limit):
            at = tail.at - (frame.end - frame.offset)
            for entry in self._records.of_frame(chunk, frame, tail.name):
                # Records that were re-homed come twice, and are shown once.
                if entry.lsn >= self._next_lsn:
                    yield entry._replace(offset=at)
            self._next_lsn = max(self._next_lsn, frame.next_lsn)
        if limit is not None and tail.at < limit:
            yield from self._behind_damage(limit)

    def _behind_damage(self, limit: int) -> Iterator[Entry | Gap]:
        tail = self._tail
        assert tail is not None
        try:
            buffer = self._source.read(tail.name)
        except FileNotFoundError:
            return
        for piece in walk(buffer, tail.header, limit):
            if isinstance(piece, Frame):
                if piece.offset >= tail.at:
                    yield from self._records.of_frame(buffer, piece, tail.name)
                    self._next_lsn = max(self._next_lsn, piece.next_lsn)
            elif piece.offset >= tail.at:
                yield Gap(tail.name, piece.offset, piece.first_lsn, piece.next_lsn, piece.why)
