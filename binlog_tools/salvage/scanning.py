"""What can be read of one segment, whatever is damaged around it, and which LSNs are missing."""

import zlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from beanstalk_twisted.binlog.reading.searching import frames_anywhere, proven_lsn
from beanstalk_twisted.binlog.reading.segment import (
    NO_FRAME,
    NO_SEAL,
    has_content,
    is_sealed,
    is_trailer,
    no_frame,
)
from beanstalk_twisted.binlog.reading.survival import HARMLESS, Hidden, SealedLoss
from beanstalk_twisted.binlog.records.others import DATA_CRC, DATA_LEN, DATA_OFF, Raw, Seal
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import (
    MADE_BY_TOOL,
    RECORD_BYTES,
    SEGMENT_HEADER_BYTES,
)
from beanstalk_twisted.binlog.segments.frames import Buffer, Damage, Frame, Incomplete
from binlog_tools.salvage.claims import Part


class Piece(NamedTuple):
    """A frame whose header checks.

    :ivar has_records: whether its records check; ``has_heap`` whether its bodies do as well,
        ``has_whole_heap`` whether they do in any case.
    :ivar limit: where the bytes of its segment end: a cut frame has no more.
    :ivar shift: by how many bytes what follows it was moved, and perhaps the end of it as well.
    """

    frame: Frame
    has_records: bool
    has_heap: bool
    has_whole_heap: bool
    limit: int
    shift: int = 0


class DamagedPlace(NamedTuple):
    """A place that is not as it was written, up to the next frame or the segment's end."""

    name: str
    offset: int
    end: int
    expected_lsn: int
    why: str


class Scan(NamedTuple):
    """:ivar pieces: in the order of their LSNs, none twice; None when all frames stand in a row
        from the segment's beginning up to ``end``, as they were written.
    :ivar witness_lsn: the highest watermark that it shows.
    :ivar foreign: what is taken by frames that a start has cut off, or that stand twice, from where
        to where.
    :ivar certain_end: behind it a start may have cut off what stands there.
    """

    part: Part
    pieces: list[Piece] | None
    end: int
    next_lsn: int
    damaged: list[DamagedPlace]
    witness_lsn: int
    foreign: tuple[tuple[int, int], ...] = ()
    certain_end: int = 0

    def in_order(self, buffer: Buffer) -> Iterator[Piece]:
        if self.pieces is not None:
            yield from self.pieces
            return
        at = SEGMENT_HEADER_BYTES
        while at < self.end and self.part.salt is not None:
            frame = frames.decode_header(buffer, at, self.end, self.part.salt)
            assert isinstance(frame, Frame), "it was read before"
            yield Piece(frame, True, True, True, self.end)
            at = frame.end


def scan(part: Part, buffer: Buffer) -> Scan:
    straight = _straight(part, buffer)
    if isinstance(straight, Scan):
        return straight
    found = _search(part, buffer)
    if part.header and part.prev_end is None:
        # What a server goes by when it calls a tail torn.
        at, lsn = straight.offset, straight.expected_lsn
        proven = proven_lsn(buffer, part.header, at, part.end, lsn)
        found = found._replace(witness_lsn=max(found.witness_lsn, proven))
    # All frames may be there, and yet not where the server looks for them.
    return found if found.damaged else found._replace(damaged=[straight])


def _search(part: Part, buffer: Buffer) -> Scan:
    found = _Search(part, buffer).result()
    if part.end == len(buffer):
        return found
    # Something was put in between, so that what stood before the end stands behind it now.
    moved = _Search(part._replace(end=len(buffer)), buffer).result()
    is_better = _readable_records(moved) > _readable_records(found)
    return moved._replace(part=part) if is_better else found


def _readable_records(found: Scan) -> int:
    """Count readable records, those with readable bodies twice."""
    return sum(_worth(piece) * piece.frame.n_rec for piece in found.pieces or ())


