"""Which file is which segment: headers, and what to do if they are missing, damaged or contradict
each other.
"""

from collections.abc import Container, Iterable, Iterator
from itertools import accumulate
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.files import Files
from beanstalk_twisted.binlog.reading.searching import frames_anywhere, salt_at
from beanstalk_twisted.binlog.reading.survey import unknown_format
from beanstalk_twisted.binlog.segments.format import (
    FRAME_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    decode_segment_header,
    parse_segment_name,
    segment_name,
)
from beanstalk_twisted.binlog.segments.frames import (
    Buffer,
    Frame,
    has_sound_heap,
    has_sound_records,
)
from binlog_tools.logs.quantities import Numbers, id_range, spans_of


class Rebuilt(NamedTuple):
    """A header that was derived; its fields are as in `Part`."""

    salt: int
    first_lsn: int
    is_exact: bool


def rebuild(
    buffer: Buffer, end: int, from_lsn: int, below_lsn: int | None, others: Container[int]
) -> Rebuilt | None:
    """Find the salt that most of a segment's bytes carry, in frames whose headers check, and of
    what they hold by what checks as well; None when there is no frame.

    A body may hold frames of its own, but then it stands within one that is larger; LSNs that do
    not fit between the neighbours are not of this segment either.

    :param from_lsn: no LSN is lower; all are below ``below_lsn``, None in the newest segment.
    """
    sizes: dict[int, int] = {}
    at = 0

    def fitting(at: int, salt: int | None) -> Iterator[Frame]:
        for frame in frames_anywhere(buffer, at, end, salt):
            is_below = below_lsn is None or frame.base_lsn < below_lsn or not frame.n_rec
            if is_below and frame.base_lsn >= from_lsn:
                yield frame

    while (frame := next(fitting(at, None), None)) is not None:
        salt = salt_at(buffer, frame.offset)
        has_records = frame.heap_at <= end and has_sound_records(buffer, frame)
        records = (frame.heap_at - frame.records_at) * has_records
        has_heap = frame.heap_at + frame.heap_len <= end and has_sound_heap(buffer, frame)
        size = records + frame.heap_len * has_heap
        if salt not in others:
            sizes[salt] = sizes.get(salt, 0) + FRAME_HEADER_BYTES + size
        # A header alone may have come from elsewhere.
        at = frame.end if size or not frame.n_rec else frame.offset + 1
    if not sizes:
        return None
    salt = max(sizes, key=lambda each: sizes[each])
    # All of them, also those that stand within another one that was put in the wrong place.
    first = min(fitting(0, salt), key=lambda frame: (frame.base_lsn, frame.offset))
    return Rebuilt(salt, first.base_lsn, first.offset == SEGMENT_HEADER_BYTES)


MAX_MISSING: Final = 1_000_000
"""More cannot be missing in a row: a number that is further off is none of this log."""


class Consent(NamedTuple):
    """What the user has agreed to.

    :ivar prefer: names of files that are right where others contradict them.
    :ivar is_dry: nothing is to be written: as if to all that needs no choice.
    """

    gaps: Numbers = Numbers([])
    may_rebuild: bool = False
    prefer: frozenset[str] = frozenset()
    is_dry: bool = False


