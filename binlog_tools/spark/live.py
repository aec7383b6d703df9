"""Lifetimes, attempts and minutes of tubes, appended as the log grows, without Spark.  Each commit
notes the LSN that its table has reached; now and then the records of open jobs are stored as the
table ``open``, from which a process goes on that was killed.
"""

import json
from collections.abc import Iterator, Mapping
from threading import Event
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from binlog_tools.spark.definitions.addresses import within
from binlog_tools.spark.definitions.columns import arrow_schema
from binlog_tools.spark.following.logs import Lag
from binlog_tools.spark.histories.counters import MINUTE_NS, clipped, counters_of, merged
from binlog_tools.spark.histories.intervals import (
    NOTHING,
    RESTART,
    UNLOGGED,
    Intervals,
    intervals_of,
)
from binlog_tools.spark.histories.lifetimes import attempts_of, lifetimes_of
from binlog_tools.spark.histories.minutes import all_minutes
from binlog_tools.spark.histories.records import (
    EVENTS,
    NO_ROW,
    NONE,
    STARTS,
    STATES,
    TAKEN,
    Groups,
    Ints,
    Starts,
    State,
    changes,
    chosen,
    codes,
    in_order,
    merged_starts,
    numbers,
    starts_table,
)
from binlog_tools.spark.histories.tables import ATTEMPTS, LIFETIMES, TUBE_MINUTES, of_days
from binlog_tools.spark.reading.options import Streamed
from binlog_tools.spark.source import stream_reader
from binlog_tools.spark.storing import Replaced, open_stored
from binlog_tools.spark.tables.increments import LAYOUTS, OPEN

if TYPE_CHECKING:
    from binlog_tools.spark.following.streaming import BinlogStreamReader

SLACK_NS: Final = 1_000_000_000
"""How long after it happened a record may be built and be durable, nanoseconds: a turn of the
server and a sync, which take milliseconds.
"""

HOLD_NS: Final = 600_000_000_000
"""How long a run without an end keeps its minute open, nanoseconds: a server ends a run when its
TTR has ended, but that record may be lost (``failOnDataLoss=false``).
"""

SCHEMAS: Final[Mapping[str, pa.Schema]] = {
    "lifetimes": LIFETIMES, "attempts": ATTEMPTS, "tube_minutes": TUBE_MINUTES,
}  # fmt: skip

Rows = dict[str, pa.Table]
"""New rows by table."""


