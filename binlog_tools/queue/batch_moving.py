"""
Jobs from one tube into another, many at once, on a server with `list-jobs`, `put-batch` and
`delete-batch`; as in `moving`, none lost.

A batch of jobs is listed, each is reserved by its id, all are put into the new tube in one piece,
and deleted when the server has confirmed that.  Whatever breaks off in between, each job of the
batch is there once or, at worst, twice.  Jobs that were put since it began are passed over.

`reserve-batch` is not used: it takes the first ready jobs, whoever put them since, and none that
are delayed, buried or of a paused tube.
"""

from collections.abc import Generator, Iterator, Sequence
from typing import Final, NamedTuple

from binlog_tools.queue.extensions import MAX_BATCH_BYTES, Extensions, NewJob, can_page
from binlog_tools.queue.moving import BURYING_S, Broken, Moved, Mover
from binlog_tools.queue.server import Job, Queue, Refused, Stats

BATCH_JOBS: Final = 200
"""
Jobs of a batch: what servers put or delete in one go.  So many may be there twice if we are killed;
larger ones are hardly quicker.
"""


class _Taken(NamedTuple):
    """
    A job that we have reserved.

    :ivar delay_s: what was left of its delay.
    """

    job: Job
    stats: Stats
    delay_s: int


class BatchMover:
    """Moves jobs."""

    def __init__(
        self, queue: Queue, extensions: Extensions, mover: Mover, batch_jobs: int = BATCH_JOBS
    ) -> None:
        """:param mover: knows where to, and moves those that cannot be moved together."""
        self._queue = queue
        self._extensions = extensions
        self._mover = mover
        self._batch_jobs = batch_jobs
        self._problem: Exception | None = None

    def move_all(
        self, source: bytes, state: str, most: int | None
    ) -> Generator[Sequence[Moved], None, None]:
        """
        Move the jobs of a tube that are in a state now, and not those that come meanwhile.

        Close it where it is left early: what went wrong in the last batch is raised then.

        :return: those of each batch, when it is finished.
        :raise Refused: a job could not be put; it and the rest stay.
        :raise Broken: jobs may be there twice.
        """
        left = self._queue.stats_tube(source).number(f"current-jobs-{state}")
        if not left:
            return
        # Before they are counted, so that all that were put before are among those.
        end = self._queue.next_id()
        left = self._queue.stats_tube(source).number(f"current-jobs-{state}")
        left = left if most is None else min(left, most)
        self._queue.use(self._mover.target)
        for page in self._extensions.pages(source, state, page_jobs=self._batch_jobs):
            for batch in _batches([job for job in page if job.number("id") < end][:left]):
                moved = self._move(batch, state)
                left -= len(moved)
                try:
                    yield moved
                finally:
                    if self._problem is not None:
                        raise self._problem
            if not left:
                return

    def _move(self, listed: Sequence[Stats], state: str) -> list[Moved]:
        taken = self._reserve(listed, state)
        if not taken:
            return []
        buries = self._mover.keeps_buried and state == "buried"
        try:
            new = self._extensions.put([_put_anew(each, buries) for each in taken])
        except Refused:
            # What is wrong with which is told when they are put one by one.
            return self._move_singly(taken, state)
        moved = [Moved(each.job.id, job) for each, job in zip(taken, new, strict=True)]
        try:
            if buries:
                self._bury(taken, new)
            return self._delete(moved)
        except (OSError, Refused) as problem:
            raise self._broken(moved, problem) from problem

    def _reserve(self, listed: Sequence[Stats], state: str) -> list[_Taken]:
        """Reserve jobs, but for those that somebody else has taken since they were listed."""
        requests = (b"reserve-job %d\r\n" % stats.number("id") for stats in listed)
        taken = []
        for stats, reply in zip(listed, self._queue.ask_many(requests), strict=True):
            if reply.name == b"RESERVED":
                delay_s = stats.number("time-left") if state == "delayed" else 0
                taken.append(_Taken(Job(stats.number("id"), reply.data), stats, delay_s))
            elif reply.name != b"NOT_FOUND":
                raise Refused(f"reserve-job {stats['id']}", reply)
        return taken

    def _bury(self, taken: Sequence[_Taken], new: Sequence[int]) -> None:
        """Bury new jobs; one that somebody else has taken meanwhile is his."""
        requests: list[bytes] = []
        for each, job in zip(taken, new, strict=True):
            bury = b"bury %d %d\r\n" % (job, each.stats.number("pri"))
            requests += (b"reserve-job %d\r\n" % job, bury)
        for reply in self._queue.ask_at_once(requests):
            if reply.name not in (b"RESERVED", b"BURIED", b"NOT_FOUND"):
                raise Refused("bury", reply)

    def _delete(self, moved: list[Moved]) -> list[Moved]:
        """
        Delete jobs where they were.

        :return: those that are not there any more.
        """
        old = [each.old for each in moved]
        if self._extensions.delete(old) == len(old):
            return moved
        # The TTR of some had ended; what somebody else has reserved since is still there.
        replies = self._queue.ask_many([b"stats-job %d\r\n" % job for job in old])
        there = {job for job, reply in zip(old, replies, strict=True) if reply.name == b"OK"}
        if there:
            twice = [each for each in moved if each.old in there]
            self._problem = self._broken(twice, "somebody else has reserved what was left there")
        return [each for each in moved if each.old not in there]

    def _broken(self, moved: Sequence[Moved], why: object) -> Broken:
        first, last = moved[0], moved[-1]
        target = self._mover.target.decode()
        if first is last:
            what = f"job {first.old} is job {first.new} of {target}"
        else:
            what = (
                f"{len(moved)} jobs, {first.old} to {last.old}, are jobs {first.new} to "
                f"{last.new} of {target}"
            )
        return Broken(f"{what} now, but may still be there too: {why}")

    def _move_singly(self, taken: Sequence[_Taken], state: str) -> list[Moved]:
        """Move jobs until one is refused; that one and the rest are then as they were."""
        moved: list[Moved] = []
        for each in taken:
            if self._problem is not None:
                pri = each.stats.number("pri")
                self._mover.give_back(each.job.id, pri, state == "buried", each.delay_s)
                continue
            try:
                moved.append(self._mover.move_reserved(each.job, each.stats, state, each.delay_s))
            except (Refused, Broken) as problem:
                self._problem = problem
        return moved


def can_batch(extensions: Extensions, source: bytes) -> bool:
    """Say whether the server has all that is needed to move the jobs of a tube in batches."""
    return extensions.has("list-jobs", "put-batch", "delete-batch") and can_page(source)


def _batches(listed: Sequence[Stats]) -> Iterator[Sequence[Stats]]:
    """
    Divide jobs where their bodies are too large together; one that is too large alone is alone.
    """
    batch: list[Stats] = []
    size = 0
    for stats in listed:
        if batch and size + stats.number("size") > MAX_BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(stats)
        size += stats.number("size")
    if batch:
        yield batch


def _put_anew(taken: _Taken, buries: bool) -> NewJob:
    stats = taken.stats
    delay_s = BURYING_S if buries else taken.delay_s
    return NewJob(taken.job.body, stats.number("pri"), delay_s, stats.number("ttr"))
