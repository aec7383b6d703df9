"""Which segments a query need not read: those that cannot have a row that it asks for.

Spark applies all filters to each row again, so a segment that is read though it need not be costs
time, and nothing else.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from beanstalk_twisted.binlog.records.jobs import KEY
from beanstalk_twisted.binlog.records.others import Seal
from beanstalk_twisted.binlog.segments.format import REHOMED
from beanstalk_twisted.binlog.segments.seals import SealIndex
from binlog_tools.console.wording import text_of
from binlog_tools.logs.stored import type_name
from binlog_tools.spark.reading.measuring import Segment
from binlog_tools.spark.segments.conditions import Condition, Span
from binlog_tools.spark.segments.decoding import RECORDS, Records
from binlog_tools.spark.segments.producing import DAMAGE

_BOUNDS: Final = {
    "EqualTo": "=", "EqualNullSafe": "=", "In": "=", "GreaterThan": ">",
    "GreaterThanOrEqual": ">=", "LessThan": "<", "LessThanOrEqual": "<=",
}  # fmt: skip
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


NOTHING: Final = Span(1 << 63, -(1 << 63))
"""No value at all."""


def conditions_of(filters: Iterable[Any]) -> tuple[Condition, ...]:
    """Spark's filters, as far as something can be made of them."""
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
    """A moment as microseconds since the epoch; None for what cannot be compared with certainty."""
    if isinstance(value, datetime):
        return None if value.tzinfo is None else (value - _EPOCH) // _MICROSECOND
    return value if isinstance(value, int | str) and not isinstance(value, bool) else None


Stats = dict[str, Span | frozenset[str]]


def stats_of(segment: Segment, server: str, records: Records) -> Stats:
    """What is known of the columns of a segment, by name.  Rows of damage are not counted, since
    they have null there or are in their bounds.
    """
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
