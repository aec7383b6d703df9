"""An open log at work: its parts wired to the queue, and what they say to the server's log."""

import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from beanstalk_twisted.binlog.bodies import LogBodyReader
from beanstalk_twisted.binlog.compaction import Policy
from beanstalk_twisted.binlog.directory import DiskSpace
from beanstalk_twisted.binlog.errors import NoSpace, WriteFailed
from beanstalk_twisted.binlog.reading.survey import Segment
from beanstalk_twisted.binlog.records.others import ClockStep
from beanstalk_twisted.binlog.writer import Writer
from beanstalk_twisted.rules.workqueue import WorkQueue
from beanstalk_twisted.storage.archiver import Archiver, MakeArchiver
from beanstalk_twisted.storage.body_checks import BodyCheck
from beanstalk_twisted.storage.body_reads import BodyReads
from beanstalk_twisted.storage.compactor import Compactor, Kept
from beanstalk_twisted.storage.environment import (
    CommitEvents,
    CommitFigures,
    Environment,
    Replica,
    SlowSync,
    StoreEvents,
)
from beanstalk_twisted.storage.fsync import FsyncPolicy, InlineSyncPolicy
from beanstalk_twisted.storage.group_commit import GroupCommit
from beanstalk_twisted.storage.io_thread import WatchableIo
from beanstalk_twisted.storage.opening import OpenLog, Report
from beanstalk_twisted.storage.repeats import Repeats, times
from beanstalk_twisted.storage.segment_list import SegmentFacts, SegmentList

CHECK_S: Final = 1.0
"""Seconds between two checks: what is acknowledged in that time may be lost with the directory, and
a check takes 20 us of processor time.
"""

SPACE_NEWS_S: Final = 2.0
"""Seconds that there has to be space before that is reported: on a full disk each segment that
compaction frees is taken again, some 45 times a second if segments are small.
"""

MS: Final = 1_000_000


class DirectoryCheck:
    """Looks once a second whether the log is where it should be, as long as it is."""

    log = Logger()

    def __init__(self, environment: Environment, committer: GroupCommit, writer: Writer) -> None:
        self._io = environment.unwatched
        self._clock = environment.reactor
        self._path = environment.directory.path
        self.fail_stop = environment.fail_stop
        self._committer = committer
        self._displaced = writer.displaced
        self._seen = ""
        self._timer: IDelayedCall | None = None
        self._is_stopped = False

    def start(self) -> None:
        """Check now, when the segment has just been begun, and then once a second."""
        seen = self._now()
        if displaced := self._displaced():
            # The file system has no lasting inode numbers: checks would say nothing there.
            self.log.warn(
                "binlog {path}: {displaced}, its file system says at once; so it cannot be noticed "
                "there if the directory is removed or renamed", event="directory-unwatched",
                path=self._path, displaced=displaced,
            )  # fmt: skip
        else:
            self._end("", seen)

    def stop(self) -> None:
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin(self) -> None:
        self._timer = None
        looking = self._io.run(self._displaced).addCallback(self._end, self._now())
        looking.addErrback(self.fail_stop)

    def _end(self, displaced: str, seen: str) -> None:
        """:param seen: when this check began, and what was acknowledgeable then."""
        if self._is_stopped:
            return
        if not displaced:
            self._seen = seen
            self._timer = self._clock.callLater(CHECK_S, self._begin)
            return
        error = WriteFailed(
            f"the binlog is not at {self._path} any more: {displaced}. The directory was removed, "
            f"renamed, replaced or mounted over, or files in it were. All was in place at "
            f"{self._seen}; what was acknowledged since is only in the files that were. "
            f"Put that directory, or a copy of it, back at {self._path}, run 'binlog-inspect check "
            f"{self._path}', start again."
        )
        self.fail_stop(Failure(error))

    def _now(self) -> str:
        time_ = time.strftime("%FT%TZ", time.gmtime())
        return f"{time_} (LSN {self._committer.acknowledgeable_lsn})"


