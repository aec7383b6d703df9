"""Which segments a query reads, cut into tasks: conditions leave segments out, many small ones
become one task, a large one becomes many; and what of them follows the LSNs that a table has.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Final, NamedTuple, TypeVar

from beanstalk_twisted.binlog.archive_manifest import Entry
from beanstalk_twisted.binlog.records.jobs import KEY
from beanstalk_twisted.binlog.records.others import CleanStop
from beanstalk_twisted.binlog.segments.format import (
    REHOMED,
    SEGMENT_HEADER_BYTES,
    TRAILER_BYTES,
    SegmentHeader,
)
from beanstalk_twisted.binlog.segments.seals import FoundSeal, SealIndex, read_seal
from binlog_tools.console.wording import text_of
from binlog_tools.spark.errors import SourceError
from binlog_tools.spark.files import BadRange, open_file
from binlog_tools.spark.segments.wanted import (
    EVERY,
    RECORDS,
    Condition,
    Place,
    Records,
    Span,
    Stretch,
    bounds,
)

Item = TypeVar("Item")


def packed(
    items: Iterable[Item], size_of: Callable[[Item], int], most: int
) -> list[tuple[Item, ...]]:
    """Items in their order, of so many bytes together at most, or one that has more."""
    tasks: list[list[Item]] = []
    size = 0
    for item in items:
        own = size_of(item)
        if not tasks or size + own > most:
            tasks.append([])
            size = 0
        tasks[-1].append(item)
        size += own
    return [tuple(task) for task in tasks]


LOOKS_AT_ONCE: Final = 16
"""Files that are looked at at the same time: on network storage each takes milliseconds."""

Key = tuple[bytes, int]
"""What identifies a segment: its store and its number in it."""

Durables = dict[int, tuple[int, int]]
"""By the salt of a segment, up to which byte and LSN it was durable at an earlier look."""


class Candidate(NamedTuple):
    """A file that is a segment.

    :ivar path: or its URL.
    :ivar is_archived: it is complete, and never changes.
    :ivar is_in_use: it lies in the directory of a server, and is the newest one there.
    :ivar copies: other files that are the same segment.
    :ivar known: what the manifest beside it says; then it was not opened.
    """

    path: str
    header: SegmentHeader
    size: int
    is_archived: bool
    is_in_use: bool
    copies: tuple[str, ...] = ()
    known: Entry | None = None


class Segment(NamedTuple):
    """A segment, and what of it may be read.

    :ivar size: how much of the file may be mapped: what follows may be cut off.
    :ivar next_lsn: the LSN after it, None if nothing says that.
    :ivar logged_ns: when its first and last frames were built; None if nothing says that.
    :ivar seal: what its seal says, if it has one that holds, and was read.
    :ivar copies: other files that are this segment.
    :ivar names_tubes: whether ``seal`` has the names of all of its tubes.
    """

    path: str
    header: SegmentHeader
    size: int
    stretch: Stretch
    next_lsn: int | None
    logged_ns: tuple[int, int] | None
    seal: SealIndex | None
    copies: tuple[str, ...] = ()
    names_tubes: bool = True

    @property
    def key(self) -> Key:
        return self.header.store_uuid, self.header.seq


def measured(
    chosen: Mapping[Key, Candidate], with_live: bool, seals_from: int = 0,
    durable: Durables | None = None,
) -> list[Segment]:  # fmt: skip
    """Return how far each segment may be read, if anything of it may.

    :param durable: of a stream: looked up and updated, so that nothing is looked at twice.
    """

    def measure(key: Key) -> Segment | None:
        each, after = chosen[key], chosen.get(_next(key))
        try:
            header = after.header if after else None
            return _measure(each, header, with_live, seals_from, durable)
        except FileNotFoundError:
            return None
        except BadRange:
            # All of it, so that whoever reads it tells what is wrong.
            return _segment(each, *(_up_to(after.header) if after else (each.size, None)))

    found: dict[Key, Segment | None] = {}
    for key, each in chosen.items():
        after = chosen.get(_next(key))
        # A manifest alone is never believed: records behind a wrong end would be missed.
        known = each.known if after is not None else None
        found[key] = _as_known(each, known, after.header) if known and after else None
    opened = [key for key, segment in found.items() if segment is None]
    with ThreadPoolExecutor(LOOKS_AT_ONCE) as pool:
        found.update(zip(opened, pool.map(measure, opened), strict=True))
    return [segment for segment in found.values() if segment is not None]


def _next(key: Key) -> Key:
    store, seq = key
    return store, seq + 1


def _as_known(each: Candidate, known: Entry, after: SegmentHeader) -> Segment:
    """Up to where its successor says, the rest from what a manifest says."""
    found = _segment(each, *_up_to(after))
    if found.stretch.end != known.end:
        return found
    return found._replace(seal=known.seal, logged_ns=known.logged_ns, names_tubes=known.names_tubes)


def _up_to(after: SegmentHeader) -> tuple[int, int]:
    return after.prev_end, after.first_lsn


def _measure(
    each: Candidate, after: SegmentHeader | None, with_live: bool, seals_from: int,
    durable: Durables | None,
) -> Segment | None:  # fmt: skip
    if after is not None and each.size < seals_from:
        return _segment(each, *_up_to(after))
    with open_file(each.path, each.size) as file:
        seal = read_seal(file.read, each.size, each.header)
    if after is not None:
        is_right = seal is not None and seal.end == after.prev_end
        return _segment(each, *_up_to(after), seal if is_right else None)
    if seal is not None and (not each.is_in_use or _is_ended(each, seal)):
        return _segment(each, seal.end, seal.next_lsn, seal)
    if each.is_archived:
        return _segment(each, _without_trailer(each), None)
    if durable is not None and each.is_in_use:
        return _measure_growing(each, durable)
    return _measure_unfinished(each) if with_live else None


def _is_ended(each: Candidate, seal: FoundSeal) -> bool:
    """Return True if a server ended in order here: a power loss may leave the seal only."""
    from binlog_tools.spark.segments.framing import is_intact

    if CleanStop.kind not in seal.content.types or not seal.content.indexed:
        return False
    last = seal.content.indexed[-1]
    with open_file(each.path, each.size) as file:
        buffer = file.view(each.size, last.offset, seal.end)
    stretch = Stretch(last.offset, seal.end, last.base_lsn)
    return is_intact(buffer, each.header, stretch, "frames", with_bodies=False)


def _segment(
    each: Candidate, end: int, next_lsn: int | None, seal: FoundSeal | None = None
) -> Segment:
    logged = None
    content = seal.content if seal is not None else None
    if seal is not None and seal.content.indexed:
        logged = seal.content.indexed[0].time_ns, seal.sealed_ns
    stretch = Stretch(SEGMENT_HEADER_BYTES, end, each.header.first_lsn)
    size = min(each.size, end)
    return Segment(each.path, each.header, size, stretch, next_lsn, logged, content, each.copies)


def _without_trailer(each: Candidate) -> int:
    """Where the frames of an archived segment end whose seal cannot be understood."""
    with open_file(each.path, each.size) as file:
        end = file.read(max(0, each.size - TRAILER_BYTES), each.size)
    return each.size - TRAILER_BYTES if end.endswith(b"TQLEND\r\n") else each.size


def _measure_unfinished(each: Candidate) -> Segment | None:
    """A segment that a server may be writing, or was writing when it crashed."""
    from binlog_tools.spark.segments.durable import durable_part

    with open_file(each.path, each.size) as file:
        buffer = memoryview(file.snapshot())
    whole = Stretch(SEGMENT_HEADER_BYTES, _without_trailer(each), each.header.first_lsn)
    is_complete = not each.is_in_use
    found = durable_part(buffer, each.header, whole, is_complete)
    if found.end == SEGMENT_HEADER_BYTES:
        return None
    stretch = Stretch(SEGMENT_HEADER_BYTES, found.end, each.header.first_lsn)
    logged = (found.first_ns, found.last_ns)
    is_whole = found.last_ns and found.end <= len(buffer)
    size = min(found.end, len(buffer))
    return Segment(
        each.path, each.header, size, stretch, found.next_lsn if is_whole else None,
        logged if is_whole else None, None,
    )  # fmt: skip


def _measure_growing(each: Candidate, durable: Durables) -> Segment:
    """The newest segment of a log that a stream follows, from where it was durable before."""
    from binlog_tools.spark.segments.durable import durable_end

    header = each.header
    before = durable.get(header.salt, (SEGMENT_HEADER_BYTES, header.first_lsn))
    with open_file(each.path, each.size) as file:
        end, next_lsn = durable_end(file.read, header, *before)
    durable[header.salt] = end, next_lsn
    stretch = Stretch(SEGMENT_HEADER_BYTES, end, header.first_lsn)
    return Segment(each.path, header, end, stretch, next_lsn, None, None, each.copies)


NOTHING: Final = Span(1 << 63, -1)

TASK_BYTES: Final = 64 << 20
"""What a task reads: a segment of the usual size, 0.2 s of work."""


class Share(NamedTuple):
    """A part of a segment for a task to read.

    :ivar size: how much of the file may be mapped.
    :ivar copies: other files that have the same.
    :ivar elsewhere: where the file may be by then: a server moves segments on.
    :ivar tubes: names that were said before; None: they are searched for, unless a seal says them.
    :ivar next_lsn: the LSN after the segment, None if nothing says that.
    :ivar lsns: the only records that are wanted, and the only damage.
    """

    place: Place
    stretch: Stretch
    size: int
    copies: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    tubes: Mapping[int, bytes] | None = None
    next_lsn: int | None = None
    lsns: Span = EVERY


class Trouble(NamedTuple):
    """A row of damage, known before reading: ``place`` after a gap, ``path`` of a bad file."""

    place: Place | None
    problem: str
    lsn: int | None
    size: int | None
    path: str = ""


Task = tuple[Share | Trouble, ...]
"""What one task reads, in this order."""


def shares_of(
    segment: Segment, server: str, task_bytes: int = TASK_BYTES, lsns: Span = EVERY,
    logged_ns: Span = EVERY,
) -> Iterator[Share]:  # fmt: skip
    """Yield the parts of a segment that may have such records, each at most a task's size."""
    place = Place(segment.path, segment.header, server)
    for stretch in _cut(segment, task_bytes, lsns, logged_ns):
        yield Share(place, stretch, segment.size, segment.copies, next_lsn=segment.next_lsn)


