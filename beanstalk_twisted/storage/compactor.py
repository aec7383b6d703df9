"""Compaction in the background: a slice now and then, never longer than a few milliseconds."""

from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import partial
from typing import Final

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from beanstalk_twisted.binlog.compaction import Policy, Pressure, full_records
from beanstalk_twisted.binlog.errors import BinlogError
from beanstalk_twisted.binlog.log import Log
from beanstalk_twisted.binlog.records.others import Trim
from beanstalk_twisted.binlog.segments.format import segment_name
from beanstalk_twisted.rules.workqueue import WorkQueue
from beanstalk_twisted.storage.environment import Environment
from beanstalk_twisted.storage.fail_stop import fail_stop
from beanstalk_twisted.storage.group_commit import GroupCommit

AHEAD: Final = 2
"""Segments before a limit on the log's bytes at which it is made as small as on a full disk."""

COPIES: Final = 100
"""Jobs stated again in one turn: about 2 ms."""


class Kept(StrEnum):
    WRITTEN = "written"
    """It is the one that is being written."""

    ARCHIVE = "archive"
    """The archive lacks it."""

    UNCHECKED = "unchecked"
    """Its bodies were not looked at yet, or cannot be read."""

    READ = "read"
    """A body is being read from it."""

    STOPPED = "stopped"
    """Compaction has ended: a segment is damaged, or bodies are lost of jobs that live in it, or
    the server stops.
    """

    SMALL = "small"
    """The log is no larger than it may be."""

    SPACE = "space"
    """The disk is full: what lives in it cannot be written again."""

    COPYING = "copying"
    """It is being compacted: jobs live in it, which are written again."""

    FREEING = "freeing"
    """Nothing lives in it: it is deleted when that is durable."""


