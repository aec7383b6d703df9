"""What clients were told, and what a server must therefore find after a crash.

`Promises` hears every reply, notes which record it tells of, and says from there how far a log must
reach after a kill or a power loss.  It holds the server to the words of docs/durability.md, not to
the numbers that the server itself reckons with.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from beanstalk_twisted.binlog.bodies import LogBodyReader
from beanstalk_twisted.binlog.cold import Run
from beanstalk_twisted.binlog.records.jobs import JobImage, Kind, Reason, State
from beanstalk_twisted.binlog.records.others import Pause, Record, TubePolicy
from beanstalk_twisted.rules.changes import JobLog
from beanstalk_twisted.rules.workqueue import WorkQueue
from beanstalk_twisted.storage.fsync import FsyncPolicy
from tests.binlog.scribe import records_of
from tests.crash.history import Broken, History, difference, picture, tube_seen

RELAXED_S: Final = 0.05
"""How long a change that no reply waits for may wait itself."""

COMMITTING: Final = {
    Kind.PUT, Kind.RELEASE, Kind.BURY, Kind.KICK, Kind.DELETE, Kind.MOVE, Kind.UPDATE,
}  # fmt: skip
"""Changes of a job that replies wait for."""


class Promises:
    """What clients were told, of all servers on one log after each other.

    Under ``always``, what was told survives all.  Under an interval it survives a kill, and a power
    loss when so much time has passed and the disk has been idle since; under ``never``, a kill, and
    a power loss when a segment was begun since.  Under each of them, all that the log itself takes
    for durable survives all: on that it deletes.

    :ivar history: of the records; ``bodies`` that each job ever had, by its id.
    :ivar broken: what was wrong with a record when it was logged.
    :ivar heard: how often clients have heard that each command with an extension was carried out.
    :ivar is_in_doubt: whether a sync of the last server has failed.
    """

    def __init__(self, policy: FsyncPolicy) -> None:
        self.history = History()
        self.policy = policy
        self.bodies: dict[int, set[bytes]] = defaultdict(set)
        self.broken: Broken | None = None
        self.heard: Counter[bytes] = Counter()
        self._queue: WorkQueue | None = None
        self._log: Any = None
        self._kill_lsn = self._power_lsn = 0
        self.is_in_doubt = self._is_named = False
        self._doing: tuple[str, str] | None = None
        self._told: deque[tuple[float, int]] = deque()
        self._logged: deque[tuple[float, int]] = deque()
        self._put: dict[int, int] = {}
        self._committed: dict[int, int] = {}
        self._ends: dict[int, list[int]] = defaultdict(list)
        self._edits: dict[int, list[int]] = defaultdict(list)
        self._reserved: dict[tuple[int, int], deque[int]] = defaultdict(deque)
        self.reader: LogBodyReader | None = None
        self.committed_lsn = 0
        self.wholes: list[tuple[int, int]] = []

    # The queue's side.

    def serves(self, queue: WorkQueue, log: JobLog) -> None:
        """A server opens the log."""
        self._queue, self._log = queue, log
        self._reserved.clear()
        self._edits.clear()

    def appended(self, lsn: int, record: Record) -> None:
        """The queue logs a record, and is about to do what it says."""
        if not isinstance(record, JobImage | Pause | TubePolicy):
            return
        assert self._queue is not None
        tube = tube_seen(self._queue.state.tubes.by_id(record.tube_id))
        self.history.appended(lsn, record, tube)
        if isinstance(record, Pause | TubePolicy):
            if record.reason is Reason.CLIENT:
                self.committed_lsn = lsn
            return
        self._note_image(lsn, record)

    def _note_image(self, lsn: int, record: JobImage) -> None:
        if record.kind in (Kind.PUT, Kind.UPDATE):
            self.bodies[record.job_id].add(record.body)
        if record.kind is Kind.PUT:
            self._put[record.job_id] = lsn
        if record.kind is Kind.RESERVE:
            key = (record.connection, record.job_id)
            self._reserved[key].append(self.committed_of(record.job_id))
        if record.kind in (Kind.MOVE, Kind.UPDATE) and record.reason is Reason.CLIENT:
            self._edits[record.connection].append(lsn)
        is_burial = record.kind is Kind.MOVE and record.state is State.BURIED
        if is_burial or record.kind in (Kind.BURY, Kind.DELETE):
            self._ends[record.job_id].append(lsn)
        if record.kind in COMMITTING:
            self.committed_lsn = self._committed[record.job_id] = lsn

    def committed_of(self, job_id: int) -> int:
        """The LSN of a job's newest change that replies wait for."""
        return self._committed.get(job_id, 0)

    def end_of(self, job_id: int, lsn: int) -> int:
        """The LSN of a job's first burial or deletion behind this one."""
        return next(end for end in self._ends[job_id] if end > lsn)

    def edit_of(self, connection: int, lsn: int, count: int) -> int:
        """The LSN of the last of so many jobs that a connection moved or updated behind this one; 0
        if it has not.
        """
        behind = [edit for edit in self._edits[connection] if edit > lsn]
        return behind[count - 1] if 0 < count <= len(behind) else 0

    # The clients' side.

    def told(self, lsn: int, now_s: float) -> None:
        """A client has heard of what this record did."""
        self._kill_lsn = max(self._kill_lsn, lsn)
        if self.policy.is_always:
            self._power_lsn = max(self._power_lsn, lsn)
        elif self.policy.interval_s is not None:
            self._told.append((now_s, lsn))

    def told_inserted(self, job_id: int, now_s: float) -> None:
        """A client has heard that its job is there."""
        self.told(self._put[job_id], now_s)

    def told_reserved(self, connection: int, job_id: int, now_s: float) -> None:
        """A client has heard that it has this job."""
        self.told(self._reserved[connection, job_id].popleft(), now_s)

    # The disk's side.

    def will(self, operation: str, name: str = "") -> None:
        """An operation is about to be carried out, so the one before has been."""
        done, self._doing = self._doing, (operation, name)
        if done is None:
            return
        if done[0] == "rename" and done[1].endswith(".tql"):
            self._is_named = True
        if done[0] == "sync directory" and self._is_named:
            # A segment is synced when it ends, and the next one when it begins.
            self._power_lsn = max(self._power_lsn, self._kill_lsn)
            self._is_named = False

    def fails(self, operation: str) -> None:
        """The disk refuses that operation."""
        self._doing = None
        self.is_in_doubt = self.is_in_doubt or operation == "sync"

    def idle(self, now_s: float) -> None:
        """A turn has ended and the disk has nothing to do: all is written that replies wait for,
        and what was logged a while ago.
        """
        self._kill_lsn = max(self._kill_lsn, self.committed_lsn)
        self._logged.append((now_s, self.history.last_lsn))
        while self._logged and self._logged[0][0] + RELAXED_S <= now_s:
            self._kill_lsn = max(self._kill_lsn, self._logged.popleft()[1])
        if self.policy.interval_s:
            while self._told and self._told[0][0] + self.policy.interval_s < now_s:
                self._power_lsn = max(self._power_lsn, self._told.popleft()[1])

    # Ends and beginnings.

    def stopped(self, last_lsn: int) -> None:
        """The server has ended in order.

        :param last_lsn: of the newest record when it began to.
        """
        self._kill_lsn = self._power_lsn = max(self._kill_lsn, last_lsn)

    def starts(self, found_lsn: int, now_ns: int, was_power_lost: bool) -> None:
        """A server starts, and will find this much."""
        self.history.restarts(found_lsn, now_ns)
        self._kill_lsn = found_lsn
        self._power_lsn = found_lsn if was_power_lost else min(self._power_lsn, found_lsn)
        self._queue = self._log = self._doing = None
        self.is_in_doubt = self._is_named = False
        self._told.clear()
        self._logged.clear()
        self.wholes = [whole for whole in self.wholes if whole[1] <= found_lsn]
        self._committed = {k: lsn for k, lsn in self._committed.items() if lsn <= found_lsn}
        self._ends.clear()
        self.committed_lsn = min(self.committed_lsn, found_lsn)

    # The checks.

    def least(self, is_power_lost: bool) -> int:
        """The LSN up to which all must be found now."""
        durable_lsn = 0 if self._log is None else self._log.durable_lsn
        # After a failed sync, what was written before it may not be there, though it was read.
        must_be_synced = is_power_lost or self.is_in_doubt
        return max(durable_lsn, self._power_lsn if must_be_synced else self._kill_lsn)

    def check_queue(self, now_ns: int) -> None:
        """The server that runs has done what it has logged."""
        if self.broken is not None:
            raise self.broken
        if self._queue is not None:
            seen = picture(self._queue, now_ns, self.reader)
            expected = self.history.expected(self.history.last_lsn, now_ns)
            seen = seen.without_unlogged_waits(expected)
            ours, theirs = (
                (each.jobs, each.pauses, each.dead, each.policies) for each in (seen, expected)
            )
            if ours != theirs:
                raise Broken(f"in memory: {difference(seen, expected)}")

    def check(self, queue: WorkQueue, last_lsn: int, now_ns: int, least: int) -> None:
        """What a server finds after a crash.

        :param last_lsn: where the log ends that it found.
        :param least: where it must not end before.
        :raise Broken: it is not what was promised.
        """
        found, expected = (
            picture(queue, now_ns, self.reader),
            self.history.expected(last_lsn, now_ns),
        )
        if last_lsn < least:
            raise Broken(f"the log ends with LSN {last_lsn}, and {least} was promised")
        for first, last in self.wholes:
            if first <= last_lsn < last:
                raise Broken(f"LSN {first} to {last} are there up to {last_lsn}")
        if found != expected:
            raise Broken(f"what LSN 1 to {last_lsn} say: {difference(found, expected)}")
        highest_id = self.history.moment(last_lsn).highest_id
        if queue.state.next_job_id <= highest_id:
            raise Broken(f"id {highest_id} would be given a second time")