def _straight(part: Part, buffer: Buffer) -> Scan | DamagedPlace:
    """A segment without damage, its frames not kept; or the first place where a server stops."""
    at, lsn, witness = SEGMENT_HEADER_BYTES, part.first_lsn, 0
    last: Frame | None = None
    if part.salt is None or not part.is_exact:
        return DamagedPlace(
            part.name, min(at, part.end), part.end, lsn, "its header cannot be read"
        )
    for frame in frames.in_order(buffer, at, part.end, part.salt, lsn):
        if _is_beyond(part, frame):
            return DamagedPlace(part.name, at, at, lsn, no_frame(frame, lsn))
        at, lsn, witness = frame.end, frame.next_lsn, max(witness, frame.durable_lsn)
        last = frame
    found = frames.decode(buffer, at, part.end, part.salt) if at < part.end else None
    if isinstance(found, Frame):
        return DamagedPlace(part.name, at, at, lsn, no_frame(found, lsn))
    why = _why(found) if found else ""
    if part.prev_end is None:
        why = _why_not_here(part, buffer, at, last, why)
    elif _ends(buffer, at, part):
        why = ""
    if why:
        return DamagedPlace(part.name, at, part.end, lsn, why)
    if part.prev_end is not None and (at != part.prev_end or lsn != part.below_lsn):
        why = f"the next segment says that this one ends at {part.prev_end}"
        return DamagedPlace(
            part.name, at, max(at, part.end), lsn, f"{why}, before LSN {part.below_lsn}"
        )
    return Scan(part, None, at, lsn, [], witness)


def _why_not_here(part: Part, buffer: Buffer, at: int, last: Frame | None, why: str) -> str:
    header = part.header
    if header is not None and last is not None and is_sealed(buffer, header, last):
        return ""
    if not _ends(buffer, at, part):
        return why
    if last is None:
        return NO_FRAME
    return NO_SEAL if header is not None and header.flags & MADE_BY_TOOL else ""


def _why(found: Damage | Incomplete) -> str:
    return found.why if isinstance(found, Damage) else "a frame is not complete"


def _is_beyond(part: Part, frame: Frame) -> bool:
    return part.below_lsn is not None and frame.next_lsn > part.below_lsn


def _ends(buffer: Buffer, at: int, part: Part) -> bool:
    """Return True at its end, before its trailer, or before zeros if no successor names an end."""
    if at >= part.end or is_trailer(buffer, at, part.end):
        return True
    return part.prev_end is None and not has_content(buffer, at, part.end)


class _Search:
    """The frames of a damaged segment.

    A frame that checks is taken wherever it stands: its header's checksum covers the random salt of
    its segment, so nothing else can pass for one.  Its LSN says where it belongs.
    """

    def __init__(self, part: Part, buffer: Buffer) -> None:
        self._part = part
        self._buffer = buffer
        self._damaged: list[DamagedPlace] = []
        self._found: dict[int, Piece] = {}
        self._lsn = part.first_lsn
        self._witness = 0
        self._end = SEGMENT_HEADER_BYTES
        self._foreign: list[tuple[int, int]] = []
        self._cut_at = part.end
        self._first_at: dict[int, int] = {}

    def result(self) -> Scan:
        part = self._part
        if part.salt is None:
            at, why = min(SEGMENT_HEADER_BYTES, part.end), "no frame can be read"
            place = DamagedPlace(part.name, at, part.end, part.first_lsn, why)
            return Scan(part, [], at, part.first_lsn, [place], 0, (), part.end)
        self._walk(part.salt)
        pieces = [self._moved(self._found[lsn]) for lsn in sorted(self._found)]
        next_lsn = max((p.frame.next_lsn for p in pieces), default=part.first_lsn)
        end = part.end if part.prev_end is None else part.prev_end
        certain_end = min(part.end, max(min(self._cut_at, end), self._end))
        damaged = [each for each in self._damaged if each.offset <= certain_end]
        return Scan(
            part, pieces, self._end, next_lsn, damaged, self._witness, tuple(self._foreign),
            certain_end,
        )  # fmt: skip

    def _walk(self, salt: int) -> None:
        at, limit = SEGMENT_HEADER_BYTES, self._part.end
        if self._part.header is None:
            # Bytes that were taken out of it have moved all frames towards the beginning.
            early = frames_anywhere(self._buffer, 0, limit, salt)
            at = min(at, next((each.offset for each in early), limit))
        while at < limit:
            frame = frames.decode_header(self._buffer, at, limit, salt)
            if not isinstance(frame, Frame):
                if _ends(self._buffer, at, self._part):
                    break
                at = self._skip(at, salt, _why(frame), self._lsn)
                continue
            records = frame.heap_at <= limit and frames.has_sound_records(self._buffer, frame)
            heap = frame.end <= limit and frames.has_sound_heap(self._buffer, frame)
            piece = Piece(frame, records, records and heap, heap, limit)
            expected = self._lsn
            self._take(piece)
            if piece.has_heap:
                at = frame.end
            else:
                at = self._skip(at, salt, _what_is_wrong(piece), expected)
        self._expect_end()

    def _skip(self, at: int, salt: int, why: str, expected_lsn: int) -> int:
        limit = self._part.end
        later = frames_anywhere(self._buffer, at + 1, limit, salt)
        resume = next((frame.offset for frame in later), limit)
        self._damaged.append(DamagedPlace(self._part.name, at, resume, expected_lsn, why))
        return resume

    def _take(self, piece: Piece) -> None:
        """Keep a frame, unless a start has dropped it or a better one of these LSNs is there."""
        frame = piece.frame
        if _is_beyond(self._part, frame) or frame.base_lsn < self._part.first_lsn:
            self._foreign.append((frame.offset, frame.end))
            if _is_beyond(self._part, frame):
                self._cut_at = min(self._cut_at, frame.offset)
            return
        self._first_at.setdefault(frame.base_lsn, frame.offset)
        self._witness = max(self._witness, frame.durable_lsn)
        if piece.has_heap and frame.base_lsn != self._lsn:
            why = no_frame(frame, self._lsn)
            at = frame.offset
            if not self._damaged or self._damaged[-1].end != at:
                self._damaged.append(DamagedPlace(self._part.name, at, at, self._lsn, why))
        if piece.has_heap:
            self._end = max(self._end, frame.end)
        if piece.has_records:
            self._lsn = max(self._lsn, frame.next_lsn)
        other = self._found.get(frame.base_lsn)
        if not frame.n_rec:
            return
        if other is not None and piece.has_heap and other.has_heap:
            self._foreign.append((frame.offset, frame.end))
        elif other is None or _worth(piece) > _worth(other):
            self._found[frame.base_lsn] = piece

    def _moved(self, piece: Piece) -> Piece:
        """What follows a frame says how many bytes were put into it or taken out of it."""
        frame = piece.frame
        shift = self._first_at.get(frame.next_lsn, frame.end) - frame.end
        if piece.has_heap or not shift or frame.heap_at > piece.limit:
            return piece
        piece = piece._replace(shift=shift)
        if piece.has_records or piece.has_whole_heap or frame.heap_at + shift < frame.records_at:
            return piece
        further = frame._replace(heap_at=frame.heap_at + shift, end=frame.end + shift)
        if further.end <= piece.limit and frames.has_sound_heap(self._buffer, further):
            return piece._replace(frame=further, has_whole_heap=True)
        return piece

    def _expect_end(self) -> None:
        part = self._part
        if part.prev_end is None or (self._damaged and self._damaged[-1].end == part.end):
            return
        if part.end < part.prev_end or self._lsn != part.below_lsn:
            why = f"the segment ends here, before LSN {part.below_lsn}"
            self._damaged.append(DamagedPlace(self._part.name, part.end, part.end, self._lsn, why))


