"""
Putting many jobs in at once, when a server starts.

`Loading.apply_cold` does what `QueueState.apply` does with the image of each of these jobs, and no
more: it is the same step for a thousand jobs, 0.3 us each instead of 2.  A test compares the two on
random histories (tests/test_loading.py).
"""

from beanstalk_twisted.binlog.cold import ColdJobs, values
from beanstalk_twisted.binlog.records import READY
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.jobs.tube import URGENT_BELOW


class Loading:
    """
    A start that is under way.
    """

    def __init__(self, state: QueueState) -> None:
        self._state = state
        self._late: dict[tuple[int, int], list[int]] = {}

    def apply_cold(self, jobs: ColdJobs) -> None:
        """
        These jobs are now exactly so.

        :param jobs: none of them is there yet.
        """
        state = self._state
        state.jobs.add_all_cold(jobs)
        state.counts[READY] += len(jobs.job_ids)
        state.homes.enter(jobs.segment, sum(map(len, jobs.bodies)), len(jobs.job_ids))
        tubes, priorities = values(jobs.tube_id), values(jobs.priority)
        if len(tubes) == len(priorities) == 1:
            self._line_up(tubes[0], priorities[0], sorted(jobs.job_ids))
            return
        lines: dict[tuple[int, int], list[int]] = {}
        rows = zip(jobs.tube_id, jobs.priority, jobs.job_ids, strict=True)
        for tube_id, priority, job_id in sorted(rows):
            lines.setdefault((tube_id, priority), []).append(job_id)
        for (tube_id, priority), job_ids in lines.items():
            self._line_up(tube_id, priority, job_ids)

    def _line_up(self, tube_id: int, priority: int, job_ids: list[int]) -> None:
        """
        A log is read newest-first, so most jobs come before those that are there.  The few others
        wait for the end: to put them in their place takes as long as the queue is.
        """
        tube = self._state.tubes.by_id(tube_id)
        if not tube.ready.add_before(priority, job_ids):
            self._late.setdefault((tube_id, priority), []).extend(job_ids)
        if priority < URGENT_BELOW:
            self._state.urgent += len(job_ids)
            tube.urgent += len(job_ids)

    def finish(self) -> None:
        """
        All jobs are there.
        """
        for (tube_id, priority), job_ids in self._late.items():
            self._state.tubes.by_id(tube_id).ready.add_all(priority, sorted(job_ids))
        self._late.clear()
