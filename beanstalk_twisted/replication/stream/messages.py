"""What the messages of a replicated log say, as bytes: docs/replication-log.md, "Messages"."""

import struct
import zlib
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.batches import Batch
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    decode_segment_header,
)
from beanstalk_twisted.replication.stream.interface import MAX_MESSAGE_BYTES, Message

MAGIC: Final = b"BTR1"
"""Ends with the version of these messages; a change raises it."""

HEADER: Final = struct.Struct("<4sBBHQQQQI")
"""Magic, kind, flags, 0, segment, offset, LSN, log time in ns, CRC32 of the rest of the message."""

BEGINS: Final = 1
SEALS: Final = 2
MORE: Final = 4
CONTINUES: Final = 8
KNOWN_FLAGS: Final = BEGINS | SEALS | MORE | CONTINUES

PART_BYTES: Final = MAX_MESSAGE_BYTES - HEADER.size
"""Bytes of a segment that one message holds at most."""

MAX_IN_FLIGHT: Final = 32
"""Messages under way: large batches follow one another as quickly as a disk syncs, so that a
round of 30 ms keeps none waiting behind a disk of 1 ms.
"""


class Kind(IntEnum):
    WRITE = 1
    HEARTBEAT = 2
    """The active server lives; its payload names it."""
    FILL_BEGINS = 3
    """A log that was there before follows, up to `FILL_ENDS`: without that nobody may take over."""
    FILL_ENDS = 4
    HANDED_OVER = 5
    """The active server has ended in order; a standby may take over at once."""


KINDS: Final = {int(kind): kind for kind in Kind}


class Write(NamedTuple):
    """Bytes of a segment, as the active server's file has them, at ``offset``.

    :ivar last_lsn: of the last record up to their end; ``time_ns`` log time when they were made.
    :ivar begins: whether the segment begins with them; ``seals`` whether it ends with them.
    """

    segment: int
    offset: int
    content: bytes
    last_lsn: int
    time_ns: int
    begins: bool
    seals: bool

    @property
    def end(self) -> int:
        """Length of the segment when this is written."""
        return self.offset + len(self.content)


class Note(NamedTuple):
    """Any message but a write.

    :ivar text: about its sender.
    :ivar segment: of FILL_BEGINS, with which the log begins; 0 where it does not say.
    """

    kind: Kind
    last_lsn: int
    time_ns: int
    text: bytes
    segment: int = 0


class FillMark:
    """Whether a stream is being filled, by its messages up to some place.

    It is until a segment begins after `Kind.FILL_ENDS`: that holds the records which the log did
    not know to be durable.

    :ivar has_ended: whether all of the log has come that was known to be durable.
    :ivar last_lsn: of the log that is filled in: a log with less is a part of it.
    :ivar text: about the sender of the newest FILL_BEGINS, which is at ``position``.
    """

    def __init__(self) -> None:
        self.is_filling = self.has_ended = False
        self.text = b""
        self.last_lsn = self.position = self._first = 0

    def note(self, note: Note, position: int, known_lsn: int) -> None:
        """:param known_lsn: of the last record that has come.  An end that tells of more was
        displaced, with what was before it: both come again.
        """
        if note.kind is Kind.FILL_BEGINS:
            self.is_filling, self.has_ended, self.last_lsn = True, False, note.last_lsn
            self.text, self.position, self._first = note.text, position, note.segment
        elif note.kind is Kind.FILL_ENDS:
            self.has_ended = note.last_lsn <= known_lsn

    def may_begin_with(self, segment: int) -> bool:
        """The segments of a filling may stand before its first one, if that was displaced."""
        return not self.is_filling or self._first in (0, segment)

    def began(self) -> None:
        self.is_filling = self.is_filling and not self.has_ended


class Part(NamedTuple):
    """A message that holds a write, or a part of one: others come before if it ``continues``."""

    write: Write
    continues: bool
    has_more: bool


class Malformed(NamedTuple):
    """Bytes that are no message of this version.

    :ivar is_newer: a later version may have written them; else they are *foreign*, of no queue.
    """

    why: str
    is_newer: bool = False