def _what_is_wrong(piece: Piece) -> str:
    if piece.frame.end > piece.limit:
        return "a frame is not complete"
    which = "bodies" if piece.has_records else "records"
    return f"the checksum of its {which} is wrong"


def _worth(piece: Piece) -> int:
    return piece.has_records + piece.has_heap


def data_if_it_checks(buffer: Buffer, piece: Piece, raw: Raw) -> bytes | None:
    """The data of a record in a damaged frame; None if they are damaged."""
    start = start_of_data(buffer, piece, raw)
    return None if start is None else bytes(memoryview(buffer)[start : start + raw[DATA_LEN]])


def start_of_data(buffer: Buffer, piece: Piece, raw: Raw) -> int | None:
    """Find their place in the segment; None if they are damaged."""
    if raw[DATA_OFF] + raw[DATA_LEN] > piece.frame.heap_len:
        return None
    for shift in (0, piece.shift) if piece.shift else (0,):
        start = piece.frame.heap_at + raw[DATA_OFF] + shift
        end = start + raw[DATA_LEN]
        if start < piece.frame.records_at or end > piece.limit:
            continue
        if zlib.crc32(memoryview(buffer)[start:end]) == raw[DATA_CRC]:
            return start
    return None


class Hole(NamedTuple):
    """LSNs that cannot be read.

    :ivar last_lsn: at least; with ``is_open`` there may have been more.
    :ivar name: the segment in which they are missing, or behind which, from ``offset`` to ``end``;
        empty before the first one.
    :ivar is_confirmed: whether they were known durable; else nobody was promised them.
    :ivar types: how many records of each type were lost in all holes of this segment; None if
        nothing is left that says so.
    :ivar job_ids: the smallest and largest job id in this segment, likewise.
    """

    first_lsn: int
    last_lsn: int
    is_open: bool
    name: str
    offset: int
    end: int
    is_confirmed: bool
    types: Mapping[int, int] | None
    job_ids: tuple[int, int] | None = None

    @property
    def hidden(self) -> Hidden:
        return Hidden(self.first_lsn, self.last_lsn, self.types, self.job_ids)

    @property
    def most_puts(self) -> int:
        room = (self.end - self.offset) // RECORD_BYTES if self.is_open else 0
        return max(self.records, room)

    @property
    def likely_puts(self) -> int:
        """At most what its segment's seal counts, without what is not even known to be written."""
        if self.types is None:
            return self.records
        return min(self.records, sum(self.types.get(kind, 0) for kind in HARMLESS))

    @property
    def records(self) -> int:
        """How many records it hides, at least."""
        return self.last_lsn - self.first_lsn + 1