class Compactor:
    """Keeps a log small.

    The I/O thread reads and checks the oldest segment slice by slice; the jobs that still live
    there are stated again, a few at a time, through the ordinary log.  When none is left, a TRIM
    says so, and when that is durable the segment is deleted.  A crash leaves at worst two copies of
    the same state, or a dead segment that the next start removes.
    """

    log = Logger()

    def __init__(
        self, policy: Policy, log: Log, queue: WorkQueue, environment: Environment,
        committer: GroupCommit, kept_for: Callable[[int], Kept | None],
    ) -> None:  # fmt: skip
        """:param kept_for: why others need a segment, None if nobody does; they call `consider`
        when that has changed.
        """
        self.fail_stop = environment.fail_stop
        self._policy = policy
        self._log = log
        self._queue = queue
        self._directory = environment.directory
        self._io = environment.io
        self._committer = committer
        self._clock = environment.reactor
        self._now_ns = environment.clock.now_ns
        self._kept_for = kept_for
        self._turn: IDelayedCall | None = None
        self._slices: Iterator[list[int]] | None = None
        self._ids: list[int] = []
        self._is_waiting = self._is_stopped = False
        # Once the disk was full, the log is made as small as can be before it is left alone again.
        self._is_pressed = False
        # The segment of which all was written again but jobs whose bodies are lost.
        self._left_seq = 0

    def advanced(self) -> None:
        """The log has grown: as `consider`, which would find nothing to do in most logs."""
        log, policy = self._log, self._policy
        if not log.ends:
            # No segment is finished.
            return
        is_left_alone = (
            log.segment - log.oldest <= policy.spare_files
            and log.total_bytes
            <= policy.factor * self._queue.state.live.live_bytes
            + policy.spare_segments * log.budget.usual_bytes
            and self._slices is None
            and not (self._is_pressed or log.budget.is_short or log.most_bytes)
        )
        if not is_left_alone:
            self.consider()

    @fail_stop
    def consider(self) -> None:
        """The log may have grown: begin to compact if it is too large."""
        idle = self._turn is None and not self._is_waiting and not self._is_stopped
        if idle and self._should_go_on():
            is_urgent = self._policy.is_urgent(self._pressure())
            pause_s = 0 if is_urgent else self._policy.pace_ms / 1000
            self._turn = self._clock.callLater(pause_s, self._step)

    def stop(self) -> None:
        self._is_stopped = True
        if self._turn is not None and self._turn.active():
            self._turn.cancel()

    def _should_go_on(self) -> bool:
        """A segment once begun is finished; the one being written is never taken."""
        oldest = self._log.oldest
        if oldest >= self._log.written_seq or self._kept_for(oldest) is not None:
            return False
        if self._waits_for_deletions:
            return False
        log = self._log
        budget = log.budget
        self._is_pressed |= budget.is_short or not log.may_allocate(AHEAD * budget.usual_bytes)
        is_wanted = self._slices is not None or self._policy.should_compact(self._pressure())
        self._is_pressed &= is_wanted
        return is_wanted and self._has_room()

    @property
    def _waits_for_deletions(self) -> bool:
        """Whether only jobs whose bodies are lost live in the oldest segment."""
        oldest = self._log.oldest
        return self._left_seq == oldest and self._queue.state.live.of(oldest)[0] > 0

    @property
    def may_be_bytes(self) -> int:
        """How large the log may be before its oldest segment is compacted."""
        return self._policy.may_be_bytes(self._pressure())

    @property
    def kept(self) -> Kept:
        """Why the oldest segment is still there, as compaction decides; changes nothing."""
        oldest = self._log.oldest
        if oldest >= self._log.written_seq:
            return Kept.WRITTEN
        kept = self._kept_for(oldest)
        if kept is not None:
            return kept
        if self._is_stopped or self._waits_for_deletions:
            return Kept.STOPPED
        is_pressed = self._is_pressed or self._log.budget.is_short
        pressure = self._pressure()._replace(is_short=is_pressed)
        if self._slices is None and not self._policy.should_compact(pressure):
            # The end of a segment in which nothing lives any more may be under way all the same.
            is_ending = self._is_waiting and not self._queue.state.live.of(oldest)[0]
            return Kept.FREEING if is_ending else Kept.SMALL
        if not self._has_room():
            return Kept.SPACE
        return Kept.COPYING if self._queue.state.live.of(oldest)[0] else Kept.FREEING

    def _has_room(self) -> bool:
        """On a full disk, a segment is begun only if it can be finished."""
        _, record_bytes = self._queue.state.live.of(self._log.oldest)
        return self._log.budget.takes_copies(record_bytes, self._queue.state.ends())

    def _pressure(self) -> Pressure:
        log = self._log
        # Segments have heads: what lives takes as many more as it needs segments.
        size = log.budget.usual_bytes
        live = self._queue.state.live.live_bytes * size // (size - log.budget.overhead)
        segments = log.segment - log.oldest
        return Pressure(log.total_bytes, live, size, segments, self._is_pressed)

    @fail_stop
    def _step(self) -> None:
        self._turn = None
        if self._committer.is_congested:
            self.consider()
        elif not self._queue.state.live.of(self._log.oldest)[0]:
            self._trim()
        elif self._ids:
            done = self._queue.copy(self._ids[:COPIES], self._log.oldest, self._now_ns())
            self._ids = self._ids[done:]
            self._committer.schedule()
            if done:
                self.consider()
            # Else there is no room: the next change that is on disk may have made some.
        else:
            self._read_some()

    def _read_some(self) -> None:
        oldest = self._log.oldest
        if self._slices is None:
            self._slices = full_records(self._directory, oldest, self._log.ends[oldest])
        self._is_waiting = True
        reading = self._io.run(partial(next, self._slices, None))
        reading.addCallbacks(self._was_read, self._give_up)

    @fail_stop
    def _was_read(self, ids: list[int] | None) -> None:
        self._is_waiting = False
        if ids is not None:
            self._ids = ids
            self.consider()
            return
        # All was read, and jobs live there yet.
        oldest = self._left_seq = self._log.oldest
        self.log.critical(
            "compaction waits: jobs whose bodies are lost live in {segment}: {jobs}. It goes on "
            "when they are deleted; all other jobs are served on.", event="compaction-failed",
            segment=segment_name(oldest), jobs=self._queue.state.live.of(oldest)[0],
        )  # fmt: skip

    def _trim(self) -> None:
        self._slices, self._ids = None, []
        self._is_waiting = True
        lsn = self._log.append(Trim(self._log.oldest + 1, self._now_ns()))
        self._committer.when_durable(lsn, self._delete)

    @fail_stop
    def _delete(self) -> None:
        oldest = self._log.oldest
        self._log.trimmed(oldest)
        if self._committer.replica is not None:
            self._committer.replica.trimmed(oldest)
        removing = self._io.run(partial(self._directory.remove, segment_name(oldest)))
        removing.addCallbacks(self._was_deleted, self._give_up)

    @fail_stop
    def _was_deleted(self, ignored: None) -> None:
        self._is_waiting = False
        self._committer.space.try_now()
        self.consider()

    def _give_up(self, failure: Failure) -> None:
        """The log is safe as it is; it only grows from here on."""
        self._is_stopped = True
        self.log.critical(
            "compaction has ended: {error}", event="compaction-failed", error=failure.value
        )
        if not failure.check(BinlogError, OSError):
            self.log.failure("while compacting", failure, event="compaction-failed-of")
