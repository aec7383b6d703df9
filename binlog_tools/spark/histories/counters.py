"""Counters: small facts about minutes of tubes, which can be added up in any order.

| kind | slot | value |
| --- | --- | --- |
| an event | 0 | how many there were |
| a state | 0 | how many more jobs are in it when the minute ends than before |
| `oldest` | the minute in which the wait ended, or `LASTS` | when the earliest of them began, ns |
| `wait`, `run` | a length in ns, its first three digits | how many ended in that minute |

Intervals that begin and end within a minute change no depth.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from binlog_tools.spark.histories.intervals import DUE, NOTHING, Intervals, since_known
from binlog_tools.spark.histories.records import (
    EVENTS,
    NONE,
    STATES,
    Event,
    Ints,
    State,
    among,
    changes,
    coded,
    codes,
)
from binlog_tools.spark.histories.tables import is_coded, table, texts

MINUTE_NS: Final = 60_000_000_000
MINUTES_A_DAY: Final = 1440
DAY_NS: Final = MINUTES_A_DAY * MINUTE_NS

LASTS: Final = NONE
"""The slot of an `oldest` whose wait lasts."""

KINDS: Final = (*EVENTS, *STATES[: State.GONE], "oldest", "wait", "run")
_STATE: Final = len(EVENTS)
OLDEST, WAIT, RUN = range(_STATE + State.GONE, len(KINDS))

SCHEMA: Final = pa.schema([
    ("server", pa.string()), ("tube", pa.string()), ("minute", pa.int64()), ("kind", pa.string()),
    ("slot", pa.int64()), ("value", pa.int64()),
])  # fmt: skip
"""``minute`` counts from the epoch."""


class _Facts(NamedTuple):
    """Columns of the same length; ``place``: a number for server and tube, ``kind``: in `KINDS`."""

    place: Ints
    kind: Ints
    minute: Ints
    slot: Ints
    value: Ints

    def added(self) -> "_Facts":
        """Return one for each key: of `oldest` the least value, of others the sum if not 0."""
        if not len(self.place):
            return self
        keys = _Keys.of(self.minute)
        together = keys.number(self.place, self.kind, self.minute)
        order = np.lexsort((self.slot, together))
        heads = np.flatnonzero(changes(together[order], self.slot[order]))
        value, rows = self.value[order], order[heads]
        least, sums = np.minimum.reduceat(value, heads), np.add.reduceat(value, heads)
        found = np.where(self.kind[rows] == OLDEST, least, sums)
        rows, found = rows[found != 0], found[found != 0]
        return _Facts(
            self.place[rows], self.kind[rows], self.minute[rows], self.slot[rows], found
        )  # fmt: skip

    def cut(self, last: Ints) -> "_Facts":
        """Cut waits at midnight, those that last at the last minute of their place's server."""
        since = self.minute
        until = np.where(self.slot == LASTS, np.maximum(since, last[self.place]) + 1, self.slot)
        days = (until - 1) // MINUTES_A_DAY - since // MINUTES_A_DAY + 1
        rows = np.repeat(np.arange(len(since)), days)
        day = since[rows] // MINUTES_A_DAY + np.arange(len(rows)) - (np.cumsum(days) - days)[rows]
        begun = np.maximum(since[rows], day * MINUTES_A_DAY)
        ended = np.minimum(until[rows], (day + 1) * MINUTES_A_DAY)
        return _Facts(self.place[rows], self.kind[rows], begun, ended, self.value[rows]).added()

    def named(self, servers: Any, tubes: Any, is_coded: bool = False) -> pa.Table:
        """:param servers: names; a place is the number of one times that of all tubes, and a
            tube's.
        :return: with `SCHEMA`.
        """
        server, tube = np.divmod(self.place, max(1, len(tubes)))
        return table(SCHEMA, {
            "server": texts(servers, server), "tube": texts(tubes, tube), "minute": self.minute,
            "kind": texts(KINDS, self.kind), "slot": self.slot, "value": self.value,
        }, is_coded)  # fmt: skip


class _Keys(NamedTuple):
    """Place, kind and minute as one number."""

    first: int
    span: int

    @classmethod
    def of(cls, *minutes: Ints) -> "_Keys":
        some = [each for each in minutes if len(each)]
        first = min((int(each.min()) for each in some), default=0)
        return cls(first, max((int(each.max()) for each in some), default=0) - first + 1)

    def number(self, place: Ints, kind: Any, minute: Ints) -> Ints:
        found: Ints = (place * len(KINDS) + kind) * self.span + minute - self.first
        return found

    def parts(self, number: Ints) -> tuple[Ints, Ints, Ints]:
        """The inverse of `number`."""
        both, minute = np.divmod(number, self.span)
        place, kind = np.divmod(both, len(KINDS))
        return place, kind, minute + self.first


