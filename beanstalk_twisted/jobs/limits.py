"""Groups of jobs, which others wait for, and concurrency keys."""

from collections.abc import Sequence
from heapq import heapify, heappop
from typing import Final

from beanstalk_twisted.binlog.records.jobs import NEVER_NS, JobImage, State
from beanstalk_twisted.binlog.tags import Tags
from beanstalk_twisted.jobs.job import DELAYED, GONE, READY, Job
from beanstalk_twisted.jobs.ordered import ID_MASK, LEAST, OrderedJobs
from beanstalk_twisted.jobs.tube import NO_JOBS, Tube

Level = tuple[bytes, int]
"""A concurrency key, and a limit."""

OPENED_LINES: Final = 1000
"""Lines that are opened in one go: 3 ms."""


class Groups:
    """Jobs by the group that they are of, and by the one that they wait for.

    :ivar ended: the groups without jobs for which jobs wait.
    """

    def __init__(self) -> None:
        self.ended: dict[bytes, None] = {}
        self._members: dict[bytes, int] = {}
        self._states: dict[bytes, list[int]] = {}
        self._waiting: dict[bytes, OrderedJobs] = {}

    def members(self, group: bytes) -> int:
        return self._members.get(group, 0)

    def in_state(self, group: bytes, state: State) -> int:
        """Count the group's jobs in a state; those that are ready are all others."""
        counts = self._states.get(group)
        if state is READY:
            return self.members(group) - (0 if counts is None else sum(counts))
        return 0 if counts is None else counts[state]

    def waiting(self, group: bytes) -> int:
        jobs = self._waiting.get(group)
        return 0 if jobs is None else jobs.count

    def first_waiting(self, group: bytes, most: int) -> list[int]:
        """The keys, by priority and id, of the first jobs that wait for the group."""
        jobs = self._waiting.get(group)
        return [] if jobs is None else jobs.behind(LEAST, most)

    def held(self, images: Sequence[JobImage]) -> list[JobImage]:
        """:param images: of jobs that are about to be put; the earlier ones count for the later.
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
        self._members[group] = self.members(group) + 1
        self.ended.pop(group, None)

    def leave(self, group: bytes) -> None:
        count = self._members.pop(group)
        if count > 1:
            self._members[group] = count - 1
        elif group in self._waiting:
            self.ended[group] = None

    def enter_state(self, job: Job) -> None:
        tags = job.tags
        assert tags is not None
        if job.state is not READY and tags.group:
            counts = self._states.get(tags.group)
            if counts is None:
                counts = self._states[tags.group] = [0] * len(State)
            counts[job.state] += 1
        if tags.after and is_waiting(job):
            group = tags.after
            if group not in self._waiting:
                self._waiting[group] = OrderedJobs()
            self._waiting[group].add(job.priority, job.job_id)
            if group not in self._members:
                self.ended[group] = None

    def leave_state(self, job: Job) -> None:
        """A job with tags is about to leave the state it is in, if it is in one."""
        tags = job.tags
        assert tags is not None
        if tags.group and job.state is not READY and job.state is not GONE:
            counts = self._states[tags.group]
            counts[job.state] -= 1
            if not any(counts):
                del self._states[tags.group]
        if tags.after and is_waiting(job):
            jobs = self._waiting[tags.after]
            jobs.discard(job.priority, job.job_id)
            if not jobs.count:
                del self._waiting[tags.after]
                self.ended.pop(tags.after, None)


def is_waiting(job: Job) -> bool:
    is_delayed = job.state is DELAYED and job.deadline_ns == NEVER_NS
    return is_delayed and job.tags is not None and bool(job.tags.after)


class Line:
    """The ready jobs of a tube with one key and one limit.  Keys of jobs are those of `ordered`.

    :ivar first: the key of its first job; None if it is empty.
    :ivar is_open: whether that may be handed out.
    :ivar others: its other jobs, which are parked.
    """

    __slots__ = ("first", "is_open", "others", "tube")

    def __init__(self, tube: Tube) -> None:
        self.tube = tube
        self.first: int | None = None
        self.is_open = False
        self.others = NO_JOBS

    def add(self, key: int, *, is_open: bool) -> None:
        """:param is_open: whether the first one may be handed out."""
        first = self.first
        if first is None:
            self.first, self.is_open = key, is_open
            self._place(key)
            return
        if is_open is not self.is_open:
            self.turn()
        if first < key:
            self._park(key)
            return
        if is_open:
            self.tube.hide(first)
        else:
            self.tube.parked.discard_key(first)
        self._park(first)
        self.first = key
        self._place(key)

    def discard(self, key: int, *, is_open: bool) -> None:
        """:param is_open: whether the next one may be handed out then."""
        if key != self.first:
            self.others.discard_key(key)
            self.tube.parked.discard_key(key)
            return
        if self.is_open:
            self.tube.hide(key)
        else:
            self.tube.parked.discard_key(key)
        self.is_open = is_open
        self.first = self.others.first()
        if self.first is not None:
            self.others.discard_key(self.first)
            if is_open:
                self.tube.parked.discard_key(self.first)
                self.tube.show(self.first)

    def turn(self) -> None:
        """Let the first job be handed out, or if it may be, no longer.  There is one."""
        key, tube = self.first, self.tube
        assert key is not None
        self.is_open = not self.is_open
        if self.is_open:
            tube.parked.discard_key(key)
            tube.show(key)
        else:
            tube.hide(key)
            tube.park(key)

    def _place(self, key: int) -> None:
        if self.is_open:
            self.tube.show(key)
        else:
            self.tube.park(key)

    def _park(self, key: int) -> None:
        if self.others is NO_JOBS:
            self.others = OrderedJobs()
        self.others.add(key >> 64, key & ID_MASK)
        self.tube.park(key)


class ConcurrencyKeys:
    """All ready and reserved jobs that have a concurrency key: so many with one are reserved at
    once, over all tubes.

    The ready jobs of a tube with one key and one limit are a *line*.  While as many jobs with the
    key are reserved as the limit says, the line is closed: all its jobs are parked.  While it is
    open, its first job stands among the tube's `ready` jobs, the others are parked behind it.  So
    who looks for a job sees only those that may be handed out, and never has to pass over one.

    A job that comes or goes costs the same however many there are, but for finding its place.  A
    reservation that fills a key closes its lines with that limit, 1.3 us for each that is open, in
    one go.  The end of one opens them: `OPENED_LINES` at once, those with the best jobs first, and
    as many in each slice after that (`open_next`), unless the key is full again by then.

    :ivar opened: tubes with waiting sessions in which a line was opened; who serves them takes them
        out.
    """

    def __init__(self, most: int = OPENED_LINES) -> None:
        """:param most: lines that are opened in one go."""
        self._most = most
        self.opened: dict[Tube, None] = {}
        self._reserved: dict[bytes, int] = {}
        self._lines: dict[Level, dict[Tube, Line]] = {}
        # What is still to be opened: first jobs, perhaps of lines that are no more, in a heap.
        self._opening: dict[Level, list[tuple[int, Tube]]] = {}

    @property
    def is_opening(self) -> bool:
        return bool(self._opening)

    def reserved(self, key: bytes) -> int:
        return self._reserved.get(key, 0)

    def allows(self, tags: Tags) -> bool:
        """Whether such a job may be reserved; its own limit counts, not others' with its key."""
        key = tags.concurrency_key
        return not key or self.reserved(key) < limit_of(tags)

    def enter(self, job: Job, tube: Tube) -> None:
        tags = job.tags
        assert tags is not None
        lines = self._lines.setdefault((tags.concurrency_key, limit_of(tags)), {})
        line = lines.get(tube)
        if line is None:
            line = lines[tube] = Line(tube)
        line.add(job.priority << 64 | job.job_id, is_open=self.allows(tags))

    def leave(self, job: Job, tube: Tube, *, is_taken: bool) -> None:
        """:param is_taken: whether the job is about to be reserved."""
        tags = job.tags
        assert tags is not None
        limit = limit_of(tags)
        level = tags.concurrency_key, limit
        lines = self._lines[level]
        line = lines[tube]
        is_open = self.reserved(tags.concurrency_key) + is_taken < limit
        line.discard(job.priority << 64 | job.job_id, is_open=is_open)
        if line.first is None:
            del lines[tube]
            if not lines:
                del self._lines[level]
                self._opening.pop(level, None)

    def begin(self, key: bytes) -> None:
        count = self._reserved[key] = self.reserved(key) + 1
        level = key, count
        self._opening.pop(level, None)
        for line in self._lines.get(level, {}).values():
            if line.is_open:
                line.turn()

    def end(self, key: bytes) -> None:
        count = self._reserved.pop(key)
        if count > 1:
            self._reserved[key] = count - 1
        lines = self._lines.get((key, count))
        if lines is None:
            return
        if len(lines) <= self._most:
            for line in lines.values():
                self._open(line)
            return
        # No key is there twice, so tubes are never compared.
        firsts = [(line.first, tube) for tube, line in lines.items() if line.first is not None]
        heapify(firsts)
        self._opening[key, count] = firsts
        self.open_next()

    def open_next(self) -> None:
        left = self._most
        for level in list(self._opening):
            firsts, lines = self._opening[level], self._lines[level]
            while firsts and left:
                line = lines.get(heappop(firsts)[1])
                left -= 1
                if line is not None:
                    self._open(line)
            if not firsts:
                del self._opening[level]

    def _open(self, line: Line) -> None:
        if not line.is_open:
            line.turn()
            if line.tube.waiting:
                self.opened[line.tube] = None


def limit_of(tags: Tags) -> int:
    return tags.concurrency_limit or 1
