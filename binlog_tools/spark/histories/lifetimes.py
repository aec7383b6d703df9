"""One row a job, an attempt, a worker; and the jobs that are alive.  Counters are those of the
newest record, so they are right also where records are missing.  What lasts counts in no sum.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from binlog_tools.spark.histories.intervals import ENDS, Intervals, since_known
from binlog_tools.spark.histories.records import (
    CARRIED,
    EVENTS,
    NO_ROW,
    NONE,
    STATES,
    Codes,
    Event,
    Flags,
    Groups,
    Ints,
    Records,
    Starts,
    State,
    among,
    at,
    changes,
    chosen,
    coded,
    codes,
    column,
    numbers,
    records_of,
)
from binlog_tools.spark.histories.tables import (
    ATTEMPTS,
    LIFETIMES,
    SNAPSHOT,
    WORKERS,
    is_coded,
    moments,
    nullable,
    of_days,
    table,
    texts,
)


class _Parts(NamedTuple):
    """Intervals that belong to an attempt, or are the wait for it: columns of the same length.

    :ivar interval: the row of the intervals that it follows from.
    :ivar returns: of the job before it, which tell runs of the same number apart.
    :ivar is_wait: it is a wait, ``length_ns`` long (`NONE`: not known).
    :ivar is_run: the job was reserved; else only the end of the run is in the log.
    :ivar ended_by: how the run ended with this part, or -1.
    """

    interval: Ints
    attempt: Ints
    returns: Ints
    is_wait: Flags
    is_run: Flags
    length_ns: Ints
    ended_ns: Ints
    ended_by: Codes


def attempts_of(intervals: Intervals, day: Ints | None = None) -> pa.Table:
    """Return the attempts by job, revivals and attempt; with the day of each job also ``date``."""
    parts, runs = _grouped(intervals, _parts_of(intervals))
    records, interval = intervals.records, parts.interval
    last = interval[runs.lasts]
    ends = runs.newest(parts.ended_by >= 0)[runs.lasts]
    started_ns = runs.least(np.where(parts.is_run, intervals.run_since_ns[interval], NONE))
    ended_ns = at(parts.ended_ns, ends, NONE)
    incarnation = runs.most(np.where(parts.is_run, records.incarnation[interval], NO_ROW))
    connection = runs.most(np.where(parts.is_wait, 0, records.connection[interval]))
    wait_ns = runs.most(np.where(parts.length_ns == NONE, NO_ROW, parts.length_ns))
    is_over = (started_ns != NONE) & (ended_ns != NONE)
    ended_by = at(parts.ended_by, ends, NO_ROW)
    events, rows = records.events, pa.array(intervals.row[last])
    made = table(ATTEMPTS, {
        **{name: column(events, name).take(rows) for name in ("server", "job", "tube")},
        "incarnation": pa.array(incarnation, mask=incarnation == NO_ROW),
        "connection": pa.array(connection, mask=connection == 0),
        "revivals": intervals.revivals[last], "attempt": parts.attempt[runs.lasts],
        "first": moments(runs.least(np.where(parts.is_wait, NONE, intervals.at_ns[interval]))),
        "started": moments(started_ns), "ended": moments(ended_ns),
        "started_ns": nullable(started_ns), "ended_ns": nullable(ended_ns),
        "ended_by": texts(ENDS, ended_by),
        "touches": runs.count(parts.is_run & (records.event[interval] == Event.TOUCH)),
        "wait_ns": pa.array(wait_ns, mask=wait_ns == NO_ROW),
        "run_ns": pa.array(ended_ns - started_ns, mask=~is_over),
    }, is_coded(events))  # fmt: skip
    return made if day is None else of_days(made, day[intervals.jobs.number[last]])


def _parts_of(intervals: Intervals) -> _Parts:
    """Return of each interval the run with only an end, itself, and the wait after it."""
    records = intervals.records
    state, event = records.state, records.event
    is_taken = intervals.next_event == Event.RESERVE
    unseen = np.flatnonzero(intervals.has_unseen)
    runs = np.flatnonzero(state == State.RESERVED)
    waits = np.flatnonzero((state == State.READY) & is_taken)
    later = np.flatnonzero(intervals.has_ready & is_taken)
    counts = (len(unseen), len(runs), len(waits), len(later))
    unknown = [np.full(count, NONE) for count in counts]
    wait_ns = np.where(since_known(intervals), intervals.next_ns - intervals.at_ns, NONE)[waits]
    goes_on = among(intervals.ended_by[runs], (Event.TOUCH, Event.UPDATE))
    run_end = np.where(goes_on, NO_ROW, intervals.ended_by[runs])
    none = [np.full(count, NO_ROW, np.int8) for count in counts]
    interval = np.concatenate([unseen, runs, waits, later])
    is_return = (event == Event.RETURN).astype(np.int8)
    order = np.argsort(interval * 4 + np.repeat([0, 1, 1, 2], counts), kind="stable")
    parts = _Parts(
        interval,
        np.concatenate([records.reserves[unseen] + is_return[unseen], records.reserves[runs],
                        intervals.next_reserves[waits], intervals.next_reserves[later]]),
        intervals.returns[interval]
        - np.where(np.arange(len(interval)) < len(unseen), is_return[interval], 0),
        np.repeat([False, False, True, True], counts),
        np.repeat([False, True, False, False], counts),
        np.concatenate([*unknown[:2], wait_ns, (intervals.next_ns - intervals.ready_ns)[later]]),
        np.concatenate([intervals.at_ns[unseen], intervals.end_ns[runs], *unknown[2:]]),
        np.concatenate([event[unseen], run_end, *none[2:]]).astype(np.int8),
    )  # fmt: skip
    return _taken(parts, order)


def _taken(parts: _Parts, rows: Ints) -> _Parts:
    columns: Any = parts
    return _Parts(*(part[rows] for part in columns))


def _grouped(intervals: Intervals, parts: _Parts) -> tuple[_Parts, Groups]:
    """The parts of each attempt as neighbours, which they are already but in logs with gaps."""
    job, revivals = intervals.jobs.number[parts.interval], intervals.revivals[parts.interval]
    is_first = changes(job, revivals, parts.attempt, parts.returns)
    heads = np.flatnonzero(is_first)
    keys = (parts.returns[heads], parts.attempt[heads], revivals[heads], job[heads])
    order = np.lexsort(keys)
    are_distinct = not len(job[heads]) or changes(*keys).all()
    if are_distinct and (order == np.arange(len(order))).all():
        return parts, Groups(is_first)
    order = np.lexsort((parts.returns, parts.attempt, revivals, job))
    parts = _taken(parts, order)
    return parts, Groups(changes(job[order], revivals[order], parts.attempt, parts.returns))


OF_WORKERS: Final = ("server", "incarnation", "connection", "job", "started_ns", "ended_ns",
                  "ended_by")  # fmt: skip
"""What is needed of attempts."""

RUN_ENDS: Final = {
    "deletes": ("delete",), "releases": ("release",), "buries": ("bury",), "moves": ("move",),
    "timeouts": ("ttr-expired",), "disconnects": ("disconnect-release",),
    "lost": ("restart", "unlogged", "cancel"),
}  # fmt: skip

_KNOWN: Final = tuple(end for ends in RUN_ENDS.values() for end in ends)


def workers_of(attempts: pa.Table) -> pa.Table:
    """Return the workers of all attempts of some connections."""
    named = pc.and_(pc.is_valid(attempts["connection"]), pc.is_valid(attempts["incarnation"]))
    attempts = attempts.select(OF_WORKERS).filter(named)
    servers, known = coded(attempts, "server")
    names = ("incarnation", "connection", "started_ns")
    keys = (servers, *(numbers(attempts, name) for name in names))
    order = np.lexsort(keys[::-1])
    server, incarnation, connection, started = (each[order] for each in keys)
    job, ended = (numbers(attempts, name)[order] for name in ("job", "ended_ns"))
    ended_by = codes(attempts, "ended_by", _KNOWN)[order]
    is_running = column(attempts, "ended_by").is_null().to_numpy(zero_copy_only=False)
    workers = Groups(changes(server, incarnation, connection))
    is_over = (started != NONE) & (ended != NONE)
    heads = workers.starts
    return table(WORKERS, {
        "server": texts(known, server[heads]), "incarnation": incarnation[heads],
        "connection": connection[heads],
        "first": moments(workers.least(np.where(started == NONE, ended, started))),
        "last": _newest(workers, np.where(ended == NONE, started, ended)),
        "jobs": _distinct(workers, job), "runs": workers.count(np.ones(len(job), bool)),
        "run_ns": workers.sum(np.where(is_over, ended - started, 0)),
        "busy_ns": workers.sum(_alone(workers, started, ended, is_over)),
        **{name: workers.count(np.isin(ended_by, list(map(_KNOWN.index, ends))))
           for name, ends in RUN_ENDS.items()},
        "running": workers.count(is_running[order]),
    })  # fmt: skip


def _newest(workers: Groups, moments_ns: Ints) -> Any:
    most = workers.most(np.where(moments_ns == NONE, -1, moments_ns))
    return moments(np.where(most < 0, NONE, most))


def _distinct(workers: Groups, job: Ints) -> Ints:
    order = np.lexsort((job, workers.number))
    return workers.count(changes(workers.number, job[order]))


def _alone(workers: Groups, started: Ints, ended: Ints, is_over: Any) -> Ints:
    """Return how much of each run is after the ends of its connection's earlier runs."""
    until = np.where(is_over, ended, 0)
    # The latest end so far in each group, as a maximum of ranks, which leave room for the group.
    order = np.argsort(until)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    newest = np.maximum.accumulate(rank + workers.number * len(order))
    before = until[order[newest - workers.number * len(order)]]
    rows = np.arange(len(order))
    covered = np.where(rows == workers.first, 0, np.append(0, before)[: len(order)])
    return np.where(is_over, np.maximum(0, ended - np.maximum(started, covered)), 0)