class LiveServer:
    """One server, as far as its log has been taken; docs/spark-live.md says when a row comes.

    :ivar closed: the newest minute whose rows have come; None: none has.
    """

    def __init__(
        self, name: str, events: pa.Table, known: pa.Table, newest_lsn: int = NO_ROW,
        closed: int | None = None,
    ) -> None:  # fmt: skip
        """:param events: of jobs that are not gone, or in a minute that is not closed.
        :param known: its starts.
        """
        self._name = name
        self._gone: list[pa.Table] = []
        self._open = events.slice(0, 0)
        self._put_away(in_order(events))
        self.starts = known
        self.newest_lsn = newest_lsn
        self.closed = closed

    @property
    def events(self) -> pa.Table:
        """What another process needs to go on."""
        return pa.concat_tables([self._open, *self._gone])

    def step(self, events: pa.Table) -> Rows:
        """:param events: of this server; those that were there already are left out."""
        after_lsn, incarnation = self.newest_lsn, self._incarnation()
        fresh = events.filter(pc.greater(events["lsn"], after_lsn))
        if not fresh.num_rows:
            return {name: schema.empty_table() for name, schema in SCHEMAS.items()}
        self.newest_lsn = int(numbers(fresh, "lsn").max())
        self.starts = merged_starts([self.starts, starts_table(fresh)])
        history = self._history(fresh, self._incarnation() != incarnation)
        intervals = intervals_of(history, Starts(self.starts))
        lifetimes = lifetimes_of(intervals)
        made = {
            "lifetimes": lifetimes.filter(pc.equal(lifetimes["state"], STATES[State.GONE])),
            "attempts": _settled_attempts(intervals, after_lsn, incarnation),
        }
        self._put_away(history)
        return {**made, "tube_minutes": self._close()}

    def _incarnation(self) -> int:
        return int(pc.max(self.starts["incarnation"]).as_py() or 0)

    def _last_ns(self) -> int:
        return int(pc.max(self.starts["newest_ns"]).as_py() or 0)

    def _history(self, fresh: pa.Table, has_started: bool) -> pa.Table:
        """All records of the jobs that have new ones; of all jobs if reserved ones may be ready."""
        fresh = chosen(fresh, codes(fresh, "event", EVENTS) >= 0)
        copies = fresh["copy"].fill_null(False).to_numpy()
        is_known = np.isin(numbers(fresh, "job"), numbers(self._open, "job"))
        fresh = chosen(fresh, ~(copies & is_known))
        taken = self._open
        if not has_started:
            is_taken = np.isin(numbers(taken, "job"), numbers(fresh, "job"))
            taken = taken.filter(pa.array(is_taken))
            self._open = self._open.filter(pa.array(~is_taken))
        else:
            self._open = self._open.slice(0, 0)
        return in_order(pa.concat_tables([taken, fresh]))

    def _put_away(self, history: pa.Table) -> None:
        jobs = Groups(changes(numbers(history, "job")))
        gone = jobs.any(codes(history, "state", STATES) == State.GONE)
        rows = gone[jobs.number] if len(gone) else np.zeros(0, bool)
        self._gone.append(history.filter(pa.array(rows)))
        rest = history.filter(pa.array(~rows))
        # In one piece: each step would add one, and all are gone through in each.
        self._open = pa.concat_tables([self._open, rest]).combine_chunks()

    def _close(self) -> pa.Table:
        """The rows of minutes that are over."""
        none = TUBE_MINUTES.empty_table()
        until = (self._last_ns() - SLACK_NS) // MINUTE_NS - 1
        if self.closed is not None and until <= self.closed:
            return none
        everything = in_order(self.events)
        intervals = intervals_of(everything, Starts(self.starts))
        until = min(until, _undecided_minute(intervals, self._incarnation()) - 1)
        if self.closed is not None and until <= self.closed:
            return none
        found = counters_of(intervals)
        if self.closed is not None:
            found = merged([clipped(found, self.closed)])
        rows = pa.concat_tables([none, *all_minutes(found, {self._name: self._last_ns()})])
        minute = rows["minute"].cast(pa.int64()).to_numpy() * 1000 // MINUTE_NS
        is_new = minute <= until
        if self.closed is not None:
            is_new &= minute > self.closed
        self.closed = until
        self._forget(everything)
        return rows.filter(pa.array(is_new))

    def _forget(self, everything: pa.Table) -> None:
        """Forget the jobs that were gone before the end of the minutes that are closed."""
        jobs = Groups(changes(numbers(everything, "job")))
        gone = jobs.any(codes(everything, "state", STATES) == State.GONE)
        newest_ns = jobs.most(numbers(everything, "logged_ns"))
        kept = gone & (newest_ns // MINUTE_NS > (self.closed or 0))
        rows = kept[jobs.number] if len(kept) else np.zeros(0, bool)
        self._gone = [everything.filter(pa.array(rows))]


def _settled_attempts(intervals: Intervals, after_lsn: int, incarnation: int) -> pa.Table:
    """Return attempts that have ended, and that a record after this one has settled."""
    settled, found = _settled_lsn(intervals, incarnation), attempts_of(intervals)
    fresh = pa.array((settled != NONE) & (settled > after_lsn))
    return found.filter(pc.and_(fresh, found["ended_by"].is_valid()))


def _settled_lsn(intervals: Intervals, incarnation: int) -> Ints:
    """Return the record that settles each attempt; of those a known restart ended, an early one."""
    records = intervals.records
    lsn = numbers(records.events, "lsn")[intervals.row]
    following = np.append(lsn[1:], NONE)[: len(lsn)]
    following[intervals.jobs.lasts] = NONE
    runs = np.flatnonzero(records.state == State.RESERVED)
    unseen = np.flatnonzero(intervals.has_unseen)
    rows = np.concatenate([runs, unseen])
    is_new = records.incarnation[runs] >= incarnation
    ended = np.where(
        intervals.ended_by[runs] == RESTART, np.where(is_new, NONE - 1, NO_ROW), following[runs]
    )
    by = np.concatenate([ended, lsn[unseen]])
    keys = (records.reserves[rows], intervals.revivals[rows], intervals.jobs.number[rows])
    order = np.lexsort(keys)
    return Groups(changes(*(key[order] for key in keys))).most(by[order])


def _undecided_minute(intervals: Intervals, incarnation: int) -> int:
    """Return the first minute with a run whose TTR has ended without a record, or `NONE`."""
    last = intervals.jobs.lasts
    is_open = (
        (intervals.ended_by[last] == UNLOGGED) & (intervals.next_event[last] == NOTHING)
        & (intervals.records.incarnation[last] == incarnation)
        & (intervals.records.last_ns[last] - intervals.end_ns[last] < HOLD_NS)
    )  # fmt: skip
    ends = intervals.end_ns[last[is_open]]
    return int(ends.min()) // MINUTE_NS if len(ends) else NONE


DATED_BY: Final = {"lifetimes": "last", "attempts": "ended", "tube_minutes": "minute"}
"""Whose day is the partition of a row: rows come in about this order."""

OPEN_RECORDS: Final = 100_000
"""Records after which the open jobs are stored, or as many as those have, if these are more: a
start reads no more of the log again, which takes some seconds.
"""

OPTIMIZE_COMMITS: Final = 500
"""Commits of a table after which its small files are merged: some minutes' worth."""

BATCH_BYTES: Final = "32M"
"""What a step reads at most: some 250,000 records, which are in memory together."""

EVERY_S: Final = 0.5
"""How long to wait for more records before looking again, seconds."""

_DAY_US: Final = 86_400_000_000


class LiveTables:
    """The tables of some servers in a folder, or at a URL."""

    def __init__(self, place: str) -> None:
        """Go on where another process has ended; raise TableError if the place is not ours."""
        names = (*SCHEMAS, OPEN)
        self._tables = {
            name: open_stored(within(place, name), LAYOUTS[name]._replace(name=f"live {name}"))
            for name in names
        }  # fmt: skip
        self.rows = dict.fromkeys(SCHEMAS, 0)
        self._commits = dict.fromkeys(names, 0)
        self._records = 0
        known = self._tables[OPEN].read().replace_schema_metadata(None).cast(_EVENTS)
        servers = pc.unique(known["server"]).to_pylist()
        reached = self._tables[OPEN].progress([*servers, *map(_minute_of, servers)])
        self.servers: dict[str, LiveServer] = {}
        for name in servers:
            mine, closed = _of(known, name), reached.get(_minute_of(name))
            jobs = mine.filter(mine["job"].is_valid())
            known_starts = starts_table(mine.filter(mine["job"].is_null()))
            self.servers[name] = LiveServer(name, jobs, known_starts, reached[name], closed)

    def take(self, events: pa.Table) -> None:
        """Append what follows from these durable records, those of a server in order."""
        events = events.select(TAKEN).combine_chunks()
        for name in sorted(filter(None, pc.unique(events["server"]).to_pylist())):
            if name not in self.servers:
                empty = STARTS.empty_table()
                self.servers[name] = LiveServer(name, _EVENTS.empty_table(), empty)
            for part in self._parts(name, _of(events, name)):
                self._append(name, self.servers[name].step(part))
        self._records += events.num_rows
        if self._records >= max(OPEN_RECORDS, self.open_records):
            self.store_open()

    @property
    def open_records(self) -> int:
        return sum(server.events.num_rows for server in self.servers.values())

    def _parts(self, server: str, events: pa.Table) -> Iterator[pa.Table]:
        """Yield parts of records taken before a kill, up to the last of each table."""
        lsn = events["lsn"]
        done = {self._reached(name, server) for name in SCHEMAS}
        low = -1
        for high in (*sorted(done), None):
            is_mine = pc.greater(lsn, low)
            if high is not None:
                is_mine = pc.and_(is_mine, pc.less_equal(lsn, high))
                low = high
            part = events.filter(is_mine)
            if part.num_rows:
                yield part

    def _reached(self, name: str, server: str) -> int:
        return self._tables[name].progress([server]).get(server, -1)

    def _append(self, server: str, made: Rows) -> None:
        live = self.servers[server]
        for name, rows in made.items():
            if not rows.num_rows or live.newest_lsn <= self._reached(name, server):
                continue
            moments_us = rows[DATED_BY[name]].cast(pa.int64()).to_numpy()
            self._write(name, of_days(rows, moments_us // _DAY_US), None, {server: live.newest_lsn})
            self.rows[name] += rows.num_rows

    def _write(
        self, name: str, rows: pa.Table, replaced: Replaced | None, progress: Mapping[str, int]
    ) -> None:
        table = self._tables[name]
        table.write(rows.cast(LAYOUTS[name].schema), replaced, progress)
        self._commits[name] += 1
        if self._commits[name] % OPTIMIZE_COMMITS == 0:
            table.optimize()

    def store_open(self) -> None:
        """Store the records of open jobs, and starts: the next process goes on from here."""
        self._records = 0
        live = self.servers.values()
        parts = [part for each in live for part in (each.events, _of_starts(each.starts))]
        reached = {name: each.newest_lsn for name, each in self.servers.items()}
        closed = {_minute_of(name): each.closed for name, each in self.servers.items()
                  if each.closed is not None}  # fmt: skip
        rows = pa.concat_tables([_EVENTS.empty_table(), *parts])
        self._write(OPEN, rows, lambda part: True, {**reached, **closed})


_EVENTS: Final = arrow_schema(TAKEN)


def _of_starts(known: pa.Table) -> pa.Table:
    """Return two records of each incarnation, of which `starts_table` makes the same starts."""
    rows = [
        {"server": row["server"], "incarnation": row["incarnation"], "event": event,
         "logged_ns": row[name]}
        for row in known.to_pylist()
        for name, event in (("first_ns", "start"), ("newest_ns", "start"),
                            ("stopped_ns", "clean-stop")) if row[name] is not None
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, _EVENTS)


def _minute_of(server: str) -> str:
    """The name under which the last closed minute is noted."""
    return f"{server}/minute"


def _of(rows: pa.Table, server: str) -> pa.Table:
    return rows.filter(pc.equal(rows["server"], server)).combine_chunks()


class Request(NamedTuple):
    """What to follow, with options of the source."""

    paths: tuple[str, ...]
    options: Mapping[str, str]

    def streamed(self) -> Streamed:
        paths = {"path": self.paths[0]} if len(self.paths) == 1 else (
            {"paths": json.dumps(self.paths)})  # fmt: skip
        return Streamed.of({"maxBytesPerTrigger": BATCH_BYTES, **self.options, **paths,
                            "copies": "keep", "records": "history",
                            "columns": ",".join(TAKEN)})  # fmt: skip


class Follower:
    """Follows logs, and keeps the tables; ``names``: of the servers, by store."""

    def __init__(self, request: Request, tables: LiveTables) -> None:
        """Begin where the tables have ended; raise SourceError if there is no log."""
        streamed = request.streamed()
        stores = stream_reader(streamed, TAKEN).initialOffset()["stores"]
        self.names = {store: streamed.asked.servers.get(store, store) for store in stores}
        known = {store: max(1, tables.servers[name].newest_lsn + 1)
                 for store, name in self.names.items() if name in tables.servers}  # fmt: skip
        self._tables = tables
        self._reader: BinlogStreamReader = stream_reader(streamed._replace(starts=known), TAKEN)
        self._at: dict[str, Any] = self._reader.initialOffset()

    def behind(self) -> dict[str, tuple[int, Lag]]:
        """By server, the LSN at which it goes on, and what there is to read."""
        lags, stores = self._reader.lag(self._at), self._at["stores"]
        return {self.names.get(store, store): (stores[store]["lsn"], lag)
                for store, lag in lags.items() if store in stores}  # fmt: skip

    def step(self) -> bool:
        """Take what there is, up to `BATCH_BYTES`; return False if there is nothing."""
        end = self._reader.latestOffset(self._at, self._reader.getDefaultReadLimit())
        if end == self._at:
            return False
        parts = self._reader.partitions(self._at, end)
        batches = [batch for part in parts for batch in self._reader.read(part)]
        if batches:
            self._tables.take(pa.Table.from_batches(batches))
        self._at = end
        return True

    def run(self, is_over: Event, is_once: bool = False) -> None:
        """Follow until it is over, or to the end of what there is."""
        while not is_over.is_set():
            if not self.step():
                if is_once:
                    break
                is_over.wait(EVERY_S)
        self._tables.store_open()
