"""The log of a standby: which writes of the stream continue it, without I/O."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from beanstalk_twisted.binlog.batches import Position
from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.binlog.errors import Incompatible
from beanstalk_twisted.binlog.reading.replay import Replay
from beanstalk_twisted.binlog.reading.survival import LogMarks
from beanstalk_twisted.binlog.records.others import Record
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import (
    AFTER_UNCLEAN_STOP,
    REHOMED,
    SEGMENT_HEADER_BYTES,
    TRAILER_BYTES,
    HeaderProblem,
    SegmentHeader,
    decode_segment_header,
    is_unfinished,
    parse_segment_name,
    segment_name,
)
from beanstalk_twisted.binlog.segments.frames import Frame
from beanstalk_twisted.replication.stream.messages import NO_TERM, Term, Write


class Rejected(NamedTuple):
    """A write that does not continue the log; ``why`` is the rest of a sentence."""

    why: str


class Piece(NamedTuple):
    """A write that goes on.  Records up to ``known_lsn`` came before.

    :ivar cut: which segment ends where, since this one begins, if that was not sealed there.
    """

    write: Write
    frames: list[Frame]
    header: SegmentHeader | None
    known_lsn: int
    cut: tuple[int, int] | None

    def of_types(self, types: frozenset[int]) -> Iterator[tuple[Frame, int]]:
        for frame in self.frames:
            kinds = frames.kinds_and_ids(self.write.content, frame)
            for at, (kind, _) in enumerate(kinds):
                if kind in types:
                    yield frame, at


class FollowedLog(LogMarks):
    """Which writes of a stream continue a log, so that this server can go on with it after any of
    them; a `storage.opening.Predecessor`.

    A write that does not go on is passed over: the stream may hold one of a server that was fenced
    while it was under way, or one whose predecessor was refused (docs/replication-log.md, "Who is
    active").

    :ivar segment: number of the newest segment, 0 in an empty log; ``end`` its length.
    :ivar last_lsn: of the newest record that was taken in.
    :ivar term: the newest one in the log that it goes on from.
    """

    def __init__(self) -> None:
        super().__init__()
        self.segment = self.last_lsn = self.end = 0
        self.term = NO_TERM
        self._header: SegmentHeader | None = None
        self._ends: dict[int, int] = {}
        self._is_sealed = False

    def go_on_from(self, found: Replay) -> None:
        segments, small = found.survey.segments, found.small
        if not segments:
            return
        newest = segments[-1]
        self._header, self.segment = newest.header, newest.header.seq
        incarnation = newest.header.incarnation
        first = next(each.header for each in segments if each.header.incarnation == incarnation)
        self.term = Term(incarnation, first.seq, first.first_lsn, first.salt)
        self._ends = {each.header.seq: each.ending.offset for each in segments}
        self.end = newest.ending.offset
        self.last_lsn = newest.ending.next_lsn - 1
        self.time_ns, self.trim_seq = small.time_ns, small.trim_seq
        self.next_job_id, self.next_tube_id = small.next_job_id, small.next_tube_id
        self.is_clean = small.is_clean
        self._is_sealed = newest.has_trailer

    @property
    def store_uuid(self) -> bytes | None:
        """Names the store; None in an empty log."""
        return None if self._header is None else self._header.store_uuid

    @property
    def segments(self) -> list[int]:
        """The numbers of living segments, ascending."""
        return list(self._ends)

    @property
    def is_whole(self) -> bool:
        """Return True if all segments are here that are not dead, as the log says."""
        return min(self._ends, default=0) <= max(self.trim_seq, 1)

    @property
    def open_segment(self) -> int:
        """The segment that the next write may go on in; 0 if it has to begin one."""
        return 0 if self._is_sealed else self.segment

    # Taking in.

    def take(self, write: Write) -> Piece | Rejected:
        """If a write goes on where the log ends, the log ends after it from now on.

        :raise Incompatible: it is of another store, or of a version that is not known.
        """
        header = self._header_of(write) if write.begins else self._header
        if header is None:
            return Rejected("no segment has begun")
        if isinstance(header, Rejected):
            return header
        why = self._begins_wrongly(header) if write.begins else self._goes_on_wrongly(write)
        if why:
            return Rejected(f"segment {write.segment}, offset {write.offset}: {why}")
        start = SEGMENT_HEADER_BYTES if write.begins else 0
        limit = len(write.content) - (TRAILER_BYTES if write.seals else 0)
        lsn = header.first_lsn if write.begins else self.last_lsn + 1
        found = list(frames.in_order(write.content, start, limit, header.salt, lsn))
        end = found[-1].end if found else start
        if end != limit or (found and found[-1].next_lsn <= self.last_lsn):
            return Rejected(
                f"segment {write.segment}, offset {write.offset + end}: no frame follows"
            )
        cut = self._cut_by(header) if write.begins else None
        piece = Piece(write, found, header if write.begins else None, self.last_lsn, cut)
        self._note(piece, header, end)
        return piece

    def _header_of(self, write: Write) -> SegmentHeader | Rejected:
        header = decode_segment_header(write.content[:SEGMENT_HEADER_BYTES])
        if isinstance(header, HeaderProblem):
            if header.foreign:
                raise Incompatible(
                    f"segment {write.segment} of the stream: {header.why}; nothing was lost. "
                    f"Install the version of the active server here, then start again."
                )
            return Rejected(f"segment {write.segment}: {header.why}")
        return header

    def _begins_wrongly(self, header: SegmentHeader) -> str:
        known = self._header
        if known is None:
            return ""
        if header.store_uuid != known.store_uuid:
            raise Incompatible(
                f"the log here is of store {known.store_uuid.hex()}, and the stream goes on with "
                f"one of store {header.store_uuid.hex()}; nothing was changed. Start again: then "
                f"both are compared."
            )
        if header.incarnation < known.incarnation:
            return "of a server that was active before"
        is_again = header.seq <= self.segment or header.first_lsn <= self.last_lsn
        if is_again and not header.flags & REHOMED:
            return "it has begun before"
        if header.seq > self.segment + 1 or header.first_lsn > self.last_lsn + 1:
            return f"it leaves out what follows LSN {self.last_lsn}"
        if header.prev_end > self._ends.get(header.seq - 1, header.prev_end):
            return "the segment before it is longer"
        return ""

    def _goes_on_wrongly(self, write: Write) -> str:
        if write.segment != self.segment or self._is_sealed:
            return f"the newest segment is {self.segment}"
        return "" if write.offset == self.end else f"the segment ends at {self.end}"

    def _cut_by(self, header: SegmentHeader) -> tuple[int, int] | None:
        before, end = header.seq - 1, header.prev_end
        is_sealed = self._is_sealed and before == self.segment and self._ends[before] == end
        return (before, end) if end and not is_sealed else None

    def _note(self, piece: Piece, header: SegmentHeader, end: int) -> None:
        write = piece.write
        if write.begins:
            for gone in [seq for seq in self._ends if seq >= header.seq]:
                del self._ends[gone]
            if header.seq - 1 in self._ends:
                self._ends[header.seq - 1] = header.prev_end
            self._header, self.segment = header, header.seq
            # The first one that is read may have no records.
            self.last_lsn = max(self.last_lsn, header.first_lsn - 1)
            self.note_header(header)
            self._forget_dead()
        self._ends[self.segment] = write.offset + end
        self.end, self._is_sealed = write.end, write.seals
        self.time_ns = max(self.time_ns, write.time_ns)
        for frame in piece.frames[-1:]:
            self.last_lsn = frame.next_lsn - 1
            self.time_ns = max(self.time_ns, frame.time_ns)

    def note(self, record: Record, segment: int, lsn: int) -> None:
        super().note(record, segment, lsn)
        self._forget_dead()

    def _forget_dead(self) -> None:
        for dead in [each for each in self._ends if each < self.trim_seq]:
            del self._ends[dead]

    # What a new segment needs to know; see `storage.opening.Predecessor`.

    @property
    def tubes(self) -> Mapping[int, bytes]:
        return {}

    def position(self, store_uuid: bytes) -> Position:
        """All that is in the stream is durable."""
        header = self._header
        if header is None:
            return Position(1, 1, 0, 1, store_uuid, 0, 1, 0)
        return Position(
            self.segment + 1, self.last_lsn + 1, self._ends[self.segment], max(self.trim_seq, 1),
            header.store_uuid, 0 if self.is_clean else AFTER_UNCLEAN_STOP, header.incarnation + 1,
            self.time_ns, ends=dict(self._ends),
        )  # fmt: skip

    def tidy(self, directory: Directory) -> str:
        """What was followed is durable already; so are its names after this."""
        directory.sync()
        return ""

    def notes(self, kept_at: str) -> list[str]:
        return []

    def give_space(self, directory: Directory) -> None:
        """Cut the newest segment where its content ends."""
        if self.segment:
            directory.cut(segment_name(self.segment), self.end)

    def remove_dead(self, directory: Directory, segments: bool) -> None:
        """Remove what was being made; or dead segments."""
        for name in directory.names():
            seq = parse_segment_name(name)
            is_dead = seq is not None and seq < self.trim_seq
            if is_dead if segments else is_unfinished(name):
                directory.remove(name)

    def release(self, directory: Directory) -> None:
        """Cut the segment that the new one follows, unless it was sealed."""
        if self.segment and not self._is_sealed:
            directory.cut(segment_name(self.segment), self._ends[self.segment])
