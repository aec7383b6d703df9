"""Which segments a query reads, cut into tasks: conditions leave segments out, many small ones
become one task, a large one becomes many.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.records.jobs import KEY
from binlog_tools.console.wording import text_of
from binlog_tools.spark.definitions.packing import packed
from binlog_tools.spark.reading.measuring import Segment
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

NOTHING: Final = Span(1 << 63, -1)
"""No value at all."""

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
    """Something missing that is known before anything is read: a row of damage.

    :ivar place: of the segment after a gap; None: no segment is known.
    :ivar first_seq: of a gap, the first segment that is missing.
    :ivar path: of a file whose header cannot be used.
    """

    place: Place | None
    problem: str
    lsn: int | None
    size: int | None
    first_seq: int | None = None
    path: str = ""


Task = tuple[Share | Trouble, ...]
"""What one task reads, in this order."""


def shares_of(
    segment: Segment, server: str, task_bytes: int = TASK_BYTES, lsns: Span = EVERY,
    logged_ns: Span = EVERY,
) -> Iterator[Share]:  # fmt: skip
    """The parts of a segment that may have such records, each of one task's size at most as far as
    the seal's index allows.
    """
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
    """Return False if no row of a segment can be wanted, as far as it is known.

    Rows of damage are null, or within these bounds.
    """
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