OUTCOMES: Final = ("done", "dead", "expired", "deleted", "alive", "cancelled")

_NEWEST: Final = (
    "server", "job", "tube", "priority", "delay_s", "ttr_s", "timeouts", "releases", "buries",
    "kicks",
)  # fmt: skip
"""Columns of events that a row has as the job's newest record."""

_TAGS: Final = ("unique_key", "concurrency_key", "job_group", "after", "origin")


def lifetimes_of(intervals: Intervals) -> pa.Table:
    """:return: with the schema `tables.LIFETIMES`, in the order of the intervals."""
    records, jobs = intervals.records, intervals.jobs
    last = jobs.lasts
    events = records.events
    newest = intervals.row[last]
    carried, death = (pa.array(rows[last], mask=rows[last] == NO_ROW)
                      for rows in (intervals.carried, intervals.death))  # fmt: skip
    state = np.where(intervals.has_ready[last], State.READY, records.state[last])
    first_put = jobs.least(np.where(records.is_full, records.time_ns, NONE))
    newest_ns = jobs.most(intervals.at_ns)
    is_timed = (state == State.GONE) & (first_put != NONE)
    return table(LIFETIMES, {
        **{name: column(events, name).take(pa.array(newest)) for name in _NEWEST},
        **{name: column(events, name).take(carried) for name in _TAGS},
        **{name: column(events, name).take(death) for name in ("dead_from", "dead_reason")},
        "state": texts(STATES, state), "outcome": texts(OUTCOMES, _outcomes(intervals, state)),
        "last_event": texts(EVENTS, records.event[last]),
        "put": moments(first_put), "first": moments(jobs.least(intervals.at_ns)),
        "last": moments(newest_ns), "since": moments(_since_ns(intervals)),
        "life_ns": pa.array(newest_ns - first_put, mask=~is_timed),
        "bytes": _bytes(intervals),
        "attempts": nullable(records.reserves[last]),
        "disconnects": jobs.count(records.event == Event.DISCONNECT_RELEASE),
        **_spent(intervals),
        "is_whole": jobs.any(records.event == Event.PUT),
        "moves": jobs.count(records.event == Event.MOVE),
        "updates": jobs.count(records.event == Event.UPDATE),
        "deaths": jobs.count(intervals.is_death), "revivals": intervals.revivals[last],
        "dead_at": moments(
            column(events, "dead_at_ns").take(death).fill_null(NONE).to_numpy(zero_copy_only=False)
        ),
    }, is_coded(events))  # fmt: skip


