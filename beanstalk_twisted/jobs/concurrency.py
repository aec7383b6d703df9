"""
Concurrency keys: so many jobs with a key are reserved at once, over all tubes.

The ready jobs of a tube with one key and one limit are a *line*.  While as many jobs with the key
are reserved as the limit says, the line is closed: all its jobs are parked.  While it is open, its
first job stands among the tube's `ready` jobs, the others are parked behind it.  So who looks for a
job sees only those that may be handed out, and never has to pass over one.

A job that comes or goes costs the same however many there are, but for finding its place in order.
Each reservation that fills a key, and each end of one that frees it, costs 2 us for each tube that
has ready jobs with the key and that limit.
"""

from beanstalk_twisted.binlog.tags import Tags
from beanstalk_twisted.jobs.job import Job
from beanstalk_twisted.jobs.ordered import OrderedJobs
from beanstalk_twisted.jobs.tube import NO_JOBS, Tube

Level = tuple[bytes, int]
"""A concurrency key, and a limit."""


class Line:
    """
    The ready jobs of a tube with one key and one limit.  Keys of jobs are those of `ordered`.

    :ivar first: the key of its first job while that may be handed out; None while the line is
        closed, or empty.
    :ivar parked: its other jobs.
    """

    __slots__ = ("first", "parked", "tube")

    def __init__(self, tube: Tube) -> None:
        self.tube = tube
        self.first: int | None = None
        self.parked = NO_JOBS

    @property
    def is_empty(self) -> bool:
        """
        Whether it has no job.
        """
        return self.first is None and not self.parked.count

    def add(self, key: int, *, is_open: bool) -> None:
        """
        A job comes.
        """
        if not is_open or (self.first is not None and self.first < key):
            self._park(key)
            return
        self.close()
        self._show(key)

    def discard(self, key: int, *, is_open: bool) -> None:
        """
        A job, which is here, goes.

        :param is_open: whether the next one may be handed out then.
        """
        if key != self.first:
            self._unpark(key)
            return
        self.first = None
        self.tube.hide(key)
        if is_open:
            self.open()

    def open(self) -> None:
        """
        Let the first job be handed out.
        """
        if self.first is None:
            key = self.parked.first()
            if key is not None:
                self._unpark(key)
                self._show(key)

    def close(self) -> None:
        """
        Let no job be handed out.
        """
        key, self.first = self.first, None
        if key is not None:
            self.tube.hide(key)
            self._park(key)

    def _show(self, key: int) -> None:
        self.first = key
        self.tube.show(key)

    def _park(self, key: int) -> None:
        if self.parked is NO_JOBS:
            self.parked = OrderedJobs()
        self.parked.add_key(key)
        self.tube.park(key)

    def _unpark(self, key: int) -> None:
        self.parked.discard_key(key)
        self.tube.parked.discard_key(key)


class ConcurrencyKeys:
    """
    All ready and reserved jobs that have a concurrency key.

    :ivar opened: tubes with waiting sessions in which a line was opened; who serves them takes them
        out.
    """

    def __init__(self) -> None:
        self.opened: dict[Tube, None] = {}
        self._reserved: dict[bytes, int] = {}
        self._lines: dict[Level, dict[Tube, Line]] = {}

    def reserved(self, key: bytes) -> int:
        """
        How many jobs with the key are reserved.
        """
        return self._reserved.get(key, 0)

    def allows(self, tags: Tags) -> bool:
        """
        Whether a job with these tags may be reserved: its own limit counts, whatever limits others
        with its key have.
        """
        key = tags.concurrency_key
        return not key or self.reserved(key) < limit_of(tags)

    def enter(self, job: Job, tube: Tube) -> None:
        """
        A job with a key is ready.
        """
        tags = job.tags
        assert tags is not None
        lines = self._lines.setdefault((tags.concurrency_key, limit_of(tags)), {})
        line = lines.get(tube)
        if line is None:
            line = lines[tube] = Line(tube)
        line.add(job.priority << 64 | job.job_id, is_open=self.allows(tags))

    def leave(self, job: Job, tube: Tube, *, is_taken: bool) -> None:
        """
        A job with a key is no longer ready.

        :param is_taken: whether it is about to be reserved.
        """
        tags = job.tags
        assert tags is not None
        limit = limit_of(tags)
        level = tags.concurrency_key, limit
        lines = self._lines[level]
        line = lines[tube]
        is_open = self.reserved(tags.concurrency_key) + is_taken < limit
        line.discard(job.priority << 64 | job.job_id, is_open=is_open)
        if line.is_empty:
            del lines[tube]
            if not lines:
                del self._lines[level]

    def begin(self, key: bytes) -> None:
        """
        One more job with the key is reserved.
        """
        count = self._reserved[key] = self.reserved(key) + 1
        for line in self._lines.get((key, count), {}).values():
            line.close()

    def end(self, key: bytes) -> None:
        """
        One job with the key is no longer reserved.
        """
        count = self._reserved.pop(key)
        if count > 1:
            self._reserved[key] = count - 1
        for line in self._lines.get((key, count), {}).values():
            line.open()
            if line.tube.waiting:
                self.opened[line.tube] = None


def limit_of(tags: Tags) -> int:
    """
    How many jobs with the key of these tags are reserved at once, at most.
    """
    return tags.concurrency_limit or 1
