"""One row a job: what became of it, how long it waited and ran; and the jobs that are alive.

Counters are those of the job's newest record, so they are right also where records are missing.
What lasts counts in no sum.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from binlog_tools.spark.histories.images import (
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
    Images,
    Starts,
    chosen,
    codes,
    column,
    images_of,
)
from binlog_tools.spark.histories.stays import Stays, since_known
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
"""Columns of events that a row has as the job's newest image."""

_TAGS: Final = ("unique_key", "concurrency_key", "job_group", "after", "origin")


def lifetimes_of(stays: Stays) -> pa.Table:
    """:return: with the schema `tables.LIFETIMES`, in the order of the stays."""
    images, jobs = stays.images, stays.jobs
    last = jobs.lasts
    events = images.events
    newest = stays.row[last]
    carried, death = (pa.array(rows[last], mask=rows[last] == NO_ROW)
                      for rows in (stays.carried, stays.death))  # fmt: skip
    state = np.where(stays.has_ready[last], READY, images.state[last])
    first_put = jobs.least(np.where(images.is_full, images.time_ns, NONE))
    newest_ns = jobs.most(stays.at_ns)
    is_timed = (state == GONE) & (first_put != NONE)
    return table(LIFETIMES, {
        **{name: column(events, name).take(pa.array(newest)) for name in _NEWEST},
        **{name: column(events, name).take(carried) for name in _TAGS},
        **{name: column(events, name).take(death) for name in ("dead_from", "dead_reason")},
        "state": texts(STATES, state), "outcome": texts(OUTCOMES, _outcomes(stays, state)),
        "last_event": texts(EVENTS, images.event[last]),
        "put": moments(first_put), "first": moments(jobs.least(stays.at_ns)),
        "last": moments(newest_ns), "since": moments(_since_ns(stays)),
        "life_ns": pa.array(newest_ns - first_put, mask=~is_timed),
        "bytes": _bytes(stays),
        "attempts": nullable(images.reserves[last]),
        "disconnects": jobs.count(images.event == DISCONNECT_RELEASE),
        **_spent(stays),
        "is_whole": jobs.any(images.event == PUT),
        "moves": jobs.count(images.event == MOVE), "updates": jobs.count(images.event == UPDATE),
        "deaths": jobs.count(stays.is_death), "revivals": stays.revivals[last],
        "dead_at": moments(
            column(events, "dead_at_ns").take(death).fill_null(NONE).to_numpy(zero_copy_only=False)
        ),
    }, is_coded(events))  # fmt: skip


def _outcomes(stays: Stays, state: Any) -> Ints:
    images, jobs = stays.images, stays.jobs
    reason = codes(images.events, "reason", ("expired",))[stays.row[jobs.lasts]]
    is_dead = jobs.any(
        (images.state == BURIED) & stays.carries_death
        & ((stays.end_ns == NONE) | (stays.ended_by == DELETE))
    )  # fmt: skip
    found: Ints = np.select(
        [_is_done(images), is_dead, (state == GONE) & (reason == 0),
         images.is_cancel[jobs.lasts], state == GONE],
        (0, 1, 2, 5, 3), 4,
    )  # fmt: skip
    return found


def _is_done(images: Images) -> Flags:
    """Whether each job was deleted by the connection that had it last and had not given it back:
    also one whose TTR had ended.
    """
    jobs, last = images.jobs, images.jobs.lasts
    had = jobs.newest(images.state == RESERVED)[last]
    connection = images.connection[last]
    is_given_back = among(images.event, (RELEASE, RETURN, BURY, MOVE)) & (
        images.connection == connection[jobs.number]
    )
    found: Flags = (
        (images.event[last] == DELETE) & ~images.is_cancel[last]
        & (had > jobs.newest(is_given_back)[last])
        & (connection != 0) & (connection == images.connection[had])
        & (images.incarnation[last] == images.incarnation[had])
    ) if len(last) else np.zeros(0, bool)  # fmt: skip
    return found


def _spent(stays: Stays) -> dict[str, Any]:
    """How often the job waited until somebody took it, and how long it was in each state."""
    images, jobs = stays.images, stays.jobs
    is_taken = np.where(
        images.state == READY, stays.ended_by == RESERVE,
        stays.has_ready & (stays.next_event == RESERVE),
    )  # fmt: skip
    length_ns = np.where(stays.end_ns == NONE, 0, stays.end_ns - stays.at_ns)
    is_over = stays.has_ready & (stays.next_ns != NONE)
    behind_ns = np.where(is_over, stays.next_ns - stays.ready_ns, 0)

    def total(state: int) -> Ints:
        return jobs.sum(np.where(images.state == state, length_ns, 0))

    return {
        "waits": jobs.count(is_taken), "wait_ns": total(READY) + jobs.sum(behind_ns),
        "run_ns": total(RESERVED), "delayed_ns": total(DELAYED), "buried_ns": total(BURIED),
    }  # fmt: skip


def _since_ns(stays: Stays) -> Ints:
    """When each job came into its state; `NONE` if it is gone, or the log does not say."""
    images, last = stays.images, stays.jobs.lasts
    begun_ns = np.where(images.state == RESERVED, stays.run_since_ns, stays.at_ns)
    is_known = since_known(stays) & (images.state != GONE)
    since_ns = np.where(stays.has_ready, stays.ready_ns, np.where(is_known, begun_ns, NONE))
    found: Ints = since_ns[last]
    return found


def _bytes(stays: Stays) -> Any:
    """The size of the newest body."""
    sizes = column(stays.images.events, "bytes")
    there = sizes.is_valid().to_numpy(zero_copy_only=False)[stays.row]
    newest = stays.jobs.newest(there)[stays.jobs.lasts]
    rows = stays.row[newest] if len(newest) else newest
    return sizes.take(pa.array(rows, mask=newest == NO_ROW))


_SHOWN: Final = ("server", "job", "tube", "priority", "delay_s", "ttr_s", "reserves", "timeouts",
           "releases", "buries", "kicks", "lsn")  # fmt: skip


def snapshot_of(events: pa.Table, starts: Starts) -> pa.Table:
    """:param events: of whole jobs, by job and LSN.
    :return: with `SNAPSHOT`; the state follows from a deadline or a restart where no record says
        so (``is_inferred``).
    """
    images = images_of(events, starts)
    is_alive = images.state[images.jobs.lasts] != GONE
    images = images_of(chosen(images.events, is_alive[images.jobs.number]), starts)
    events, last = images.events, images.jobs.lasts
    told, now_ns = images.state[last], images.last_ns[last]
    is_over = among(told, (DELAYED, RESERVED)) & (images.deadline_ns[last] <= now_ns)
    is_lost = (told == RESERVED) & (images.restart_ns[last] != NONE)
    state = np.where(is_over | is_lost, READY, told)
    deadline_ns = np.where(state == told, images.deadline_ns[last], NONE)
    full = images.jobs.newest(images.is_full)[last]
    put_ns = at(images.time_ns, full, NONE)
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
