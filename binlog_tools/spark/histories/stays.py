"""The history of a job as a sequence of stays: which state it was in, since when, until when.

A stay begins with an image and ends with the next one of the job, but for what the log omits:

- A **delayed** job becomes ready at its deadline, unless its next record is a `kick`.
- A **reserved** job without a record of the end was given up at the earliest of: the end of its
  TTR, its next record, the last record of the incarnation, if there is a later one.  In the last
  case (`RESTART`) it is ready from the next start on.

`touch` and `update` begin a stay of the same run; a `copy` counts only as the first row of its job.

Of a `move` and an `update` the log does not say when they were: it was when their frames were
built, or a moment before.
"""

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from binlog_tools.spark.histories.images import (
    BURY,
    DELAYED,
    DELETE,
    DISCONNECT_RELEASE,
    EVENTS,
    GONE,
    GROUP_ENDED,
    KICK,
    MOVE,
    RELEASE,
    RESERVE,
    RESERVED,
    RETURN,
    TOUCH,
    TTR_EXPIRED,
    UPDATE,
    Images,
    Starts,
    images_of,
)
from binlog_tools.spark.histories.windows import (
    NO_ROW,
    NONE,
    Codes,
    Flags,
    Groups,
    Ints,
    among,
    at,
)

ENDS: Final = (*EVENTS, "cancel", "due", "restart", "unlogged")
"""How a stay ended: by an event, or as the log does not say.  A code is a place in here."""

CANCEL, DUE, RESTART, UNLOGGED = range(len(EVENTS), len(ENDS))

NOTHING: Final = -1
"""The code of no event: the stay lasts."""

_BY_SERVER: Final = (TTR_EXPIRED, DISCONNECT_RELEASE)
_BY_WORKER: Final = (TOUCH, RELEASE, RETURN, BURY, DELETE, MOVE, UPDATE)
_ENDS_OF_RUNS: Final = (RELEASE, RETURN, BURY, TTR_EXPIRED, DISCONNECT_RELEASE)


class Stays(NamedTuple):
    """A row an image that begins a stay; up to two more stays follow from it.

    :ivar images: of these rows.
    :ivar jobs: the rows of each job.
    :ivar at_ns: when the stay begins.
    :ivar end_ns: when it ends, or `NONE`.
    :ivar ended_by: a code of `ENDS`, or `NOTHING`.
    :ivar run_since_ns: when the run began, if the job is reserved and the log says so.
    :ivar ready_ns: when the job became ready after the stay, until the next image; `NONE`: it did
        not.
    :ivar has_unseen: the image ends a run of which nothing else is in the log.
    :ivar next_ns: when the next image was, or `NONE`.
    :ivar next_event: its code, or `NOTHING`.
    :ivar next_reserves: its counter of reserves.
    :ivar carried: the row of ``images.events`` with the tags, or `NO_ROW`.
    :ivar death: the row of ``images.events`` with the tags of its newest death, or `NO_ROW`.
    :ivar is_death: the job becomes a dead letter.
    :ivar revivals: by `kick-dead`, so far: counters of reserves begin anew.
    :ivar returns: so far: each lets the next run have the number of the one before.
    :ivar row: in ``images.events``.
    """

    images: Images
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
        """Whether the job became ready after each stay without a record."""
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


def stays_of(events: pa.Table, starts: Starts) -> Stays:
    """:param events: see `images_of`."""
    images = images_of(events, starts)
    jobs = images.jobs
    at_ns = _moments(images)
    is_death, revivals = _lives(images)
    behind = jobs.behind(~images.copy)
    before = jobs.before(~images.copy)
    next_ns = at(at_ns, behind, NONE)
    next_event = at(images.event, behind, NOTHING).astype(np.int8)
    next_reserves = at(images.reserves, behind, NOTHING)
    is_cancelled = at(images.is_cancel, behind, False)
    is_same_run = _goes_on(images, behind, next_event, next_reserves, is_cancelled)
    is_delayed = (images.state == DELAYED) & ~_was_still_delayed(images, behind, next_event)
    is_lost = (images.state == RESERVED) & ~is_same_run
    is_cut_off = at(images.incarnation, behind, NOTHING) != images.incarnation
    end_ns, ended_by, ready_ns = _ends(
        images, at_ns, next_ns, next_event, is_delayed, is_lost, is_cut_off
    )
    ended_by[(ended_by == DELETE) & is_cancelled & (images.state == RESERVED)] = CANCEL
    is_return = images.event == RETURN
    has_unseen = among(images.event, _ENDS_OF_RUNS) & (
        (before == NO_ROW) | (images.reserves + is_return != at(images.reserves, before, NOTHING))
    )
    made = Stays(
        images, jobs, at_ns, end_ns, ended_by, _runs_since(images, at_ns), ready_ns, has_unseen,
        next_ns, next_event, next_reserves, jobs.newest(images.is_full),
        jobs.newest(images.is_dead), is_death, revivals, _so_far(jobs, is_return),
        np.arange(len(at_ns)),
    )  # fmt: skip
    return _without_copies(made)


