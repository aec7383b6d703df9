"""
Putting many jobs in at once, when a server starts.

`apply_cold` does what `QueueState.apply` does with the image of each of these jobs, and no more: it
is the same step for a thousand jobs, 0.3 us each instead of 2.  A test compares the two on random
histories (tests/test_loading.py).
"""

from beanstalk_twisted.binlog.cold import ColdJobs, values
from beanstalk_twisted.binlog.records import READY
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.jobs.tube import URGENT_BELOW


def apply_cold(state: QueueState, jobs: ColdJobs) -> None:
    """
    These jobs are now exactly so.

    :param jobs: none of them is there yet.
    """
    state.jobs.add_all_cold(jobs)
    state.counts[READY] += len(jobs.job_ids)
    state.homes.enter_all(jobs.segment, len(jobs.job_ids), sum(map(len, jobs.bodies)))
    tubes, priorities = values(jobs.tube_id), values(jobs.priority)
    if len(tubes) == len(priorities) == 1:
        _line_up(state, tubes[0], priorities[0], sorted(jobs.job_ids))
        return
    lines: dict[tuple[int, int], list[int]] = {}
    rows = zip(jobs.tube_id, jobs.priority, jobs.job_ids, strict=True)
    for tube_id, priority, job_id in sorted(rows):
        lines.setdefault((tube_id, priority), []).append(job_id)
    for (tube_id, priority), job_ids in lines.items():
        _line_up(state, tube_id, priority, job_ids)


def _line_up(state: QueueState, tube_id: int, priority: int, job_ids: list[int]) -> None:
    tube = state.tubes.by_id(tube_id)
    tube.ready.add_all(priority, job_ids)
    if priority < URGENT_BELOW:
        state.urgent += len(job_ids)
        tube.urgent += len(job_ids)
