"""One row a job: what became of it, how long it waited and ran; and the jobs that are alive.

Counters are those of the job's newest record, so they are right also where records are missing.
What lasts counts in no sum.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from binlog_tools.spark.histories.intervals import Intervals, since_known
from binlog_tools.spark.histories.records import (
    BURIED,
    BURY,
    CARRIED,
    DELAYED,
    DELETE,
    DISCONNECT_RELEASE,
    EVENTS,
    GONE,
    MOVE,
    PUT,
    READY,
    RELEASE,
    RESERVE,
    RESERVED,
    RETURN,
    STATES,
    UPDATE,
    Records,
    Starts,
    chosen,
    codes,
    column,
    records_of,
)
from binlog_tools.spark.histories.tables import (
    LIFETIMES,
    SNAPSHOT,
    is_coded,
    moments,
    nullable,
    table,
    texts,
)
from binlog_tools.spark.histories.windows import NO_ROW, NONE, Flags, Ints, among, at

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
    state = np.where(intervals.has_ready[last], READY, records.state[last])
    first_put = jobs.least(np.where(records.is_full, records.time_ns, NONE))
    newest_ns = jobs.most(intervals.at_ns)
    is_timed = (state == GONE) & (first_put != NONE)
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
        "disconnects": jobs.count(records.event == DISCONNECT_RELEASE),
        **_spent(intervals),
        "is_whole": jobs.any(records.event == PUT),
        "moves": jobs.count(records.event == MOVE), "updates": jobs.count(records.event == UPDATE),
        "deaths": jobs.count(intervals.is_death), "revivals": intervals.revivals[last],
        "dead_at": moments(
            column(events, "dead_at_ns").take(death).fill_null(NONE).to_numpy(zero_copy_only=False)
        ),
    }, is_coded(events))  # fmt: skip


def _outcomes(intervals: Intervals, state: Any) -> Ints:
    records, jobs = intervals.records, intervals.jobs
    reason = codes(records.events, "reason", ("expired",))[intervals.row[jobs.lasts]]
    is_dead = jobs.any(
        (records.state == BURIED) & intervals.carries_death
        & ((intervals.end_ns == NONE) | (intervals.ended_by == DELETE))
    )  # fmt: skip
    found: Ints = np.select(
        [_is_done(records), is_dead, (state == GONE) & (reason == 0),
         records.is_cancel[jobs.lasts], state == GONE],
        (0, 1, 2, 5, 3), 4,
    )  # fmt: skip
    return found


def _is_done(records: Records) -> Flags:
    """Whether each job was deleted by the connection that had it last and had not given it back:
    also one whose TTR had ended.
    """
    jobs, last = records.jobs, records.jobs.lasts
    had = jobs.newest(records.state == RESERVED)[last]
    connection = records.connection[last]
    is_given_back = among(records.event, (RELEASE, RETURN, BURY, MOVE)) & (
        records.connection == connection[jobs.number]
    )
    found: Flags = (
        (records.event[last] == DELETE) & ~records.is_cancel[last]
        & (had > jobs.newest(is_given_back)[last])
        & (connection != 0) & (connection == records.connection[had])
        & (records.incarnation[last] == records.incarnation[had])
    ) if len(last) else np.zeros(0, bool)  # fmt: skip
    return found


def _spent(intervals: Intervals) -> dict[str, Any]:
    """How often the job waited until somebody took it, and how long it was in each state."""
    records, jobs = intervals.records, intervals.jobs
    is_taken = np.where(
        records.state == READY, intervals.ended_by == RESERVE,
        intervals.has_ready & (intervals.next_event == RESERVE),
    )  # fmt: skip
    length_ns = np.where(intervals.end_ns == NONE, 0, intervals.end_ns - intervals.at_ns)
    is_over = intervals.has_ready & (intervals.next_ns != NONE)
    behind_ns = np.where(is_over, intervals.next_ns - intervals.ready_ns, 0)

    def total(state: int) -> Ints:
        return jobs.sum(np.where(records.state == state, length_ns, 0))

    return {
        "waits": jobs.count(is_taken), "wait_ns": total(READY) + jobs.sum(behind_ns),
        "run_ns": total(RESERVED), "delayed_ns": total(DELAYED), "buried_ns": total(BURIED),
    }  # fmt: skip


def _since_ns(intervals: Intervals) -> Ints:
    """When each job came into its state; `NONE` if it is gone, or the log does not say."""
    records, last = intervals.records, intervals.jobs.lasts
    begun_ns = np.where(records.state == RESERVED, intervals.run_since_ns, intervals.at_ns)
    is_known = since_known(intervals) & (records.state != GONE)
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
    """:param events: of whole jobs, by job and LSN.
    :return: with `SNAPSHOT`; the state follows from a deadline or a restart where no record says
        so (``is_inferred``).
    """
    records = records_of(events, starts)
    is_alive = records.state[records.jobs.lasts] != GONE
    records = records_of(chosen(records.events, is_alive[records.jobs.number]), starts)
    events, last = records.events, records.jobs.lasts
    told, now_ns = records.state[last], records.last_ns[last]
    is_over = among(told, (DELAYED, RESERVED)) & (records.deadline_ns[last] <= now_ns)
    is_lost = (told == RESERVED) & (records.restart_ns[last] != NONE)
    state = np.where(is_over | is_lost, READY, told)
    deadline_ns = np.where(state == told, records.deadline_ns[last], NONE)
    full = records.jobs.newest(records.is_full)[last]
    put_ns = at(records.time_ns, full, NONE)
    rows, carried = pa.array(last), pa.array(full, mask=full == NO_ROW)
    held = pa.array(last, mask=state != RESERVED)
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
