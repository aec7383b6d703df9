"""Jobs of which all events are in one piece of a log: what is made of them needs no other piece.

A log tells all of most jobs within a short while.
"""

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from binlog_tools.spark.histories.images import (
    EVENTS,
    GONE,
    PUT,
    STATES,
    chosen,
    codes,
    column,
    numbers,
)
from binlog_tools.spark.histories.starts import NO_RECORDS
from binlog_tools.spark.histories.windows import NO_ROW, NONE, Flags, Groups, Ints, changes

HELD_ROWS: Final = 400_000
"""Events of jobs that are not gone yet that are held at most, some 60 MB.  Beyond that none of them
is held: those jobs are not whole."""


class Parted(NamedTuple):
    """Events of jobs.

    :ivar whole: all those of some jobs that are gone, by job and LSN.
    :ivar rest: others, in any order.
    """

    whole: pa.Table
    rest: pa.Table


class WholeJobs:
    """Those of one server in a piece of its log."""

    def __init__(self, held_rows: int = HELD_ROWS) -> None:
        self._held_rows = held_rows
        self._held: pa.Table | None = None
        self._since = self._last = NO_ROW

    def take(self, events: pa.Table) -> Parted:
        """:param events: of any kind, with the columns of `images`.  Only in the order of LSNs are
        there whole jobs.
        """
        since = self._covered(events)
        is_of_job = codes(events, "event", EVENTS) >= 0
        fresh = chosen(events, is_of_job)
        since = since[is_of_job]
        if self._held is not None:
            since = np.append(np.full(self._held.num_rows, NO_ROW), since)
            fresh = pa.concat_tables([self._held, fresh], promote_options="default")
        fresh = fresh.combine_chunks()
        order = np.lexsort((numbers(fresh, "lsn"), numbers(fresh, "job")))
        return self._parted(fresh, order, since)

    def _parted(self, events: pa.Table, order: Ints, since: Ints) -> Parted:
        jobs = Groups(changes(numbers(events, "job")[order]))
        heads, lasts = order[jobs.starts], order[jobs.lasts]
        lsn = numbers(events, "lsn")
        copy = column(events, "copy").fill_null(False).to_numpy(zero_copy_only=False)
        has_put = (codes(events, "event", EVENTS)[heads] == PUT) & ~copy[heads]
        is_gone = codes(events, "state", STATES)[lasts] == GONE
        is_covered = (since[lasts] != NO_ROW) & (since[lasts] <= lsn[heads])
        is_whole = (has_put & is_gone & is_covered)[jobs.number]
        may_be = (has_put & ~is_gone)[jobs.number]
        if np.count_nonzero(may_be) > self._held_rows:
            may_be[:] = False
        self._held = events.take(pa.array(order[may_be]))
        return Parted(events.take(pa.array(order[is_whole])),
                      events.take(pa.array(order[~is_whole & ~may_be])))  # fmt: skip

    def rest(self) -> pa.Table:
        """What is held, when the piece has ended."""
        assert self._held is not None
        return self._held

    def _covered(self, events: pa.Table) -> Ints:
        """Of each row, the LSN since which no record is missing up to it; `NO_ROW` if it is
        none.
        """
        lsn = numbers(events, "lsn")
        is_record: Flags = (codes(events, "event", NO_RECORDS) < 0) & (lsn != NONE)
        mine = lsn[is_record]
        if not len(mine):
            return np.full(len(lsn), NO_ROW)
        steps = np.diff(mine, prepend=self._last)
        begun = np.maximum.accumulate(np.where(steps != 1, np.arange(len(mine)), NO_ROW))
        found = np.full(len(lsn), NO_ROW)
        found[is_record] = np.where(begun == NO_ROW, self._since, mine[begun])
        self._since, self._last = int(found[is_record][-1]), int(mine[-1])
        return found
