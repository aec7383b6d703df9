"""What of the histories of jobs is settled: what no later record can change.

| row | settled with |
| --- | --- |
| lifetime | the record with which the job is gone |
| attempt | the record that ends the run; else the next start, or the job's next record before it |
| minute | the first record behind its end and `SLACK_NS`, if no run is undecided in it |
| breach | `SLACK_NS` behind the moment that the wait is too long; or the record that ends it |
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from binlog_tools.spark.histories.attempts import attempts_of
from binlog_tools.spark.histories.entries import LASTS, MINUTE_NS, entries_of, merged
from binlog_tools.spark.histories.images import (
    DELAYED,
    GONE,
    READY,
    RESERVED,
    STATES,
    column,
    numbers,
)
from binlog_tools.spark.histories.lifetimes import lifetimes_of
from binlog_tools.spark.histories.minutes import all_minutes
from binlog_tools.spark.histories.sla import Target, Targets, target_of
from binlog_tools.spark.histories.stays import NOTHING, RESTART, UNLOGGED, Stays, since_known
from binlog_tools.spark.histories.tables import moments, table
from binlog_tools.spark.histories.windows import NO_ROW, NONE, Groups, Ints, at, changes

SLACK_NS: Final = 1_000_000_000
"""How long after it happened a record may be built, be durable and be shown as such, nanoseconds: a
turn of the server, a sync, the mark behind it; all take milliseconds."""

HOLD_NS: Final = 600_000_000_000
"""How long a run without an end keeps its minute open, nanoseconds.  A server ends a run when its
TTR has; if that record was lost (``failOnDataLoss=false``) the minute is not kept open for ever."""

BREACHES: Final = pa.schema([
    ("server", pa.string()), ("tube", pa.string()), ("job", pa.int64()), ("lsn", pa.int64()),
    ("since", pa.timestamp("us", "UTC")), ("breached", pa.timestamp("us", "UTC")),
    ("since_ns", pa.int64()), ("target_ns", pa.int64()),
])  # fmt: skip
"""``lsn``: of the record that the wait follows from; ``breached``: when it was longer than the
target."""


def lifetimes(stays: Stays) -> pa.Table:
    """Of the jobs that are gone."""
    found = lifetimes_of(stays)
    return found.filter(pa.compute.equal(found["state"], STATES[GONE]))


def attempts(stays: Stays, after_lsn: int, incarnation: int) -> pa.Table:
    """Those that have ended, and that a record after this one has settled.

    :param incarnation: the server's newest up to that record.
    """
    settled, found = _settled_lsn(stays, incarnation), attempts_of(stays)
    fresh = pa.array((settled != NONE) & (settled > after_lsn))
    return found.filter(pa.compute.and_(fresh, found["ended_by"].is_valid()))


def _settled_lsn(stays: Stays, incarnation: int) -> Ints:
    """The record that settles each attempt, in their order, or `NONE`; of runs that a restart
    ended, one before all others if that is known already, else one after them.
    """
    images = stays.images
    lsn, following = _lsns(stays)
    runs, unseen = np.flatnonzero(images.state == RESERVED), np.flatnonzero(stays.has_unseen)
    rows = np.concatenate([runs, unseen])
    is_new = images.incarnation[runs] >= incarnation
    ended = np.where(
        stays.ended_by[runs] == RESTART, np.where(is_new, NONE - 1, NO_ROW), following[runs]
    )
    by = np.concatenate([ended, lsn[unseen]])
    keys = (images.reserves[rows], stays.revivals[rows], stays.jobs.number[rows])
    order = np.lexsort(keys)
    return Groups(changes(*(key[order] for key in keys))).most(by[order])


def _lsns(stays: Stays) -> tuple[Ints, Ints]:
    """The record of each row, and the job's next one, or `NONE`."""
    lsn = numbers(stays.images.events, "lsn")[stays.row]
    following = np.append(lsn[1:], NONE)[: len(lsn)]
    following[stays.jobs.lasts] = NONE
    return lsn, following


class Waits(NamedTuple):
    """When jobs were ready, of which the log says since when; or that follow from a deadline or a
    start of the server.

    :ivar row: of the stays.
    :ivar until_ns: `NONE`: it lasts.
    :ivar ended_lsn: the record that ends it, or `NONE`.
    :ivar target_ns: `NONE`: the tube has none.
    """

    row: Ints
    since_ns: Ints
    until_ns: Ints
    ended_lsn: Ints
    target_ns: Ints

    @property
    def breached_ns(self) -> Ints:
        return np.where(self.target_ns == NONE, NONE, self.since_ns + self.target_ns)


