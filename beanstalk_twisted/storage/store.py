"""
An open log at work: its committer and its compactor, wired to the queue, and what they have to say
to the server's log.
"""

from collections.abc import Callable
from typing import NamedTuple

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from beanstalk_twisted.binlog.batches import Rehoming
from beanstalk_twisted.binlog.compaction import Policy, SegmentUse
from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.binlog.errors import WriteFailed
from beanstalk_twisted.binlog.records import ClockStep
from beanstalk_twisted.jobs.workqueue import WorkQueue
from beanstalk_twisted.storage.archiver import Archiver, MakeArchiver
from beanstalk_twisted.storage.clock import LogClock
from beanstalk_twisted.storage.compactor import Compactor
from beanstalk_twisted.storage.directory_check import DirectoryCheck
from beanstalk_twisted.storage.fail_stop import FailStop
from beanstalk_twisted.storage.group_commit import FsyncPolicy, GroupCommit
from beanstalk_twisted.storage.inline_sync import InlineSyncPolicy
from beanstalk_twisted.storage.io_thread import Clock, Io
from beanstalk_twisted.storage.opening import OpenLog


class LogOptions(NamedTuple):
    """
    How a log is kept.

    :ivar fsync_inline_us: see `InlineSyncPolicy`.
    :ivar may_rehome: whether a failed write is given one more try, in another segment.
    """

    fsync: FsyncPolicy
    compaction: Policy
    fsync_inline_us: int
    may_rehome: bool


class LogFacts:
    """
    What `stats` says of the log; zeros without one.
    """

    def __init__(self) -> None:
        self.oldest: Callable[[], int] = lambda: 0
        self.current: Callable[[], int] = lambda: 0
        self.written: Callable[[], int] = lambda: 0
        self.migrated: Callable[[], int] = lambda: 0