def _cut(segment: Segment, task_bytes: int, lsns: Span, logged_ns: Span) -> Iterator[Stretch]:
    whole = segment.stretch
    if whole.end - whole.start <= task_bytes and lsns == logged_ns == EVERY:
        yield whole
        return
    known = segment.seal.indexed if segment.seal is not None else ()
    places = [
        (each.offset, each.base_lsn, each.time_ns) for each in known if each.offset < whole.end
    ]
    if not places or places[0][:2] != (whole.start, whole.first_lsn):
        yield whole
        return
    edges = [*places, (whole.end, segment.next_lsn or EVERY.high, EVERY.high)]
    start: tuple[int, int] | None = None
    for (at, lsn, time_ns), (end, next_lsn, next_ns) in pairwise(edges):
        is_wanted = lsns.meets(lsn, next_lsn - 1) and logged_ns.meets(time_ns, next_ns)
        if start is not None and (not is_wanted or end - start[0] > task_bytes):
            yield Stretch(start[0], at, start[1])
            start = None
        if is_wanted and start is None:
            start = at, lsn
    if start is not None:
        yield Stretch(start[0], whole.end, start[1])


def tasks_of(items: Iterable[Share | Trouble], task_bytes: int = TASK_BYTES) -> list[Task]:
    """Pack neighbours together, up to a size."""
    return packed(items, _size_of, task_bytes)