class Foreign:
    """Foreign messages that were seen; ``why`` the newest, at ``position``, is none of a queue."""

    def __init__(self) -> None:
        self.count = self.position = 0
        self.why = ""

    def note(self, position: int, why: str) -> None:
        if position > self.position:
            self.count += 1
            self.position, self.why = position, why


def write_of(batch: Batch, time_ns: int) -> Write:
    return Write(
        batch.seq, batch.offset, b"".join(batch.chunks), batch.last_lsn, time_ns, batch.begins,
        batch.seals,
    )  # fmt: skip


def encode_write(write: Write) -> Iterator[bytes]:
    """As few messages as hold it, in order."""
    content = memoryview(write.content)
    for at in range(0, max(len(content), 1), PART_BYTES):
        part = content[at : at + PART_BYTES]
        has_more = at + PART_BYTES < len(content)
        flags = BEGINS * write.begins | SEALS * write.seals | MORE * has_more
        flags |= CONTINUES * bool(at)
        yield _encode(
            Kind.WRITE, flags, write.segment, write.offset + at, write.last_lsn, write.time_ns, part
        )


def encode_note(
    kind: Kind, last_lsn: int, time_ns: int, text: bytes = b"", segment: int = 0
) -> bytes:
    return _encode(kind, 0, segment, 0, last_lsn, time_ns, text)


def is_of_queue(payload: bytes) -> bool:
    """Return True if a message may be one of a queue, of any version."""
    return payload.startswith(MAGIC[:-1])


def decode(payload: bytes) -> Part | Note | Malformed:
    """Decode a message; one whose checksum is wrong is `Malformed`, whatever it claims."""
    if len(payload) < HEADER.size:
        return Malformed(f"it has {len(payload)} bytes, and a header {HEADER.size}")
    magic, kind, flags, zero, segment, offset, lsn, time_ns, crc = HEADER.unpack_from(payload)
    if magic != MAGIC:
        return Malformed(f"it begins with {magic!r} instead of {MAGIC!r}", magic[:3] == MAGIC[:3])
    content = payload[HEADER.size :]
    if crc != _crc(payload[: HEADER.size - 4], content):
        return Malformed("its checksum is wrong")
    known = KNOWN_FLAGS if kind == Kind.WRITE else 0
    if kind not in KINDS or zero or flags & ~known:
        return Malformed(f"kind {kind} with flags {flags:#x} is unknown", is_newer=True)
    if kind != Kind.WRITE:
        return Note(KINDS[kind], lsn, time_ns, content, segment)
    begins, seals = bool(flags & BEGINS), bool(flags & SEALS)
    write = Write(segment, offset, content, lsn, time_ns, begins, seals)
    return Part(write, bool(flags & CONTINUES), bool(flags & MORE))


class Term(NamedTuple):
    """The time of one active server, by the header of the first segment that it has begun.

    :ivar incarnation: grows from term to term.
    """

    incarnation: int
    segment: int
    first_lsn: int
    salt: int = 0

    def after(self, begun: "Term") -> "Term":
        """The newest one when a segment has begun, perhaps in place of a first one that failed."""
        if begun.incarnation > self.incarnation:
            return begun
        return self._replace(salt=begun.salt) if begun[:2] == self[:2] else self


NO_TERM: Final = Term(0, 0, 0)
"""Before all of them."""


def term_of(write: Write) -> Term | None:
    """:return: the term that a write begins, if its segment is the first of one; None if it has no
    header that can be read.
    """
    header = decode_segment_header(write.content[:SEGMENT_HEADER_BYTES])
    if not isinstance(header, SegmentHeader):
        return None
    return Term(header.incarnation, header.seq, header.first_lsn, header.salt)


def may_fence(found: "Part | Note | Malformed") -> bool:
    """Return True if a message of another server may be the first one of its term, or of a filling.
    Any other comes after that one, or is stale, foreign, or of a standby that looks for the end.
    """
    if isinstance(found, Part):
        return found.write.begins and not found.continues
    if isinstance(found, Malformed):
        return found.is_newer
    return found.kind in (Kind.FILL_BEGINS, Kind.FILL_ENDS)


