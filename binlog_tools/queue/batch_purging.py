"""
Deleting the jobs of a tube that are there now, many at once, on a server with `list-jobs` and
`delete-batch`.

As in `purging` none is reserved.  Jobs that were put since are passed over.
"""

from collections.abc import Iterator, Sequence

from binlog_tools.queue.batch_moving import BATCH_JOBS
from binlog_tools.queue.extensions import Extensions, can_page
from binlog_tools.queue.purging import StateResult, TubePurge
from binlog_tools.queue.server import Queue


class BatchPurge(TubePurge):
    """
    Deletes the jobs of a tube that are in some states; `run` gives how many each command has
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
    """
    Prepare what deletes jobs in the quickest way that the server has.
    """
    extensions = Extensions(queue)
    if extensions.has("list-jobs", "delete-batch") and can_page(tube):
        return BatchPurge(queue, extensions, tube, states)
    return TubePurge(queue, tube, states)