def _size_of(item: Share | Trouble) -> int:
    return item.stretch.end - item.stretch.start if isinstance(item, Share) else 0


def may_match(segment: Segment, conditions: Iterable[Condition], records: Records) -> bool:
    """Return False if no row of a segment can be wanted, as far as it is known."""
    known: dict[str, Span | frozenset[str]] = {}
    if segment.next_lsn is not None:
        known["lsn"] = Span(segment.header.first_lsn, segment.next_lsn - 1)
    if segment.logged_ns is not None:
        known["logged_ns"] = Span(*segment.logged_ns)
    seal = segment.seal
    if seal is not None:
        # The ids in KEY records are not counted: those jobs are gone.
        if KEY not in seal.types or KEY not in RECORDS[records]:
            known["job"] = Span(*seal.jobs) if seal.jobs != (0, 0) else NOTHING
        if segment.names_tubes:
            known["tube"] = frozenset(text_of(name) for name in seal.tubes.values())
    return all(_may_fulfil(known.get(each.column), each) for each in conditions)


def _may_fulfil(known: Span | frozenset[str] | None, condition: Condition) -> bool:
    if known is None:
        return True
    if isinstance(known, frozenset):
        return not known.isdisjoint(condition.values)
    if condition.how == "=":
        return any(known.low <= value <= known.high for value in condition.values)
    wanted = bounds([condition], condition.column)
    return known.meets(wanted.low, wanted.high)


# Increments.  A server that is started on an older copy of its directory gives the same LSNs to
# other records.  Every start makes a segment, so headers tell the two histories apart.

MARKS: Final = 16
"""Segments of a store, the newest ones, whose headers are remembered: 1 GiB of full ones.  Each is
a line in every checkpoint of a table's log."""

SEQ_BITS: Final = (1 << 31) - 1
"""The bits of a sequence number in a mark."""


