"""The jobs and tubes as they are, and the one function that changes a job."""

from collections.abc import Callable, Mapping
from typing import Final

from beanstalk_twisted.binlog.cold import ColdJobs, values
from beanstalk_twisted.binlog.records.jobs import (
    FULL,
    WAITED_FOR,
    JobImage,
    Kind,
    Reason,
    State,
    as_loaded,
)
from beanstalk_twisted.binlog.records.others import Pause, Record, RememberedKey, TubePolicy
from beanstalk_twisted.binlog.space_budget import KEY_ENDS
from beanstalk_twisted.binlog.tags import BATCH_KEYS, EXTENSIONS, METADATA
from beanstalk_twisted.jobs.bodies import Bodies
from beanstalk_twisted.jobs.figures import (
    KEY_BYTES,
    TUBE_BYTES,
    WAITERS_BYTES,
    WATCH_BYTES,
    LiveBytes,
)
from beanstalk_twisted.jobs.job import (
    BURIED,
    DELAYED,
    GONE,
    LEGAL_MOVES,
    NS,
    PUT,
    READY,
    RESERVED,
    Job,
)
from beanstalk_twisted.jobs.limits import ConcurrencyKeys, Groups
from beanstalk_twisted.jobs.ordered import OrderedJobs
from beanstalk_twisted.jobs.queues import DeadLetters, JobTimes, Queues
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.table import JobTable
from beanstalk_twisted.jobs.tube import URGENT_BELOW, Tube
from beanstalk_twisted.jobs.unique_keys import UniqueKeys

REMAKES: Final = frozenset({Kind.MOVE, Kind.UPDATE})
"""The kinds that give a job another tube, body or tags."""


