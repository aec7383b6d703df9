"""Changes: each is logged and made in one step, and in no other way."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Protocol

from beanstalk_twisted.binlog.cold import Run
from beanstalk_twisted.binlog.records.jobs import RELAXED, WAITED_FOR, JobImage, Kind, Reason, State
from beanstalk_twisted.binlog.records.others import (
    Counters,
    Pause,
    Record,
    RememberedKey,
    TubeDef,
    TubePolicy,
)
from beanstalk_twisted.binlog.space_budget import PLENTY_BYTES, TUBE_BYTES, whole_bytes
from beanstalk_twisted.binlog.tags import KNOWN_FEATURES
from beanstalk_twisted.jobs.job import CLIENT, DELAYED, GONE, NS, PUT, READY, RESERVE, RESERVED, Job
from beanstalk_twisted.jobs.ordered import OrderedJobs
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.jobs.tube import Tube
from beanstalk_twisted.jobs.unique_keys import Remembered
from beanstalk_twisted.wire.replies import NOT_FOUND, Reply

DELETE: Final = Kind.DELETE

ALL: Final = 1 << 62
"""More than there are jobs."""


class SpaceBudget(Protocol):
    """What the queue asks of a log's space budget; `binlog.space_budget.SpaceBudget` is one."""

    @property
    def is_short(self) -> bool: ...

    @property
    def rest(self) -> int:
        """Bytes that the newest segment has for records."""

    @property
    def run_records(self) -> int: ...

    def takes_segment(self) -> bool:
        """Whether the next segment may begin before this one is full."""

    def is_ample(self, body_bytes: int) -> bool:
        """Whether `takes_put` is known to be true, without counting the jobs."""

    def takes_put(self, body_bytes: int, jobs: int) -> bool: ...

    def takes_change(self, jobs: int) -> bool:
        """Only asked when `is_short`."""

    def takes_copy(self, body_bytes: int, jobs: int) -> bool: ...


class JobLog(Protocol):
    """What the queue needs of a log."""

    @property
    def segment(self) -> int: ...

    @property
    def commits_reserves(self) -> bool:
        """Whether replies wait for reservations too."""

    @property
    def budget(self) -> SpaceBudget: ...

    @property
    def is_behind(self) -> bool:
        """Whether so much waits for the disk that records which no reply waits for are left out."""

    def make_room(self, body_bytes: int, time_ns: int) -> None:
        """Make room for the next records, of a tube's definition and a job, in one segment."""

    def append(self, record: Record) -> int: ...

    def append_job(
        self, kind: Kind, state: State, reason: Reason, priority: int, job_id: int, ts_ns: int,
        deadline_ns: int, delay_s: int, ttr_s: int, tube_id: int, reserves: int, timeouts: int,
        releases: int, buries: int, kicks: int, connection: int, body: bytes = b"",
    ) -> int:  # fmt: skip
        """`append` for the `JobImage` of a job without tags, without the image."""

    @property
    def features(self) -> int:
        """The incompat bits of the newest segment: what it may hold."""

    def allow(self, features: int, time_ns: int) -> None:
        """Begin a segment that may hold what needs these features, unless the newest is one."""

    def append_run(self, make: Callable[[], Run]) -> int:
        """Append records, no more than `SpaceBudget.run_records`.

        :param make: makes them, if they are kept.
        :return: the first one's LSN; the others' follow.
        """

    def append_whole(self, records: Sequence[Record]) -> int:
        """Append at least one record; all of them are kept, or none.  Room was made for them.

        :return: the first one's LSN; the others' follow.
        """


class Unlimited:
    """The space budget of a queue without a log: there is always room."""

    is_short = False
    rest = ALL
    run_records = ALL

    def is_ample(self, body_bytes: int) -> bool:
        return True

    def takes_segment(self) -> bool:
        return True

    def takes_put(self, body_bytes: int, jobs: int) -> bool:
        return True

    def takes_change(self, jobs: int) -> bool:
        return True

    def takes_copy(self, body_bytes: int, jobs: int) -> bool:
        return True


class NoLog:
    """The log of a queue without a log: nothing is kept, so no reply waits."""

    segment = 0
    budget: Final = Unlimited()
    is_behind = False
    commits_reserves = False
    features = KNOWN_FEATURES

    def allow(self, features: int, time_ns: int) -> None:
        pass

    def make_room(self, body_bytes: int, time_ns: int) -> None:
        pass

    def append(self, record: Record) -> int:
        return 0

    def append_job(self, *fields: Any, **more: Any) -> int:
        return 0

    def append_run(self, make: Callable[[], Run]) -> int:
        return 0

    def append_whole(self, records: Sequence[Record]) -> int:
        return 0