def last_lsn(item: Share | Trouble) -> int | None:
    """Of what it covers, missing records included; None if that is known only when it was read."""
    if isinstance(item, Share):
        return None if item.next_lsn is None else item.next_lsn - 1
    return None if item.place is None else item.place.header.first_lsn - 1


def store_of(item: Share | Trouble) -> str:
    """The UUID of the store in hex; of a file whose header cannot be used, its path."""
    return item.place.header.store_uuid.hex() if item.place is not None else f"file {item.path}"


def mark_of(trouble: Trouble) -> int:
    """A number that stays while a file is unreadable in the same way."""
    return zlib.crc32(repr((trouble.problem, trouble.size)).encode())


def mark_names(store: str) -> list[str]:
    """The names by which `marks_of` tells of a store."""
    return [f"{store} {slot}" for slot in range(MARKS)]


def marks_of(items: Iterable[Share | Trouble]) -> dict[str, int]:
    """What tells these segments from those of another history, by one of `mark_names`."""
    headers = (item.place.header for item in items if isinstance(item, Share))
    return {_slot(header): header_mark(header) for header in headers}


def _slot(header: SegmentHeader) -> str:
    return f"{header.store_uuid.hex()} {header.seq % MARKS}"


def header_mark(header: SegmentHeader) -> int:
    """What tells a segment from one of another history with the same number, 63 bits."""
    told = header.salt, header.first_lsn, header.created_ns, header.prev_end
    return (header.seq & SEQ_BITS) << 32 | zlib.crc32(repr(told).encode())


def refuse_other_histories(items: Iterable[Share | Trouble], known: Mapping[str, int]) -> None:
    """Raise SourceError if a segment is not the one that had its number or LSNs."""
    newest: dict[str, int] = {}
    for item in items:
        store = store_of(item)
        if store not in newest:
            newest[store] = _newest(store, known)
        if isinstance(item, Share) and _is_other(item, known, newest[store]):
            header = item.place.header
            raise SourceError(
                "BINLOG_HISTORIES_DIFFER",
                f"{item.place.path}: segment {header.seq} of store {store} is of another "
                "history than the records that were taken before: its log was restored, "
                "or started from an older copy; nothing was written; name the logs of before, or "
                "write a new table of these",
            )


def _newest(store: str, known: Mapping[str, int]) -> int:
    """The sequence number of the newest segment that was taken; 0 if nothing says it."""
    return max(known.get(name, 0) for name in mark_names(store)) >> 32


def _is_other(share: Share, known: Mapping[str, int], newest: int) -> bool:
    header = share.place.header
    mark, last = known.get(_slot(header), 0), known.get(header.store_uuid.hex(), -1)
    seq = header.seq & SEQ_BITS
    if not newest or mark >> 32 == seq:
        return newest > 0 and mark != header_mark(header)
    if seq < newest:
        return share.next_lsn is not None and share.next_lsn - 1 > last
    # Records that were durable are written once more if a crash lost that they were.
    return header.first_lsn <= last and not header.flags & REHOMED


def increment(
    items: Iterable[Share | Trouble], known: Mapping[str, int], tolerant: bool
) -> Iterator[Share | Trouble]:
    """Yield what follows the last LSNs that are known.

    :param known: by `store_of`: the last LSN; of an unreadable file, its mark.
    :param tolerant: whether missing LSNs are a row of damage, or else an error.
    """
    reached: dict[str, int | None] = {}
    for item in items:
        store = store_of(item)
        if item.place is None:
            assert isinstance(item, Trouble)
            if known.get(store) != mark_of(item):
                yield item
            continue
        seq, above, last = item.place.header.seq, known.get(store, -1), last_lsn(item)
        before = reached.setdefault(store, known.get(store))
        if isinstance(item, Share):
            if before is not None:
                yield from _hole(item, before, tolerant)
            item = item._replace(lsns=Span(above + 1, EVERY.high) if above >= 0 else EVERY)
        if last is None and seq & SEQ_BITS < _newest(store, known):
            # Nothing says where it ends, but a later one was taken.
            last = above
        if last is None or last > above:
            yield item
        reached[store] = last if before is None or last is None else max(last, before)


def _hole(share: Share, before: int, tolerant: bool) -> Iterator[Trouble]:
    header = share.place.header
    if header.first_lsn <= before + 1:
        return
    what = (
        f"LSN {before + 1} to {header.first_lsn - 1} of store {header.store_uuid.hex()} are in no "
        f"segment before {share.place.path}"
    )
    if not tolerant:
        raise SourceError("BINLOG_DAMAGED", f"{what}; name the archive too, and all segments; or "
                          "go on without them with --damage skip")  # fmt: skip
    yield Trouble(share.place, what, before + 1, None)