class Recorder:
    """A log that tells of what passes through it."""

    def __init__(self, log: JobLog, promises: Promises) -> None:
        self._log = log
        self._promises = promises

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def append(self, record: Record) -> int:
        lsn = self._log.append(record)
        self._note(lsn, record)
        return lsn

    def append_job(self, *fields: Any) -> int:
        lsn = self._log.append_job(*fields)
        self._note(lsn, JobImage(*fields))
        return lsn

    def append_run(self, make: Callable[[], Run]) -> int:
        run = make()
        first = self._log.append_run(lambda: run)
        for lsn, record in enumerate(records_of(run), first):
            self._note(lsn, record)
        return first

    def append_whole(self, records: Sequence[Record]) -> int:
        first = self._log.append_whole(records)
        self._promises.wholes.append((first, first + len(records) - 1))
        for lsn, record in enumerate(records, first):
            self._note(lsn, record)
        return first

    def _note(self, lsn: int, record: Record) -> None:
        try:
            self._promises.appended(lsn, record)
        except Broken as broken:
            # The server would take it for a mistake of its own, and go on.
            self._promises.broken = broken


class WatchedQueue(WorkQueue):
    """A queue whose records are noted."""

    promises: Promises

    def keep_in(self, log: JobLog) -> None:
        self.promises.serves(self, log)
        super().keep_in(cast(JobLog, Recorder(log, self.promises)))
