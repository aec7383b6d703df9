"""
Changes: each is logged and made in one step, and in no other way.
"""

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from beanstalk_twisted.binlog.records import (
    RELAXED,
    WAITED_FOR,
    Counters,
    JobImage,
    Pause,
    Reason,
    Record,
    State,
    TubeDef,
)
from beanstalk_twisted.jobs.job import Job
from beanstalk_twisted.jobs.ordered import OrderedJobs
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.jobs.tube import Tube

NS = 1_000_000_000

ALL: Final = 1 << 62
"""More than there are jobs."""


class SpaceBudget(Protocol):
    """
    What the queue asks of a log's space budget; `binlog.space_budget.SpaceBudget` is one.
    """

    @property
    def is_short(self) -> bool:
        """
        Whether the disk gives no more space.
        """

    @property
    def run_records(self) -> int:
        """
        How many records without data surely fit into the newest segment.
        """

    def takes_put(self, body_bytes: int, jobs: int) -> bool:
        """
        Whether there is room for a new job, and for the deletion of it and of all others.
        """

    def takes_change(self, jobs: int) -> bool:
        """
        Whether there is room for a change that is no deletion, for compaction, and for the deletion
        of all jobs.  Only asked when `is_short`.
        """

    def takes_copy(self, body_bytes: int, jobs: int) -> bool:
        """
        Whether there is room to copy a job: a large one may not fit although the sum does.
        """


class JobLog(Protocol):
    """
    What the queue needs of a log.
    """

    @property
    def segment(self) -> int:
        """
        The segment that the next record will lie in.
        """

    @property
    def budget(self) -> SpaceBudget:
        """
        The space that is left.
        """

    @property
    def is_behind(self) -> bool:
        """
        Whether so much waits for the disk that records which no reply waits for are left out.
        """

    def make_room(self, body_bytes: int, time_ns: int) -> None:
        """
        Make room for the next records, the definition of a tube and one of a job, in one segment.
        """

    def append(self, record: Record) -> int:
        """
        :return: the record's LSN.
        """

    def append_run(self, records: Iterator[Record]) -> int:
        """
        Append at least one record, of one kind without data, no more than
        `SpaceBudget.run_records`.

        :return: the first one's LSN; the others' follow.
        """

    def append_whole(self, records: Sequence[Record]) -> int:
        """
        Append at least one record; all of them are kept, or none.  Room was made for them.

        :return: the first one's LSN; the others' follow.
        """


class Unlimited:
    """
    The space budget of a queue without a log: there is always room.
    """

    is_short = False
    run_records = ALL

    def takes_put(self, body_bytes: int, jobs: int) -> bool:
        return True

    def takes_change(self, jobs: int) -> bool:
        return True

    def takes_copy(self, body_bytes: int, jobs: int) -> bool:
        return True


class NoLog:
    """
    The log of a queue without a log: nothing is kept, so no reply waits.
    """

    segment = 0
    budget: Final = Unlimited()
    is_behind = False

    def make_room(self, body_bytes: int, time_ns: int) -> None:
        """
        There is no segment to end.
        """

    def append(self, record: Record) -> int:
        return 0

    def append_run(self, records: Iterator[Record]) -> int:
        return 0

    def append_whole(self, records: Sequence[Record]) -> int:
        """
        Nothing is kept, so nothing has to be waited for.
        """
        return 0


NOWHERE: Final = NoLog()
"""The log of a queue without a log."""


