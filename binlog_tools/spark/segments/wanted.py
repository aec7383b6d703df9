"""What is read of a segment: its place, the stretch, the rows that are asked for.

Imports neither numpy nor pyarrow: plans are made of these.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

from beanstalk_twisted.binlog.records.others import JOB_KINDS, CleanStop, Start
from beanstalk_twisted.binlog.segments.format import SegmentHeader

MAX_NUMBER: Final = 1 << 63
"""Spark's integers are signed: what they cannot hold is refused."""

DAMAGE: Final = "damage"
"""The event of a row that stands for what cannot be read."""

Verify: TypeAlias = Literal["frames", "headers", "none"]
"""Which checksums are checked: all, those of frame headers, none."""

Damage: TypeAlias = Literal["fail", "skip"]
Records: TypeAlias = Literal["jobs", "all", "history"]
Copies: TypeAlias = Literal["drop", "keep"]

VERIFY: Final[tuple[Verify, ...]] = get_args(Verify)
DAMAGE_CHOICES: Final[tuple[Damage, ...]] = get_args(Damage)
COPIES_CHOICES: Final[tuple[Copies, ...]] = get_args(Copies)

RECORDS: Final[Mapping[Records, Collection[int]]] = {
    "jobs": JOB_KINDS, "all": range(256), "history": {*JOB_KINDS, Start.kind, CleanStop.kind},
}  # fmt: skip
"""The types of records that each choice of the option ``records`` takes."""


class Stretch(NamedTuple):
    """Bytes from a frame, of ``first_lsn``, to the end of another."""

    start: int
    end: int
    first_lsn: int


class Place(NamedTuple):
    """The segment that is read.

    :ivar server: the name of its store in the table.
    :ivar starts: LSNs of the START records, if the segment begins with re-homed frames.
    """

    path: str
    header: SegmentHeader
    server: str
    starts: tuple[int, ...] = ()


class Condition(NamedTuple):
    """A row's value must be ``=`` one of these, or ``<``, ``<=``, ``>``, ``>=`` the only one."""

    column: str
    how: str
    values: tuple[Any, ...]


class Span(NamedTuple):
    """The smallest and the largest value of a column."""

    low: int
    high: int

    def meets(self, low: int, high: int) -> bool:
        return low <= self.high and high >= self.low


EVERY: Final = Span(0, MAX_NUMBER - 1)
"""All LSNs, and all moments in nanoseconds."""


def bounds(conditions: Iterable[Condition], column: str) -> Span:
    """Return the range that a column of numbers is limited to."""
    low, high = EVERY
    for name, how, values in conditions:
        if name != column or not all(isinstance(value, int) for value in values):
            continue
        if how in ("=", ">", ">="):
            low = max(low, min(values) + (how == ">"))
        if how in ("=", "<", "<="):
            high = min(high, max(values) - (how == "<"))
    return Span(low, high)


class Wanted(NamedTuple):
    """The rows and columns that are asked for.

    :ivar columns: bodies are read, and their checksums checked, only if ``body`` is among them.
    :ivar copies: ``keep``: with the records that compaction and tools restate.
    :ivar damage: ``fail``: a `SourceError` says where; ``skip``: a row of its own does.
    :ivar conditions: on ``lsn``, ``logged_ns``, ``job`` and ``tube``; damage among other LSNs is
        ignored.
    """

    columns: tuple[str, ...]
    records: Records = "jobs"
    copies: Copies = "drop"
    damage: Damage = "fail"
    verify: Verify = "frames"
    conditions: tuple[Condition, ...] = ()

    @property
    def needs_tubes(self) -> bool:
        return "tube" in self.columns or any(each.column == "tube" for each in self.conditions)

    def within(self, lsns: Span) -> "Wanted":
        """Return the same for these LSNs only."""
        if lsns == EVERY:
            return self
        both = Condition("lsn", ">=", (lsns.low,)), Condition("lsn", "<=", (lsns.high,))
        return self._replace(conditions=(*self.conditions, *both))
