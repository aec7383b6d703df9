"""
Which jobs are dead letters.
"""

from beanstalk_twisted.jobs.job import Job
from beanstalk_twisted.jobs.ordered import OrderedJobs


class DeadLetters:
    """
    Jobs that died, by the tube that they died in, wherever they are now; of each in the order in
    which they did.
    """

    def __init__(self) -> None:
        self._by_tube: dict[bytes, OrderedJobs] = {}

    def enter(self, job: Job) -> None:
        """
        A job is there, which may be a dead letter.
        """
        tags = job.tags
        if tags is not None and tags.dead_from:
            jobs = self._by_tube.get(tags.dead_from)
            if jobs is None:
                jobs = self._by_tube[tags.dead_from] = OrderedJobs()
            jobs.add(tags.dead_at_ns, job.job_id)

    def leave(self, job: Job) -> None:
        """
        A job is gone, or is about to have other tags.
        """
        tags = job.tags
        if tags is not None and tags.dead_from:
            jobs = self._by_tube[tags.dead_from]
            jobs.discard(tags.dead_at_ns, job.job_id)
            if not jobs.count:
                del self._by_tube[tags.dead_from]

    def of(self, name: bytes) -> OrderedJobs | None:
        """
        The dead letters of a tube, by when they died; None if there are none.
        """
        return self._by_tube.get(name)