class QueueState(Queues):
    """All that a log makes durable, and the sessions that hold reserved jobs.

    `apply` sets a job to an image: a live command logs the image first, replay applies the one it
    has read.  `put` and `move` do so without an image, `apply_kicks` and `apply_cold` for many jobs
    at once.  Only one change is not logged: a delayed job becomes ready when its time has come
    (`promote`).

    :ivar live: where in the log the living jobs are.
    :ivar watches: how many tubes sessions watch beside one each, which is part of what a connection
        costs; each counted for each of them.
    :ivar tagged: how many jobs have tags; ``described`` how many have metadata; ``ruled`` how many
        tubes a policy set by commands.
    :ivar times: measures how long jobs wait and run, if somebody wants to know.
    :ivar awaited: by a job's id, who is to be called with the job, once, when it is gone or buried;
        must not change any job.
    """

    def __init__(self) -> None:
        super().__init__()
        self.jobs = JobTable()
        self.bodies = Bodies(self.jobs)
        self.sessions: dict[int, Session] = {}
        self.next_job_id = 1
        self.live = LiveBytes()
        self.unique = UniqueKeys(self.tubes, self.live)
        self.concurrency = ConcurrencyKeys()
        self.groups = Groups()
        self.dead_letters = DeadLetters()
        self.tagged = self.described = self.ruled = self.watches = 0
        self.awaited: dict[int, Callable[[Job], None]] = {}
        self.times: JobTimes | None = None

    @property
    def counts(self) -> dict[State, int]:
        """How many jobs are in each state."""
        aside = self.reserved + self.delayed + self.buried
        return {
            GONE: 0, READY: self.jobs.count - aside, RESERVED: self.reserved,
            BURIED: self.buried, DELAYED: self.delayed,
        }  # fmt: skip

    @property
    def is_extended(self) -> bool:
        """Whether it has anything that only logs with extensions can hold."""
        return bool(self.tagged or self.unique.remembered or self.ruled)

    @property
    def features(self) -> int:
        """The incompat bits of a log that holds all it has."""
        features = EXTENSIONS if self.is_extended else 0
        features |= METADATA if self.described else 0
        return features | (BATCH_KEYS if self.unique.batches else 0)

    @property
    def memory_bytes(self) -> int:
        """Of jobs, tubes, who watches them, and remembered keys: counted, not measured."""
        keys = KEY_BYTES * self.unique.remembered
        waiters = WAITERS_BYTES * self.tubes.with_waiters
        tubes = TUBE_BYTES * len(self.tubes) + WATCH_BYTES * self.watches + waiters
        return self.jobs.memory_bytes + tubes + keys

    def ends(self) -> int:
        """For how many deletions a log has to keep room; one that leaves a key is several."""
        return self.jobs.count + KEY_ENDS * self.unique.lasting

    def not_held_by_others(self, session: Session, job_id: int) -> Job | None:
        """A job that the session may delete or edit; None if there is none."""
        job = self.jobs.get(job_id)
        if job is None or (job.state is RESERVED and job_id not in session.reserved):
            return None
        return job

    def note_run(self, session: Session, job: Job, tube: Tube, now_ns: int) -> None:
        """A session deletes a job of a tube: note how long it held it, if it does."""
        if job.job_id in session.reserved:
            took_ns = now_ns - session.was_given_until(job.job_id) + job.ttr_s * NS
            if tube.processing_time is not None:
                tube.processing_time.note(took_ns)
            if self.times is not None:
                self.times.note_run(tube, took_ns)

    def load_tubes(self, tubes: Mapping[int, bytes], next_tube_id: int, next_job_id: int) -> None:
        """Make the tubes that a log names, before any job."""
        self.tubes.clear()
        for tube_id, name in sorted(tubes.items()):
            self.define(tube_id, name)
        self.tubes.next_tube_id = max(self.tubes.next_tube_id, next_tube_id)
        self.next_job_id = max(self.next_job_id, next_job_id)

    def apply(
        self, image: JobImage, lsn: int = 0, segment: int = 0, job: Job | None = None
    ) -> None:
        """Set a job to its image.

        :param lsn: the record's, 0 if it is known durable.
        :param segment: where the record lies, 0 without a log.
        :param job: the job, from whoever has it at hand; otherwise it is looked for.
        """
        kind, after, job_id = image.kind, image.state, image.job_id
        if kind in FULL:
            is_plain = image.tags is None and kind is PUT and after is not RESERVED
            if is_plain and self._put(image, lsn, segment):
                return
            if kind is Kind.COPY and self._is_as(image):
                self.move_home(job_id, segment, lsn)
                self.bodies.note(job_id, lsn)
                return
            job = self._make(image, lsn, segment, job)
            self.bodies.note(job_id, lsn)
        if job is None:
            job = self.jobs.job(job_id)
        if kind in WAITED_FOR:
            job.lsn = lsn
        sources, targets = LEGAL_MOVES[kind]
        is_legal = (job.state in sources or kind in REMAKES) and after in targets
        assert is_legal, (job_id, job.state, kind)
        self._move(job, image)

    def move(
        self, job: Job, kind: Kind, after: State, reason: Reason, deadline_ns: int = 0,
        holder: int = 0, priority: int | None = None, delay_s: int | None = None,
    ) -> None:  # fmt: skip
        """`apply` for the image of a job that `Job.image` makes, without it.
        tests/jobs/test_state.py compares the two.
        """
        sources, targets = LEGAL_MOVES[kind]
        before = job.state
        assert before in sources and after in targets, (job.job_id, before, kind)
        if before is after is RESERVED:
            job.deadline_ns = deadline_ns
            self.sessions[holder].hold_longer(job.job_id, deadline_ns)
            return
        tube = self.tubes.ids[job.tube_id]
        self._leave(job, tube, after)
        if after is GONE:
            job.state, job.holder = GONE, 0
            self._end(job, tube)
            return
        job.change(kind, after, reason, deadline_ns, holder, priority, delay_s)
        self._enter(job, tube)

    def _put(self, image: JobImage, lsn: int, segment: int) -> bool:
        """`put` for a record without tags, unless it says that something was done with the job."""
        (_, state, _, priority, job_id, ts_ns, deadline_ns, delay_s, ttr_s, tube_id,
         *counts, _, body, _) = image  # fmt: skip
        return not any(counts) and self.put(
            self.tubes.by_id(tube_id), job_id, body, ts_ns, lsn, segment, state, priority,
            deadline_ns, delay_s, ttr_s,
        )  # fmt: skip

    def put(
        self, tube: Tube, job_id: int, body: bytes, created_ns: int, lsn: int, segment: int,
        state: State, priority: int, deadline_ns: int, delay_s: int, ttr_s: int,
    ) -> bool:  # fmt: skip
        """A new job without tags, ready or delayed, comes into its tube.

        :return: whether it was not there yet; otherwise nothing has changed.
        """
        if not self.jobs.add_row(
            job_id, body, created_ns, lsn, segment, state, priority, deadline_ns, delay_s, ttr_s,
            tube.tube_id,
        ):  # fmt: skip
            return False
        size = len(body)
        if segment:
            self.live.enter(segment, size)
        self.enqueue(tube, state, priority, deadline_ns, job_id)
        tube.body_bytes += size
        if tube.quotas is not None:
            tube.count_for_quotas(1, size)
        if tube.totals is not None:
            tube.totals.enter_cold(job_id, created_ns)
        if self.bodies.is_on:
            self.bodies.note(job_id, lsn)
        return True

    def _make(self, image: JobImage, lsn: int, segment: int, job: Job | None) -> Job:
        """:return: the job of a full record, with all that no other record says."""
        kind = image.kind
        if kind not in REMAKES and image.job_id in self.jobs:
            self.move_home(image.job_id, segment, lsn)
        job = job or self.jobs.get(image.job_id)
        if job is None:
            job = Job.new(image, lsn, segment)
            self.jobs.add(job)
            self.live.enter(segment, job.data_bytes)
            if job.tags is not None:
                self._enter_tags(job)
        elif kind in REMAKES:
            self._remake(job, image, segment)
            job.full_lsn = lsn
        return job

    def follow(self, image: JobImage, lsn: int, segment: int, now_ns: int) -> None:
        """`apply` for a record of another server's log, after which the job is as a start would
        load it.  What is said of a job that is not here is passed over: it is gone, or its full
        record comes later.

        :param now_ns: log time.
        """
        if image.kind in FULL:
            self.apply(as_loaded(image, now_ns), lsn, segment)
            return
        job = self.jobs.get(image.job_id)
        if job is not None and image.state is GONE:
            self.apply(image, job=job)
        elif job is not None:
            self._move(job, as_loaded(image, now_ns))

    def apply_kicks(
        self, tube: Tube, queue: OrderedJobs, job_ids: list[int], lsn: int = 0
    ) -> None:  # fmt: skip
        """`apply` for the images of many kicks, without the images.  tests/rules/bulk/test_kicks.py
        compares the two.

        :param queue: the tube's buried or delayed jobs; ``job_ids`` are its `first_ids`.
        :param lsn: of the first one's record, the others' follow; 0 if they are known durable.
        """
        state = DELAYED if queue is tube.delayed else BURIED
        found = map(self.jobs.job, job_ids) if self.tagged else ()
        tagged = [job for job in found if job.tags is not None]
        for job in tagged:
            assert job.state is state
            self.groups.leave_state(job)
            if state is BURIED:
                self.dead_letters.leave_buried(job)
        if tube.totals is not None and tube.totals.aside:
            for job_id in job_ids:
                tube.totals.come_back(self.jobs.job(job_id))
        ordered = sorted(job_ids)
        priorities = self.jobs.kick(job_ids, lsn, in_order=ordered == job_ids)
        queue.discard_firsts(len(job_ids))
        self.buried -= len(job_ids) if state is BURIED else 0
        self.delayed -= len(job_ids) if state is DELAYED else 0
        if not tagged and priorities.count(priorities[0]) == len(priorities):
            self.enqueue_run(tube, priorities[0], ordered)
            return
        for job in tagged:
            self._enter(job, tube)
        others = {job.job_id for job in tagged}
        keys = zip(priorities, job_ids, strict=True)
        jobs = [key for key in keys if key[1] not in others]
        if jobs:
            self.enqueue_ready(tube, jobs)

    def apply_cold(self, jobs: ColdJobs) -> None:
        """`apply` for the images of many jobs, without the images.  tests/storage/test_loading.py
        compares the two.

        :param jobs: none of them is there yet.
        """
        self.jobs.add_all_cold(jobs)
        self.live.enter(jobs.segment, jobs.body_bytes, len(jobs.job_ids))
        tubes, priorities = values(jobs.tube_id), values(jobs.priority)
        if jobs.standing is None and len(tubes) == len(priorities) == 1:
            tube = self.tubes.by_id(tubes[0])
            self.enqueue_run(tube, priorities[0], sorted(jobs.job_ids))
        else:
            self.enqueue_all(jobs)
        if len(tubes) == 1:
            self.tubes.by_id(tubes[0]).count(len(jobs.job_ids), jobs.body_bytes)
        else:
            for tube_id, size in zip(jobs.tube_id, jobs.sizes, strict=True):
                self.tubes.by_id(tube_id).count(1, size)
        self.count_ages(jobs, [self.tubes.by_id(tube_id) for tube_id in tubes])

    def apply_other(self, record: Record, segment: int) -> Tube | None:
        """Apply a record of a tube that is of no job; none other does anything.

        :param segment: where the record is.
        :return: the tube, if something was applied.
        """
        tube_id = getattr(record, "tube_id", 0)
        if not self.tubes.has_id(tube_id):
            return None
        match record:
            case Pause():
                self.apply_pause(record)
            case TubePolicy():
                self.apply_policy(record)
            case RememberedKey():
                self.unique.remember(record, segment)
            case _:
                return None
        return self.tubes.by_id(tube_id)

    def apply_pause(self, record: Pause) -> None:
        tube = self.tubes.by_id(record.tube_id)
        tube.pause_s = record.seconds
        tube.pause_until_ns = record.until_ns if record.seconds else 0
        tube.set_closed(record.ts_ns)

    def apply_policy(self, record: TubePolicy) -> None:
        tube = self.tubes.by_id(record.tube_id)
        self.ruled += bool(record.rules) - bool(tube.rules)
        tube.rules = record.rules

    def promote(self, job_id: int) -> None:
        job = self.jobs.job(job_id)
        assert job.state is DELAYED
        self._queue(job, READY, 0)

    def withhold(self, job: Job, until_ns: int) -> None:
        """Delay a job that no session holds, as no record says."""
        self._queue(job, DELAYED, until_ns)

    def _queue(self, job: Job, after: State, deadline_ns: int) -> None:
        tube = self.tubes.by_id(job.tube_id)
        self._leave(job, tube, after)
        job.state, job.deadline_ns = after, deadline_ns
        self._enter(job, tube)

    def move_home(self, job_id: int, segment: int, lsn: int = 0) -> None:
        """A job's newest full record is now in another log segment, or the key that it has left.

        :param lsn: the record's, if it is another one; 0 for the same one.
        """
        job = self.jobs.look(job_id)
        if job is None:
            self.unique.move_home(job_id, segment)
            return
        self.live.leave(self.jobs.rehome(job_id, segment, lsn), job.data_bytes)
        self.live.enter(segment, job.data_bytes)

    def _move(self, job: Job, image: JobImage) -> None:
        """A job that stays reserved keeps its place among those its session holds."""
        after = image.state
        if job.state is after is RESERVED and job.holder == image.connection:
            job.become(image)
            self.sessions[job.holder].hold_longer(job.job_id, job.deadline_ns)
            return
        tube = self.tubes.ids[image.tube_id]
        self._leave(job, tube, after)
        job.become(image)
        self._enter(job, tube)

    def _remake(self, job: Job, image: JobImage, segment: int) -> None:
        """Give a job another tube, body and tags; its state is GONE until `_enter`."""
        assert job.state in LEGAL_MOVES[image.kind][0], (job.job_id, image.kind)
        tube = self.tubes.by_id(job.tube_id)
        self.live.leave(job.segment, job.data_bytes)
        self._leave(job, tube, GONE)
        job.state = GONE
        if job.tags is not None:
            self._leave_tags(job)
        tube.count(-1, -job.body_bytes)
        if tube.totals is not None:
            tube.totals.leave(job)
        job.tube_id = image.tube_id
        self.jobs.remake(job, image.body, image.tags)
        job.segment = segment
        self.live.enter(segment, job.data_bytes)
        if job.tags is not None:
            self._enter_tags(job)

    def _enter_tags(self, job: Job) -> None:
        tags = job.tags
        assert tags is not None
        self.tagged += 1
        self.described += bool(tags.metadata)
        self.unique.enter(job)
        if tags.group:
            self.groups.enter(tags.group)
        self.dead_letters.enter(job)

    def _leave_tags(self, job: Job) -> None:
        tags = job.tags
        assert tags is not None
        self.tagged -= 1
        self.described -= bool(tags.metadata)
        self.unique.leave(job)
        self.dead_letters.leave(job)
        if tags.group:
            self.groups.leave(tags.group)

    def _is_as(self, image: JobImage) -> bool:
        """Whether a COPY says nothing new of its job, but where it is."""
        job = self.jobs.look(image.job_id)
        return job is not None and job.copy() == image

    def _leave(self, job: Job, tube: Tube, after: State) -> None:
        """Take a job out of its queue, if it is in one.

        :param after: its next state; GONE if that is not known.
        """
        state, tags = job.state, job.tags
        if tags is not None:
            self.groups.leave_state(job)
            if state is BURIED:
                self.dead_letters.leave_buried(job)
            elif state is RESERVED and tags.concurrency_key:
                self.concurrency.end(tags.concurrency_key)
        if state is READY:
            if tags is None or not tags.concurrency_key:
                tube.ready.discard(job.priority, job.job_id)
            else:
                self.concurrency.leave(job, tube, is_taken=after is RESERVED)
            if job.priority < URGENT_BELOW:
                self.urgent -= 1
                tube.urgent -= 1
        elif state is RESERVED:
            self.sessions[job.holder].let_go(job.job_id)
            self.reserved -= 1
            tube.reserved -= 1
            if tube.totals is not None:
                tube.totals.enter(job)
        elif state is GONE:
            tube.count(1, job.body_bytes)
            if tube.totals is not None:
                tube.totals.enter(job)
        else:
            if state is DELAYED:
                self.delayed -= 1
                tube.delayed.discard(job.deadline_ns, job.job_id)
            else:
                self.buried -= 1
                tube.buried.discard(job.deadline_ns, job.job_id)
            if tube.totals is not None:
                tube.totals.come_back(job)

    def _enter(self, job: Job, tube: Tube) -> None:
        """Let a job into the queue of its state, after `_leave`."""
        state, tags = job.state, job.tags
        if state is GONE:
            self._end(job, tube)
            return
        if tags is not None:
            self.jobs.hold(job)
            self.groups.enter_state(job)
        if state is RESERVED:
            if tags is None:
                self.jobs.hold(job)
            elif tags.concurrency_key:
                self.concurrency.begin(tags.concurrency_key)
            self.sessions[job.holder].hold(job.job_id, job.deadline_ns)
            self.reserved += 1
            tube.reserved += 1
            if tube.totals is not None:
                tube.totals.leave(job)
            return
        if tags is None:
            self.jobs.keep(job)
        if state is READY and tags is not None and tags.concurrency_key:
            self.concurrency.enter(job, tube)
            self.count_urgent(tube, job.priority < URGENT_BELOW)
        else:
            self.enqueue(tube, state, job.priority, job.deadline_ns, job.job_id)
        if state is BURIED:
            if tags is not None:
                self.dead_letters.enter_buried(job)
            if self.awaited:
                self._tell_end(job)

    def _end(self, job: Job, tube: Tube) -> None:
        self.jobs.remove(job)
        if job.segment:
            self.live.leave(job.segment, job.data_bytes)
        tube.body_bytes -= job.body_bytes
        if tube.quotas is not None:
            tube.count_for_quotas(-1, -job.body_bytes)
        if tube.totals is not None:
            tube.totals.leave(job)
        if job.tags is not None:
            self._leave_tags(job)
        if self.awaited:
            self._tell_end(job)

    def _tell_end(self, job: Job) -> None:
        told = self.awaited.pop(job.job_id, None)
        if told is not None:
            told(job)
