"""
Jobs from one tube into another by `move-job`, on a server that has it.

A job is never put anew: its id, age, counters and tags stay, and whatever breaks off, it is in one
of the two tubes and not in both.  Jobs are asked for many at once.
"""

from collections.abc import Generator, Iterator, Sequence
from typing import Final

from binlog_tools.queue.extensions import Extensions, can_page
from binlog_tools.queue.moving import Moved
from binlog_tools.queue.server import Queue, Refused

BATCH_JOBS: Final = 200
"""Jobs that are asked for at once."""


class DirectMover:
    """
    Moves jobs as they are.

    :ivar duplicates: a sentence for each job that `move_all` has left where it was, since its
        unique key is taken in the other tube.
    :ivar later: the id of the job at which `move_all` stopped, as that was put since it began; None
        if it did not.
    """

    def __init__(
        self, queue: Queue, extensions: Extensions, target: bytes, keeps_buried: bool = True,
        batch_jobs: int = BATCH_JOBS,
    ) -> None:  # fmt: skip
        """:param keeps_buried: what was buried is so in the new tube; else it is ready there."""
        self._queue = queue
        self._extensions = extensions
        self._target = target
        self._keeps_buried = keeps_buried
        self._batch_jobs = batch_jobs
        self.duplicates: list[str] = []
        self.later: int | None = None

    def move_job(self, job: int) -> Moved:
        """
        Move one job, whichever its tube.

        :raise Refused: there is none, it is reserved, or its unique key is taken.
        """
        kicks = not self._keeps_buried and self._queue.stats_job(job)["state"] == "buried"
        (problem,) = self._extensions.move([job], self._target)
        if problem is not None:
            raise problem
        if kicks:
            self._kick([job])
        return Moved(job, job)

    def move_all(
        self, source: bytes, state: str, most: int | None
    ) -> Generator[Sequence[Moved], None, None]:
        """
        Move the jobs of a tube that are in a state now, and not those that come meanwhile.

        Close it where it is left early: what went wrong in the last batch is raised then.

        :return: those of each batch.
        :raise Refused: the server has no room for a job; it and others stay.
        """
        key = f"current-jobs-{state}"
        if not self._queue.stats_tube(source).number(key):
            return
        # Before they are counted, so that all that were put before are among those.
        end = self._queue.next_id()
        left = self._queue.stats_tube(source).number(key)
        left = left if most is None else min(left, most)
        for page in self._pages(source, state, end):
            for at in range(0, len(page), self._batch_jobs):
                moved, problem = self._move(page[at : at + self._batch_jobs][:left], state)
                left -= len(moved)
                try:
                    yield moved
                finally:
                    if problem is not None:
                        raise problem
                if not left:
                    return

    def _pages(self, source: bytes, state: str, end: float) -> Iterator[list[int]]:
        if can_page(source):
            for page in self._extensions.pages(source, state, page_jobs=self._batch_jobs):
                yield [job.number("id") for job in page if job.number("id") < end]
            return
        # There is no cursor for a name so long; but what was moved has left the first page.
        seen: set[int] = set()
        while True:
            (first,) = self._extensions.pages(source, state, self._batch_jobs, self._batch_jobs)
            jobs = [job.number("id") for job in first]
            here = [job for job in jobs if job < end and job not in seen]
            if not here:
                self.later = next((job for job in jobs if job >= end), None)
                return
            seen.update(here)
            yield here

    def _move(self, jobs: Sequence[int], state: str) -> tuple[list[Moved], Refused | None]:
        """
        Move jobs, but for those that somebody else has taken since they were listed.

        :return: those moved, and why the first of the others was not, if it is not their own fault.
        """
        moved: list[Moved] = []
        first: Refused | None = None
        for job, problem in zip(jobs, self._extensions.move(jobs, self._target), strict=True):
            if problem is None:
                moved.append(Moved(job, job))
            elif problem.reply == b"DUPLICATE":
                self.duplicates.append(str(problem))
            elif problem.reply != b"NOT_FOUND":
                first = first or problem
        if state == "buried" and not self._keeps_buried:
            self._kick([each.new for each in moved])
        return moved, first

    def _kick(self, jobs: Sequence[int]) -> None:
        """Kick jobs, but for those that somebody else has kicked."""
        replies = self._queue.ask_many([b"kick-job %d\r\n" % job for job in jobs])
        for job, reply in zip(jobs, replies, strict=True):
            if reply.name not in (b"KICKED", b"NOT_FOUND"):
                raise Refused(f"kick-job {job}", reply)


def can_move_directly(extensions: Extensions) -> bool:
    """Say whether the server moves jobs by itself."""
    return extensions.has("move-job")
