"""From one piece of the log to the next: what becomes settled with it.

A step depends on nothing but the steps before it and what it is given, so a process that was killed
does it again from the journal and gets the same rows.
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from binlog_tools.spark.definitions.columns import arrow_schema
from binlog_tools.spark.histories import starts
from binlog_tools.spark.histories.entries import MINUTE_NS
from binlog_tools.spark.histories.images import EVENTS, GONE, STATES, in_order, numbers
from binlog_tools.spark.histories.sla import Targets
from binlog_tools.spark.histories.starts import Starts, starts_table
from binlog_tools.spark.histories.stays import stays_of
from binlog_tools.spark.histories.tables import ATTEMPTS, LIFETIMES, TUBE_MINUTES
from binlog_tools.spark.histories.windows import NO_ROW, NONE, Groups, Ints, changes
from binlog_tools.spark.live import settling
from binlog_tools.spark.live.open_jobs import NAMES, OpenJobs
from binlog_tools.spark.live.settling import BREACHES, SLACK_NS

SCHEMAS: Final[Mapping[str, pa.Schema]] = {
    "lifetimes": LIFETIMES, "attempts": ATTEMPTS, "tube_minutes": TUBE_MINUTES,
    "breaches": BREACHES,
}  # fmt: skip
"""The tables."""

Rows = dict[str, pa.Table]
"""New rows by table."""

NOTHING: Final[Mapping[str, pa.Table]] = {
    name: schema.empty_table() for name, schema in SCHEMAS.items()
}


class LiveServer:
    """One server, as far as its log has been taken.

    :ivar open: its jobs that are not gone.
    :ivar newest_lsn: the newest record.
    :ivar closed: the newest minute whose rows are told; None: none is.
    :ivar told_ns: breaches up to here are told.
    """

    def __init__(self, name: str, targets: Targets) -> None:
        self._name = name
        self._targets = targets
        self._starts = starts.SCHEMA.empty_table()
        self._gone: list[pa.Table] = []
        self.open = OpenJobs(_no_events())
        self.newest_lsn = NO_ROW
        self.closed: int | None = None
        self.told_ns = 0

    def step(self, events: pa.Table, now_ns: int | None) -> Rows:
        """:param events: of this server; those that were there already are left out.
        :param now_ns: all that was durable then has been taken; None: unknown.
        """
        after_lsn, incarnation = self.newest_lsn, self._incarnation()
        fresh = events.filter(pa.compute.greater(events["lsn"], after_lsn))
        if fresh.num_rows:
            self._note(fresh)
        elif not self._starts.num_rows:
            return dict(NOTHING)
        # Only what was logged is over for good; the clock tells of waits that last.
        sure_ns = max(self._last_ns(), now_ns or 0) - SLACK_NS
        after_ns, self.told_ns = self.told_ns, max(self.told_ns, sure_ns)
        is_job = pa.compute.is_in(fresh["event"], value_set=pa.array(EVENTS))
        history = self._history(fresh.filter(is_job))
        stays = stays_of(history, self._known(self.told_ns))
        waits = settling.waits_of(stays, self._targets)
        made = {
            "lifetimes": settling.lifetimes(stays),
            "attempts": settling.attempts(stays, after_lsn, incarnation),
            "breaches": settling.breaches(stays, waits, after_ns, self.told_ns, after_lsn),
        }
        self._put_away(history, settling.alarms(stays, waits, self.told_ns, self._targets))
        return {**made, "tube_minutes": self._close()}

    def _note(self, fresh: pa.Table) -> None:
        before = self._incarnation()
        self.newest_lsn = int(numbers(fresh, "lsn").max())
        self._starts = starts.merged([self._starts, starts_table(fresh)])
        if self._incarnation() != before:
            # Jobs that were reserved are ready.
            self.open.wake()

    def _incarnation(self) -> int:
        return int(pa.compute.max(self._starts["incarnation"]).as_py() or 0)

    def _last_ns(self) -> int:
        return int(pa.compute.max(self._starts["newest_ns"]).as_py() or 0)

    def _known(self, at_least_ns: int) -> Starts:
        """The starts, and a last moment that is not before this one."""
        known = Starts(self._starts)
        known.last_ns = {name: max(last, at_least_ns) for name, last in known.last_ns.items()}
        return known

    def _history(self, fresh: pa.Table) -> pa.Table:
        """All records of the jobs that have new ones, or an alarm."""
        copies = fresh["copy"].fill_null(False).to_numpy()
        fresh = fresh.filter(pa.array(~(copies & self.open.knows(numbers(fresh, "job")))))
        touched = np.union1d(numbers(fresh, "job"), self.open.due(self.told_ns))
        return in_order(pa.concat_tables([self.open.take(touched), fresh]))

    def _put_away(self, history: pa.Table, alarm_ns: Ints) -> None:
        jobs = Groups(changes(numbers(history, "job")))
        is_gone = pa.compute.equal(history["state"], STATES[GONE]).to_numpy()
        gone = jobs.any(is_gone)
        rows = gone[jobs.number]
        self._gone.append(history.filter(pa.array(rows)))
        self.open.put(history.filter(pa.array(~rows)), alarm_ns[~gone])

    def _close(self) -> pa.Table:
        """The rows of minutes that are over."""
        until = (self._last_ns() - SLACK_NS) // MINUTE_NS - 1
        if self.closed is not None and until <= self.closed:
            return NOTHING["tube_minutes"]
        everything = in_order(pa.concat_tables([self.open.all(), *self._gone]))
        stays = stays_of(everything, Starts(self._starts))
        until = min(until, settling.undecided_minute(stays, self._incarnation()) - 1)
        if self.closed is not None and until <= self.closed:
            return NOTHING["tube_minutes"]
        made = settling.minutes(stays, self.closed, until, {self._name: self._last_ns()})
        self.closed = until
        self._forget(everything)
        return made

    def _forget(self, everything: pa.Table) -> None:
        """Jobs that were gone before the end of the minutes that are told."""
        jobs = Groups(changes(numbers(everything, "job")))
        is_gone = pa.compute.equal(everything["state"], STATES[GONE]).to_numpy()
        newest_ns = jobs.most(numbers(everything, "logged_ns"))
        kept = jobs.any(is_gone) & (newest_ns // MINUTE_NS > (self.closed or 0))
        self._gone = [everything.filter(pa.array(kept[jobs.number]))]

    def kept(self) -> tuple[dict[str, Any], pa.Table]:
        """What `restored` needs: numbers, as JSON has them, and records."""
        told = {"newest_lsn": self.newest_lsn, "closed": self.closed, "told_ns": self.told_ns,
                "starts": self._starts.to_pylist()}  # fmt: skip
        return told, pa.concat_tables([self.open.all(), *self._gone])

    def restored(self, told: Mapping[str, Any], events: pa.Table) -> "LiveServer":
        self.newest_lsn, self.closed = told["newest_lsn"], told["closed"]
        self.told_ns = told["told_ns"]
        self._starts = pa.Table.from_pylist(told["starts"], starts.SCHEMA)
        ordered = in_order(events)
        jobs = Groups(changes(numbers(ordered, "job")))
        gone = jobs.any(pa.compute.equal(ordered["state"], STATES[GONE]).to_numpy())
        rows = gone[jobs.number] if len(gone) else np.zeros(0, bool)
        self._gone = [ordered.filter(pa.array(rows))]
        self.open = OpenJobs(ordered.filter(pa.array(~rows)))
        return self


class LiveState:
    """All servers.

    :ivar servers: by name.
    """

    def __init__(self, targets: Targets = ()) -> None:
        self._targets = targets
        self.servers: dict[str, LiveServer] = {}

    def step(self, events: pa.Table, now_ns: int | None = None) -> Rows:
        """:param events: durable records, as the source gives them with ``copies=keep`` and
            ``tags=true``; of each server those behind the ones of the steps before.
        :param now_ns: see `LiveServer.step`.
        :return: what is settled now, and was not before.
        """
        events = wanted(events)
        named = [name for name in pa.compute.unique(events["server"]).to_pylist() if name]
        for name in sorted(named):
            self.servers.setdefault(name, LiveServer(name, self._targets))
        made = [
            server.step(events.filter(pa.compute.equal(events["server"], name)), now_ns)
            for name, server in self.servers.items() if name in named or now_ns is not None
        ]  # fmt: skip
        return {
            table: pa.concat_tables([NOTHING[table], *(rows[table] for rows in made)])
            for table in SCHEMAS
        }

    def next_alarm_ns(self) -> int:
        """When something happens though no record comes: `NONE`, if nothing does."""
        found = [server.open.next_alarm_ns() for server in self.servers.values()]
        return min(found, default=NONE)

    def kept(self) -> tuple[dict[str, Any], pa.Table]:
        parts = {name: server.kept() for name, server in self.servers.items()}
        events = pa.concat_tables([_no_events(), *(events for _, events in parts.values())])
        return {name: told for name, (told, _) in parts.items()}, events

    def restore(self, told: Mapping[str, Any], events: pa.Table) -> None:
        """Be as the state that has kept these."""
        for name, each in told.items():
            mine = events.filter(pa.compute.equal(events["server"], name))
            self.servers[name] = LiveServer(name, self._targets).restored(each, mine)


def wanted(events: pa.Table) -> pa.Table:
    """The columns that count."""
    return events.select(NAMES).combine_chunks()


def _no_events() -> pa.Table:
    return arrow_schema(NAMES).empty_table()