def is_stale(found: "Part | Note | Malformed", term: Term) -> bool:
    """Return True if a message after the beginning of a term is of a server that was active before.

    Messages of a server that does not know yet that it is fenced may still come in, at places where
    others were lost; all that it knows to be in the stream is below ``term.first_lsn``.  Such
    messages mean nothing.
    """
    if isinstance(found, Note):
        is_told = found.kind in (Kind.HEARTBEAT, Kind.HANDED_OVER)
        return is_told and found.last_lsn + 1 < term.first_lsn
    if isinstance(found, Malformed):
        return False
    write = found.write
    if write.segment < term.segment:
        return True
    if write.begins and not found.continues:
        begins = term_of(write)
        return begins is not None and begins.incarnation < term.incarnation
    # Who was fenced may have begun a segment of the same number.
    is_first = write.segment == term.segment and not (write.begins or found.continues)
    return is_first and frames.is_of_another(write.content, 0, len(write.content), term.salt)


def is_of(write: Write, header: SegmentHeader) -> bool:
    """Return False if a write is of another segment: a fenced server may have begun one of the
    same number.
    """
    start = SEGMENT_HEADER_BYTES if write.begins else 0
    return not frames.is_of_another(write.content, start, len(write.content), header.salt)


class Gaps:
    """Whether anything but heartbeats is missing among messages that are read in order.

    A stale or foreign message may have taken the place of one whose server had others under way,
    and ended before it could send them again.  These were never acknowledged: what they tell of is
    no sign of a loss, up to ``displaced_to``.

    :ivar since: the message after which some are missing, while no write has continued the log
        after them; None if there is no such gap.
    :ivar is_torn: something after that gap tells of records that did not come: unless a later
        write goes on, it has swallowed more than heartbeats.  Without a gap: a server of NATS
        shows another stream than the others.
    """

    def __init__(self) -> None:
        self.since: int | None = None
        self.is_torn = False
        self.displaced_to = 0
        self._at = 0

    def known_to(self, position: int) -> int:
        """:return: up to where all is known: after it more than heartbeats may be missing."""
        return position if self.since is None else min(position, self.since)

    def step(self, before: int, position: int) -> None:
        """The next message is at ``position``, after the one ``before``."""
        self._at = position
        if self.since is None and position > before + 1:
            self.since = before

    def went_on(self) -> None:
        """A write goes on behind all that came before."""
        self.since, self.is_torn = None, False
        self.displaced_to = 0

    def passed_over(self) -> None:
        self.displaced_to = self._at + MAX_IN_FLIGHT

    def told_of(self, last_lsn: int, known_lsn: int) -> None:
        """A note, or a write that does not go on, tells of records up to ``last_lsn``; those up to
        ``known_lsn`` have come.
        """
        is_told = last_lsn > known_lsn and self._at > self.displaced_to
        if is_told and self.since is not None:
            self.is_torn = True

    def acknowledged(self, last_lsn: int, known_lsn: int) -> None:
        """A note whose sender knows that records up to ``last_lsn`` are in the stream, in place."""
        if last_lsn > known_lsn:
            self.since = self._at if self.since is None else self.since
            self.is_torn = True


class Assembler:
    """Puts the parts of writes together, in the newest term that has begun.

    Between the parts of a write others may be out of place: stale ones, and some that `Publisher`
    sends again when the part before them is in.  Parts are dropped when a write begins at the same
    place, or a term: their sender did not come to the end.
    """

    def __init__(self, term: Term = NO_TERM) -> None:
        self.term = term
        self._parts: list[Write] = []

    @property
    def is_midway(self) -> bool:
        """Return True if the last part of a write is missing."""
        return bool(self._parts)

    def passes_over(self, found: "Part | Note | Malformed") -> bool:
        return is_stale(found, self.term)

    def fill_begins(self) -> None:
        self.term = NO_TERM
        self._parts.clear()

    def add(self, part: Part) -> Write | None:
        """:return: the whole write, when this is its last part."""
        if self.passes_over(part):
            return None
        return self._go_on(part) if part.continues else self._begin(part)

    def _begin(self, part: Part) -> Write | None:
        write = part.write
        if self._begins_term(write) or (self._parts and write[:2] == self._parts[0][:2]):
            self._parts.clear()
        if not part.has_more:
            return write
        if not self._parts:
            self._parts.append(write)
        return None

    def _begins_term(self, write: Write) -> bool:
        if not write.begins:
            return False
        before, begun = self.term, term_of(write)
        if begun is None:
            return True
        self.term = before.after(begun)
        return begun.incarnation > before.incarnation

    def _go_on(self, part: Part) -> Write | None:
        if not self._parts:
            return None
        before, after = self._parts[-1], part.write
        # All that is told of the whole is told with each part.
        if before._replace(offset=before.end, content=b"") != after._replace(content=b""):
            return None
        self._parts.append(part.write)
        if part.has_more:
            return None
        parts, self._parts = self._parts, []
        return parts[0]._replace(content=b"".join([each.content for each in parts]))


