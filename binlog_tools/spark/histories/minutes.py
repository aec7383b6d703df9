"""The minutes of tubes, from counters: one has a row if something happened in it, or a job stands
there when it ends.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from binlog_tools.spark.histories.counters import DAY_NS, KINDS, MINUTE_NS, MINUTES_A_DAY, by_day
from binlog_tools.spark.histories.records import (
    NO_ROW,
    NONE,
    STATES,
    Codes,
    Flags,
    Groups,
    Ints,
    State,
    at,
    changes,
    codes,
    ranked,
)
from binlog_tools.spark.histories.tables import TUBE_MINUTES, nullable, table

COUNTS: Final = {
    "puts": "put", "reserves": "reserve", "deletes": "delete", "timeouts": "ttr-expired",
    "releases": "release", "buries": "bury", "kicks": "kick", "disconnects": "disconnect-release",
    "moves": "move",
}  # fmt: skip
"""Columns that count events."""

PERCENTS: Final = (50, 95, 99)

DEPTHS: Final = pa.schema(
    [("server", pa.string()), ("tube", pa.string()), ("minute", pa.int64())]
    + [(state, pa.int64()) for state in STATES[: State.GONE]]
)
"""How many jobs stood in a tube when a minute began; minutes count from the epoch.  Rows of nought
are absent."""

MINUTE_US: Final = MINUTE_NS // 1000

_STRIDE: Final = 1 << 32
"""More minutes than there will be: a group and a minute in one number."""


def tube_minutes_of(counters: pa.Table, depths: pa.Table, last_ns: Mapping[str, int]) -> pa.Table:
    """:param counters: of days of servers, whole or from a minute on, each key once, cut by
        `by_day`.
    :param depths: with `DEPTHS`, when these days or minutes begin.
    :param last_ns: of each server, its last moment: behind its minute there is no row, and what
        lasts is as long as it was then.
    :return: with the schema `tables.TUBE_MINUTES`, by server, tube and minute.
    """
    facts = _Facts(_with_depths(counters, depths))
    days = Groups(changes(facts.place, facts.minute // MINUTES_A_DAY))
    minutes = Groups(changes(facts.place, facts.minute))
    heads = minutes.starts
    place, minute = facts.place[heads], facts.minute[heads]
    standing = [_running(facts.of(state), days, minutes) for state in STATES[: State.GONE]]
    last = np.array([last_ns[name] for name in facts.servers.to_pylist()], np.int64)
    limit: Ints = np.minimum((minute // MINUTES_A_DAY + 1) * MINUTES_A_DAY,
                       at(last // MINUTE_NS, place // facts.width, 0) + 1)  # fmt: skip
    following = np.append(minute[1:], 0)
    is_newest = np.append(changes(place, minute // MINUTES_A_DAY)[1:], True)[: len(minute)]
    until = np.where(is_newest, limit, following[: len(minute)])
    until = np.where(sum(standing) > 0, np.maximum(until, minute + 1), minute + 1)
    row = np.repeat(np.arange(len(minute)), until - minute)
    this: Ints = minute[row] + np.arange(len(row))
    this -= _offsets(until - minute)[row]
    is_told = this == minute[row]
    told = {name: minutes.sum(facts.of(event)) for name, event in COUNTS.items()}
    lengths = {name: _Lengths(facts, name, minutes) for name in ("wait", "run")}
    old_ns = _oldest(facts, place[row] * _STRIDE + this)
    end_ns: Ints = np.minimum((this + 1) * MINUTE_NS, at(last, place[row] // facts.width, 0))
    return table(TUBE_MINUTES, {
        "server": facts.servers.take(pa.array(place[row] // facts.width)),
        "tube": facts.tubes.take(pa.array(place[row] % facts.width)),
        "minute": pa.array(this * MINUTE_US).cast(TUBE_MINUTES.field("minute").type),
        **{name: np.where(is_told, counts[row], 0) for name, counts in told.items()},
        **{state: depth[row] for state, depth in zip(STATES, standing, strict=False)},
        "oldest_ns": nullable(np.where(old_ns == NONE, NONE, end_ns - old_ns)),
        **{f"{name}_p{percent}_ns": made.percentile(percent, row, is_told)
           for name, made in lengths.items() for percent in PERCENTS},
        **{f"{name}_histogram": made.histogram(row, is_told) for name, made in lengths.items()},
    })  # fmt: skip


def _offsets(lengths: Ints) -> Ints:
    """Where each of these begins, one behind the other."""
    return np.cumsum(lengths) - lengths


def depths_at(minutes: pa.Table, minute: int) -> pa.Table:
    """Return how many jobs stand where when a minute begins, from the rows of the one before."""
    micros = (minute - 1) * MINUTE_US
    last = minutes.filter(pc.equal(minutes["minute"].cast(pa.int64()), micros))
    depth = sum(last[state].to_numpy() for state in STATES[: State.GONE])
    last = last.filter(pa.array(depth > 0))
    begun = pa.array(np.full(last.num_rows, minute))
    return pa.table({**{name: last[name] for name in DEPTHS.names if name != "minute"},
                     "minute": begun}).select(DEPTHS.names)  # fmt: skip


def all_minutes(counters: pa.Table, last_ns: Mapping[str, int]) -> Iterator[pa.Table]:
    """Yield the minutes of each day of each server; see `tube_minutes_of`."""
    for server in pc.unique(counters["server"]).to_pylist():
        mine = by_day(counters.filter(pc.equal(counters["server"], server)), last_ns)
        day = mine["minute"].to_numpy() // MINUTES_A_DAY
        depths = DEPTHS.empty_table()
        last = max(int(day.max()), last_ns[server] // DAY_NS)
        for this in range(int(day.min()), last + 1):
            made = tube_minutes_of(mine.filter(pa.array(day == this)), depths, last_ns)
            yield made
            depths = depths_at(made, (this + 1) * MINUTES_A_DAY)


def _with_depths(counters: pa.Table, depths: pa.Table) -> pa.Table:
    """Depths as counters of the minutes that begin with them."""
    if not depths.num_rows:
        return counters
    nought = np.zeros(depths.num_rows, np.int64)
    parts = [
        pa.table({
            "server": depths["server"], "tube": depths["tube"],
            "minute": depths["minute"],
            "kind": pa.array([state] * depths.num_rows, pa.string()), "slot": nought,
            "value": depths[state],
        }, counters.schema)
        for state in STATES[:State.GONE]
    ]  # fmt: skip
    return pa.concat_tables([counters, *parts])


class _Facts:
    """Counters as arrays, by place (server and tube), minute and slot."""

    def __init__(self, counters: pa.Table) -> None:
        server, self.servers = ranked(counters, "server")
        tube, self.tubes = ranked(counters, "tube")
        self.width = max(1, len(self.tubes))
        place = server * self.width + tube
        minute, slot = counters["minute"].to_numpy(), counters["slot"].to_numpy()
        order = np.lexsort((slot, place * _STRIDE + minute))
        self.place: Ints = place[order]
        self.minute: Ints = minute[order]
        self.slot: Ints = slot[order]
        self.kind: Codes = codes(counters, "kind", KINDS)[order]
        self.value: Ints = counters["value"].to_numpy()[order]

    def of(self, kind: str) -> Ints:
        """The values of this kind, and noughts."""
        return np.where(self.kind == KINDS.index(kind), self.value, 0)


def _running(more: Ints, days: Groups, minutes: Groups) -> Ints:
    """The depth at the end of each minute."""
    sums = np.cumsum(more)
    before = (sums - more)[days.first]
    found: Ints = (sums - before)[minutes.lasts] if len(more) else more
    return found


def _oldest(facts: _Facts, rows: Ints) -> Ints:
    """Return since when the oldest wait of each row has lasted, or `NONE`.

    A wait is the oldest one from where all earlier ones have ended.
    """
    chosen = np.flatnonzero(facts.kind == KINDS.index("oldest"))
    place, since, until, value = (
        part[chosen] for part in (facts.place, facts.minute, facts.slot, facts.value)
    )
    order = np.lexsort((value, since, place))
    place, since, until, value = (part[order] for part in (place, since, until, value))
    ends = np.maximum.accumulate(place * _STRIDE + until)
    begins = place * _STRIDE + since
    reach = np.maximum(begins, np.append(0, ends)[: len(ends)])
    end = place * _STRIDE + until
    lengths = np.maximum(0, end - reach)
    piece = np.repeat(np.arange(len(lengths)), lengths)
    minute = reach[piece] + np.arange(len(piece)) - _offsets(lengths)[piece]
    found = np.full(len(rows), NONE)
    where = np.searchsorted(rows, minute)
    there = where < len(rows)
    there[there] = rows[where[there]] == minute[there]
    found[where[there]] = value[piece[there]]
    return found


class _Lengths:
    """Waits or runs that ended in each minute, as histograms."""

    def __init__(self, facts: _Facts, name: str, minutes: Groups) -> None:
        chosen = facts.kind == KINDS.index(name)
        self._slots = facts.slot[chosen]
        self._counts = facts.value[chosen]
        ends = np.cumsum(minutes.count(chosen))
        self._end = ends
        self._start = np.append(0, ends)[: len(ends)]
        self._sums = np.append(0, np.cumsum(self._counts))

    def percentile(self, percent: int, row: Ints, is_told: Flags) -> Any:
        """Between the two lengths next to it, in proportion; null where there are none."""
        first, total = self._sums[self._start], self._sums[self._end] - self._sums[self._start]
        place = np.maximum(0, total - 1) * (percent / 100)
        low = np.floor(place).astype(np.int64)
        high = np.ceil(place).astype(np.int64)
        below, above = (self._length(first + number) for number in (low, high))
        found = np.where(low == high, below, (high - place) * below + (place - low) * above)
        made = np.where(total > 0, found, NO_ROW).astype(np.int64)[row]
        return pa.array(made, mask=~(is_told & (total > 0)[row]))

    def _length(self, number: Ints) -> Ints:
        if not len(self._slots):
            return np.zeros(len(number), np.int64)
        place = np.searchsorted(self._sums, number, side="right") - 1
        found: Ints = self._slots[np.minimum(place, len(self._slots) - 1)]
        return found

    def histogram(self, row: Ints, is_told: Flags) -> Any:
        """Maps of length to count."""
        sizes = np.where(is_told, (self._end - self._start)[row], 0)
        offsets = np.append(0, np.cumsum(sizes)).astype(np.int32)
        return pa.MapArray.from_arrays(pa.array(offsets), pa.array(self._slots),
                                       pa.array(self._counts))  # fmt: skip