def counters_of(intervals: Intervals) -> pa.Table:
    """Return counters with `SCHEMA`, each key once; of waits that last, the earliest of a tube."""
    events = intervals.records.events
    server, servers = coded(events, "server")
    tube, tubes = coded(events, "tube")
    place = (server * len(tubes) + tube)[intervals.row]
    found = [_sums(intervals, place), _waits(intervals, place).added(), *_lengths(intervals, place)]
    facts = _Facts(*(np.concatenate(part) for part in zip(*found, strict=True)))
    return facts.named(servers, tubes, is_coded(events))


def merged(tables: list[pa.Table]) -> pa.Table:
    """Add up the counters of several parts of the jobs; dictionaries stay dictionaries."""
    given = pa.concat_tables(tables) if tables else SCHEMA.empty_table()
    facts, servers, tubes = _facts_of(given)
    return facts.added().named(servers, tubes, pa.types.is_dictionary(given["kind"].type))


def _facts_of(counters: pa.Table) -> tuple[_Facts, Any, Any]:
    """:return: with the names of servers and tubes."""
    server, servers = coded(counters, "server")
    tube, tubes = coded(counters, "tube")
    kind = codes(counters, "kind", KINDS).astype(np.int64)
    rest = (counters[name].to_numpy() for name in ("minute", "slot", "value"))
    return _Facts(server * len(tubes) + tube, kind, *rest), servers, tubes