class MessageReader:
    """Takes the messages of a stream in order: assembles writes, and notes gaps and fillings.  The
    caller decides which writes continue its log.

    :ivar position: of the newest message; ``last_lsn`` of the log's last record.
    :ivar first_positions: of the first message of each segment, by its number.
    """

    def __init__(
        self, position: int, mark: FillMark | None = None, has_begun: bool = False,
        term: Term = NO_TERM, last_lsn: int = 0,
    ) -> None:  # fmt: skip
        """:param has_begun: whether segments come before, so that no filling has to begin."""
        self.position = position
        self.last_lsn = last_lsn
        self.mark = FillMark() if mark is None else mark
        self.gaps = Gaps()
        self.first_positions: dict[int, int] = {}
        self._assembler = Assembler(term)
        self._has_begun = has_begun
        self._begins_at = position + 1

    @property
    def known_to(self) -> int:
        """The position up to which all is known, except heartbeats."""
        return self.gaps.known_to(self.position)

    @property
    def known_before_write(self) -> int:
        """The same, up to the first message of the write that was taken last."""
        return self.gaps.known_to(self._begins_at - 1)

    @property
    def is_midway(self) -> bool:
        return self._assembler.is_midway

    def take(self, message: Message) -> Write | Note | Malformed | None:
        """:return: the write, if the message completes one; None if it is a part or stale."""
        self.gaps.step(self.position, message.position)
        self.position, found = message.position, decode(message.payload)
        if isinstance(found, Malformed) or self._is_passed_over(found):
            # It may have taken the place of another one.
            self.gaps.passed_over()
            return found if isinstance(found, Malformed) else None
        if isinstance(found, Part):
            if not (found.continues or self.is_midway):
                self._begins_at = self.position
            return self._assembler.add(found)
        self.mark.note(found, self.position, self.last_lsn)
        if found.kind is Kind.FILL_BEGINS:
            self._assembler.fill_begins()
            self.gaps.went_on()
        return found

    def _is_passed_over(self, found: Part | Note) -> bool:
        if isinstance(found, Note) or self._has_begun:
            return self._assembler.passes_over(found)
        # For the assembler the wrong segment of a filling would be the beginning of a term.
        is_meant = self.mark.may_begin_with(found.write.segment)
        return not is_meant or self._assembler.passes_over(found)

    def discard_log(self) -> None:
        """The log is empty again, since a filling has begun."""
        self.last_lsn, self._has_begun = 0, False

    def accept(self, write: Write) -> None:
        """The write continues the log."""
        self.gaps.went_on()
        self.last_lsn, self._has_begun = max(self.last_lsn, write.last_lsn), True
        if write.begins:
            self.first_positions[write.segment] = self._begins_at
            self.mark.began()

    def reject(self, write: Write) -> None:
        """The write does not continue the log."""
        self.gaps.told_of(write.last_lsn, self.last_lsn)
        if write.begins and self.mark.is_filling and write.segment in self.first_positions:
            # A new filling begins the segment again: the former messages may be purged.
            self.first_positions[write.segment] = self._begins_at


def _encode(
    kind: Kind, flags: int, segment: int, offset: int, lsn: int, time_ns: int,
    content: bytes | memoryview,
) -> bytes:  # fmt: skip
    head = HEADER.pack(MAGIC, kind, flags, 0, segment, offset, lsn, time_ns, 0)[:-4]
    return b"".join([head, struct.pack("<I", _crc(head, content)), content])


def _crc(head: bytes, content: bytes | memoryview) -> int:
    return zlib.crc32(content, zlib.crc32(head))
