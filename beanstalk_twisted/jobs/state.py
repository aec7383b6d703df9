"""
The jobs and tubes as they are, and the one function that changes a job.

`QueueState.apply` sets a job to an image: a live command logs the image first, replay applies the
one it has read.  `apply_kicks` and `apply_cold` do the same for many jobs at once.  Only one change
needs no image: a delayed job becomes ready when its time has come (`promote`).
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from beanstalk_twisted.binlog.cold import ColdJobs, values
from beanstalk_twisted.binlog.records import (
    FULL,
    GONE,
    READY,
    RESERVED,
    WAITED_FOR,
    JobImage,
    Kind,
    Pause,
    State,
)
from beanstalk_twisted.jobs.job import LEGAL_MOVES, Job
from beanstalk_twisted.jobs.live_bytes import LiveBytes
from beanstalk_twisted.jobs.ordered import OrderedJobs
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.table import JobTable
from beanstalk_twisted.jobs.tube import DEFAULT, URGENT_BELOW, Tube, TubeList

NEVER_CHANGED: Final = (0, 0, 0, 0, 0)
"""How often a job was reserved, timed out, released, buried and kicked."""

DELAYED: Final = State.DELAYED
BURIED: Final = State.BURIED


class QueueState:
    """
    All that a log makes durable, and the sessions that hold reserved jobs.

    :ivar counts: how many jobs are in each state; ``urgent`` how many are ready and urgent.
    :ivar next_job_id: the next id to give out.
    :ivar live: where in the log the living jobs are.
    :ivar last_buried_ns: the time of the newest burial; the next one is later.
    :ivar awaited: by a job's id, who is to be called with the job, once, when it is gone or buried;
        must not change any job.
    """

    def __init__(self) -> None:
        self.jobs = JobTable()
        self.tubes = TubeList()
        self.sessions: dict[int, Session] = {}
        self.counts: Counter[State] = Counter()
        self.urgent = 0
        self.next_job_id = 1
        self.last_buried_ns = 0
        self.live = LiveBytes()
        self.awaited: dict[int, Callable[[Job], None]] = {}

    def define(self, tube_id: int, name: bytes) -> None:
        """
        A log names a tube.  If it names one twice, the first was forgotten in between.
        """
        known = self.tubes.find(name)
        if known is not None:
            self.tubes.drop(known)
        self.tubes.make(tube_id, name)

    def load_tubes(self, tubes: Mapping[int, bytes], next_tube_id: int, next_job_id: int) -> None:
        """
        Make the tubes that a log names, before any job; see `WorkQueue.finish_loading`.
        """
        self.tubes.clear()
        for tube_id, name in sorted(tubes.items()):
            self.define(tube_id, name)
        self.tubes.next_tube_id = max(self.tubes.next_tube_id, next_tube_id)
        self.next_job_id = max(self.next_job_id, next_job_id)

    def apply(self, image: JobImage, lsn: int = 0, segment: int = 0) -> None:
        """
        Set a job to its image.

        :param lsn: the record's, 0 if it is known durable.
        :param segment: where the record lies, 0 without a log.
        """
        kind = image.kind
        is_full = kind in FULL
        if is_full:
            # Loading a million jobs is this: 4 us for each from the log to its tube.
            is_cold = image.state is READY and image[10:15] == NEVER_CHANGED
            if is_cold and self.jobs.add_cold(image, lsn, segment):
                self._enter_cold(image, segment)
                return
            if kind is Kind.COPY and self._is_as(image):
                self.move_home(image.job_id, segment)
                return
        job_id = image.job_id
        job = self.jobs.get(job_id)
        if job is None:
            job = Job(job_id, image.tube_id, image.ts_ns, image.body)
            job.segment = segment
            self.jobs.add(job)
            self.live.enter(segment, len(image.body))
        elif is_full:
            self.move_home(job_id, segment)
        if kind in WAITED_FOR:
            job.lsn = lsn
        self._move(job, image)

    def apply_kicks(self, tube: Tube, queue: OrderedJobs, jobs: list[Job], lsn: int = 0) -> None:
        """
        `apply` for the images of many kicks, without the images: 100,000 take 20 ms instead of 300.
        tests/jobs/test_kicks.py compares the two.

        :param queue: the tube's buried or delayed jobs; ``jobs`` are its `firsts`.
        :param lsn: of the first one's record, the others' follow; 0 if they are known durable.
        """
        state = DELAYED if queue is tube.delayed else BURIED
        for job in jobs:
            assert job.state is state
            job.state = READY
            job.deadline_ns = 0
            job.kicks += 1
        if lsn:
            for job_lsn, job in enumerate(jobs, start=lsn):
                job.lsn = job_lsn
        queue.discard_firsts(len(jobs))
        self.counts[state] -= len(jobs)
        self._enqueue(tube, sorted([job.priority << 64 | job.job_id for job in jobs]))

    def apply_cold(self, jobs: ColdJobs) -> None:
        """
        `apply` for the images of jobs that were only put, without the images: 0.3 us for each
        instead of 2.  tests/storage/test_loading.py compares the two.

        :param jobs: none of them is there yet.
        """
        self.jobs.add_all_cold(jobs)
        self.live.enter(jobs.segment, sum(map(len, jobs.bodies)), len(jobs.job_ids))
        tubes, priorities = values(jobs.tube_id), values(jobs.priority)
        if len(tubes) == len(priorities) == 1:
            major = priorities[0] << 64
            keys = [major | job_id for job_id in sorted(jobs.job_ids)]
            self._enqueue(self.tubes.by_id(tubes[0]), keys)
            return
        queues: dict[int, list[int]] = {}
        rows = zip(jobs.tube_id, jobs.priority, jobs.job_ids, strict=True)
        for tube_id, priority, job_id in sorted(rows):
            queues.setdefault(tube_id, []).append(priority << 64 | job_id)
        for tube_id, keys in queues.items():
            self._enqueue(self.tubes.by_id(tube_id), keys)

    def _enqueue(self, tube: Tube, keys: list[int]) -> None:
        """
        Add ready jobs to their tube's queue.

        :param keys: see `ordered`; at least one, ascending.
        """
        if tube.ready.add_all(keys) and tube.listeners:
            tube.tell()
        self.counts[READY] += len(keys)
        urgent = bisect_left(keys, URGENT_BELOW << 64)
        self.urgent += urgent
        tube.urgent += urgent

    def apply_pause(self, record: Pause) -> None:
        """
        Set a tube's pause to what the record says.
        """
        tube = self.tubes.by_id(record.tube_id)
        tube.pause_s = record.seconds
        tube.pause_until_ns = record.until_ns if record.seconds else 0
        tube.tell()

    def promote(self, job_id: int) -> Tube:
        """
        Make a delayed job ready, whose time has come.

        :return: its tube.
        """
        job = self.jobs.get(job_id)
        assert job is not None and job.state is State.DELAYED
        tube = self.tubes.by_id(job.tube_id)
        self._leave(job, tube)
        job.state = State.READY
        job.deadline_ns = 0
        self._enter(job, tube)
        return tube

    def move_home(self, job_id: int, segment: int) -> None:
        """
        A job's newest full record is now in another log segment; a job that is gone has none.
        """
        job = self.jobs.look(job_id)
        if job is not None:
            self.live.leave(self.jobs.rehome(job_id, segment), len(job.body))
            self.live.enter(segment, len(job.body))

    def default(self) -> Tube:
        """
        The tube that always exists.
        """
        return self.tubes.get_or_make(DEFAULT)

    def _move(self, job: Job, image: JobImage) -> None:
        """
        A job that stays reserved keeps its place among those its session holds.
        """
        sources, targets = LEGAL_MOVES[image.kind]
        before, after = job.state, image.state
        assert before in sources and after in targets, (job.job_id, before, image)
        if before is after is RESERVED and job.holder == image.connection:
            old_ns = job.deadline_ns
            job.become(image)
            self.sessions[job.holder].hold_longer(job.job_id, old_ns, job.deadline_ns)
            return
        tube = self.tubes.by_id(image.tube_id)
        self._leave(job, tube)
        job.become(image)
        self._enter(job, tube)

    def _is_as(self, image: JobImage) -> bool:
        """
        Whether a COPY says nothing new of its job, but where it is.
        """
        job = self.jobs.look(image.job_id)
        return job is not None and job.copy() == image

    def _enter_cold(self, image: JobImage, segment: int) -> None:
        tube = self.tubes.by_id(image.tube_id)
        if segment:
            self.live.enter(segment, len(image.body))
        priority = image.priority
        if tube.ready.add(priority, image.job_id) and tube.listeners:
            tube.tell()
        self.counts[READY] += 1
        if priority < URGENT_BELOW:
            self.urgent += 1
            tube.urgent += 1

    def _count_ready(self, tube: Tube, priority: int, change: int) -> None:
        self.counts[READY] += change
        if priority < URGENT_BELOW:
            self.urgent += change
            tube.urgent += change

    def _leave(self, job: Job, tube: Tube) -> None:
        """
        Take a job out of its queue; its state is GONE until `_enter`.
        """
        state, job.state = job.state, GONE
        if state is READY:
            tube.ready.discard(job.priority, job.job_id)
            self._count_ready(tube, job.priority, -1)
            return
        if state is RESERVED:
            self.sessions[job.holder].let_go(job.job_id, job.deadline_ns)
            tube.reserved -= 1
        elif state is DELAYED:
            tube.delayed.discard(job.deadline_ns, job.job_id)
        elif state is BURIED:
            tube.buried.discard(job.deadline_ns, job.job_id)
        else:
            return
        self.counts[state] -= 1

    def _enter(self, job: Job, tube: Tube) -> None:
        state = job.state
        if state is READY:
            if tube.ready.add(job.priority, job.job_id) and tube.listeners:
                tube.tell()
            self._count_ready(tube, job.priority, 1)
            return
        if state is GONE:
            self.jobs.remove(job.job_id)
            self.live.leave(job.segment, len(job.body))
            if self.awaited:
                self._tell_end(job)
            return
        if state is RESERVED:
            self.sessions[job.holder].hold(job.job_id, job.deadline_ns)
            tube.reserved += 1
        elif state is DELAYED:
            tube.delayed.add(job.deadline_ns, job.job_id)
        else:
            self.last_buried_ns = max(self.last_buried_ns, job.deadline_ns)
            tube.buried.add(job.deadline_ns, job.job_id)
            if self.awaited:
                self._tell_end(job)
        self.counts[state] += 1

    def _tell_end(self, job: Job) -> None:
        told = self.awaited.pop(job.job_id, None)
        if told is not None:
            told(job)
