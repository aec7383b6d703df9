"""Which LSNs are missing, and what is known of what they were."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from beanstalk_twisted.binlog.records.others import Seal
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import RECORD_BYTES, SEGMENT_HEADER_BYTES
from beanstalk_twisted.binlog.segments.frames import Buffer
from binlog_tools.inspect.hidden import HARMLESS, Hidden, SealedLoss
from binlog_tools.salvage.scanning import Scan, data_if_it_checks


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
        """The same, but not more than its segment's seal counts, and without regard to what is not
        even known to have been written.
        """
        if self.types is None:
            return self.records
        return min(self.records, sum(self.types.get(kind, 0) for kind in HARMLESS))

    @property
    def records(self) -> int:
        """How many records it hides, at least."""
        return self.last_lsn - self.first_lsn + 1


class Span(NamedTuple):
    """LSNs that can be read, and where they begin and end."""

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
    :param first_lsn: the first LSN that counts.
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
        for span, is_in_order in in_order(list(spans(scan))):
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


def in_order(spans: Sequence[Span]) -> Iterator[tuple[Span, bool]]:
    """Say of each of a segment's spans whether it stands where it belongs: as few as possible are
    left out so that the offsets of the others rise.

    :param spans: by their LSNs.
    """
    ends: list[int] = []
    lengths = []
    for span in spans:
        at = bisect_left(ends, span.offset)
        ends[at : at + 1] = [span.offset]
        lengths.append(at + 1)
    wanted = len(ends)
    flags = []
    for length in reversed(lengths):
        flags.append(length == wanted)
        wanted -= length == wanted
    return zip(spans, reversed(flags), strict=True)


def spans(scan: Scan) -> Iterator[Span]:
    if scan.pieces is None:
        if scan.next_lsn > scan.part.first_lsn:
            yield Span(scan.part.first_lsn, scan.next_lsn, SEGMENT_HEADER_BYTES, scan.end)
        return
    for piece in scan.pieces:
        if piece.has_records:
            frame = piece.frame
            yield Span(
                frame.base_lsn, frame.next_lsn, frame.offset, min(frame.end, piece.limit)
            )  # fmt: skip


def sealed_loss(scan: Scan, buffer: Buffer, expected_lsn: int) -> SealedLoss | None:
    """Compare the seal of a damaged segment with what can be read of the segment.

    :param expected_lsn: the LSN behind the last one of the segment before it.
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