class Changes:
    """
    Changes a `QueueState` by records.

    :ivar log: where they are logged.
    :ivar committed_lsn: LSN of the newest record that replies wait for.
    """

    def __init__(self, state: QueueState) -> None:
        self.log: JobLog = NOWHERE
        self.committed_lsn = 0
        self._state = state

    @property
    def has_room(self) -> bool:
        """
        Whether the log has room for a change that is no deletion.
        """
        budget = self.log.budget
        return not budget.is_short or budget.takes_change(len(self._state.jobs))

    def has_room_for(self, body_bytes: int) -> bool:
        """
        Whether the log has room for a new job, and then for the end of all jobs.
        """
        log = self.log
        return log is NOWHERE or log.budget.takes_put(body_bytes, len(self._state.jobs))

    def has_room_for_all(self, size: int, count: int) -> bool:
        """
        As `has_room_for`, for so many new jobs that take these bytes as one.
        """
        log = self.log
        others = len(self._state.jobs) + count - 1
        return log is NOWHERE or log.budget.takes_put(size, others)

    def has_room_to_copy(self, body_bytes: int) -> bool:
        """
        Whether the log has room to state a job again, and then for the end of all jobs.
        """
        return self.log.budget.takes_copy(body_bytes, len(self._state.jobs))

    def make(self, image: JobImage) -> int:
        """
        Change a live job: log its image and apply it.

        :return: the record's LSN; 0 if it was not logged, since no reply waits for it and the room
            is wanted for deletions, or the disk is behind.
        """
        log = self.log
        if log is NOWHERE:
            self._state.apply(image)
            return 0
        kind = image.kind
        is_wanted = kind not in RELAXED or (self.has_room and not log.is_behind)
        if not is_wanted and self._is_as_good(image):
            self._state.apply(image)
            return 0
        log.make_room(len(image.body), image.ts_ns)
        tube = self._state.tubes.by_id(image.tube_id)
        segment = log.segment
        if tube.defined_in != segment:
            self._define(tube, image.ts_ns)
        lsn = log.append(image)
        self._state.apply(image, lsn, segment)
        if kind in WAITED_FOR:
            self.committed_lsn = lsn
        return lsn

    def put_whole(self, tube: Tube, images: Sequence[JobImage], size: int, now_ns: int) -> int:
        """
        New jobs of a tube, as by `make` for each; but a crash leaves all of them, or none.

        :param images: at least one.
        :param size: see `space_budget.whole_bytes`.
        :return: the last record's LSN.
        """
        log = self.log
        log.make_room(size, now_ns)
        segment = log.segment
        if log is not NOWHERE and tube.defined_in != segment:
            self._define(tube, now_ns)
        lsn = log.append_whole(images)
        step = 1 if lsn else 0
        for image in images:
            self._state.apply(image, lsn, segment)
            lsn += step
        self.committed_lsn = lsn - step
        return lsn - step

    def kick(
        self, tube: Tube, queue: OrderedJobs, most: int, connection: int, now_ns: int
    ) -> int:  # fmt: skip
        """
        Kick up to ``most`` jobs of a tube, as by `make` for each; no session waits for them.

        :param queue: the tube's buried or delayed jobs; the first of them are kicked.
        :return: how many; 0 if each has to be kicked by `make`, since room is short.
        """
        log = self.log
        if log.budget.is_short or not queue.count:
            return 0
        log.make_room(0, now_ns)
        if tube.defined_in != log.segment:
            self._define(tube, now_ns)
        most = min(most, log.budget.run_records)
        if not most:
            return 0
        jobs = self._state.jobs.pick(queue.firsts(most))
        lsn = log.append_run(_kick_images(jobs, connection, now_ns))
        self._state.apply_kicks(tube, queue, jobs, lsn)
        self.committed_lsn = lsn + len(jobs) - 1 if lsn else 0
        return len(jobs)

    def pause(self, tube: Tube, seconds: int, now_ns: int, reason: Reason) -> int:
        """
        A tube is paused, or with 0 seconds no longer.

        :return: the record's LSN; 0 if it was not logged, see `make`.  A restart then knows a tube
            without jobs until its pause ends.
        """
        until_ns = now_ns + seconds * NS if seconds else 0
        record = Pause(tube.tube_id, seconds, until_ns, now_ns, reason)
        if not record.commits and not self.has_room:
            self._state.apply_pause(record)
            return 0
        self.log.make_room(0, now_ns)
        if tube.defined_in != self.log.segment:
            self._define(tube, now_ns)
        lsn = self.log.append(record)
        self._state.apply_pause(record)
        if record.commits:
            self.committed_lsn = lsn
        return lsn

    def _is_as_good(self, image: JobImage) -> bool:
        """
        Whether a restart makes the same of the job without this record, but for its counters.
        """
        job = self._state.jobs.look(image.job_id)
        return job is not None and job.state in (State.READY, State.RESERVED)

    def _define(self, tube: Tube, now_ns: int) -> None:
        """
        Log the tube's name: each segment defines the tubes in it.
        """
        tube.defined_in = self.log.segment
        self.log.append(TubeDef(tube.tube_id, tube.name, now_ns))


def _kick_images(jobs: list[Job], connection: int, now_ns: int) -> Iterator[JobImage]:
    for job in jobs:
        yield job.kicked(now_ns, connection)


def small_state(state: QueueState, segment: int, now_ns: int) -> Iterator[Record]:
    """
    The tubes and pauses at the head of a log segment, which thereby defines these tubes.
    """
    for tube in state.tubes.in_order:
        if tube.job_count or tube.pause_until_ns:
            tube.defined_in = segment
            yield TubeDef(tube.tube_id, tube.name, now_ns)
            if tube.pause_until_ns:
                yield Pause(tube.tube_id, tube.pause_s, tube.pause_until_ns, now_ns)
            yield Counters(tube.tube_id, now_ns, tube.counts())
