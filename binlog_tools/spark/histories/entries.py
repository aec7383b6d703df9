"""
Entries: small facts about minutes of tubes, which can be added up in any order.

| kind | slot | value |
| --- | --- | --- |
| an event | 0 | how many there were |
| a state | 0 | how many more jobs are in it when the minute ends than before |
| `oldest` | the minute in which the wait ended, or `LASTS` | when the earliest of them began, ns |
| `wait`, `run` | a length in ns, its first three digits | how many ended in that minute |

Stays that begin and end within a minute change no depth.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from binlog_tools.spark.histories.images import (
    COPY,
    EVENTS,
    GONE,
    READY,
    RESERVE,
    RESERVED,
    STATES,
    TOUCH,
    UPDATE,
    column,
)
from binlog_tools.spark.histories.stays import DUE, NOTHING, Stays, since_known
from binlog_tools.spark.histories.windows import NONE, Ints, changes

MINUTE_NS: Final = 60_000_000_000
MINUTES_A_DAY: Final = 1440
DAY_NS: Final = MINUTES_A_DAY * MINUTE_NS

LASTS: Final = NONE
"""The slot of an `oldest` whose wait lasts."""

KINDS: Final = (*EVENTS, *STATES[:GONE], "oldest", "wait", "run")
_STATE: Final = len(EVENTS)
OLDEST, WAIT, RUN = range(_STATE + GONE, len(KINDS))

SCHEMA: Final = pa.schema([
    ("server", pa.string()), ("tube", pa.string()), ("minute", pa.int64()), ("kind", pa.string()),
    ("slot", pa.int64()), ("value", pa.int64()),
])  # fmt: skip
"""``minute`` counts from the epoch."""


class _Facts(NamedTuple):
    """
    Columns of the same length.

    :ivar place: a number for the server and tube.
    :ivar kind: its place in `KINDS`.
    """

    place: Ints
    kind: Ints
    minute: Ints
    slot: Ints
    value: Ints

    def added(self) -> "_Facts":
        """
        One for each key: the least value of `oldest`, the sum of all others unless it is nought.
        """
        if not len(self.place):
            return self
        first = self.minute.min()
        span = self.minute.max() - first + 1
        together = (self.place * len(KINDS) + self.kind) * span + self.minute - first
        order = np.lexsort((self.slot, together))
        heads = np.flatnonzero(changes(together[order], self.slot[order]))
        value, rows = self.value[order], order[heads]
        least, sums = np.minimum.reduceat(value, heads), np.add.reduceat(value, heads)
        found = np.where(self.kind[rows] == OLDEST, least, sums)
        rows, found = rows[found != 0], found[found != 0]
        return _Facts(
            self.place[rows], self.kind[rows], self.minute[rows], self.slot[rows], found
        )  # fmt: skip

    def named(self, servers: Any, tubes: Any) -> pa.Table:
        """
        :param servers: names; a place is the number of one times that of all tubes, and a tube's.
        :return: with `SCHEMA`.
        """
        server, tube = np.divmod(self.place, max(1, len(tubes)))
        return pa.table({
            "server": servers.take(pa.array(server)), "tube": tubes.take(pa.array(tube)),
            "minute": self.minute, "kind": pa.array(KINDS).take(pa.array(self.kind)),
            "slot": self.slot, "value": self.value,
        }, SCHEMA)  # fmt: skip


def entries_of(stays: Stays) -> pa.Table:
    """
    :return: with `SCHEMA`, each key once; of the waits of a tube that last, the earliest only.
    """
    events = stays.images.events
    server, servers = _coded(column(events, "server"))
    tube, tubes = _coded(column(events, "tube"))
    place = (server * len(tubes) + tube)[stays.row]
    rows = [np.concatenate(part) for part in zip(*_facts(stays, place), strict=True)]
    return _Facts(*rows).added().named(servers, tubes)


def merged(tables: list[pa.Table]) -> pa.Table:
    """
    The entries of several parts of the jobs, added up.
    """
    together = pa.concat_tables([SCHEMA.empty_table(), *tables])
    server, servers = _coded(together["server"].combine_chunks())
    tube, tubes = _coded(together["tube"].combine_chunks())
    kind = pc.index_in(together["kind"], pa.array(KINDS))
    rest = (together[name].to_numpy() for name in ("minute", "slot", "value"))
    facts = _Facts(server * len(tubes) + tube, kind.to_numpy().astype(np.int64), *rest)
    return facts.added().named(servers, tubes)


def _coded(names: Any) -> tuple[Ints, Any]:
    coded = names.dictionary_encode()
    return coded.indices.to_numpy(zero_copy_only=False).astype(np.int64), coded.dictionary


def _facts(stays: Stays, place: Ints) -> list[list[Any]]:
    """
    Of each kind: place, kind, minute, slot, value.
    """
    images = stays.images
    told = np.flatnonzero(~np.isin(images.event, (COPY, TOUCH, UPDATE)))
    facts = [_fact(place[told], images.event[told], stays.at_ns[told] // MINUTE_NS, 0, 1)]
    behind = np.flatnonzero(stays.has_ready)
    there = np.flatnonzero(images.state != GONE)
    facts += _depths(place[there], images.state[there], stays.at_ns[there], stays.end_ns[there])
    facts += _depths(place[behind], np.full(len(behind), READY), stays.end_ns[behind],
                     stays.next_ns[behind])  # fmt: skip
    waits = np.flatnonzero(
        (images.state == READY) & (stays.ended_by == RESERVE) & since_known(stays)
    )
    facts.append(_length(place[waits], WAIT, stays.at_ns[waits], stays.end_ns[waits]))
    waits = behind[stays.next_event[behind] == RESERVE]
    facts.append(_length(place[waits], WAIT, stays.end_ns[waits], stays.next_ns[waits]))
    runs = np.flatnonzero(
        (images.state == RESERVED) & (stays.run_since_ns != NONE) & (stays.ended_by < DUE)
        & ~np.isin(stays.ended_by, (NOTHING, TOUCH, UPDATE))
    )  # fmt: skip
    facts.append(_length(place[runs], RUN, stays.run_since_ns[runs], stays.end_ns[runs]))
    return facts


def _fact(place: Ints, kind: Any, minute: Ints, slot: Any, value: Any) -> list[Any]:
    rows = len(place)
    return [np.broadcast_to(part, rows).astype(np.int64)
            for part in (place, kind, minute, slot, value)]  # fmt: skip


def _depths(place: Ints, state: Any, since_ns: Ints, until_ns: Ints) -> list[list[Any]]:
    """
    What stays add to the depths of minutes, and which of them are waits that somebody may see.
    """
    since = since_ns // MINUTE_NS
    until = np.where(until_ns == NONE, LASTS, until_ns // MINUTE_NS)
    seen = since < until
    ends = seen & (until != LASTS)
    facts = [_fact(place[seen], _STATE + state[seen], since[seen], 0, 1),
             _fact(place[ends], _STATE + state[ends], until[ends], 0, -1)]  # fmt: skip
    old = seen & (state == READY)
    old[_hidden(place, since_ns, old & (until == LASTS))] = False
    return [*facts, _fact(place[old], OLDEST, since[old], until[old], since_ns[old])]


def _hidden(place: Ints, since_ns: Ints, lasting: Any) -> Ints:
    """
    Of waits that last, those behind the earliest of their tube: they are never the oldest.
    """
    rows = np.flatnonzero(lasting)
    order = rows[np.lexsort((since_ns[rows], place[rows]))]
    repeats: Ints = order[1:][place[order[1:]] == place[order[:-1]]]
    return repeats


def _length(place: Ints, kind: int, since_ns: Ints, until_ns: Ints) -> list[Any]:
    return _fact(place, kind, until_ns // MINUTE_NS, rounded(until_ns - since_ns), 1)


_POWERS: Final = 10 ** np.arange(19, dtype=np.int64)


def rounded(lengths_ns: Ints) -> Ints:
    """
    To three significant digits, towards nought.
    """
    digits = np.searchsorted(_POWERS, np.abs(lengths_ns), side="right")
    unit = _POWERS[np.maximum(0, digits - 3)]
    found: Ints = lengths_ns - np.fmod(lengths_ns, unit)
    return found


def by_day(entries: pa.Table, last_ns: Mapping[str, int]) -> pa.Table:
    """
    With waits cut at midnight, so that each day of a server stands by itself.

    :param last_ns: of each server, its last moment: in its minute waits that last are cut.
    """
    old = entries.filter(pc.equal(entries["kind"], "oldest"))
    if not old.num_rows:
        return entries
    others = entries.filter(pc.not_equal(entries["kind"], "oldest"))
    since = old["minute"].to_numpy()
    until = old["slot"].to_numpy()
    last = np.array([last_ns[name] // MINUTE_NS for name in old["server"].to_pylist()], np.int64)
    until = np.where(until == LASTS, np.maximum(since, last) + 1, until)
    days = (until - 1) // MINUTES_A_DAY - since // MINUTES_A_DAY + 1
    rows = np.repeat(np.arange(len(since)), days)
    day = since[rows] // MINUTES_A_DAY + np.arange(len(rows)) - (np.cumsum(days) - days)[rows]
    begun = np.maximum(since[rows], day * MINUTES_A_DAY)
    ended = np.minimum(until[rows], (day + 1) * MINUTES_A_DAY)
    pieces = old.take(pa.array(rows))
    pieces = pieces.set_column(2, SCHEMA.field(2), pa.array(begun))
    pieces = pieces.set_column(4, SCHEMA.field(4), pa.array(ended))
    # No other entry has the key of a piece.
    return pa.concat_tables([others, merged([pieces])])
