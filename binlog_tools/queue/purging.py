"""
Deleting the jobs of a tube that are there now.

beanstalkd has no command for that: the first job of a state is looked at and deleted, and so on.
None is reserved, so whatever breaks off in between, the others stay as they were.  Each state ends
at the number of jobs it had in the beginning, or at a job that was put since.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from binlog_tools.queue.batch_moving import BATCH_JOBS
from binlog_tools.queue.extensions import Extensions, can_page
from binlog_tools.queue.server import Job, Queue, Refused


class StateResult(NamedTuple):
    """
    What became of the jobs of one state.

    :ivar there: how many there were in the beginning.
    :ivar later: the number of the job at which it stopped, as that was put since; None if it did
        not.
    """

    state: str
    there: int
    deleted: int
    later: int | None


class TubePurge:
    """
    Deletes the jobs of a tube that are in some states.

    :ivar counts: how many there are, by state.
    :ivar deleted: how many have been.
    :cvar at_once: how many a command deletes at most, for people.
    """

    at_once = "one"

    def __init__(self, queue: Queue, tube: bytes, states: Sequence[str]) -> None:
        """
        Look how many there are; nothing is deleted yet.

        :raise Refused: there is no such tube.
        """
        stats = queue.stats_tube(tube)
        self.counts = {state: stats.number(f"current-jobs-{state}") for state in states}
        self.deleted = 0
        self._queue = queue
        self._tube = tube
        # Before anybody is asked: what comes while he thinks is not what he agreed to.
        self._end = queue.next_id() if self.total else 0

    @property
    def total(self) -> int:
        """How many there are in all these states."""
        return sum(self.counts.values())

    def run(self) -> Iterator[int | StateResult]:
        """
        Give the number of each job that is deleted, and behind those of a state what became of it.
        """
        self._queue.use(self._tube)
        for state, there in self.counts.items():
            yield from self._run(state, there)

    def _run(self, state: str, there: int) -> Iterator[int | StateResult]:
        deleted, later = 0, None
        job = self._queue.peek_first(state) if there else None
        for _ in range(there):
            if job is None:
                break
            if job.id >= self._end:
                later = job.id
                break
            is_ours, following = self._delete(job, state)
            if is_ours:
                deleted += 1
                self.deleted += 1
                yield job.id
            job = following
        yield StateResult(state, there, deleted, later)

    def _delete(self, job: Job, state: str) -> tuple[bool, Job | None]:
        """
        Delete a job and look at the next, in one round trip.

        :return: whether it was deleted, or somebody else was quicker; and the next.
        """
        requests = [b"delete %d\r\n" % job.id, b"peek-%b\r\n" % state.encode()]
        deleted, found = self._queue.ask_at_once(requests)
        if deleted.name not in (b"DELETED", b"NOT_FOUND"):
            raise Refused(f"delete {job.id}", deleted)
        if found.name not in (b"FOUND", b"NOT_FOUND"):
            raise Refused(f"peek-{state}", found)
        there = Job(found.number, found.data) if found.name == b"FOUND" else None
        return deleted.name == b"DELETED", there


class BatchPurge(TubePurge):
    """
    The same on a server with `list-jobs` and `delete-batch`, many jobs at once; those that were put
    since are passed over.  `run` gives how many each command has
    deleted, instead of their numbers.
    """

    at_once = f"up to {BATCH_JOBS}"

    def __init__(
        self, queue: Queue, extensions: Extensions, tube: bytes, states: Sequence[str],
        batch_jobs: int = BATCH_JOBS,
    ) -> None:  # fmt: skip
        super().__init__(queue, tube, states)
        self._batch_jobs = batch_jobs
        self._extensions = extensions

    def _run(self, state: str, there: int) -> Iterator[int | StateResult]:
        deleted, left = 0, there
        pages = self._extensions.pages(self._tube, state, page_jobs=self._batch_jobs)
        for page in pages if there else ():
            ids = [job.number("id") for job in page]
            ids = [each for each in ids if each < self._end][:left]
            left -= len(ids)
            if ids:
                now = self._extensions.delete(ids)
                deleted += now
                self.deleted += now
                yield now
            if not left:
                break
        yield StateResult(state, there, deleted, None)


def purge_of(queue: Queue, tube: bytes, states: Sequence[str]) -> TubePurge:
    """Prepare what deletes jobs in the quickest way that the server has."""
    extensions = Extensions(queue)
    if extensions.has("list-jobs", "delete-batch") and can_page(tube):
        return BatchPurge(queue, extensions, tube, states)
    return TubePurge(queue, tube, states)
