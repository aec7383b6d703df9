"""
Groups: how many jobs of each there are, and who waits until there are none.

A job that waits for a group is delayed, until no moment.  Nothing here lets it go: that is a change
with a record of its own, which the rules make for the groups that have `ended`.
"""

from collections.abc import Sequence
from typing import Final

from beanstalk_twisted.binlog.records.jobs import NEVER_NS, JobImage, State
from beanstalk_twisted.jobs.job import Job
from beanstalk_twisted.jobs.ordered import LEAST, OrderedJobs

BURIED: Final = State.BURIED
DELAYED: Final = State.DELAYED


class Groups:
    """
    Jobs by the group that they are of, and by the one that they wait for.

    :ivar ended: the groups without jobs for which jobs wait.
    """

    def __init__(self) -> None:
        self.ended: dict[bytes, None] = {}
        self._members: dict[bytes, int] = {}
        self._buried: dict[bytes, int] = {}
        self._waiting: dict[bytes, OrderedJobs] = {}

    def members(self, group: bytes) -> int:
        """How many jobs of the group there are, in any state."""
        return self._members.get(group, 0)

    def buried(self, group: bytes) -> int:
        """How many of them are buried."""
        return self._buried.get(group, 0)

    def waiting(self, group: bytes) -> int:
        """How many jobs wait for the group."""
        jobs = self._waiting.get(group)
        return 0 if jobs is None else jobs.count

    def first_waiting(self, group: bytes, most: int) -> list[int]:
        """
        The keys, by priority and id as in `ordered`, of the first jobs that wait for the group.
        """
        jobs = self._waiting.get(group)
        return [] if jobs is None else jobs.behind(LEAST, most)

    def held(self, images: Sequence[JobImage]) -> list[JobImage]:
        """
        Let new jobs wait for their groups.

        :param images: of jobs that are about to be put, in this order; the earlier ones count for
            the later.
        :return: the images, of which those wait whose group has a job.
        """
        joined: set[bytes] = set()
        result = []
        for image in images:
            tags = image.tags
            if tags is not None:
                if tags.after and (tags.after in joined or tags.after in self._members):
                    image = image._replace(state=DELAYED, deadline_ns=NEVER_NS)
                if tags.group:
                    joined.add(tags.group)
            result.append(image)
        return result

    def enter(self, group: bytes) -> None:
        """There is one more job of the group."""
        self._members[group] = self.members(group) + 1
        self.ended.pop(group, None)

    def leave(self, group: bytes) -> None:
        """There is one less."""
        count = self._members.pop(group)
        if count > 1:
            self._members[group] = count - 1
        elif group in self._waiting:
            self.ended[group] = None

    def enter_state(self, job: Job) -> None:
        """A job with tags has come into a state."""
        tags = job.tags
        assert tags is not None
        if job.state is BURIED and tags.group:
            self._buried[tags.group] = self.buried(tags.group) + 1
        elif tags.after and is_waiting(job):
            group = tags.after
            if group not in self._waiting:
                self._waiting[group] = OrderedJobs()
            self._waiting[group].add(job.priority, job.job_id)
            if group not in self._members:
                self.ended[group] = None

    def leave_state(self, job: Job) -> None:
        """A job with tags is about to leave the state it is in."""
        tags = job.tags
        assert tags is not None
        if job.state is BURIED and tags.group:
            count = self._buried.pop(tags.group)
            if count > 1:
                self._buried[tags.group] = count - 1
        elif tags.after and is_waiting(job):
            jobs = self._waiting[tags.after]
            jobs.discard(job.priority, job.job_id)
            if not jobs.count:
                del self._waiting[tags.after]
                self.ended.pop(tags.after, None)


def is_waiting(job: Job) -> bool:
    """Whether a job waits for a group."""
    is_delayed = job.state is DELAYED and job.deadline_ns == NEVER_NS
    return is_delayed and job.tags is not None and bool(job.tags.after)