class Refused(Exception):
    """``options`` are what to add to the command; none when a choice has to be made."""

    def __init__(self, problems: list[str], options: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems
        self.options = options


class Claim(NamedTuple):
    """A file that may be a segment.

    :ivar seq: of its header, or of its name if that is damaged.
    :ivar why: what is wrong with the header; empty when it is sound.
    """

    name: str
    seq: int
    header: SegmentHeader | None
    why: str
    size: int


class Part(NamedTuple):
    """A segment, as far as it can be known before its frames are read.

    :ivar salt: None when not one frame can be read.
    :ivar first_lsn: the first LSN in it, or for a rebuilt header the lowest that can be read.
    :ivar is_exact: whether it is certain that the segment begins with ``first_lsn``.
    :ivar end: where its data end at the latest, bytes; ``prev_end`` where the next segment says
        that they do, None if that is not known.
    :ivar below_lsn: LSNs from here on belong to a later segment; None in the newest.
    """

    name: str
    seq: int
    header: SegmentHeader | None
    why: str
    salt: int | None
    first_lsn: int
    is_exact: bool
    end: int
    prev_end: int | None
    below_lsn: int | None


class Plan(NamedTuple):
    parts: list[Part]
    left_out: list[str]


def choose(directory: Files, prefer: frozenset[str], is_whole: bool = True) -> Plan:
    """Find the segments of one log.

    :param is_whole: whether it is a server's directory, not an archive.
    :raise Incompatible: it is of another version.
    :raise Refused: files contradict each other.
    :raise OSError: they cannot be read.
    """
    names = directory.names()
    newer: list[str] = []
    claims = [claim for name in names if (claim := _claim(directory, name, newer)) is not None]
    if newer:
        raise unknown_format(directory.path, "\n  ".join(newer))
    claims = [_identified(directory, claim, claims, prefer) for claim in claims]
    kept, left_out = _prefer(claims, prefer)
    kept, copies = _without_copies(directory, kept)
    _refuse_contradictions(kept)
    kept.sort(key=lambda claim: claim.seq)
    return Plan(_parts(directory, kept, is_whole), left_out + copies)


def missing_segments(parts: Iterable[Part], trim_seq: int) -> list[int]:
    """Those that are neither there nor trimmed.

    :raise Refused: absurdly many.
    """
    missing: list[int] = []
    before = max(trim_seq, 1) - 1
    for part in parts:
        if part.seq <= before:
            continue
        if part.seq - before > MAX_MISSING:
            raise Refused(
                [f"{part.name}: {part.seq - before - 1} segments before it are missing"], []
            )
        missing += range(before + 1, part.seq)
        before = part.seq
    return missing


def gap_options(missing: Iterable[int]) -> list[str]:
    return [f"--accept-gap {id_range(span)}" for span in spans_of(missing)]


def _claim(directory: Files, name: str, newer: list[str]) -> Claim | None:
    seq = parse_segment_name(name)
    if seq is None:
        return None
    buffer = directory.read(name)
    header = decode_segment_header(bytes(buffer[:SEGMENT_HEADER_BYTES]))
    if isinstance(header, SegmentHeader):
        return Claim(name, header.seq, header, "", len(buffer))
    if header.foreign:
        newer.append(f"{name}: {header.why}")
    return Claim(name, seq, None, header.why, len(buffer))


def _identified(
    directory: Files, claim: Claim, claims: list[Claim], prefer: frozenset[str]
) -> Claim:
    """A copy may have any name, the one that is right or the other: if its header is damaged, its
    frames have the salt of the segment that it is a copy of.
    """
    others = [each for each in claims if each.header and (prefer & {each.name, claim.name})]
    if claim.header is not None or not others:
        return claim
    found = rebuild(directory.read(claim.name), claim.size, 1, None, frozenset())
    seqs = {each.seq for each in others if found and each.header and each.header.salt == found.salt}
    return claim._replace(seq=seqs.pop()) if len(seqs) == 1 else claim


def _prefer(claims: list[Claim], preferred: frozenset[str]) -> tuple[list[Claim], list[str]]:
    right = [claim for claim in claims if claim.name in preferred]
    seqs = {claim.seq for claim in right}
    stores = {claim.header.store_uuid for claim in right if claim.header}
    kept = [
        claim
        for claim in claims
        if claim in right
        or (
            claim.seq not in seqs
            and (not stores or claim.header is None or claim.header.store_uuid in stores)
            and not _is_misnamed(claim)
        )
        or not right
    ]
    return kept, [claim.name for claim in claims if claim not in kept]


def _without_copies(directory: Files, claims: list[Claim]) -> tuple[list[Claim], list[str]]:
    """Name copies, byte for byte, of others; a file with the right name is taken first."""
    kept: dict[str, Claim] = {}
    copies = []
    for claim in sorted(claims, key=_is_misnamed):
        others = [other for other in kept.values() if other.header and claim.header == other.header]
        if any(directory.read(claim.name) == directory.read(other.name) for other in others):
            copies.append(claim.name)
        else:
            kept[claim.name] = claim
    return [claim for claim in claims if claim.name in kept], copies


def _is_misnamed(claim: Claim) -> bool:
    return claim.name != segment_name(claim.seq)


def _refuse_contradictions(claims: list[Claim]) -> None:
    by_seq: dict[int, list[Claim]] = {}
    by_store: dict[bytes, list[Claim]] = {}
    for claim in claims:
        by_seq.setdefault(claim.seq, []).append(claim)
        if claim.header:
            by_store.setdefault(claim.header.store_uuid, []).append(claim)
    problems = [
        f"{', '.join(map(_describe, each))}: they are the same segment"
        for each in by_seq.values()
        if len(each) > 1
    ]
    if len(by_store) > 1:
        problems += [
            f"{', '.join(claim.name for claim in each)}: of store {store.hex()}"
            for store, each in by_store.items()
        ]
    if problems:
        raise Refused([*problems, "say which is right with --prefer FILE"], [])


def _describe(claim: Claim) -> str:
    if claim.header is None:
        return f"{claim.name} ({claim.why})"
    header = claim.header
    return (
        f"{claim.name} (says that it is segment {header.seq}, begins with LSN {header.first_lsn}, "
        f"made at {header.created_ns} ns)"
    )


def _parts(directory: Files, claims: list[Claim], is_whole: bool) -> list[Part]:
    """From the newest to the oldest, since each says where the one before it ends."""
    parts: list[Part] = []
    after: Part | None = None
    below: int | None = None
    firsts = [claim.header.first_lsn if claim.header else 1 for claim in claims]
    lowest = [1, *accumulate(firsts, max)]
    salts = {claim.header.salt for claim in claims if claim.header}
    for at in range(len(claims) - 1, -1, -1):
        claim = claims[at]
        is_next = after is not None and after.seq == claim.seq + 1
        prev_end = after.header.prev_end if is_next and after and after.header else None
        if after is None and not is_whole and claim.size == SEGMENT_HEADER_BYTES:
            # Finished: all its frames were re-homed.
            prev_end = SEGMENT_HEADER_BYTES
        end = claim.size if prev_end is None else min(prev_end, claim.size)
        found = claim.header and Rebuilt(claim.header.salt, claim.header.first_lsn, True)
        if found is None:
            found = rebuild(directory.read(claim.name), end, lowest[at], below, salts)
        salt, first_lsn, is_exact = found or (None, below or lowest[at], False)
        after = Part(
            claim.name, claim.seq, claim.header, claim.why, salt, first_lsn, is_exact, end,
            prev_end, below,
        )  # fmt: skip
        parts.append(after)
        if salt is not None:
            salts.add(salt)
            below = first_lsn
    return parts[::-1]
