"""The history of a job as a sequence of intervals: which state it was in, since when, until when.

An interval begins with a record and ends with the next one of the job, but for what the log omits:

- A **delayed** job becomes ready at its deadline, unless its next record is a `kick`.
- A **reserved** job without a record of the end was given up at the earliest of: the end of its
  TTR, its next record, the last record of the incarnation, if there is a later one.  In the last
  case (`RESTART`) it is ready from the next start on.

`touch` and `update` begin an interval of the same run; a `copy` counts only as the first row of its
job.

Of a `move` and an `update` the log does not say when they were: it was when their frames were
built, or a moment before.
"""

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from binlog_tools.spark.histories.records import (
    EVENTS,
    NO_ROW,
    NONE,
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
    records_of,
)

ENDS: Final = (*EVENTS, "cancel", "due", "restart", "unlogged")
"""How an interval ended: by an event, or as the log does not say.  A code is a place in here."""

CANCEL, DUE, RESTART, UNLOGGED = range(len(EVENTS), len(ENDS))

NOTHING: Final = -1
"""The code of no event: the interval lasts."""

_BY_SERVER: Final = (Event.TTR_EXPIRED, Event.DISCONNECT_RELEASE)
_GIVEN_BACK: Final = (Event.RELEASE, Event.RETURN, Event.BURY)
_BY_WORKER: Final = (*_GIVEN_BACK, Event.TOUCH, Event.DELETE, Event.MOVE, Event.UPDATE)
_ENDS_OF_RUNS: Final = (*_GIVEN_BACK, *_BY_SERVER)


class Intervals(NamedTuple):
    """One row per record that begins an interval; up to two more intervals follow from it.

    :ivar records: of these rows.
    :ivar jobs: the rows of each job.
    :ivar at_ns: when the interval begins.
    :ivar end_ns: when it ends, or `NONE`.
    :ivar ended_by: a code of `ENDS`, or `NOTHING`.
    :ivar run_since_ns: when the run began, if the job is reserved and the log says so.
    :ivar ready_ns: when the job became ready after it, until the next record; `NONE`: it did
        not.
    :ivar has_unseen: the record ends a run of which nothing else is in the log.
    :ivar next_ns: when the next record was, or `NONE`.
    :ivar next_event: its code, or `NOTHING`.
    :ivar next_reserves: its counter of reserves.
    :ivar carried: the row of ``records.events`` with the tags, or `NO_ROW`.
    :ivar death: the row of ``records.events`` with the tags of its newest death, or `NO_ROW`.
    :ivar is_death: the job becomes a dead letter.
    :ivar revivals: by `kick-dead`, so far: counters of reserves begin anew.
    :ivar returns: so far: each lets the next run have the number of the one before.
    :ivar row: in ``records.events``.
    """

    records: Records
    jobs: Groups
    at_ns: Ints
    end_ns: Ints
    ended_by: Codes
    run_since_ns: Ints
    ready_ns: Ints
    has_unseen: Flags
    next_ns: Ints
    next_event: Codes
    next_reserves: Ints
    carried: Ints
    death: Ints
    is_death: Flags
    revivals: Ints
    returns: Ints
    row: Ints

    @property
    def has_ready(self) -> Flags:
        """Whether the job became ready after each interval without a record."""
        found: Flags = self.ready_ns != NONE
        return found

    @property
    def left_ns(self) -> Ints:
        """When the job left each state: of one that a restart interrupts, at the restart."""
        return np.where(self.has_ready, self.ready_ns, self.end_ns)

    @property
    def carries_death(self) -> Flags:
        """Whether the tags say that the job is a dead letter."""
        found: Flags = (self.carried != NO_ROW) & (self.death == self.carried)
        return found


def intervals_of(events: pa.Table, starts: Starts) -> Intervals:
    """:param events: see `records_of`."""
    records = records_of(events, starts)
    jobs = records.jobs
    at_ns = _moments(records)
    is_death, revivals = _lives(records)
    behind = jobs.behind(~records.copy)
    before = jobs.before(~records.copy)
    next_ns = at(at_ns, behind, NONE)
    next_event = at(records.event, behind, NOTHING).astype(np.int8)
    next_reserves = at(records.reserves, behind, NOTHING)
    is_cancelled = at(records.is_cancel, behind, False)
    is_same_run = _goes_on(records, behind, next_event, next_reserves, is_cancelled)
    is_delayed = (records.state == State.DELAYED) & ~_was_still_delayed(records, behind, next_event)
    is_lost = (records.state == State.RESERVED) & ~is_same_run
    is_cut_off = at(records.incarnation, behind, NOTHING) != records.incarnation
    end_ns, ended_by, ready_ns = _ends(
        records, at_ns, next_ns, next_event, is_delayed, is_lost, is_cut_off
    )
    ended_by[(ended_by == Event.DELETE) & is_cancelled & (records.state == State.RESERVED)] = CANCEL
    is_return = records.event == Event.RETURN
    has_unseen = among(records.event, _ENDS_OF_RUNS) & (
        (before == NO_ROW) | (records.reserves + is_return != at(records.reserves, before, NOTHING))
    )
    made = Intervals(
        records, jobs, at_ns, end_ns, ended_by, _runs_since(records, at_ns), ready_ns, has_unseen,
        next_ns, next_event, next_reserves, jobs.newest(records.is_full),
        jobs.newest(records.is_dead), is_death, revivals, _so_far(jobs, is_return),
        np.arange(len(at_ns)),
    )  # fmt: skip
    return _without_copies(made)