def _outcomes(intervals: Intervals, state: Any) -> Ints:
    records, jobs = intervals.records, intervals.jobs
    reason = codes(records.events, "reason", ("expired",))[intervals.row[jobs.lasts]]
    is_dead = jobs.any(
        (records.state == State.BURIED) & intervals.carries_death
        & ((intervals.end_ns == NONE) | (intervals.ended_by == Event.DELETE))
    )  # fmt: skip
    found: Ints = np.select(
        [_is_done(records), is_dead, (state == State.GONE) & (reason == 0),
         records.is_cancel[jobs.lasts], state == State.GONE],
        (0, 1, 2, 5, 3), 4,
    )  # fmt: skip
    return found


def _is_done(records: Records) -> Flags:
    """Tell which jobs were deleted by the connection that had them last, also after their TTR."""
    jobs, last = records.jobs, records.jobs.lasts
    had = jobs.newest(records.state == State.RESERVED)[last]
    connection = records.connection[last]
    is_given_back = among(records.event, (Event.RELEASE, Event.RETURN, Event.BURY, Event.MOVE)) & (
        records.connection == connection[jobs.number]
    )
    found: Flags = (
        (records.event[last] == Event.DELETE) & ~records.is_cancel[last]
        & (had > jobs.newest(is_given_back)[last])
        & (connection != 0) & (connection == records.connection[had])
        & (records.incarnation[last] == records.incarnation[had])
    ) if len(last) else np.zeros(0, bool)  # fmt: skip
    return found


