"""Which LSNs are missing, and what is known of what they were."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.records.decoding import JOB_KINDS
from beanstalk_twisted.binlog.records.jobs import Kind
from beanstalk_twisted.binlog.records.others import Seal
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import RECORD_BYTES, SEAL_HEAD, SEGMENT_HEADER_BYTES
from beanstalk_twisted.binlog.segments.frames import Buffer
from binlog_tools.salvage.scanning import Scan, data_if_it_checks

_HARMLESS: Final = frozenset({Kind.PUT, Kind.COPY})
"""What cannot have changed a job that was there before."""

_FRAME_BYTES: Final = 20
_TYPE: Final = Struct("<II")


class Hole(NamedTuple):
    """
    LSNs that cannot be read.

    :ivar last_lsn: at least; with ``is_open`` there may have been more.
    :ivar name: the segment in which they are missing, or behind which, from ``offset`` to ``end``;
        empty before the first one.
    :ivar is_confirmed: whether they were known durable; else nobody was promised them.
    :ivar types: how many records of each type were lost in all holes of this segment; None if
        nothing is left that says so.
    """

    first_lsn: int
    last_lsn: int
    is_open: bool
    name: str
    offset: int
    end: int
    is_confirmed: bool
    types: Mapping[int, int] | None

    @property
    def may_delete(self) -> bool:
        return self.types is None or self.types.get(Kind.DELETE, 0) > 0

    @property
    def may_change(self) -> bool:
        if self.types is None:
            return True
        return any(
            count > 0 and kind in JOB_KINDS and kind not in _HARMLESS
            for kind, count in self.types.items()
        )

    @property
    def most_puts(self) -> int:
        room = (self.end - self.offset) // RECORD_BYTES if self.is_open else 0
        return max(self.records, room)

    @property
    def likely_puts(self) -> int:
        """
        The same, but not more than its segment's seal counts, and without regard to what is not
        even known to have been written.
        """
        if self.types is None:
            return self.records
        return min(self.records, sum(self.types.get(kind, 0) for kind in _HARMLESS))

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
    lost: Mapping[int, Mapping[int, int]],
) -> Iterator[Hole]:  # fmt: skip
    """
    The LSNs that are missing, in order.

    :param scans: of the segments that count, oldest first.
    :param first_lsn: the first LSN that counts.
    :param watermark: all up to it was durable.
    :param torn_lsn: from here on nothing was confirmed, None if nothing is torn.
    :param lost: by sequence number, what `lost_types` says of a segment.
    """
    expected, name, at, end = first_lsn, "", 0, 0
    is_unread = False

    def hole(below_lsn: int, end: int, types: Mapping[int, int] | None = None) -> Hole:
        is_confirmed = torn_lsn is None or expected < torn_lsn
        return Hole(
            expected, below_lsn - 1, False, name, at, max(at, end), is_confirmed, types
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
                yield hole(span.first_lsn, until, lost.get(part.seq))
                at = max(at, until)
            expected = max(expected, span.next_lsn)
            if is_in_order:
                at = max(at, span.end)
    if expected <= watermark:
        yield hole(watermark + 1, end)._replace(is_open=True)
    elif is_unread:
        yield Hole(expected, expected, True, name, at, max(at, end), True, None)


def in_order(spans: Sequence[Span]) -> Iterator[tuple[Span, bool]]:
    """
    Say of each of a segment's spans whether it stands where it belongs: as few as possible are left
    out so that the offsets of the others rise.

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


def lost_types(scan: Scan, buffer: Buffer, expected_lsn: int) -> Counter[int] | None:
    """
    How many records of each type a damaged segment has lost, by its seal.

    :param expected_lsn: the LSN behind the last one of the segment before it.
    :return: None if it has no seal that speaks of all of it.
    """
    if scan.pieces is None:
        return None
    # If nothing else says it, the seal does; but not of what the one before has lost at its end.
    first_lsn = scan.part.first_lsn if scan.part.is_exact else max(expected_lsn, 1)
    found: Counter[int] = Counter()
    sealed = None
    for piece in scan.pieces:
        if not piece.has_records:
            continue
        for at, (kind, _) in enumerate(frames.kinds_and_ids(buffer, piece.frame)):
            if kind == Seal.kind:
                raw = frames.raw_record(buffer, piece.frame, at)
                said = read_seal(data_if_it_checks(buffer, piece, raw) or b"")
                lsn = piece.frame.base_lsn + at
                # One that was re-homed from another segment speaks of that.
                if said is not None and said.types.total() == lsn - first_lsn:
                    sealed = said.types - found
            found[kind] += 1
    return sealed


class SealCounts(NamedTuple):
    """
    What a seal says: how many records of each type there are, and the names of tubes by number.
    """

    types: Counter[int]
    tubes: dict[int, bytes]


def read_seal(data: bytes) -> SealCounts | None:
    """What the data of a seal say, or None if it is of another version."""
    if len(data) < SEAL_HEAD.size or data[:4] != b"\1\0\0\0":
        return None
    _, n_index, *_, n_types, n_tubes = SEAL_HEAD.unpack_from(data)
    at = SEAL_HEAD.size + n_index * _FRAME_BYTES
    end = at + n_types * _TYPE.size
    if end > len(data):
        return None
    tubes = {}
    types = Counter(dict(_TYPE.iter_unpack(data[at:end])))
    for _ in range(n_tubes):
        length = int.from_bytes(data[end + 4 : end + 6], "little")
        tubes[int.from_bytes(data[end : end + 4], "little")] = data[end + 6 : end + 6 + length]
        end += 6 + length
    return SealCounts(types, tubes)
