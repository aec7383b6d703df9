"""The records of jobs that are not gone, of one server, in memory.

Rows lie in two shelves, each in the order of job and LSN: a large one that is seldom made anew, and
a small one with what has changed since.  What a step costs so depends on the jobs that it touches,
and hardly on how many there are.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from binlog_tools.spark.histories.images import CARRIED, COLUMNS, in_order, numbers
from binlog_tools.spark.histories.windows import NONE, Flags, Groups, Ints, changes

SMALL_ROWS: Final = 20_000
"""Rows of the small shelf at the least before it is put into the large one: a few milliseconds."""

SHARE: Final = 4
"""So much of the large shelf may the small one be before that: each row is moved some four times
for each doubling."""

NAMES: Final = (*COLUMNS, *CARRIED)
"""The columns that are kept, some 200 bytes a record."""


class _Shelf:
    """:ivar jobs: ids, ascending, each once.
    :ivar alarm_ns: when each of them has to be looked at though nothing has happened.
    :ivar is_here: whether it has not been taken.
    """

    def __init__(self, events: pa.Table, alarm_ns: Ints | None = None) -> None:
        self._events = events
        job = numbers(events, "job")
        groups = Groups(changes(job))
        self._starts = groups.starts
        self._sizes = groups.lasts + 1 - groups.starts
        self.jobs: Ints = job[groups.starts]
        self.alarm_ns: Ints = np.zeros(len(self.jobs), np.int64) if alarm_ns is None else alarm_ns
        self.is_here: Flags = np.ones(len(self.jobs), bool)

    @property
    def rows(self) -> int:
        return int(self._events.num_rows)

    def places(self, jobs: Ints) -> Ints:
        """Where those of these jobs are that are here."""
        if not len(self.jobs):
            return np.zeros(0, np.int64)
        found: Ints = np.minimum(np.searchsorted(self.jobs, jobs), len(self.jobs) - 1)
        there: Flags = (self.jobs[found] == jobs) & self.is_here[found]
        return found[there]

    def take(self, jobs: Ints) -> pa.Table:
        places = self.places(jobs)
        self.is_here[places] = False
        return self._rows_of(places)

    def all(self) -> pa.Table:
        return self._events if self.is_here.all() else self._rows_of(np.flatnonzero(self.is_here))

    def alarms(self) -> Ints:
        return self.alarm_ns[self.is_here]

    def _rows_of(self, places: Ints) -> pa.Table:
        sizes = self._sizes[places]
        ends = np.cumsum(sizes)
        inner = np.arange(int(sizes.sum())) - np.repeat(ends - sizes, sizes)
        return self._events.take(pa.array(np.repeat(self._starts[places], sizes) + inner))


class OpenJobs:
    """Rows go in and out by whole jobs."""

    def __init__(self, events: pa.Table) -> None:
        """:param events: in any order.  All alarms are due."""
        self._large = _Shelf(in_order(events.select(NAMES)))
        self._small = _Shelf(self._large.all().slice(0, 0))

    @property
    def jobs(self) -> int:
        return int(self._large.is_here.sum() + self._small.is_here.sum())

    @property
    def bytes(self) -> int:
        return int(self._large.all().nbytes + self._small.all().nbytes)

    def knows(self, jobs: Ints) -> Flags:
        """Which of these jobs are here."""
        places = [shelf.jobs[shelf.places(jobs)] for shelf in (self._large, self._small)]
        found: Flags = np.isin(jobs, np.concatenate(places))
        return found

    def due(self, until_ns: int) -> Ints:
        """Jobs with an alarm up to then."""
        found = [shelf.jobs[shelf.is_here & (shelf.alarm_ns <= until_ns)]
                 for shelf in (self._large, self._small)]  # fmt: skip
        return np.concatenate(found)

    def next_alarm_ns(self) -> int:
        """`NONE` if there is none."""
        found = np.concatenate([self._large.alarms(), self._small.alarms()])
        return int(found.min()) if len(found) else NONE

    def wake(self) -> None:
        """Let all alarms be due."""
        self._large.alarm_ns[:] = 0
        self._small.alarm_ns[:] = 0

    def take(self, jobs: Ints) -> pa.Table:
        """Take the records of these jobs out."""
        return pa.concat_tables([self._large.take(jobs), self._small.take(jobs)])

    def put(self, events: pa.Table, alarm_ns: Ints) -> None:
        """:param events: of jobs that are not here, in the order of job and LSN.
        :param alarm_ns: of each of these jobs.
        """
        together, alarms = _joined(self._small, _Shelf(events, alarm_ns))
        self._small = _Shelf(together, alarms)
        if self._small.rows > max(SMALL_ROWS, self._large.rows // SHARE):
            together, alarms = _joined(self._large, self._small)
            self._large = _Shelf(together, alarms)
            self._small = _Shelf(together.slice(0, 0))

    def all(self) -> pa.Table:
        """All records, job by job, in no order of jobs."""
        return pa.concat_tables([self._large.all(), self._small.all()])


def _joined(first: _Shelf, second: _Shelf) -> tuple[pa.Table, Ints]:
    """What is in either, in order, and the alarms."""
    jobs = np.concatenate([shelf.jobs[shelf.is_here] for shelf in (first, second)])
    alarms = np.concatenate([first.alarms(), second.alarms()])
    events = pa.concat_tables([first.all(), second.all()])
    return in_order(events), alarms[np.argsort(jobs)]