def _spent(intervals: Intervals) -> dict[str, Any]:
    """How often the job waited until somebody took it, and how long it was in each state."""
    records, jobs = intervals.records, intervals.jobs
    is_taken = np.where(
        records.state == State.READY, intervals.ended_by == Event.RESERVE,
        intervals.has_ready & (intervals.next_event == Event.RESERVE),
    )  # fmt: skip
    length_ns = np.where(intervals.end_ns == NONE, 0, intervals.end_ns - intervals.at_ns)
    is_over = intervals.has_ready & (intervals.next_ns != NONE)
    behind_ns = np.where(is_over, intervals.next_ns - intervals.ready_ns, 0)

    def total(state: int) -> Ints:
        return jobs.sum(np.where(records.state == state, length_ns, 0))

    return {
        "waits": jobs.count(is_taken), "wait_ns": total(State.READY) + jobs.sum(behind_ns),
        "run_ns": total(State.RESERVED), "delayed_ns": total(State.DELAYED),
        "buried_ns": total(State.BURIED),
    }  # fmt: skip


def _since_ns(intervals: Intervals) -> Ints:
    """When each job came into its state; `NONE` if it is gone, or the log does not say."""
    records, last = intervals.records, intervals.jobs.lasts
    begun_ns = np.where(records.state == State.RESERVED, intervals.run_since_ns, intervals.at_ns)
    is_known = since_known(intervals) & (records.state != State.GONE)
    since_ns = np.where(intervals.has_ready, intervals.ready_ns, np.where(is_known, begun_ns, NONE))
    found: Ints = since_ns[last]
    return found


def _bytes(intervals: Intervals) -> Any:
    """The size of the newest body."""
    sizes = column(intervals.records.events, "bytes")
    there = sizes.is_valid().to_numpy(zero_copy_only=False)[intervals.row]
    newest = intervals.jobs.newest(there)[intervals.jobs.lasts]
    rows = intervals.row[newest] if len(newest) else newest
    return sizes.take(pa.array(rows, mask=newest == NO_ROW))


_SHOWN: Final = ("server", "job", "tube", "priority", "delay_s", "ttr_s", "reserves", "timeouts",
           "releases", "buries", "kicks", "lsn")  # fmt: skip


def snapshot_of(events: pa.Table, starts: Starts) -> pa.Table:
    """Return living jobs; a deadline or restart that no record says makes a state inferred."""
    records = records_of(events, starts)
    is_alive = records.state[records.jobs.lasts] != State.GONE
    records = records_of(chosen(records.events, is_alive[records.jobs.number]), starts)
    events, last = records.events, records.jobs.lasts
    told, now_ns = records.state[last], records.last_ns[last]
    is_over = among(told, (State.DELAYED, State.RESERVED)) & (records.deadline_ns[last] <= now_ns)
    is_lost = (told == State.RESERVED) & (records.restart_ns[last] != NONE)
    state = np.where(is_over | is_lost, State.READY, told)
    deadline_ns = np.where(state == told, records.deadline_ns[last], NONE)
    full = records.jobs.newest(records.is_full)[last]
    put_ns = at(records.time_ns, full, NONE)
    rows, carried = pa.array(last), pa.array(full, mask=full == NO_ROW)
    held = pa.array(last, mask=state != State.RESERVED)
    return table(SNAPSHOT, {
        **{name: column(events, name).take(rows) for name in _SHOWN},
        "state": texts(STATES, state), "is_inferred": state != told,
        "deadline": moments(deadline_ns), "deadline_ns": nullable(deadline_ns),
        **{name: column(events, name).take(held) for name in ("connection", "incarnation")},
        "put": moments(put_ns), "age_ns": pa.array(now_ns - put_ns, mask=put_ns == NONE),
        "last_event": column(events, "event").take(rows),
        **{name: column(events, name).take(carried)
           for name in ("bytes", *CARRIED) if name != "dead_at_ns"},
        "dead_at": moments(
            column(events, "dead_at_ns").take(carried).fill_null(NONE).to_numpy()
        ),
        "as_of": moments(now_ns),
    })  # fmt: skip
