"""From one piece of the log to the next: which rows no later record can change.

| row | comes with |
| --- | --- |
| lifetime | the record with which the job is gone |
| attempt | the record that ends the run; else the next start, or the job's next record before it |
| minute | the first record `SLACK_NS` after its end, if no run is undecided in it |

The rows of two steps together are those of one step.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from binlog_tools.spark.histories.attempts import attempts_of
from binlog_tools.spark.histories.counters import MINUTE_NS, clipped, counters_of, merged
from binlog_tools.spark.histories.intervals import (
    NOTHING,
    RESTART,
    UNLOGGED,
    Intervals,
    intervals_of,
)
from binlog_tools.spark.histories.lifetimes import lifetimes_of
from binlog_tools.spark.histories.minutes import all_minutes
from binlog_tools.spark.histories.records import (
    EVENTS,
    GONE,
    RESERVED,
    STATES,
    Starts,
    chosen,
    codes,
    in_order,
    merged_starts,
    numbers,
    starts_table,
)
from binlog_tools.spark.histories.tables import ATTEMPTS, LIFETIMES, TUBE_MINUTES
from binlog_tools.spark.histories.windows import NO_ROW, NONE, Groups, Ints, changes

SLACK_NS: Final = 1_000_000_000
"""How long after it happened a record may be built and be durable, nanoseconds: a turn of the
server and a sync, which take milliseconds.
"""

HOLD_NS: Final = 600_000_000_000
"""How long a run without an end keeps its minute open, nanoseconds: a server ends a run when its
TTR has ended, but that record may be lost (``failOnDataLoss=false``).
"""

SMALL_ROWS: Final = 20_000
"""Newer records that are held apart at least, so that a step costs what its jobs cost."""

SCHEMAS: Final[Mapping[str, pa.Schema]] = {
    "lifetimes": LIFETIMES, "attempts": ATTEMPTS, "tube_minutes": TUBE_MINUTES,
}  # fmt: skip

Rows = dict[str, pa.Table]
"""New rows by table."""


class OpenJobs:
    """The records of jobs that are not gone: most by job and LSN, and newer ones apart."""

    def __init__(self, events: pa.Table) -> None:
        self._arrange(events)

    def _arrange(self, events: pa.Table) -> None:
        self._newer = events.slice(0, 0)
        self._base = in_order(events)
        self._job = numbers(self._base, "job")
        self._is_here = np.ones(len(self._job), bool)

    def take(self, jobs: Ints) -> pa.Table:
        """Take the records of these jobs out."""
        first, end = (np.searchsorted(self._job, jobs, side) for side in ("left", "right"))
        rows = np.repeat(first, end - first) + _within(end - first)
        rows = rows[self._is_here[rows]]
        self._is_here[rows] = False
        is_newer = np.isin(numbers(self._newer, "job"), jobs)
        found = [self._base.take(pa.array(rows)), self._newer.filter(pa.array(is_newer))]
        self._newer = self._newer.filter(pa.array(~is_newer))
        return pa.concat_tables(found)

    def put(self, events: pa.Table) -> None:
        """:param events: of jobs that are not here."""
        self._newer = pa.concat_tables([self._newer, events])
        if self._newer.num_rows > max(SMALL_ROWS, self._base.num_rows // 4):
            self._arrange(self.all())

    def all(self) -> pa.Table:
        return pa.concat_tables([self._base.filter(pa.array(self._is_here)), self._newer])

    def knows(self, jobs: Ints) -> np.ndarray:
        """Return which of these jobs are here."""
        here = np.concatenate([self._job[self._is_here], numbers(self._newer, "job")])
        return np.isin(jobs, here)


def _within(sizes: Ints) -> Ints:
    """Count from 0 in each of these groups."""
    ends = np.cumsum(sizes)
    return np.arange(int(sizes.sum())) - np.repeat(ends - sizes, sizes)


class LiveServer:
    """One server, as far as its log has been taken.

    :ivar newest_lsn: the newest record.
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
        self._open = OpenJobs(events.slice(0, 0))
        self._put_away(in_order(events))
        self.starts = known
        self.newest_lsn = newest_lsn
        self.closed = closed

    @property
    def events(self) -> pa.Table:
        """What another process needs to go on."""
        return pa.concat_tables([self._open.all(), *self._gone])

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
            "lifetimes": lifetimes.filter(pc.equal(lifetimes["state"], STATES[GONE])),
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
        fresh = fresh.filter(pa.array(~(copies & self._open.knows(numbers(fresh, "job")))))
        jobs = numbers(fresh, "job")
        if has_started:
            jobs = np.union1d(jobs, numbers(self._open.all(), "job"))
        return in_order(pa.concat_tables([self._open.take(np.unique(jobs)), fresh]))

    def _put_away(self, history: pa.Table) -> None:
        jobs = Groups(changes(numbers(history, "job")))
        gone = jobs.any(codes(history, "state", STATES) == GONE)
        rows = gone[jobs.number] if len(gone) else np.zeros(0, bool)
        self._gone.append(history.filter(pa.array(rows)))
        self._open.put(history.filter(pa.array(~rows)))

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
        gone = jobs.any(codes(everything, "state", STATES) == GONE)
        newest_ns = jobs.most(numbers(everything, "logged_ns"))
        kept = gone & (newest_ns // MINUTE_NS > (self.closed or 0))
        rows = kept[jobs.number] if len(kept) else np.zeros(0, bool)
        self._gone = [everything.filter(pa.array(rows))]


def _settled_attempts(intervals: Intervals, after_lsn: int, incarnation: int) -> pa.Table:
    """Those that have ended, and that a record after this one has settled.

    :param incarnation: the server's newest up to that record.
    """
    settled, found = _settled_lsn(intervals, incarnation), attempts_of(intervals)
    fresh = pa.array((settled != NONE) & (settled > after_lsn))
    return found.filter(pc.and_(fresh, found["ended_by"].is_valid()))


def _settled_lsn(intervals: Intervals, incarnation: int) -> Ints:
    """The record that settles each attempt, in their order, or `NONE`; of runs that a restart
    ended, one before all others if that is known already, else one after them.
    """
    records = intervals.records
    lsn = numbers(records.events, "lsn")[intervals.row]
    following = np.append(lsn[1:], NONE)[: len(lsn)]
    following[intervals.jobs.lasts] = NONE
    runs, unseen = np.flatnonzero(records.state == RESERVED), np.flatnonzero(intervals.has_unseen)
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
    """The first minute with a run whose TTR has ended, and whose end is not in the log yet; or
    `NONE`.

    :param incarnation: the server's newest: only it can still log the end.
    """
    last = intervals.jobs.lasts
    is_open = (
        (intervals.ended_by[last] == UNLOGGED) & (intervals.next_event[last] == NOTHING)
        & (intervals.records.incarnation[last] == incarnation)
        & (intervals.records.last_ns[last] - intervals.end_ns[last] < HOLD_NS)
    )  # fmt: skip
    ends = intervals.end_ns[last[is_open]]
    return int(ends.min()) // MINUTE_NS if len(ends) else NONE
