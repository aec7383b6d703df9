"""A tube's policy as a value, and what a tube keeps to hold it: see docs/extensions.md, "Tube
policies".
"""

from typing import Final, NamedTuple

from beanstalk_twisted.jobs.job import NS, RESERVED, Job
from beanstalk_twisted.jobs.ordered import OrderedJobs
from beanstalk_twisted.jobs.pages import PAGE_BITS, JobFacts

LATE_NS: Final = 100_000_000
"""How late a server may be to hand out the next job of a tube with a rate, and still make up for
it, ns: longer than a turn and than most of a busy machine's delays.
"""

MAX_DELAY_S: Final = (1 << 32) - 1
"""As long as any job can be delayed."""

SPREAD: Final = 201
"""Steps of a thousandth by which delays differ: from 90.0 to 110.0 %."""

_MIX: Final = 0x9E37_79B9_7F4A_7C15
"""2**64 over the golden ratio: ids that follow each other come out far apart."""


class Backoff(NamedTuple):
    """How long a job that has come back is delayed: ``base_s`` after the first reserve, ``factor``
    times as long after each further one, ``cap_s`` at most.
    """

    base_s: int
    factor: int
    cap_s: int

    def delay_ns(self, job_id: int, reserves: int) -> int:
        """Some 10 % more or less than the rule says, which depend on the job's id alone; not above
        `MAX_DELAY_S`.

        :param reserves: how often the job was reserved, at least once.
        """
        delay_s = self.base_s
        for _ in range(reserves - 1):
            if delay_s >= self.cap_s or self.factor == 1:
                break
            delay_s *= self.factor
        thousandths = 900 + ((job_id * _MIX & (1 << 64) - 1) >> 32) % SPREAD
        return min(min(delay_s, self.cap_s) * NS * thousandths // 1000, MAX_DELAY_S * NS)


class Rate(NamedTuple):
    """Jobs that are handed out in a second, and how many at once after a pause."""

    jobs: int
    burst: int


class Policy(NamedTuple):
    """What holds for a tube; 0, empty or None for what does not.

    :ivar max_age_s: of jobs that nobody holds; ``deletes_expired``: older ones are deleted instead
        of being dead letters.
    :ivar max_job_bytes: -1 for none, since 0 is a limit too; ``max_jobs``, ``max_bytes`` likewise.
    """

    max_reserves: int = 0
    dead_letter: bytes = b""
    backoff: Backoff | None = None
    max_age_s: int = 0
    deletes_expired: bool = False
    max_jobs: int = -1
    max_bytes: int = -1
    max_job_bytes: int = -1
    max_reserved: int = 0
    rate: Rate | None = None

    @property
    def needs_totals(self) -> bool:
        return bool(self.max_age_s)


class Limiter:
    """Says whether a tube may hand out one more job.

    The bucket's content is in ``jobs per second`` times nanoseconds, so that it is exact: each job
    takes 10**9 of it, and each nanosecond gives the rate.  Whoever looks late at an empty one, by
    `LATE_NS` or by less than one job, loses nothing, though it may be more than the burst.
    """

    __slots__ = ("_capacity", "_content", "_filled_ns", "max_reserved", "rate")

    def __init__(self, max_reserved: int, rate: Rate | None) -> None:
        """:param max_reserved: how many jobs may be reserved at once, 0 for any number."""
        self.max_reserved = max_reserved
        self.rate = rate
        self._capacity = self._content = 0 if rate is None else rate.burst * NS
        self._filled_ns = 0

    def take(self, now_ns: int) -> None:
        """A job is handed out; one that is asked for by its id is even if the bucket is empty."""
        if self.rate is not None:
            self._fill(now_ns)
            self._content = max(0, self._content - NS)

    def is_shut(self, reserved: int, now_ns: int) -> bool:
        self._fill(now_ns)
        if self.max_reserved and reserved >= self.max_reserved:
            return True
        return self.rate is not None and self._content < NS

    def opens_ns(self) -> int | None:
        """When the bucket, as it was when last looked at, holds the next job; None if it did."""
        if self.rate is None or self._content >= NS:
            return None
        return self._filled_ns - (self._content - NS) // self.rate.jobs

    def _fill(self, now_ns: int) -> None:
        if self.rate is not None and now_ns > self._filled_ns:
            more = (now_ns - self._filled_ns) * self.rate.jobs
            spare = max(NS - 1, self.rate.jobs * LATE_NS) if self._content < NS else 0
            self._content = min(self._capacity + spare, self._content + more)
            self._filled_ns = now_ns


class Uncounted:
    """The pages of the table whose jobs are not entered yet into the totals that share this: all,
    of jobs that come meanwhile too, until it is known which pages there are.
    """

    __slots__ = ("_pages",)

    def __init__(self) -> None:
        self._pages: set[int] | None = None

    def begin(self, pages: set[int]) -> None:
        """It is these; what is not among them is known from now on."""
        self._pages = pages

    def remove(self, page: int) -> None:
        if self._pages is not None:
            self._pages.discard(page)

    def has(self, job_id: int) -> bool:
        return self._pages is None or job_id >> PAGE_BITS in self._pages


class TubeTotals:
    """The jobs of a tube that nobody holds, by the time they were put; a dead letter by its death.

    Jobs of some pages of the table may not have been entered yet (`rules.policies.Recount`): these
    are told apart by their pages, so it does not matter in which order they are entered, or leave.

    :ivar ages: by when they were put.
    :ivar keeps_dead: whether dead letters are among them.
    :ivar uncounted: where the jobs are that are not entered yet; None if all are.
    :ivar aside: jobs that are not among ``ages``: they are too old, and wait to be dead letters;
        those that were looked at last are the last.
    """

    __slots__ = ("ages", "aside", "keeps_dead", "uncounted")

    def __init__(self, *, keeps_dead: bool) -> None:
        self.ages = OrderedJobs()
        self.aside: dict[int, None] = {}
        self.keeps_dead = keeps_dead
        self.uncounted: Uncounted | None = None

    def enter(self, job: Job) -> None:
        if self._knows(job.job_id) and self._keeps_age_of(job):
            self.ages.add(since_ns(job), job.job_id)

    def enter_cold(self, job_id: int, created_ns: int) -> None:
        """As `enter`, for a ready job that was only put, and has no tags."""
        if self._knows(job_id):
            self.ages.add(created_ns, job_id)

    def enter_found(self, facts: JobFacts) -> None:
        job = facts.job
        if job is None:
            self.ages.add(facts.created_ns, facts.job_id)
        elif self._keeps_age_of(job) and job.state is not RESERVED:
            self.ages.add(since_ns(job), facts.job_id)

    def leave(self, job: Job) -> None:
        """Nobody held a job so far, but now it is reserved, or gone."""
        if self._knows(job.job_id) and self._keeps_age_of(job):
            if job.job_id in self.aside:
                del self.aside[job.job_id]
            else:
                self.ages.discard(since_ns(job), job.job_id)

    def set_aside(self, job: Job) -> None:
        """A job that is among ``ages`` waits to be a dead letter."""
        self.ages.discard(since_ns(job), job.job_id)
        self.aside[job.job_id] = None

    def come_back(self, job: Job) -> None:
        """A job leaves its state: if it was set aside, it is so no more."""
        if job.job_id in self.aside:
            del self.aside[job.job_id]
            self.ages.add(since_ns(job), job.job_id)

    def rotate(self, job_id: int) -> None:
        del self.aside[job_id]
        self.aside[job_id] = None

    def first_ns(self) -> int | None:
        """Since when the oldest job is there that nobody holds."""
        key = self.ages.first()
        return None if key is None else key >> 64

    def _knows(self, job_id: int) -> bool:
        return self.uncounted is None or not self.uncounted.has(job_id)

    def _keeps_age_of(self, job: Job) -> bool:
        return self.keeps_dead or not is_dead_letter(job)


def is_dead_letter(job: Job) -> bool:
    """Whether a job is not to be tried again: by a policy, unless somebody kicks it."""
    return job.tags is not None and bool(job.tags.dead_from)


def since_ns(job: Job) -> int:
    """What a job's age counts from for `max-age`: its put, or its death."""
    return job.tags.dead_at_ns if job.tags is not None and job.tags.dead_from else job.created_ns