def waits_of(stays: Stays, targets: Targets) -> Waits:
    first = np.flatnonzero((stays.images.state == READY) & since_known(stays))
    # A server that is late may still say that a run has ended, and when.
    later = np.flatnonzero(stays.has_ready & (stays.ended_by != UNLOGGED))
    row = np.concatenate([first, later])
    return Waits(
        row, np.concatenate([stays.at_ns[first], stays.ready_ns[later]]),
        np.concatenate([stays.end_ns[first], stays.next_ns[later]]),
        _lsns(stays)[1][row],
        _targets(stays, targets)[row],
    )  # fmt: skip


def _targets(stays: Stays, targets: Targets) -> Ints:
    """Of the tube of each row, or `NONE`."""
    tube = column(stays.images.events, "tube").dictionary_encode()
    known = [target_of(name, targets) for name in tube.dictionary.to_pylist()]
    of = np.array([_wait_ns(target) for target in known], np.int64)
    places = tube.indices.fill_null(NO_ROW).to_numpy(zero_copy_only=False)
    found: Ints = at(of, places[stays.row], NONE)
    return found


def _wait_ns(target: Target | None) -> int:
    return NONE if target is None or target.wait_ns is None else target.wait_ns


def breaches(
    stays: Stays, waits: Waits, after_ns: int, until_ns: int, after_lsn: int = NO_ROW
) -> pa.Table:
    """Waits that became too long behind the first moment, and last at the second or were ended by a
    record behind this one.
    """
    breached = waits.breached_ns
    # Of a job that has gone on, or is gone, nobody is going to look at this wait again.
    is_sure = np.where(waits.ended_lsn == NONE, breached <= until_ns, waits.ended_lsn > after_lsn)
    chosen = np.flatnonzero(is_sure & (after_ns < breached) & (breached < waits.until_ns))
    events = stays.images.events
    rows = pa.array(stays.row[waits.row[chosen]])
    return table(BREACHES, {
        **{name: column(events, name).take(rows) for name in ("server", "tube", "job", "lsn")},
        "since": moments(waits.since_ns[chosen]), "breached": moments(breached[chosen]),
        "since_ns": waits.since_ns[chosen], "target_ns": waits.target_ns[chosen],
    })  # fmt: skip


def alarms(stays: Stays, waits: Waits, told_ns: int, targets: Targets) -> Ints:
    """When each job is to be looked at again if nothing happens: when its wait becomes too long, or
    could at the earliest.

    :param told_ns: breaches up to here are told.
    """
    last = stays.jobs.lasts
    found = np.full(len(last), NONE)
    lasting = np.flatnonzero(waits.until_ns == NONE)
    lasting = lasting[waits.breached_ns[lasting] > told_ns]
    found[stays.jobs.number[waits.row[lasting]]] = waits.breached_ns[lasting]
    pending = np.isin(stays.images.state[last], (DELAYED, RESERVED)) & ~stays.has_ready[last]
    deadline, target = stays.images.deadline_ns[last], _targets(stays, targets)[last]
    pending &= (deadline != NONE) & (target != NONE)
    return np.where(pending, np.maximum(deadline, told_ns) + np.minimum(target, NONE // 4), found)


def undecided_minute(stays: Stays, incarnation: int) -> int:
    """The first minute with a run whose TTR has ended, and whose end is not in the log yet; or
    `NONE`.

    :param incarnation: the server's newest: only it can still say so.
    """
    last = stays.jobs.lasts
    is_open = (
        (stays.ended_by[last] == UNLOGGED) & (stays.next_event[last] == NOTHING)
        & (stays.images.incarnation[last] == incarnation)
        & (stays.images.last_ns[last] - stays.end_ns[last] < HOLD_NS)
    )  # fmt: skip
    ends = stays.end_ns[last[is_open]]
    return int(ends.min()) // MINUTE_NS if len(ends) else NONE


def minutes(stays: Stays, after: int | None, until: int, last_ns: Mapping[str, int]) -> pa.Table:
    """The rows of minutes behind the first, up to the second.

    :param stays: of all jobs that were there at any time in these minutes.
    :param after: None: from the beginning on.
    """
    entries = entries_of(stays)
    if after is not None:
        entries = merged([_clipped(entries, after)])
    found = all_minutes(entries, last_ns)
    minute = found["minute"].cast(pa.int64()).to_numpy() * 1000 // MINUTE_NS
    chosen = minute <= until
    return found.filter(pa.array(chosen if after is None else chosen & (minute > after)))


def _clipped(entries: pa.Table, after: int) -> pa.Table:
    """What is told of earlier minutes as if it had happened in this one: depths, and who waits."""
    minute, slot = entries["minute"].to_numpy(), entries["slot"].to_numpy()
    is_depth = pa.compute.is_in(entries["kind"], value_set=pa.array(STATES[:GONE]))
    is_wait = pa.compute.equal(entries["kind"], "oldest").to_numpy() & (
        (slot > after) | (slot == LASTS)
    )
    kept = (minute >= after) | is_depth.to_numpy() | is_wait
    clipped = entries.set_column(2, entries.schema.field(2), pa.array(np.maximum(minute, after)))
    return clipped.filter(pa.array(kept))
