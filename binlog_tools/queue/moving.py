"""Jobs from one tube into another, none lost."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.commands.specs import Job
from beanstalk_twisted.client.stats import JobStats, TubeStats
from binlog_tools.queue.asking import bury_free, can_page, next_id, pages, peek_first

if TYPE_CHECKING:
    from beanstalk_twisted.client.sync import Client

BURYING_S: Final = 3600
"""The delay with which a job is put that is to be buried in its new tube, seconds: no worker gets
it before.  If we die in that moment, it is ready after an hour instead of never.
"""


class Moved(NamedTuple):
    old: int
    new: int


class Broken(Exception):
    """It broke off where a job may be there twice."""


def _count(
    client: "Client", tube: bytes, state: str, most: int | None
) -> tuple[int, float, TubeStats]:
    """Count the jobs of a tube that are in a state now.

    :return: how many are to be moved, the id at which those begin that were put since, and the
        statistics of the tube.
    """
    stats = client.stats_tube(tube)
    if not count_of(stats, state):
        return 0, 0, stats
    # Before they are counted, so that all that were put before are among those.
    end = next_id(client)
    stats = client.stats_tube(tube)
    there = count_of(stats, state)
    return there if most is None else min(there, most), end, stats


def count_of(stats: TubeStats, state: str) -> int:
    there = stats[f"current-jobs-{state}"]
    assert isinstance(there, int)
    return there


class Mover:
    """Moves jobs on any server.

    A job is reserved, so that no worker has it meanwhile, put into the new tube, and deleted when
    the server has confirmed that.  Whatever breaks off in between, the job is there once or, at
    worst, twice; as its reservation ends with the connection, it is then ready in its old tube,
    even if it was buried or delayed.  Priority, TTR and what is left of its delay stay.

    :ivar later: the number of the job at which `move_all` stopped, as that was put since it began;
        None if it did not.
    """

    def __init__(self, client: "Client", target: bytes, keeps_buried: bool = True) -> None:
        """:param keeps_buried: bury in the new tube what was buried; else it is ready there."""
        self._client = client
        self.target = target
        self.keeps_buried = keeps_buried
        self._end = 0.0
        self.later: int | None = None

    def move_all(self, source: bytes, state: str, most: int | None) -> Iterator[Moved]:
        """Move the jobs of a tube that are in a state now, and not those that come meanwhile."""
        left, self._end, stats = _count(self._client, source, state, most)
        # Nobody can reserve from a paused tube, but each job of it.
        is_open = state == "ready" and not stats.pause_time_left
        while left > 0:
            moved = self._move_ready(source) if is_open else None
            if moved is None and self.later is None:
                # A pause in its last second looks like none.
                moved = self._move_first(source, state)
            if moved is None:
                return
            yield moved
            left -= 1

    def _move_ready(self, source: bytes) -> Moved | None:
        self._client.watch_only(source)
        try:
            job = self._client.reserve_with_timeout(0)
        except (errors.TimedOut, errors.DeadlineSoon):
            return None
        stats = self._client.stats_job(job)
        if self._is_later(job):
            self._client.release(job, priority=stats.pri)
            return None
        return self.move_reserved(job, stats, "ready", 0)

    def _move_first(self, source: bytes, state: str) -> Moved | None:
        while True:
            self._client.use(source)
            first = peek_first(self._client, state)
            if first is None or self._is_later(first):
                return None
            try:
                return self.move_job(first.id)
            except errors.NotFound:
                continue  # Somebody was quicker; look again.

    def _is_later(self, job: Job) -> bool:
        if job.id >= self._end:
            self.later = job.id
        return self.later is not None

    def move_job(self, job: int) -> Moved:
        """Move one job, whichever its tube.

        :raise ErrorReply: there is none, it is reserved, or it cannot be put.
        """
        stats = self._client.stats_job(job)
        # A reserved job is refused here, and so is one that was taken since.
        taken = self._client.reserve_job(job)
        delay_s = stats.time_left if stats.state == "delayed" else 0
        return self.move_reserved(taken, stats, stats.state, delay_s)

    def move_reserved(self, job: Job, stats: JobStats, state: str, delay_s: int) -> Moved:
        """:param state: the job's state before, and what was left of its delay.
        :raise ErrorReply: it cannot be put, and is again what it was.
        """
        is_buried = state == "buried"
        buries = is_buried and self.keeps_buried
        delay = BURYING_S if buries else delay_s
        try:
            self._client.use(self.target)
            new = self._client.put(job.body, priority=stats.pri, delay=delay, ttr=stats.ttr)
        except errors.ErrorReply:
            if is_buried:
                self._client.bury(job, priority=stats.pri)
            else:
                self._client.release(job, priority=stats.pri, delay=delay_s)
            raise
        try:
            if buries:
                bury_free(self._client, new, stats.pri)
            self._client.delete(job)
        except errors.ClientError as problem:
            target = self.target.decode()
            raise Broken(
                f"job {job.id} is job {new} of {target} now, but may still be there too: {problem}"
            ) from problem
        return Moved(job.id, int(new))


BATCH_JOBS: Final = 200
"""Jobs that are moved at once; larger batches are hardly quicker."""


class DirectMover:
    """Moves jobs as they are.

    :ivar duplicates: a sentence for each job that `move_all` has left where it was, since its
        unique key is taken in the other tube.
    :ivar later: as of `Mover`.
    """

    def __init__(
        self,
        client: "Client",
        target: bytes,
        keeps_buried: bool = True,
        batch_jobs: int = BATCH_JOBS,
    ) -> None:
        self._client = client
        self._target = target
        self._keeps_buried = keeps_buried
        self._batch_jobs = batch_jobs
        self.duplicates: list[str] = []
        self.later: int | None = None

    def move_job(self, job: int) -> Moved:
        """Move one job, whichever its tube.

        :raise ErrorReply: there is none, it is reserved, or its unique key is taken.
        """
        kicks = not self._keeps_buried and self._client.stats_job(job).state == "buried"
        self._client.move_job(job, self._target)
        if kicks:
            self._kick([job])
        return Moved(job, job)

    def move_all(
        self, source: bytes, state: str, most: int | None
    ) -> Generator[Sequence[Moved], None, None]:
        """Move the jobs of a tube that are in a state now, and not those that come meanwhile.

        Close it where it is left early: what went wrong in the last batch is raised then.

        :return: those of each batch, when it is finished.
        :raise ErrorReply: the server has no room for a job; it and others stay.
        """
        left, end, _ = _count(self._client, source, state, most)
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
            for page in pages(self._client, source, state, page_jobs=self._batch_jobs):
                yield [job.id for job in page if job.id < end]
            return
        # There is no cursor for a name so long; but what was moved has left the first page.
        seen: set[int] = set()
        while True:
            (first,) = pages(self._client, source, state, self._batch_jobs, self._batch_jobs)
            jobs = [job.id for job in first]
            here = [job for job in jobs if job < end and job not in seen]
            if not here:
                self.later = next((job for job in jobs if job >= end), None)
                return
            seen.update(here)
            yield here

    def _move(
        self, jobs: Sequence[int], state: str
    ) -> tuple[list[Moved], errors.ErrorReply | None]:
        """Move jobs, but for those that somebody else has taken since they were listed.

        :return: those moved, and why the first of the others was not, if not by its own fault.
        """
        moved: list[Moved] = []
        first: errors.ErrorReply | None = None
        with self._client.pipeline() as pipe:
            asked = [pipe.move_job(job, self._target) for job in jobs]
            for job, answer in zip(jobs, asked, strict=True):
                try:
                    answer.result  # noqa: B018 - it waits, and raises.
                    moved.append(Moved(job, job))
                except errors.Duplicate as taken:
                    self.duplicates.append(f"job {job} stays: {taken.meaning}")
                except errors.NotFound:
                    continue
                except errors.ErrorReply as problem:
                    first = first or problem
        if state == "buried" and not self._keeps_buried:
            self._kick([each.new for each in moved])
        return moved, first

    def _kick(self, jobs: Sequence[int]) -> None:
        """Kick jobs, but for those that somebody else has kicked."""
        with self._client.pipeline() as pipe:
            for answer in [pipe.kick_job(job) for job in jobs]:
                with suppress(errors.NotFound):
                    answer.result  # noqa: B018 - it waits, and raises.