class LogOptions(NamedTuple):
    """How a log is kept.

    :ivar slow_ns: replies that waited longer for the disk are reported.
    :ivar body_cache: bytes of bodies that are kept in memory; None for all.
    """

    fsync: FsyncPolicy
    compaction: Policy
    fsync_inline_us: int
    slow_ns: int
    body_cache: int | None = None


class LogFacts:
    """What `stats` says of the log; zeros without one."""

    def __init__(self) -> None:
        self.oldest: Callable[[], int] = lambda: 0
        self.current: Callable[[], int] = lambda: 0
        self.written: Callable[[], int] = lambda: 0
        self.migrated: Callable[[], int] = lambda: 0


class LogFigures(NamedTuple):
    """What monitoring shows of a log, as of now; sizes in bytes.

    :ivar total_bytes: of all segments; ``live_bytes`` of the records of living jobs.
    :ivar debt_bytes: how much is compacted: what is above ``may_be_bytes``.
    :ivar unsynced_bytes: what is not known durable; ``unsynced_ns`` how long the oldest has waited.
    :ivar preallocated_bytes: what records can still take of files that are there.
    :ivar allocated_bytes: of all its files; ``most_bytes`` that they may have, 0 for no limit.
    :ivar disk_free_bytes: what the file system had left when it was last asked; None before.
    :ivar oldest_jobs: living jobs, and remembered keys, of the oldest segment;
        ``oldest_live_bytes`` the bytes of their records; ``oldest_kept`` why it is not deleted.
    :ivar unchecked_bytes: of segments whose bodies a start has left, and no check has reached.
    :ivar unarchived: finished segments that the archive lacks, and their bytes; None without one.
    """

    total_bytes: int
    live_bytes: int
    debt_bytes: int
    may_be_bytes: int
    unsynced_bytes: int
    unsynced_ns: int
    preallocated_bytes: int
    disk_free_bytes: int | None
    segments: int
    oldest_segment: int
    oldest_jobs: int
    oldest_live_bytes: int
    oldest_kept: Kept
    is_full: bool
    commits: CommitFigures
    allocated_bytes: int = 0
    most_bytes: int = 0
    unarchived: tuple[int, int] | None = None
    unchecked_bytes: int = 0
    disk_size_bytes: int | None = None


