"""
A recount: the jobs that tubes have already are entered into their totals, slice by slice.

It walks through the table of all jobs by pages.  Jobs come, go and change meanwhile; the totals
know from the page of each whether it was entered already.
"""

from collections.abc import Mapping
from typing import Final

from beanstalk_twisted.binlog.records import State
from beanstalk_twisted.jobs.ordered import ID_MASK, LEAST
from beanstalk_twisted.jobs.policy import TubeTotals
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.jobs.table import JobTable
from beanstalk_twisted.jobs.tube import Tube

SLICE_PAGES: Final = 100
"""Pages of one slice: 6,400 jobs, some 5 ms."""

SMALL_TUBE: Final = 500
"""Jobs of a tube that are entered at once: 1 ms."""

QUEUES: Final = (State.READY, State.DELAYED, State.BURIED)


class Recount:
    """
    Enters jobs into totals that are empty.
    """

    def __init__(self, table: JobTable, by_tube: Mapping[int, TubeTotals]) -> None:
        """
        :param by_tube: by the ids of their tubes.
        """
        self._table = table
        self._by_tube = by_tube
        # The first one last, from where it is taken: by age, jobs enter in order.
        self._pages = sorted(table.pages(), reverse=True)
        self._pending = set(self._pages)
        for totals in by_tube.values():
            totals.pending = self._pending

    def is_over_after_slice(self) -> bool:
        """
        Enter the jobs of some pages.

        :return: whether they were the last.
        """
        for _ in range(min(SLICE_PAGES, len(self._pages))):
            number = self._pages.pop()
            for facts in self._table.facts(number):
                totals = self._by_tube.get(facts.tube_id)
                if totals is not None:
                    totals.enter_found(facts)
            self._pending.discard(number)
        return not self._pages


def is_small(tube: Tube, totals: TubeTotals, state: QueueState) -> bool:
    """
    Enter the jobs of a tube at once, if they are few, and nobody has reserved any of them.

    :return: whether that was so.
    """
    if tube.job_count > SMALL_TUBE:
        return False
    keys = [key for each in QUEUES for key in tube.queue(each).behind(LEAST, SMALL_TUBE)]
    if len(keys) != tube.job_count:
        return False
    for key in keys:
        job = state.jobs.look(key & ID_MASK)
        assert job is not None
        totals.enter(job)
    return True
