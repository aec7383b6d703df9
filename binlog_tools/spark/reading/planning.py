"""Which segments a query reads, cut into tasks: filters leave segments out, many small ones become
one task, a large one becomes many.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise, zip_longest
from typing import Any, Final, NamedTuple

from beanstalk_twisted.binlog.records.jobs import KEY
from beanstalk_twisted.binlog.records.others import Seal
from beanstalk_twisted.binlog.segments.format import REHOMED, parse_segment_name
from beanstalk_twisted.binlog.segments.seals import SealIndex
from binlog_tools.console.wording import text_of
from binlog_tools.logs.stored import type_name
from binlog_tools.spark.definitions.addresses import name_of
from binlog_tools.spark.definitions.packing import packed
from binlog_tools.spark.reading.measuring import Segment
from binlog_tools.spark.segments.wanted import (
    DAMAGE,
    EVERY,
    RECORDS,
    Condition,
    Place,
    Records,
    Span,
    Stretch,
)

TASK_BYTES: Final = 64 << 20
"""What a task reads: a segment of the usual size, 0.2 s of work."""


class Share(NamedTuple):
    """A part of a segment for a task to read.

    :ivar size: how much of the file may be mapped.
    :ivar copies: other files that have the same.
    :ivar elsewhere: where the file may be by then: a server moves segments on.
    :ivar is_oldest: no other task reads of this segment, nor of earlier ones of its log.
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
    is_oldest: bool = False
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


def oldest_marked(tasks: Iterable[Task]) -> Iterator[Task]:
    """Mark ``is_oldest`` in the first task of each log the segments that only this task reads."""
    every = list(tasks)
    begun: set[bytes] = set()
    for task, following in zip_longest(every, every[1:], fillvalue=()):
        continued = {_key(item) for item in following if isinstance(item, Share)}
        stores = {item.place.header.store_uuid for item in task if isinstance(item, Share)}
        yield tuple(
            item._replace(is_oldest=True)
            if isinstance(item, Share)
            and item.place.header.store_uuid not in begun
            and _key(item) not in continued
            and parse_segment_name(name_of(item.place.path)) is not None
            else item
            for item in task
        )
        begun |= stores


def _key(share: Share) -> tuple[bytes, int]:
    return share.place.header.store_uuid, share.place.header.seq


# Filters.  Spark applies each to all rows again: a segment too many costs time, nothing else.

_BOUNDS: Final = {
    "EqualTo": "=", "EqualNullSafe": "=", "In": "=", "GreaterThan": ">",
    "GreaterThanOrEqual": ">=", "LessThan": "<", "LessThanOrEqual": "<=",
}  # fmt: skip
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

NOTHING: Final = Span(1 << 63, -(1 << 63))
"""No value at all."""


def conditions_of(filters: Iterable[Any]) -> tuple[Condition, ...]:
    """Spark's filters, as far as segments can be left out by them."""
    found = (_condition(each) for each in filters)
    return tuple(each for each in found if each is not None)


def _condition(each: Any) -> Condition | None:
    how = _BOUNDS.get(type(each).__name__)
    if how is None or len(each.attribute) != 1:
        return None
    values = tuple(each.value) if type(each).__name__ == "In" else (each.value,)
    values = tuple(_comparable(value) for value in values)
    if any(value is None for value in values):
        return None
    return Condition(each.attribute[0], how, values)


def _comparable(value: Any) -> int | str | None:
    """Return a moment as microseconds since the epoch; None for what cannot be compared safely."""
    if isinstance(value, datetime):
        return None if value.tzinfo is None else (value - _EPOCH) // _MICROSECOND
    return value if isinstance(value, int | str) and not isinstance(value, bool) else None


Stats = dict[str, Span | frozenset[str]]


def stats_of(segment: Segment, server: str, records: Records) -> Stats:
    """What is known of a segment's columns.  Rows of damage are null there, or in the bounds."""
    header = segment.header
    # Re-homed records are of earlier ones.
    first_incarnation = 0 if header.flags & REHOMED else header.incarnation
    stats: Stats = {
        "server": frozenset([server]),
        "segment": Span(header.seq, header.seq),
        "incarnation": Span(first_incarnation, header.incarnation),
    }
    if segment.next_lsn is not None:
        stats["lsn"] = Span(header.first_lsn, segment.next_lsn - 1)
    if segment.logged_ns is not None:
        stats.update(_moments("logged", *segment.logged_ns))
    if segment.seal is not None:
        stats.update(_of_seal(segment.seal, records))
        if segment.names_tubes:
            stats["tube"] = frozenset(text_of(name) for name in segment.seal.tubes.values())
    return stats


def _of_seal(seal: SealIndex, records: Records) -> Stats:
    kinds = [kind for kind in seal.types if kind in RECORDS[records]]
    # The seal does not count itself, and damage is found by looking.
    stats: Stats = {"event": frozenset({*map(type_name, kinds), type_name(Seal.kind), DAMAGE})}
    has_jobs = seal.jobs != (0, 0)
    if KEY not in kinds:
        # The ids in KEY records are not counted: those jobs are gone.
        stats["job"] = Span(*seal.jobs) if has_jobs else NOTHING
    if records == "jobs":
        none: Stats = {"time": NOTHING, "time_ns": NOTHING}
        stats.update(_moments("time", *seal.times_ns) if has_jobs else none)
    return stats


def _moments(name: str, low_ns: int, high_ns: int) -> Stats:
    return {f"{name}_ns": Span(low_ns, high_ns), name: Span(low_ns // 1000, high_ns // 1000)}


def may_match(stats: Stats, conditions: Iterable[Condition]) -> bool:
    return all(_may_fulfil(stats.get(each.column), each) for each in conditions)


def _may_fulfil(known: Span | frozenset[str] | None, condition: Condition) -> bool:
    if known is None:
        return True
    if isinstance(known, frozenset):
        return condition.how != "=" or any(value in known for value in condition.values)
    return any(_reaches(known, condition.how, value) for value in condition.values)


def _reaches(span: Span, how: str, value: Any) -> bool:
    if not isinstance(value, int):
        return True
    if how == "=":
        return span.low <= value <= span.high
    if how in (">", ">="):
        return span.high > value or (how == ">=" and span.high == value)
    return span.low < value or (how == "<=" and span.low == value)
