"""The queues of all tubes, their timers, dead letters, and how long jobs wait and run."""

from array import array
from bisect import bisect_left
from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final, Generic, TypeVar

from beanstalk_twisted.binlog.cold import ColdJobs
from beanstalk_twisted.binlog.records.jobs import State
from beanstalk_twisted.jobs.figures import BOUNDS_NS, TubeTimes
from beanstalk_twisted.jobs.job import DELAYED, READY, Job
from beanstalk_twisted.jobs.ordered import OrderedJobs
from beanstalk_twisted.jobs.tube import DEFAULT, URGENT_BELOW, Tube, TubeList

SPARE_STALE: Final = 1024
"""Stale entries that are never worth a rebuild."""

Owner = TypeVar("Owner", bound=Hashable)


class DueTimes(Generic[Owner]):
    """Owners by the instant they are armed for, ns.

    :ivar entries: a heap of all that are armed, and of stale ones; for reading only.
    """

    def __init__(self) -> None:
        self._armed: dict[Owner, tuple[int, int, Owner]] = {}
        self.entries: list[tuple[int, int, Owner]] = []
        self._serials = count()

    def arm(self, owner: Owner, when_ns: int | None) -> None:
        """Call ``owner`` at ``when_ns`` at the latest; None asks for nothing."""
        if when_ns is None:
            return
        armed = self._armed.get(owner)
        if armed is None or when_ns < armed[0]:
            entry = self._armed[owner] = (when_ns, next(self._serials), owner)
            heappush(self.entries, entry)
            self._forget_stale()

    def forget(self, owner: Owner) -> None:
        self._armed.pop(owner, None)
        self._forget_stale()

    def _forget_stale(self) -> None:
        if len(self.entries) > 2 * len(self._armed) + SPARE_STALE:
            self.entries = list(self._armed.values())
            heapify(self.entries)

    def first_ns(self) -> int | None:
        heap = self.entries
        while heap:
            when_ns, serial, owner = heap[0]
            armed = self._armed.get(owner)
            # By the serial: when this is compiled, tuples are values and have no identity.
            if armed is not None and armed[1] == serial:
                return when_ns
            heappop(heap)
        return None

    def pop_due(self, now_ns: int) -> Owner | None:
        """An owner whose time has come, the earliest first; it is no longer armed."""
        first_ns = self.first_ns()
        if first_ns is None or first_ns > now_ns:
            return None
        _, _, owner = heappop(self.entries)
        del self._armed[owner]
        return owner


class Queues:
    """Lets jobs into the queues of their tubes.

    :ivar reserved: how many jobs are reserved; ``delayed`` and ``buried`` likewise.
    :ivar urgent: how many are ready and urgent.
    :ivar last_buried_ns: the time of the newest burial; the next one is later.
    """

    def __init__(self) -> None:
        self.tubes = TubeList()
        self.reserved = self.delayed = self.buried = self.urgent = self.last_buried_ns = 0

    def default(self) -> Tube:
        return self.tubes.get_or_make(DEFAULT)

    def define(self, tube_id: int, name: bytes) -> None:
        """A log names a tube.  If it names one twice, the first was forgotten in between."""
        known = self.tubes.find(name)
        if known is not None:
            self.tubes.drop(known)
        self.tubes.make(tube_id, name)

    def enqueue(
        self, tube: Tube, state: State, priority: int, deadline_ns: int, job_id: int
    ) -> None:  # fmt: skip
        if state is READY:
            if tube.ready.add(priority, job_id) and tube.listeners:
                tube.tell()
            if priority < URGENT_BELOW:
                self.urgent += 1
                tube.urgent += 1
        elif state is DELAYED:
            self.delayed += 1
            tube.delayed.add(deadline_ns, job_id)
        else:
            self.buried += 1
            self.last_buried_ns = max(self.last_buried_ns, deadline_ns)
            tube.buried.add(deadline_ns, job_id)

    def count_urgent(self, tube: Tube, change: int) -> None:
        self.urgent += change
        tube.urgent += change

    def enqueue_all(self, jobs: ColdJobs) -> None:
        queues: dict[tuple[int, int], list[tuple[int, int]]] = {}
        standing = jobs.standing
        states = bytes([READY]) * len(jobs.job_ids) if standing is None else standing.states
        deadlines = jobs.job_ids if standing is None else standing.deadlines_ns
        rows = zip(jobs.tube_id, states, jobs.priority, deadlines, jobs.job_ids, strict=True)
        for tube_id, state, priority, deadline_ns, job_id in rows:
            entry = (priority if state == READY else deadline_ns, job_id)
            queues.setdefault((tube_id, state), []).append(entry)
        for (tube_id, state), entries in queues.items():
            if state == READY:
                self.enqueue_ready(self.tubes.by_id(tube_id), entries)
            else:
                self._set_aside(self.tubes.by_id(tube_id), state, entries)

    def _set_aside(self, tube: Tube, state: int, jobs: list[tuple[int, int]]) -> None:
        """:param jobs: deadlines and ids of jobs of the tube, delayed or buried; at least one."""
        jobs.sort()
        majors, ids = array("q", [job[0] for job in jobs]), array("Q", [job[1] for job in jobs])
        if state == DELAYED:
            tube.delayed.add_all(majors, ids)
            self.delayed += len(jobs)
        else:
            self.last_buried_ns = max(self.last_buried_ns, majors[-1])
            tube.buried.add_all(majors, ids)
            self.buried += len(jobs)

    def enqueue_ready(self, tube: Tube, jobs: list[tuple[int, int]]) -> None:
        """:param jobs: priorities and ids of jobs of the tube; at least one."""
        jobs.sort()
        majors, ids = array("q", [job[0] for job in jobs]), array("Q", [job[1] for job in jobs])
        if tube.ready.add_all(majors, ids) and tube.listeners:
            tube.tell()
        self.count_urgent(tube, bisect_left(majors, URGENT_BELOW))

    def enqueue_run(self, tube: Tube, priority: int, job_ids: list[int]) -> None:
        """As `enqueue_ready`, for jobs of one priority.

        :param job_ids: at least one, ascending.
        """
        if tube.ready.add_run(priority, job_ids) and tube.listeners:
            tube.tell()
        if priority < URGENT_BELOW:
            self.count_urgent(tube, len(job_ids))

    def count_ages(self, jobs: ColdJobs, tubes: list[Tube]) -> None:
        """:param tubes: those that the jobs are in.  At a start their policies are not known."""
        totals = {tube.tube_id: tube.totals for tube in tubes if tube.totals is not None}
        if not totals:
            return
        columns = (jobs.job_ids, jobs.created_high, jobs.created_low, jobs.tube_id)
        for job_id, high, low, tube_id in zip(*columns, strict=True):
            if tube_id in totals:
                created_ns = high << 32 | low
                # The highest bit is the sign.
                totals[tube_id].enter_cold(job_id, created_ns - (high >> 31 << 64))