class Extent(NamedTuple):
    first_lsn: int
    next_lsn: int
    offset: int
    end: int


def holes_of(
    scans: Iterable[Scan], first_lsn: int, watermark: int, torn_lsn: int | None,
    losses: Mapping[int, SealedLoss],
) -> Iterator[Hole]:  # fmt: skip
    """The LSNs that are missing, in order.

    :param scans: of the segments that count, oldest first.
    :param watermark: all up to it was durable.
    :param torn_lsn: from here on nothing was confirmed, None if nothing is torn.
    :param losses: by sequence number, what `sealed_loss` says of a segment.
    """
    expected, name, at, end = first_lsn, "", 0, 0
    is_unread = False

    def hole(below_lsn: int, end: int, loss: SealedLoss | None = None) -> Hole:
        is_confirmed = torn_lsn is None or expected < torn_lsn
        known = loss.hidden(expected, below_lsn - 1) if loss else Hidden(expected, below_lsn - 1)
        return Hole(
            expected, below_lsn - 1, False, name, at, max(at, end), is_confirmed, known.types,
            known.job_ids,
        )  # fmt: skip

    for scan in scans:
        part = scan.part
        if part.is_exact and part.first_lsn > expected:
            # What is missing between two segments was in none whose seal is left.
            yield hole(part.first_lsn, at)
            expected = part.first_lsn
        name, at, end = part.name, min(SEGMENT_HEADER_BYTES, part.end), part.end
        # It had records when it got its name, though nothing is left that says which.
        is_unread = part.header is None
        for span, is_in_order in in_order(list(_extents(scan))):
            is_unread = False
            if span.first_lsn > expected:
                # A frame that was moved does not say where its neighbours stood.
                until = span.offset if is_in_order else at
                yield hole(span.first_lsn, until, losses.get(part.seq))
                at = max(at, until)
            expected = max(expected, span.next_lsn)
            if is_in_order:
                at = max(at, span.end)
    if expected <= watermark:
        yield hole(watermark + 1, end)._replace(is_open=True)
    elif is_unread:
        yield Hole(expected, expected, True, name, at, max(at, end), True, None)


def in_order(extents: Sequence[Extent]) -> Iterator[tuple[Extent, bool]]:
    """Tell of each of a segment's extents whether it stands where it belongs: as few as possible
    are left out so that the offsets of the others rise.

    :param extents: by their LSNs.
    """
    ends: list[int] = []
    lengths = []
    for extent in extents:
        at = bisect_left(ends, extent.offset)
        ends[at : at + 1] = [extent.offset]
        lengths.append(at + 1)
    wanted = len(ends)
    flags = []
    for length in reversed(lengths):
        flags.append(length == wanted)
        wanted -= length == wanted
    return zip(extents, reversed(flags), strict=True)


def _extents(scan: Scan) -> Iterator[Extent]:
    if scan.pieces is None:
        if scan.next_lsn > scan.part.first_lsn:
            yield Extent(scan.part.first_lsn, scan.next_lsn, SEGMENT_HEADER_BYTES, scan.end)
        return
    for piece in scan.pieces:
        if piece.has_records:
            frame = piece.frame
            yield Extent(frame.base_lsn, frame.next_lsn, frame.offset, min(frame.end, piece.limit))


def sealed_loss(scan: Scan, buffer: Buffer, expected_lsn: int) -> SealedLoss | None:
    """:param expected_lsn: the LSN behind the last one of the segment before it.
    :return: None if it is not damaged.
    """
    if scan.pieces is None:
        return None
    # If nothing else says it, the seal does; but not of what the one before has lost at its end.
    loss = SealedLoss(scan.part.first_lsn if scan.part.is_exact else max(expected_lsn, 1))
    for piece in scan.pieces:
        if not piece.has_records:
            continue
        for at, (kind, _) in enumerate(frames.kinds_and_ids(buffer, piece.frame)):
            if kind == Seal.kind:
                raw = frames.raw_record(buffer, piece.frame, at)
                data = data_if_it_checks(buffer, piece, raw) or b""
                loss.add_seal(piece.frame.base_lsn + at, data)
            loss.add(kind)
    return loss