class LogStore:
    """
    Keeps a queue in a log.
    """

    log = Logger()

    def __init__(
        self, opened: OpenLog, queue: WorkQueue, directory: Directory, io: Io, unwatched: Io,
        reactor: Clock, clock: LogClock, options: LogOptions, settled: Callable[[], None],
        changed: Callable[[], None], failed: FailStop,
        count_waiting: Callable[[], int], compactor: type[Compactor] = Compactor,
        make_archiver: MakeArchiver | None = None,
    ) -> None:  # fmt: skip
        """
        :param unwatched: the same as ``io``, for what may take as long as it likes.
        :param settled: called when more replies may go; ``changed`` when the queue did something
            by itself; ``failed`` when nothing can be promised any more.
        :param count_waiting: see `GroupCommit.count_waiting`.
        """
        self._log = opened.log
        self._queue = queue
        self._path = directory.path
        self._clock = clock
        self._changed = changed
        self._refusal = ""
        self._committer = GroupCommit(
            opened.log, opened.writer, io, reactor, clock.now_ns, options.fsync, failed,
            options.may_rehome, InlineSyncPolicy(options.fsync_inline_us),
        )  # fmt: skip
        self._compactor = compactor(
            options.compaction, opened.log, queue, directory, io, self._committer, reactor,
            clock.now_ns, failed, self._may_free,
        )  # fmt: skip
        self._check = DirectoryCheck(
            unwatched, reactor, directory.path, self._committer.displaced,
            lambda: self._committer.settled_lsn, failed,
        )  # fmt: skip
        self._archiver: Archiver | None = None
        if make_archiver is not None:
            self._archiver = make_archiver(
                opened.log, directory, self._committer, self._compactor.consider, failed
            )
        self._committer.settled = settled
        self._committer.count_waiting = count_waiting
        self._committer.rehomed = self._note_rehoming
        self._committer.before_batch = self._note_clock_step
        each = self._compactor.consider if self._archiver is None else self._archiver.advanced
        self._committer.advanced = each
        self._committer.space.demand = queue.demand
        self._committer.space.changed = self._note_room

    @property
    def settled_lsn(self) -> int:
        """
        Replies that wait for this LSN, or for a lower one, may be sent.
        """
        return self._committer.settled_lsn

    @property
    def unsettled_bytes(self) -> int:
        """
        About how many bytes are appended and not settled.
        """
        return self._committer.unsettled_bytes

    @property
    def is_congested(self) -> bool:
        """
        Whether more is waiting for the disk than should be.
        """
        return self._committer.is_congested

    def segments(self) -> list[SegmentUse]:
        """
        What each segment holds, oldest first.
        """
        return self._compactor.segments()

    def tell(self, facts: LogFacts) -> None:
        """
        Have `stats` ask here.
        """
        facts.oldest = lambda: self._log.oldest
        facts.current = lambda: self._log.segment
        facts.migrated = lambda: self._queue.tally.copies
        facts.written = lambda: self._log.records_written

    def schedule(self) -> None:
        """
        Records may have been appended: take them to disk when the reactor comes round next.
        """
        self._committer.schedule()

    def end_turn(self) -> None:
        """
        The turn is over for all connections: take what was appended to disk now.
        """
        self._committer.end_turn()

    def start(self) -> None:
        """
        Begin to work.

        :raise CannotUse: there is an archive, and nothing can be put into it.
        """
        self._check.start()
        if self._archiver is not None:
            self._archiver.start()
        self._committer.schedule()

    def stop(self) -> None:
        """
        Begin nothing more that nobody waits for.
        """
        self._check.stop()
        self._compactor.stop()
        if self._archiver is not None:
            self._archiver.stop()

    def finish(self) -> "Deferred[None]":
        """
        Sync all that was appended, then end the log in order.
        """
        return self._committer.finish()

    async def deliver_rest(self) -> None:
        """
        The log has ended: its last segment, too, goes into the archive, if there is one.
        """
        if self._archiver is not None:
            await self._archiver.finish()

    def _may_free(self, seq: int) -> bool:
        return self._archiver is None or self._archiver.has(seq)

    def _note_rehoming(self, moved: Rehoming, error: WriteFailed) -> None:
        """
        The server goes on, so what the error advises for an end is left out.
        """
        for job_id in moved.job_ids:
            self._queue.state.move_home(job_id, moved.segment)
        self.log.critical(
            "{what} Going on in segment {segment} with all that was not on disk; if that "
            "fails too, the server ends. Look at the disk and the kernel's log.",
            what=error.what, segment=moved.segment,
        )  # fmt: skip

    def _note_clock_step(self) -> None:
        """
        Readers of the log want to know what the wall clock said.
        """
        offset_ns = self._clock.step()
        if offset_ns is not None:
            self._log.append(ClockStep(self._clock.now_ns(), offset_ns))

    def _note_room(self, refusal: Failure | None) -> None:
        """
        Each state of the disk is told once.
        """
        said = str(refusal.value) if refusal is not None else ""
        if said != self._refusal:
            self._refusal = said
            if said:
                self.log.critical("{what} {free} bytes are left.", what=said,
                                  free=self._log.budget.free)  # fmt: skip
            else:
                self.log.warn("binlog {path}: there is space again", path=self._path)
        self._queue.room_changed(self._clock.now_ns())
        self._changed()


def jobs_in_words(count: int) -> str:
    """
    Say how many jobs: ``1 job``, ``2 jobs``.
    """
    return "1 job" if count == 1 else f"{count} jobs"


class StartProgress:
    """
    An `opening.Report`: logs how far a long start has come, at each tenth of what is read.
    """

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._next_tenth = 1

    def read(self, done: int, total: int) -> None:
        """
        Log each tenth of a log of more than 10 MiB.
        """
        if done * 10 >= total * self._next_tenth and total > 10 << 20:
            self._next_tenth = done * 10 // total + 1
            self._log.info(
                "replay: {done} of {total} MB read ({percent} %)",
                done=done >> 20, total=total >> 20, percent=done * 100 // total,
            )  # fmt: skip

    def loaded(self, jobs: int) -> None:
        """
        Log the number of jobs.
        """
        self._log.info("replay: {jobs} loaded", jobs=jobs_in_words(jobs))