def _moments(images: Images) -> Ints:
    """When each image began to be so: see the module."""
    following = images.jobs.behind(images.own_ns != NONE)
    guessed = np.minimum(images.logged_ns, at(images.own_ns, following, NONE))
    return np.where(images.copy, images.logged_ns,
                    np.where(images.own_ns != NONE, images.own_ns, guessed))  # fmt: skip


def _lives(images: Images) -> tuple[Flags, Ints]:
    """:return: whether the job dies with each image, and how often it was brought back so far."""
    full = images.jobs.before(images.is_full)
    was_dead = at(images.is_dead, full, False)
    moves = images.event == MOVE
    return moves & images.is_dead & ~was_dead, _so_far(
        images.jobs, moves & ~images.is_dead & was_dead
    )


def _so_far(jobs: Groups, flags: Flags) -> Ints:
    """Count the flagged images of each job up to each of them, except its first image."""
    sums = np.cumsum(flags)
    found: Ints = sums - sums[jobs.first]
    return found


def _goes_on(
    images: Images, behind: Ints, next_event: Codes, next_reserves: Ints, is_cancelled: Flags
) -> Flags:
    """Whether the job is reserved, and its next image goes on with this run, or ends it."""
    by_server = among(next_event, _BY_SERVER)
    by_worker = among(next_event, _BY_WORKER)
    is_same = (
        (images.state == RESERVED)
        & (next_reserves + (next_event == RETURN) == images.reserves)
        & (at(images.incarnation, behind, NOTHING) == images.incarnation)
    )  # fmt: skip
    found: Flags = is_same & (
        by_server
        | is_cancelled
        | (by_worker & (at(images.connection, behind, NOTHING) == images.connection))
    )
    return found


def _was_still_delayed(images: Images, behind: Ints, next_event: Codes) -> Flags:
    found: Flags = among(next_event, (KICK, GROUP_ENDED)) | (
        (next_event == MOVE) & (at(images.state, behind, NOTHING) == DELAYED)
    )
    return found


def _ends(
    images: Images, at_ns: Ints, next_ns: Ints, next_event: Codes, is_delayed: Flags,
    is_lost: Flags, is_cut_off: Flags,
) -> tuple[Ints, Codes, Ints]:  # fmt: skip
    """When each stay ended and by what, by the next image or by what the log does not say; and
    since when the job was ready then.

    :param is_cut_off: whether the next image is not of the same incarnation.
    """
    ripe = (is_delayed | is_lost) & (images.deadline_ns <= images.last_ns)
    due_ns = np.where(ripe, np.maximum(at_ns, images.deadline_ns), NONE)
    is_restart = is_lost & is_cut_off & (images.stop_ns != NONE) & (images.stop_ns < due_ns)
    given_up_ns = np.where(is_restart, images.stop_ns, np.minimum(next_ns, due_ns))
    given_up_ns = np.maximum(at_ns, given_up_ns)
    is_gone = images.state == GONE
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
    since_start_ns = np.minimum(np.maximum(end_ns, images.restart_ns), next_ns)
    ready_ns = np.where(is_restart, since_start_ns, ready_ns)
    return end_ns, ended_by.astype(np.int8), ready_ns


def _runs_since(images: Images, at_ns: Ints) -> Ints:
    """When the run that an image belongs to began, or `NONE`."""
    begun = images.jobs.newest(images.event == RESERVE)
    is_mine = (
        (begun != NO_ROW) & (images.state == RESERVED)
        & (images.reserves[begun] == images.reserves) & (images.kicks[begun] == images.kicks)
        & (images.incarnation[begun] == images.incarnation)
    ) if len(begun) else np.zeros(0, bool)  # fmt: skip
    return np.where(is_mine, at(at_ns, begun, NONE), NONE)


def _without_copies(stays: Stays) -> Stays:
    """Without the copies that are not the first image of a job."""
    images = stays.images
    is_first = np.arange(len(stays.row)) == images.jobs.first
    kept = is_first | ~images.copy
    if kept.all():
        return stays
    jobs = Groups(is_first[kept])
    shown = {name: part[kept] for name, part in images._asdict().items()
             if name not in ("events", "jobs")}  # fmt: skip
    parts = {name: part[kept] for name, part in stays._asdict().items()
             if name not in ("images", "jobs")}  # fmt: skip
    return Stays(images._replace(jobs=jobs, **shown), jobs, **parts)


def since_known(stays: Stays) -> Flags:
    """Whether the log says when each stay began: a copy says only since when a job is delayed."""
    known: Flags = ~stays.images.copy | (stays.images.state == DELAYED)
    return known
