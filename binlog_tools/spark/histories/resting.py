"""Jobs at rest: those that are not gone, and of which nothing changes unless there is an event.

A job that is ready or buried rests until its next event, one that is delayed until its deadline,
and one that is reserved not at all: the server's next start may end its run.
"""

from typing import Any, Final

import numpy as np

from binlog_tools.spark.histories.entries import DAY_NS
from binlog_tools.spark.histories.images import DELAYED, RESERVED
from binlog_tools.spark.histories.stays import Stays
from binlog_tools.spark.histories.windows import NONE, Ints

ALWAYS: Final = 0
"""When a job changes that does not rest: earlier than any moment of a log."""

Span = tuple[Any, Any] | None
"""The smallest and the largest of some values; None: there are none."""


def first_days(stays: Stays) -> Ints:
    """Of each job, the day of its first record, counted from the epoch."""
    return stays.jobs.least(stays.at_ns) // DAY_NS


def due_ns(stays: Stays) -> Ints:
    """Of each job, when it changes without an event, or `NONE`."""
    last = stays.jobs.lasts
    state = np.where(stays.has_ready[last], -1, stays.images.state[last])
    deadline_ns = np.where(state == DELAYED, stays.images.deadline_ns[last], NONE)
    return np.where(state == RESERVED, ALWAYS, deadline_ns)


def is_awake(jobs: Span, due: Span, touched: Ints, last_ns: int) -> bool:
    """Whether one of some jobs of a server may have changed.

    :param jobs: their ids.
    :param due: of those that change without an event, when.
    :param touched: ids of jobs with new events, ascending.
    :param last_ns: the server's last moment.
    """
    if due is not None and due[0] <= last_ns:
        return True
    if jobs is None:
        return False
    place = np.searchsorted(touched, jobs[0])
    return bool(place < len(touched) and touched[place] <= jobs[1])
