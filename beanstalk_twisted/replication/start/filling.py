"""
Fills a stream from a log that was there before replication was switched on.

The segments follow one another as they lie on disk, in pieces of whole frames, between two notes;
between these nobody but a server that has this log may become active.  A segment ends where its
frames do that are known durable; its successor, which the next start writes, says so too.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.binlog.errors import Damaged
from beanstalk_twisted.binlog.reading.segment import is_trailer
from beanstalk_twisted.binlog.records.others import TubeDef
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import (
    REHOMED,
    SEGMENT_HEADER_BYTES,
    TRAILER_BYTES,
    SegmentHeader,
    decode_segment_header,
    segment_name,
)
from beanstalk_twisted.binlog.segments.frames import Buffer, Damage, Frame
from beanstalk_twisted.replication.appender import Appender
from beanstalk_twisted.replication.roster import Identity, note_text
from beanstalk_twisted.replication.stream.messages import (
    PART_BYTES,
    Kind,
    Write,
    encode_note,
    encode_write,
)
from beanstalk_twisted.storage.io_thread import Io

MAX_AHEAD_BYTES: Final = 8 << 20
"""
Bytes read and not yet in the stream: twice what an `Appender` has under way, and little beside the
jobs that are loaded.
"""


async def fill(
    appender: Appender, directory: Directory, io: Io, ends: Mapping[int, int], log_lsn: int,
    who: Identity, log_ns: Callable[[], int],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[int, int]:  # fmt: skip
    """
    Append all segments of a log.

    :param io: reads them.
    :param ends: where the frames of each segment end, by its number, ascending: `Position.ends`.
    :param log_lsn: LSN of the last record that is here, at the ends or behind them.
    :param log_ns: log time.
    :param progress: told how many bytes are in the stream, of how many.
    :return: the position of the first message of each segment.
    :raise Damaged: a segment cannot be read.
    :raise StreamError: as `Appender.append`.
    """
    filling = _Filling(appender, sum(ends.values()), progress)
    try:
        text = note_text(who)
        filling.append(encode_note(Kind.FILL_BEGINS, log_lsn, log_ns(), text, min(ends, default=0)))
        # Of two that fill at once one ends here, and nothing of it comes in behind the other's.
        await filling.rest()
        last_lsn = 0
        for seq, end in ends.items():
            writes = pieces(directory, seq, end)
            while (write := await io.run(partial(next, writes, None))) is not None:
                await filling.write(write)
                last_lsn = write.last_lsn
        filling.append(encode_note(Kind.FILL_ENDS, last_lsn, log_ns(), text))
        await filling.rest()
    finally:
        filling.leave()
    return filling.first_positions


class _Filling:
    """What is under way."""

    def __init__(
        self, appender: Appender, total: int, progress: Callable[[int, int], None]
    ) -> None:
        self.first_positions: dict[int, int] = {}
        self._appender = appender
        self._done, self._total = 0, total
        self._progress = progress
        self._appended: deque[Deferred[int]] = deque()

    def append(self, payload: bytes) -> "Deferred[int]":
        appended = self._appender.append(payload)
        self._appended.append(appended)
        return appended

    async def write(self, write: Write) -> None:
        """Append a piece when there is not too much ahead of it."""
        while self._appended and self._appender.waiting_bytes > MAX_AHEAD_BYTES:
            await self._appended.popleft()
        appended = [self.append(part) for part in encode_write(write)]
        if write.begins:
            appended[0].addCallback(self._note_first, write.segment)
        appended[-1].addCallback(self._note_done, len(write.content))

    async def rest(self) -> None:
        """Wait until all is in the stream."""
        while self._appended:
            await self._appended.popleft()

    def leave(self) -> None:
        """Nobody waits for the rest."""
        for appended in self._appended:
            appended.addErrback(_ignore)

    def _note_first(self, position: int, seq: int) -> int:
        self.first_positions[seq] = position
        return position

    def _note_done(self, position: int, size: int) -> int:
        self._done += size
        self._progress(min(self._done, self._total), self._total)
        return position


def pieces(directory: Directory, seq: int, end: int) -> Iterator[Write]:
    """
    A segment as writes, each of whole frames, and of one message unless a frame is larger.

    :param end: where its frames end.
    :raise Damaged: they do not go so far.
    """
    name = segment_name(seq)
    head = bytes(directory.read_part(name, 0, SEGMENT_HEADER_BYTES))
    header = decode_segment_header(head)
    if not isinstance(header, SegmentHeader):
        raise _damaged(directory, name, 0, header.why)
    trailer = _trailer(directory, name, end)
    named = _named_end(directory, name, end, header)
    start, at, lsn, time_ns = 0, SEGMENT_HEADER_BYTES, header.first_lsn, header.created_ns
    while start < end:
        part = _part(directory, name, at, end, header.salt, named)
        read = 0
        for frame in frames.in_order(part, 0, len(part), header.salt, lsn):
            read, lsn, time_ns = frame.end, frame.next_lsn, frame.time_ns
        if not read and at < end:
            found = frames.decode(part, 0, len(part), header.salt)
            why = found.why if isinstance(found, Damage) else f"no whole frame with LSN {lsn}"
            raise _damaged(directory, name, at, why)
        at += read
        seals = bool(trailer) and at >= end
        content = (b"" if start else head) + bytes(part[:read]) + (trailer if seals else b"")
        yield Write(seq, start, content, lsn - 1, time_ns, not start, seals)
        start = at


def _named_end(directory: Directory, name: str, end: int, header: SegmentHeader) -> int:
    """
    Where the names of tubes end on which the first records of a segment may rest; 0 if they rest on
    none behind them.  Who follows reads names ahead within one write only.
    """
    named = 0
    if header.flags & REHOMED:
        content = directory.read_part(name, SEGMENT_HEADER_BYTES, end)
        size, lsn = len(content), header.first_lsn
        for frame in frames.in_order(content, 0, size, header.salt, lsn):
            if any(kind == TubeDef.kind for kind, _ in frames.kinds_and_ids(content, frame)):
                named = SEGMENT_HEADER_BYTES + frame.end
    return named


def _part(
    directory: Directory, name: str, at: int, end: int, salt: int, named: int
) -> Buffer:  # fmt: skip
    """
    As much as one message holds beside what a segment begins and ends with, or one frame if that
    is larger, or all up to ``named``.
    """
    size = max(PART_BYTES - SEGMENT_HEADER_BYTES - TRAILER_BYTES, named - at)
    part = directory.read_part(name, at, min(at + size, end))
    first = frames.decode_header(part, 0, len(part), salt)
    if isinstance(first, Frame) and first.end > len(part):
        return directory.read_part(name, at, min(at + first.end, end))
    return part


def _trailer(directory: Directory, name: str, end: int) -> bytes:
    """What a sealed segment has behind its frames; empty for another."""
    rest = bytes(directory.read_part(name, end, end + TRAILER_BYTES + 1))
    return rest if is_trailer(rest, 0, len(rest)) else b""


def _damaged(directory: Directory, name: str, offset: int, why: str) -> Damaged:
    return Damaged(
        f"{directory.path}/{name}: offset {offset}: {why}. The stream was not filled; nothing was "
        f"changed here. Run 'binlog-inspect check {directory.path}'."
    )


def _ignore(failure: Failure) -> None:
    """Somebody else was told."""