def _lasts(last_ns: Mapping[str, int], servers: Any, tubes: Any) -> Ints:
    """The last minute of the server of each place."""
    found = [last_ns.get(name, 0) // MINUTE_NS for name in servers.to_pylist()]
    return np.repeat(np.array(found, np.int64), len(tubes))


def _stood(intervals: Intervals) -> tuple[Ints, Any, Ints, Ints]:
    """Where jobs stood: the intervals' rows, the state, since when, until when."""
    states = intervals.records.state
    there = np.flatnonzero(states != State.GONE)
    behind = np.flatnonzero(intervals.has_ready)
    return (
        np.concatenate([there, behind]),
        np.concatenate([states[there], np.full(len(behind), State.READY, np.int8)]),
        np.concatenate([intervals.at_ns[there], intervals.ready_ns[behind]]) // MINUTE_NS,
        _minutes(np.concatenate([intervals.left_ns[there], intervals.next_ns[behind]])),
    )


def _minutes(moments_ns: Ints) -> Ints:
    return np.where(moments_ns == NONE, LASTS, moments_ns // MINUTE_NS)


def _sums(intervals: Intervals, place: Ints) -> _Facts:
    """How many events there were, and what intervals add to the depths of minutes."""
    event = intervals.records.event
    told = np.flatnonzero(~among(event, (Event.COPY, Event.TOUCH, Event.UPDATE)))
    minute = intervals.at_ns[told] // MINUTE_NS
    row, state, since, until = _stood(intervals)
    seen = np.flatnonzero(since < until)
    ends = seen[until[seen] != LASTS]
    keys = _Keys.of(minute, since[seen], until[ends])
    kind = _STATE + state.astype(np.int64)
    more = [keys.number(place[told], event[told], minute),
            keys.number(place[row[seen]], kind[seen], since[seen])]  # fmt: skip
    less = keys.number(place[row[ends]], kind[ends], until[ends])
    number, value = _balance(np.concatenate(more), less)
    parts = keys.parts(number)
    return _Facts(*parts, np.zeros(len(number), np.int64), value)


def _balance(more: Ints, less: Ints) -> tuple[Ints, Ints]:
    """How much more often than in ``less`` each number is in ``more``, where it is not as often."""
    number, place = np.unique(np.concatenate([more, less]), return_inverse=True)
    found: Ints = np.bincount(place[: len(more)], minlength=len(number)) - np.bincount(
        place[len(more) :], minlength=len(number))  # fmt: skip
    return number[found != 0], found[found != 0]


def _waits(intervals: Intervals, place: Ints) -> _Facts:
    """The waits that somebody may see at the end of a minute."""
    first = np.flatnonzero(intervals.records.state == State.READY)
    behind = np.flatnonzero(intervals.has_ready)
    where = place[np.concatenate([first, behind])]
    since_ns = np.concatenate([intervals.at_ns[first], intervals.ready_ns[behind]])
    until = _minutes(np.concatenate([intervals.end_ns[first], intervals.next_ns[behind]]))
    since = since_ns // MINUTE_NS
    old = since < until
    old[_hidden(where, since_ns, old & (until == LASTS))] = False
    kind = np.full(int(old.sum()), OLDEST)
    return _Facts(where[old], kind, since[old], until[old], since_ns[old])


def _hidden(place: Ints, since_ns: Ints, lasting: Any) -> Ints:
    """Of waits that last, those behind the earliest of their tube: they are never the oldest."""
    rows = np.flatnonzero(lasting)
    order = rows[np.lexsort((since_ns[rows], place[rows]))]
    repeats: Ints = order[1:][place[order[1:]] == place[order[:-1]]]
    return repeats


def _lengths(intervals: Intervals, place: Ints) -> Iterator[_Facts]:
    """How many waits and runs of each length ended in each minute."""
    records = intervals.records
    first = np.flatnonzero(
        (records.state == State.READY) & (intervals.ended_by == Event.RESERVE)
        & since_known(intervals)
    )  # fmt: skip
    behind = np.flatnonzero(intervals.has_ready & (intervals.next_event == Event.RESERVE))
    yield _counted(
        WAIT, place[np.concatenate([first, behind])],
        np.concatenate([intervals.at_ns[first], intervals.ready_ns[behind]]),
        np.concatenate([intervals.end_ns[first], intervals.next_ns[behind]]),
    )  # fmt: skip
    runs = np.flatnonzero(
        (records.state == State.RESERVED) & (intervals.run_since_ns != NONE)
        & (intervals.ended_by < DUE)
        & ~among(intervals.ended_by, (NOTHING, Event.TOUCH, Event.UPDATE))
    )  # fmt: skip
    yield _counted(RUN, place[runs], intervals.run_since_ns[runs], intervals.end_ns[runs])


def _counted(kind: int, place: Ints, since_ns: Ints, until_ns: Ints) -> _Facts:
    minute = until_ns // MINUTE_NS
    keys = _Keys.of(minute)
    number = keys.number(place, kind, minute) * _SLOTS + slots_of(until_ns - since_ns)
    number = np.sort(number)
    heads = np.flatnonzero(changes(number))
    number, slot = np.divmod(number[heads], _SLOTS)
    count = np.diff(np.append(heads, len(until_ns)))
    return _Facts(*keys.parts(number), lengths_of(slot), count)


_POWERS: Final = 10 ** np.arange(19, dtype=np.int64)

_SLOTS: Final = 2 * 20 * 1000
"""More than there are lengths of three digits, of either sign."""


def slots_of(lengths_ns: Ints) -> Ints:
    """Return the first three digits of lengths and how many more there are, in their order."""
    size = np.abs(lengths_ns)
    more = np.maximum(0, np.searchsorted(_POWERS, size, side="right") - 3)
    found: Ints = np.where(lengths_ns < 0, _SLOTS // 2, 0) + more * 1000 + size // _POWERS[more]
    return found


def lengths_of(codes: Ints) -> Ints:
    """The lengths of these codes."""
    more, digits = np.divmod(codes % (_SLOTS // 2), 1000)
    return np.where(codes >= _SLOTS // 2, -1, 1) * digits * _POWERS[more]


def clipped(counters: pa.Table, first: int) -> pa.Table:
    """Return what counters say from a minute on: depths and waits begin then at the earliest."""
    minute, slot = counters["minute"].to_numpy(), counters["slot"].to_numpy()
    kind = codes(counters, "kind", KINDS)
    is_depth = (kind >= _STATE) & (kind < OLDEST)
    kept = (minute >= first) | is_depth | ((kind == OLDEST) & (slot > first))
    place = SCHEMA.get_field_index("minute")
    begun = pa.array(np.maximum(minute, first))
    return counters.set_column(place, "minute", begun).filter(pa.array(kept))


def by_day(counters: pa.Table, last_ns: Mapping[str, int]) -> pa.Table:
    """Cut waits at midnight, so that each day of a server stands by itself."""
    facts, servers, tubes = _facts_of(counters)
    is_old = facts.kind == OLDEST
    is_seen = is_old.copy()
    is_seen[_hidden(facts.place, facts.value, is_old & (facts.slot == LASTS))] = False
    old, others = (_Facts(*(part[rows] for part in facts)) for rows in (is_seen, ~is_old))
    # No other counter has the key of a piece.
    parts = zip(others, old.cut(_lasts(last_ns, servers, tubes)), strict=True)
    made = _Facts(*map(np.concatenate, parts))
    return made.named(servers, tubes, pa.types.is_dictionary(counters["kind"].type))