class LogStore:
    """Owns an open log: group commit, compaction and archiving for one queue.  Logs their states.

    :ivar reads: reads bodies that are in the log only; None where all are in memory.
    """

    log = Logger()

    def __init__(
        self, opened: OpenLog, queue: WorkQueue, environment: Environment, options: LogOptions,
        events: StoreEvents, compactor: type[Compactor] = Compactor,
        make_archiver: MakeArchiver | None = None, replica: Replica | None = None,
        read_io: Callable[[], WatchableIo] | None = None, unchecked: Sequence[Segment] = (),
    ) -> None:  # fmt: skip
        """:param unchecked: segments whose bodies a start has not looked at.
        :param read_io: makes what reads and checks bodies; needed with a `body_cache`.
        :param replica: where the log goes besides the disk; jobs leave only with their
            reservations.
        """
        opened.log.commits_reserves = replica is not None
        self._log = opened.log
        self._queue = queue
        self._path = environment.directory.path
        self._clock = environment.clock
        self._changed = events.changed
        self._reactor = environment.reactor
        self._io = environment.unwatched
        self._ask_space = environment.directory.disk_space
        self._disk: DiskSpace | None = None
        self._is_asking = False
        self._refusal = ""
        self._news: IDelayedCall | None = None
        self._slow: Repeats[SlowSync] = Repeats(environment.reactor, self._tell_of_slow, max)
        commit_events = CommitEvents(
            events.acknowledge, self._advanced, self._note_clock_step, events.count_waiting,
            queue.demand, self._note_room, self._slow.note,
        )  # fmt: skip
        self.committer = GroupCommit(
            opened.log, opened.writer, environment, options.fsync, commit_events,
            InlineSyncPolicy(options.fsync_inline_us), options.slow_ns, replica,
        )  # fmt: skip
        self._compactor = compactor(
            options.compaction, opened.log, queue, environment, self.committer, self._kept_for
        )
        self._check = DirectoryCheck(environment, self.committer, opened.writer)
        self.body_check = BodyCheck(
            unchecked, environment, read_io, queue, self.committer, self._compactor.consider
        )  # fmt: skip
        self._segments = SegmentList(
            opened.log, queue.state.live, environment.directory, environment.unwatched,
            lambda seq: None if self._archiver is None else self._archiver.has(seq),
        )  # fmt: skip
        self.reads: BodyReads | None = None
        self._body_cache = options.body_cache
        if options.body_cache is not None and read_io is not None:
            self.reads = BodyReads(
                LogBodyReader(environment.directory), read_io(), opened.log, queue,
                environment.reactor, environment.clock, environment.fail_stop, self._body_read,
                self.committer.when_durable,
            )  # fmt: skip
        self._archiver: Archiver | None = None
        if make_archiver is not None:
            self._archiver = make_archiver(
                opened.log, environment, self.committer, self._compactor.consider
            )

    def tell(self, facts: LogFacts) -> None:
        facts.oldest = lambda: self._log.oldest
        facts.current = lambda: self._log.segment
        facts.migrated = lambda: self._queue.tally.copies
        facts.written = lambda: self._log.records_written

    def figures(self) -> LogFigures:
        """The log as it is now.  The disk is asked for the next call, in the I/O thread: a file
        system may keep the caller waiting.
        """
        if not self._is_asking:
            self._is_asking = True
            asking = self._io.run(self._ask_space)
            asking.addCallbacks(self._note_space, lambda failure: self._note_space(None))
        disk = self._disk
        log, committer = self._log, self.committer
        live, may_be = self._queue.state.live.live_bytes, self._compactor.may_be_bytes
        return LogFigures(
            log.total_bytes, live, max(0, log.total_bytes - may_be), may_be,
            log.open_bytes + log.undurable_bytes,
            committer.figures.unsynced_ns(self._clock.now_ns()), log.budget.free,
            None if disk is None else disk.free_bytes, log.segment - log.oldest + 1,
            log.oldest, *self._queue.state.live.of(log.oldest), self._compactor.kept, self.is_full,
            committer.figures,
            log.allocated_bytes, log.most_bytes,
            None if self._archiver is None else self._archiver.lacks,
            self.body_check.left_bytes, None if disk is None else disk.size_bytes,
        )  # fmt: skip

    async def segments(self, after: int, most: int) -> list[SegmentFacts]:
        """A page of its segments; see `SegmentList.page`."""
        return await self._segments.page(after, most)

    def _note_space(self, space: DiskSpace | None) -> None:
        self._is_asking, self._disk = False, space

    @property
    def is_full(self) -> bool:
        return self._log.budget.is_short

    def start(self) -> None:
        """:raise CannotUse: there is an archive, and nothing can be put into it."""
        self._check.start()
        if self.reads is not None and self._body_cache is not None:
            self.reads.start(self._body_cache)
        self.body_check.start()
        if self._archiver is not None:
            self._archiver.start()
        self.committer.schedule()

    def stop(self) -> None:
        """Begin nothing more that nobody waits for."""
        self._forget_news()
        self._slow.stop()
        self._check.stop()
        self._compactor.stop()
        self.body_check.stop()
        if self.reads is not None:
            self.reads.stop()
        if self._archiver is not None:
            self._archiver.stop()

    def hold_up(self, is_held_up: bool) -> None:
        """While the replica takes nothing, leave out records that nobody waits for: all that is
        appended has to be kept for it.
        """
        self._log.hold_up(is_held_up)

    async def finish(self) -> None:
        """Take all that was appended to disk, and to the replica, and end the log in order."""
        await self.committer.finish()
        if self.committer.replica is not None:
            await self.committer.replica.hand_over()

    async def deliver_rest(self) -> None:
        """The log has ended: its last segment, too, goes into the archive, if there is one."""
        if self._archiver is not None:
            await self._archiver.finish()

    def close(self) -> None:
        self.body_check.close()
        if self.reads is not None:
            self.reads.close()

    def _body_read(self) -> None:
        self._changed()
        self._compactor.consider()

    def _advanced(self) -> None:
        if self.reads is not None:
            self.reads.drop()
        if self._archiver is not None:
            self._archiver.advanced()
        else:
            self._compactor.advanced()

    def _kept_for(self, seq: int) -> Kept | None:
        if self._queue.state.bodies.is_reading(seq):
            return Kept.READ
        if not self.body_check.has_checked(seq):
            return Kept.UNCHECKED
        has_it = self._archiver is None or self._archiver.has(seq)
        return None if has_it else Kept.ARCHIVE

    def _tell_of_slow(self, count: int, slow: SlowSync) -> None:
        self.log.warn(
            "a write or sync in {path} took {ms} ms; {who} waited up to {waited_ms} ms for the "
            "disk{times}", event="fsync-slow", path=self._path, ms=slow.took_ns // MS,
            who="1 connection" if slow.connections == 1 else f"{slow.connections} connections",
            connections=slow.connections, waited_ms=slow.waited_ns // MS,
            times=times(count, "slowest"), count=count,
        )  # fmt: skip

    def _note_clock_step(self, now_ns: int) -> None:
        offset_ns = self._clock.step(now_ns)
        if offset_ns is not None:
            self._log.append(ClockStep(now_ns, offset_ns))

    def _note_room(self, refusal: Failure | None) -> None:
        """Each state of the disk is told once; that there is space, when there was for a while."""
        if refusal is not None:
            self._forget_news()
            problem = refusal.value
            assert isinstance(problem, NoSpace), problem
            if problem.meanwhile != self._refusal:
                self._refusal = problem.meanwhile
                self.log.critical(
                    "{what} {free} bytes are left.", event="disk-full",
                    what=problem.meanwhile, free=self._log.budget.free,
                )  # fmt: skip
        elif self._refusal and self._news is None:
            self._news = self._reactor.callLater(SPACE_NEWS_S, self._tell_of_space)
        self._queue.room_changed(self._clock.now_ns())
        self._changed()

    def _tell_of_space(self) -> None:
        self._news, self._refusal = None, ""
        self.log.warn("binlog {path}: there is space again", event="disk-space", path=self._path)

    def _forget_news(self) -> None:
        news, self._news = self._news, None
        if news is not None:
            news.cancel()


def jobs_in_words(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"


class StartProgress:
    """An `opening.Report`: logs how far a long start has come, at each tenth of what is read."""

    def __init__(self, log: Logger, others: Sequence[Report] = ()) -> None:
        self._log = log
        self._others = others
        self._next_tenth = 1

    def read(self, done: int, total: int) -> None:
        """Log each tenth of a log of more than 10 MiB."""
        for other in self._others:
            other.read(done, total)
        if done * 10 >= total * self._next_tenth and total > 10 << 20:
            self._next_tenth = done * 10 // total + 1
            self._log.info(
                "replay: {done} of {total} MB read ({percent} %)", event="loading",
                done=done >> 20, total=total >> 20, percent=done * 100 // total,
            )  # fmt: skip

    def loaded(self, jobs: int) -> None:
        for other in self._others:
            other.loaded(jobs)
        self._log.info(
            "replay: {loaded} loaded", event="loaded", loaded=jobs_in_words(jobs), jobs=jobs
        )