class DeadLetters:
    """Jobs that died, by the tube that they died in, wherever they are now; of each in the order in
    which they did.

    :ivar buried: how many of them are buried now.
    """

    def __init__(self) -> None:
        self._by_tube: dict[bytes, OrderedJobs] = {}
        self.buried = 0

    def enter(self, job: Job) -> None:
        tags = job.tags
        if tags is not None and tags.dead_from:
            jobs = self._by_tube.get(tags.dead_from)
            if jobs is None:
                jobs = self._by_tube[tags.dead_from] = OrderedJobs()
            jobs.add(tags.dead_at_ns, job.job_id)

    def leave(self, job: Job) -> None:
        tags = job.tags
        if tags is not None and tags.dead_from:
            jobs = self._by_tube[tags.dead_from]
            jobs.discard(tags.dead_at_ns, job.job_id)
            if not jobs.count:
                del self._by_tube[tags.dead_from]

    def enter_buried(self, job: Job) -> None:
        if job.tags is not None and job.tags.dead_from:
            self.buried += 1

    def leave_buried(self, job: Job) -> None:
        if job.tags is not None and job.tags.dead_from:
            self.buried -= 1

    def of(self, name: bytes) -> OrderedJobs | None:
        """The dead letters of a tube, by when they died; None if there are none."""
        return self._by_tube.get(name)


class JobTimes:
    """Measures the jobs of all tubes, if somebody wants to know: a job that is put, reserved and
    deleted costs 1 to 3 us more then.

    :ivar total: of all jobs, those of tubes that are gone too.
    """

    def __init__(self) -> None:
        self.total = TubeTimes()

    def of(self, tube: Tube) -> TubeTimes:
        if tube.times is None:
            tube.times = TubeTimes()
        return tube.times

    def note_wait(self, tube: Tube, took_ns: int) -> None:
        # As `note_run`, and `Histogram.note` twice, without a call: this is on every job's way.
        times = tube.times
        if times is None:
            times = tube.times = TubeTimes()
        if took_ns < 0:
            took_ns = 0
        at = bisect_left(BOUNDS_NS, took_ns)
        times.reserves += 1
        waits = times.waits
        waits.counts[at] += 1
        waits.total += took_ns
        waits = self.total.waits
        waits.counts[at] += 1
        waits.total += took_ns

    def note_run(self, tube: Tube, took_ns: int) -> None:
        times = tube.times
        if times is None:
            times = tube.times = TubeTimes()
        if took_ns < 0:
            took_ns = 0
        at = bisect_left(BOUNDS_NS, took_ns)
        runs = times.runs
        runs.counts[at] += 1
        runs.total += took_ns
        runs = self.total.runs
        runs.counts[at] += 1
        runs.total += took_ns