NOWHERE: Final = NoLog()
"""The log of a queue without a log."""


class Changes:
    """Changes a `QueueState` by records.

    :ivar log: where they are logged.
    :ivar committed_lsn: LSN of the newest record that replies wait for.
    """

    def __init__(self, state: QueueState) -> None:
        self.log: JobLog = NOWHERE
        self.committed_lsn = 0
        self._state = state

    def of_state(self, reply: Reply) -> tuple[Reply, int]:
        """:param reply: shows the state: the answer waits for all that it may tell of."""
        return reply, self.committed_lsn

    def not_found(self) -> tuple[Reply, int]:
        return self.of_state(NOT_FOUND)

    def has_room(self) -> bool:
        log = self.log
        if log is NOWHERE or not log.budget.is_short:
            return True
        return log.budget.takes_change(self._state.ends())

    def has_room_for(self, body_bytes: int) -> bool:
        """Whether the log has room for a new job, and then for the end of all jobs."""
        if self.log is NOWHERE:
            return True
        budget = self.log.budget
        return budget.is_ample(body_bytes) or budget.takes_put(body_bytes, self._state.ends())

    def has_room_for_all(self, size: int, count: int) -> bool:
        """As `has_room_for`, for so many new jobs that take these bytes as one."""
        others = self._state.ends() + count - 1
        return self.log is NOWHERE or self.log.budget.takes_put(size, others)

    def has_room_to_copy(self, body_bytes: int) -> bool:
        return self.log.budget.takes_copy(body_bytes, self._state.ends())

    def may_allow(self, features: int) -> bool:
        return not features & ~self.log.features or self.log.budget.takes_segment()

    def allows(self, features: int, now_ns: int, *, waits: bool = True) -> bool:
        """Prepare the log for the first of records that need these features.

        :param waits: whether they had rather wait for a segment than take one not allocated yet.
        :return: whether it has the room; if not, all is as it was.
        """
        log = self.log
        if features & ~log.features:
            if not log.budget.takes_segment() and (waits or log.budget.is_short):
                return False
            log.allow(features, now_ns)
        return True

    def make(self, image: JobImage, job: Job | None = None) -> int:
        """Change a live job: log its image and apply it.

        :param job: see `QueueState.apply`.
        :return: the record's LSN; 0 if it was not logged, since no reply waits for it and the room
            is wanted for deletions, or the disk is behind.
        """
        lsn = segment = 0
        kind, tube = image.kind, self._state.tubes.ids[image.tube_id]
        if self.log is not NOWHERE and self._is_logged(kind, image.state, image.job_id, tube):
            segment = self._begin_record(tube, image.data_bytes, image.ts_ns)
            lsn = self._logged(kind, self.log.append(image))
        self._state.apply(image, lsn, segment, job)
        return lsn

    def put(
        self, tube: Tube, draft: tuple[int, int], priority: int, deadline_ns: int, delay_s: int,
        ttr_s: int, body: bytes, connection: int,
    ) -> int:  # fmt: skip
        """A new job without tags comes into a tube, delayed if there is a delay.

        :param draft: the job's id, and when it was put.
        :return: as `make`.
        """
        job_id, created_ns = draft
        state = DELAYED if delay_s else READY
        lsn = segment = 0
        if self.log is not NOWHERE:
            segment = self._begin_record(tube, len(body), created_ns)
            self.committed_lsn = lsn = self.log.append_job(
                PUT, state, CLIENT, priority, job_id, created_ns, deadline_ns, delay_s, ttr_s,
                tube.tube_id, 0, 0, 0, 0, 0, connection, body,
            )  # fmt: skip
        is_new = self._state.put(
            tube, job_id, body, created_ns, lsn, segment, state, priority, deadline_ns, delay_s,
            ttr_s,
        )  # fmt: skip
        assert is_new, job_id
        return lsn

    def move(
        self, job: Job, kind: Kind, after: State, reason: Reason, now_ns: int, connection: int,
        deadline_ns: int = 0, priority: int | None = None, delay_s: int | None = None,
    ) -> int:  # fmt: skip
        """Change a job as `make` does with its `Job.image`, without the image; return as `make`."""
        lsn = 0
        if self.log is not NOWHERE:
            tube = self._state.tubes.ids[job.tube_id]
            if self._is_logged(kind, after, job.job_id, tube):
                self._begin_record(tube, 0, now_ns)
                reserves, timeouts, releases, buries, kicks = job.counts_after(kind, reason)
                lsn = self.log.append_job(
                    kind, after, reason, job.priority if priority is None else priority,
                    job.job_id, now_ns, deadline_ns, job.delay_s if delay_s is None else delay_s,
                    job.ttr_s, job.tube_id, reserves, timeouts, releases, buries, kicks, connection,
                )  # fmt: skip
                if self._logged(kind, lsn) == self.committed_lsn:
                    job.lsn = lsn
        holder = connection if after is RESERVED else 0
        self._state.move(job, kind, after, reason, deadline_ns, holder, priority, delay_s)
        return lsn

    def _is_logged(self, kind: Kind, after: State, job_id: int, tube: Tube) -> bool:
        """Whether a change of a job is logged.  One that no reply waits for may be left out, if a
        restart makes the same of the job without it, but for its counters.
        """
        if kind not in RELAXED or self._is_wanted(kind, after, tube):
            return True
        job = self._state.jobs.look(job_id)
        return job is None or job.state not in (State.READY, State.RESERVED)

    def _is_wanted(self, kind: Kind, after: State, tube: Tube) -> bool:
        """Whether the record of a change that no reply waits for is to be kept."""
        log = self.log
        if not self.has_room():
            return False
        if not log.is_behind or after is DELAYED:
            return True
        has_limit = tube.policy is not None and tube.policy.max_reserves > 0
        return kind is RESERVE and (log.commits_reserves or has_limit)

    def _begin_record(self, tube: Tube, size: int, now_ns: int) -> int:
        """Have room in the log for a record of a job with this many bytes of data, and the tube
        defined there.

        :return: the record's segment.
        """
        log = self.log
        if 2 * size + PLENTY_BYTES > log.budget.rest:
            log.make_room(size, now_ns)
        segment = log.segment
        if tube.defined_in != segment:
            self._define(tube, now_ns)
        return segment

    def _logged(self, kind: Kind, lsn: int) -> int:
        if kind in WAITED_FOR or (kind is RESERVE and self.log.commits_reserves):
            self.committed_lsn = lsn
        return lsn

    def end(
        self, job: Job, reason: Reason, now_ns: int, connection: int = 0, *, forgets: bool = False
    ) -> int:
        """Delete a job.  The log always has room for that.

        :param forgets: whether its unique key is not remembered, whatever the job asks for.
        :return: the record's LSN.
        """
        if job.tags is not None and job.tags.leaves_key and not forgets:
            return self.end_whole([job], reason, now_ns, connection)
        return self.move(job, DELETE, GONE, reason, now_ns, connection)

    def end_whole(
        self, jobs: Sequence[Job], reason: Reason, now_ns: int, connection: int = 0
    ) -> int:  # fmt: skip
        """Delete jobs, as by `end` for each; but a crash leaves all of them, or none.

        :param jobs: at least one.
        :return: the last record's LSN.
        """
        state = self._state
        tubes = {job.tube_id: state.tubes.by_id(job.tube_id) for job in jobs}
        records: list[JobImage | RememberedKey] = []
        data = 0
        for job in jobs:
            records.append(job.image(DELETE, GONE, reason, now_ns, connection=connection))
            if job.tags is not None and job.tags.leaves_key:
                until_ns = now_ns + job.tags.unique_s * NS
                key = RememberedKey(job.tube_id, job.tags.unique_key, job.job_id, until_ns, now_ns)
                data += key.data_bytes
                records.append(key)
        # The first tube has its place beside each change.
        names = sum([TUBE_BYTES + len(tube.name) for tube in list(tubes.values())[1:]])
        size = whole_bytes(len(records), data + names)
        lsn, segment = self._append_whole(tubes.values(), records, size, now_ns)
        jobs_left = iter(jobs)
        for at, record in enumerate(records):
            if isinstance(record, JobImage):
                state.apply(record, lsn and lsn + at, segment, next(jobs_left))
            else:
                state.unique.remember(record, segment)
        return self.committed_lsn

    def copy_key(self, found: Remembered) -> None:
        segment = self._append_key(found.record)
        self._state.unique.move_home(found.record.job_id, segment)

    def forget_key(self, found: Remembered, now_ns: int) -> None:
        """Forget a remembered key; the log states it again, and that its time is up."""
        self._append_key(replace(found.record, until_ns=now_ns, ts_ns=now_ns))
        self._state.unique.forget(found)

    def _append_key(self, record: RememberedKey) -> int:
        """:return: the segment."""
        tube, size = self._state.tubes.by_id(record.tube_id), whole_bytes(1, len(record.key))
        _, segment = self._append_whole([tube], [record], size, record.ts_ns)
        return segment

    def _append_whole(
        self, tubes: Iterable[Tube], records: Sequence[Record], size: int, now_ns: int
    ) -> tuple[int, int]:
        """Log records of these tubes, in one frame.

        :param size: see `space_budget.whole_bytes`.
        :return: the first one's LSN, 0 without a log, and the segment.
        """
        segment = self._prepare(tubes, size, now_ns)
        lsn = self.log.append_whole(records)
        self.committed_lsn = lsn + len(records) - 1 if lsn else 0
        return lsn, segment

    def put_whole(
        self, tube: Tube, images: Sequence[JobImage], size: int, now_ns: int,
        key: RememberedKey | None = None,
    ) -> int:  # fmt: skip
        """New jobs of a tube, as by `make` for each; but a crash leaves all of them, or none.

        :param images: at least one.
        :param key: of the batch that they are, None for none.
        :param size: see `space_budget.whole_bytes`.
        :return: the last record's LSN.
        """
        records: list[Record] = [*images]
        if key is not None:
            records.append(key)
        lsn, segment = self._append_whole([tube], records, size, now_ns)
        step = 1 if lsn else 0
        for image in images:
            self._state.apply(image, lsn, segment)
            lsn += step
        if key is not None:
            self._state.unique.remember(key, segment)
        return self.committed_lsn

    def kick(
        self, tube: Tube, queue: OrderedJobs, most: int, connection: int, now_ns: int
    ) -> int:  # fmt: skip
        """Kick up to ``most`` jobs of a tube, as by `make` for each; no session waits for them.

        :param queue: the tube's buried or delayed jobs; the first of them are kicked.
        :return: how many; 0 if each has to be kicked by `make`, since room is short.
        """
        log = self.log
        if log.budget.is_short or not queue.count:
            return 0
        self._prepare([tube], 0, now_ns)
        most = min(most, log.budget.run_records)
        if not most:
            return 0
        job_ids = queue.first_ids(most)
        make = partial(self._state.jobs.kicks, job_ids, tube.tube_id, connection, now_ns)
        lsn = log.append_run(make)
        self._state.apply_kicks(tube, queue, job_ids, lsn)
        self.committed_lsn = lsn + len(job_ids) - 1 if lsn else 0
        return len(job_ids)

    def pause(self, tube: Tube, seconds: int, now_ns: int, reason: Reason) -> int:
        """A tube is paused, or with 0 seconds no longer.

        :return: the record's LSN; 0 if it was not logged, see `make`.  A restart then knows a tube
            without jobs until its pause ends.
        """
        until_ns = now_ns + seconds * NS if seconds else 0
        record = Pause(tube.tube_id, seconds, until_ns, now_ns, reason)
        if not record.commits and not self.has_room():
            self._state.apply_pause(record)
            return 0
        self._prepare([tube], 0, now_ns)
        lsn = self.log.append(record)
        self._state.apply_pause(record)
        if record.commits:
            self.committed_lsn = lsn
        return lsn

    def set_policy(self, tube: Tube, rules: Mapping[str, str], now_ns: int) -> int:
        """Commands have made this of a tube's policy.  The log `allows` extensions.

        :return: the record's LSN.
        """
        record = TubePolicy(tube.tube_id, rules, now_ns)
        self._prepare([tube], record.data_bytes, now_ns)
        self.committed_lsn = lsn = self.log.append(record)
        self._state.apply_policy(record)
        return lsn

    def _prepare(self, tubes: Iterable[Tube], size: int, now_ns: int) -> int:
        """Make room for records of these tubes, and log the names that their segment lacks.

        :return: the segment.
        """
        log = self.log
        log.make_room(size, now_ns)
        for tube in tubes:
            if tube.defined_in != log.segment:
                self._define(tube, now_ns)
        return log.segment

    def _define(self, tube: Tube, now_ns: int) -> None:
        """Log the tube's name: each segment defines the tubes in it."""
        tube.defined_in = self.log.segment
        self.log.append(TubeDef(tube.tube_id, tube.name, now_ns))


def small_state(state: QueueState, segment: int, now_ns: int) -> Iterator[Record]:
    """What is said of tubes at the head of a log segment, which thereby defines these."""
    for tube in state.tubes.in_order:
        if tube.job_count or tube.pause_until_ns or tube.is_kept:
            tube.defined_in = segment
            yield TubeDef(tube.tube_id, tube.name, now_ns)
            if tube.pause_until_ns:
                yield Pause(tube.tube_id, tube.pause_s, tube.pause_until_ns, now_ns)
            if tube.rules:
                yield TubePolicy(tube.tube_id, tube.rules, now_ns, Reason.NONE)
            yield Counters(tube.tube_id, now_ns, tube.counts())
