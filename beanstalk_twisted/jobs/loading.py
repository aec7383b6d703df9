"""
Putting many jobs in at once, when a server starts.

`apply_cold` does what `QueueState.apply` does with the image of each of these jobs, and no more: it
is the same step for a thousand jobs, 0.3 us each instead of 2.  A test compares the two on random
histories (tests/storage/test_loading.py).
"""

from beanstalk_twisted.binlog.cold import ColdJobs, values
from beanstalk_twisted.jobs.state import QueueState


def apply_cold(state: QueueState, jobs: ColdJobs) -> None:
    """
    These jobs are now exactly so.

    :param jobs: none of them is there yet.
    """
    state.jobs.add_all_cold(jobs)
    state.live.enter(jobs.segment, sum(map(len, jobs.bodies)), len(jobs.job_ids))
    tubes, priorities = values(jobs.tube_id), values(jobs.priority)
    if len(tubes) == len(priorities) == 1:
        major = priorities[0] << 64
        keys = [major | job_id for job_id in sorted(jobs.job_ids)]
        state.enqueue(state.tubes.by_id(tubes[0]), keys)
        return
    lines: dict[int, list[int]] = {}
    rows = zip(jobs.tube_id, jobs.priority, jobs.job_ids, strict=True)
    for tube_id, priority, job_id in sorted(rows):
        lines.setdefault(tube_id, []).append(priority << 64 | job_id)
    for tube_id, keys in lines.items():
        state.enqueue(state.tubes.by_id(tube_id), keys)