def _moments(records: Records) -> Ints:
    """When each record began to be so: see the module."""
    following = records.jobs.behind(records.own_ns != NONE)
    guessed = np.minimum(records.logged_ns, at(records.own_ns, following, NONE))
    return np.where(records.copy, records.logged_ns,
                    np.where(records.own_ns != NONE, records.own_ns, guessed))  # fmt: skip


def _lives(records: Records) -> tuple[Flags, Ints]:
    """:return: whether the job dies with each record, and how often it was brought back so far."""
    full = records.jobs.before(records.is_full)
    was_dead = at(records.is_dead, full, False)
    moves = records.event == Event.MOVE
    return moves & records.is_dead & ~was_dead, _so_far(
        records.jobs, moves & ~records.is_dead & was_dead
    )


def _so_far(jobs: Groups, flags: Flags) -> Ints:
    """Count the flagged records of each job up to each of them, except its first record."""
    sums = np.cumsum(flags)
    found: Ints = sums - sums[jobs.first]
    return found


def _goes_on(
    records: Records, behind: Ints, next_event: Codes, next_reserves: Ints, is_cancelled: Flags
) -> Flags:
    """Whether the job is reserved, and its next record goes on with this run, or ends it."""
    by_server = among(next_event, _BY_SERVER)
    by_worker = among(next_event, _BY_WORKER)
    is_same = (
        (records.state == State.RESERVED)
        & (next_reserves + (next_event == Event.RETURN) == records.reserves)
        & (at(records.incarnation, behind, NOTHING) == records.incarnation)
    )  # fmt: skip
    found: Flags = is_same & (
        by_server
        | is_cancelled
        | (by_worker & (at(records.connection, behind, NOTHING) == records.connection))
    )
    return found


def _was_still_delayed(records: Records, behind: Ints, next_event: Codes) -> Flags:
    found: Flags = among(next_event, (Event.KICK, Event.GROUP_ENDED)) | (
        (next_event == Event.MOVE) & (at(records.state, behind, NOTHING) == State.DELAYED)
    )
    return found


def _ends(
    records: Records, at_ns: Ints, next_ns: Ints, next_event: Codes, is_delayed: Flags,
    is_lost: Flags, is_cut_off: Flags,
) -> tuple[Ints, Codes, Ints]:  # fmt: skip
    """Return when each interval ended, by what, and since when the job was ready then."""
    ripe = (is_delayed | is_lost) & (records.deadline_ns <= records.last_ns)
    due_ns = np.where(ripe, np.maximum(at_ns, records.deadline_ns), NONE)
    is_restart = is_lost & is_cut_off & (records.stop_ns != NONE) & (records.stop_ns < due_ns)
    given_up_ns = np.where(is_restart, records.stop_ns, np.minimum(next_ns, due_ns))
    given_up_ns = np.maximum(at_ns, given_up_ns)
    is_gone = records.state == State.GONE
    end_ns = np.select(
        [is_gone, is_delayed, is_lost],
        [at_ns, np.minimum(next_ns, due_ns), given_up_ns], next_ns,
    )  # fmt: skip
    ended_by = np.select(
        [is_gone | (end_ns == NONE), is_delayed & (end_ns == due_ns), is_restart, is_lost],
        [NOTHING, DUE, RESTART, UNLOGGED], next_event,
    )  # fmt: skip
    ready_ns = np.where(ended_by >= DUE, end_ns, NONE)
    # Without the event `start` a start is known by its first record, which was a moment earlier.
    since_start_ns = np.minimum(np.maximum(end_ns, records.restart_ns), next_ns)
    ready_ns = np.where(is_restart, since_start_ns, ready_ns)
    return end_ns, ended_by.astype(np.int8), ready_ns


def _runs_since(records: Records, at_ns: Ints) -> Ints:
    """When the run that a record belongs to began, or `NONE`."""
    begun = records.jobs.newest(records.event == Event.RESERVE)
    is_mine = (
        (begun != NO_ROW) & (records.state == State.RESERVED)
        & (records.reserves[begun] == records.reserves) & (records.kicks[begun] == records.kicks)
        & (records.incarnation[begun] == records.incarnation)
    ) if len(begun) else np.zeros(0, bool)  # fmt: skip
    return np.where(is_mine, at(at_ns, begun, NONE), NONE)


def _without_copies(intervals: Intervals) -> Intervals:
    """Without the copies that are not the first record of a job."""
    records = intervals.records
    is_first = np.arange(len(intervals.row)) == records.jobs.first
    kept = is_first | ~records.copy
    if kept.all():
        return intervals
    jobs = Groups(is_first[kept])
    shown = {name: part[kept] for name, part in records._asdict().items()
             if name not in ("events", "jobs")}  # fmt: skip
    parts = {name: part[kept] for name, part in intervals._asdict().items()
             if name not in ("records", "jobs")}  # fmt: skip
    return Intervals(records._replace(jobs=jobs, **shown), jobs, **parts)


def since_known(intervals: Intervals) -> Flags:
    """Whether the log says when each began: a copy says only since when a job is delayed."""
    known: Flags = ~intervals.records.copy | (intervals.records.state == State.DELAYED)
    return known
