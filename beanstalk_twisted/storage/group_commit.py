"""Group commit: when records go to disk, and when replies may go out."""

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IDelayedCall
from twisted.python.failure import Failure

from beanstalk_twisted.binlog.batches import Batch
from beanstalk_twisted.binlog.errors import NoSpace
from beanstalk_twisted.binlog.log import Log
from beanstalk_twisted.binlog.space_budget import PreallocatedSegment, SpaceBudget
from beanstalk_twisted.binlog.writer import Writer
from beanstalk_twisted.storage.environment import (
    CommitEvents,
    CommitFigures,
    Environment,
    Replica,
    SlowSync,
)
from beanstalk_twisted.storage.fail_stop import fail_stop
from beanstalk_twisted.storage.fsync import MAX_BATCH_BYTES, FsyncPolicy, InlineSyncPolicy
from beanstalk_twisted.storage.io_thread import Clock

T = TypeVar("T")

SPACE_RETRY_S: Final = 1.0
"""From one try on a full disk to the next: soon for a person, seldom for the disk."""

IDLE_FLUSH_S: Final = 0.05
"""How long relaxed records wait for others, and a commit for its sync mark: no more than 20 writes
a second for them alone, and soon enough before a long silence.
"""

MAX_RELAXED_BYTES: Final = 16_000
"""Bytes of relaxed records, 200 of them, above which the price of a write is a small part."""

MAX_UNACKNOWLEDGED_BYTES: Final = 8 << 20
"""Bytes appended and not yet acknowledgeable above which connections that wait for replies are not
read: some tens of milliseconds of a disk's time.
"""

LARGE_BYTES: Final = 4 << 20
"""Bytes of a batch that begins in a turn of its own: a frame of 16 MiB takes 10 to 20 ms."""

LEAST_SLOW_NS: Final = 1_000_000
"""Nanoseconds below which a write or sync is not slow, however long replies have waited: not for
the disk, but for a thread, on a busy machine.
"""

IDLE: Final = -1
"""In place of a time, ns: the disk has nothing to do."""


class Space:
    """Keeps as much space allocated as the queue wants, and tries a full disk again."""

    def __init__(
        self, budget: SpaceBudget, clock: Clock, events: CommitEvents, again: Callable[[], None]
    ) -> None:
        """:param again: called when a disk that was full is to be tried again."""
        self.budget = budget
        self._events = events
        self._clock = clock
        self._again = again
        self._pause: IDelayedCall | None = None

    def wanted(self) -> PreallocatedSegment | None:
        """Return the segment to allocate now, if one is wanted."""
        return None if self._pause is not None else self.budget.wanted(self._events.demand())

    def next(self, is_ending: bool) -> PreallocatedSegment | None:
        """As `wanted`, but none if the log is to end.  Without one a disk that was full may be
        asked for something else, and there may be room for who waits for it, since a segment has
        begun.
        """
        demand = self._events.demand()
        is_asked = self._pause is None and not is_ending
        segment = self.budget.wanted(demand) if is_asked else None
        if segment is None and (demand.waiting or (self.budget.is_short and self._pause is None)):
            self.was_given()
        return segment

    def was_given(self) -> None:
        """A disk that was full no longer is when it has given all that is wanted, not before: else
        each segment that compaction frees would be news.
        """
        budget = self.budget
        if not budget.is_short or budget.wanted(self._events.demand()) is None:
            budget.is_short = False
            self._events.space_changed(None)

    def was_refused(self, failure: Failure) -> None:
        """The disk is full: the next try is a second from now, also if another one was planned."""
        self.budget.is_short = True
        self.stop()
        self._pause = self._clock.callLater(SPACE_RETRY_S, self._end_pause)
        self._events.space_changed(failure)

    def try_now(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._end_pause()

    def stop(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None

    def _end_pause(self) -> None:
        self._pause = None
        self._again()


class GroupCommit:
    """Takes a log's batches to disk, one at a time, and decides which replies may be sent.

    A batch is handed over at the end of the turn that began it, or when the disk has done the one
    before, so it holds what all connections did meanwhile.  Relaxed records alone, which no reply
    waits for, are written with the next batch or after `IDLE_FLUSH_S`, and synced with the next or
    after `FsyncPolicy.latest_s`.

    Differs from beanstalkd: by default a reply waits for the disk, and an interval is a bound
    because a timer keeps it; there, a sync happens only when something more is written.

    Every failure here ends the server, except `NoSpace`: see `fail_stop`.  Public methods are not
    marked with it, since their callers are.

    :ivar acknowledgeable_lsn: replies that wait for this LSN or a lower one may be sent: with
        ``always`` what is durable, else what is written; with a replica, no more than it has.
    """

    def __init__(
        self, log: Log, writer: Writer, environment: Environment, policy: FsyncPolicy,
        events: CommitEvents, shortcut: InlineSyncPolicy | None = None, slow_ns: int = 1 << 62,
        replica: Replica | None = None,
    ) -> None:  # fmt: skip
        """:param shortcut: None has all done by the I/O thread that may take long.
        :param slow_ns: how long replies may wait for the disk before that is told, ns.
        :param replica: has all of the log that was written before; what both have may be told.
        """
        self.acknowledgeable_lsn = log.last_lsn
        self.replica = replica
        self.space = Space(log.budget, environment.reactor, events, self._try_again)
        if replica is not None:
            replica.changed = self.replicated
        self._durable_calls: list[tuple[int, Callable[[], None]]] = []
        self._synced_calls: list[tuple[int, Callable[[], None]]] = []
        self._log = log
        self._writer = writer
        self._events = events
        self._path = environment.directory.path
        self._io = environment.io
        self._reactor = environment.reactor
        self._now_ns = environment.clock.now_ns
        self._policy = policy
        self._is_always = policy.is_always
        self.figures = CommitFigures(log.last_lsn, policy.interval_s)
        self._fail_stop = environment.failed
        self._written_lsn = log.last_lsn
        self._marked_lsn = log.durable_lsn
        self._inline_sync = InlineSyncPolicy(0) if shortcut is None else shortcut
        self._is_busy = self._is_flushing = self._is_again = self._may_shorten = False
        self._wants_write = self._wants_sync = False
        self._in_flight_bytes = 0
        self._slow_ns = slow_ns
        # When the disk was given its newest work, and when those began to wait who wait for it.
        self._taken_ns = IDLE
        self._waits_from_ns = self._took_ns = self._ended_ns = 0
        self._refused: tuple[Batch, bool] | None = None
        self._turn: IDelayedCall | None = None
        self._interval: IDelayedCall | None = None
        self._idle_flush: IDelayedCall | None = None
        self._finished: Deferred[None] | None = None

    @property
    def is_congested(self) -> bool:
        """Whether more waits for the disk, or the replica, than should."""
        return self.unacknowledged_bytes > MAX_UNACKNOWLEDGED_BYTES

    @property
    def unacknowledged_bytes(self) -> int:
        under_way = self._in_flight_bytes
        if self.replica is not None:
            under_way = max(under_way, self.replica.waiting_bytes)
        return under_way + self._log.open_bytes

    def schedule(self) -> None:
        """Records may have been appended: take them to disk when the reactor comes round next."""
        if self._turn is not None or self._is_busy:
            return
        if self._is_due or self._wants_sync or self.space.wanted() is not None:
            self._turn = self._reactor.callLater(0, self._end_turn)
        else:
            self._arm_idle_flush()

    def end_turn(self) -> None:
        """The turn is over for all connections: begin writing, unless `schedule` has planned it."""
        if self._turn is None:
            self._flush()

    def when_durable(self, lsn: int, call: Callable[[], None]) -> None:
        """Sync soon, whatever the policy; call when all up to ``lsn`` is durable and replicated."""
        self._durable_calls.append((lsn, call))
        self._wants_sync = True
        self.schedule()

    def sync(self, call: Callable[[], None]) -> None:
        """Sync now, even if nothing was appended; call when it ends, whatever the replica has."""
        self._synced_calls.append((self._log.last_lsn, call))
        self._wants_sync = True
        self._flush()

    def finish(self) -> "Deferred[None]":
        """Sync all that was appended, then end the log in order; fires when that is durable."""
        self._cancel_calls()
        finished = self._finished = Deferred()
        self._flush()
        self.space.try_now()
        return finished

    def _end_log(self) -> None:
        batch = self._log.finish(self._now_ns())
        if self.replica is not None:
            self.replica.publish(batch)
        end = partial(self._writer.end, batch, self._log.budget.leave())
        self._run(end, self._ended).addErrback(self._fail_stop)

    def _ended(self, ignored: None) -> None:
        self._writer.close()
        self._io.stop()
        finished, self._finished = self._finished, None
        assert finished is not None
        finished.callback(None)

    def abandon(self) -> "Deferred[None]":
        """Write and acknowledge nothing more: the server is fenced.

        :return: fires when the I/O thread has done what it had begun, and the files are closed.
        """
        self._cancel_calls()
        self.space.stop()
        return self._io.run(self._writer.close).addBoth(lambda _: self._io.stop())

    def _cancel_calls(self) -> None:
        for call in (self._turn, self._interval, self._idle_flush):
            if call is not None and call.active():
                call.cancel()
        self._turn = self._interval = self._idle_flush = None

    @fail_stop
    def replicated(self) -> None:
        """The replica has more of the log, or replies may leave again."""
        if not self._fail_stop.has_failed:
            self._acknowledge()
            self._events.acknowledge()
            self._call_durable()
            self.schedule()

    @fail_stop
    def _end_turn(self) -> None:
        self._turn = None
        self._flush()

    @property
    def _is_due(self) -> bool:
        log = self._log
        if log.is_waited_for or log.open_bytes > MAX_RELAXED_BYTES:
            return True
        wants_all = self._wants_write or self._wants_sync or self._finished is not None
        return wants_all and log.has_open

    def _flush(self) -> None:
        """Give the disk its next work, if there is any.  Replies that are released here may set off
        commands; this loop takes what they append, not a recursion.
        """
        self._is_again = True
        if self._is_flushing:
            return
        self._is_flushing = self._may_shorten = True
        try:
            while self._is_again:
                self._is_again = False
                self._begin_next()
        finally:
            self._is_flushing = self._may_shorten = False

    def _begin_next(self) -> None:
        if self._fail_stop.has_failed or self._is_busy:
            return
        if self._log.budget.stale:
            discard = partial(self._writer.discard, self._log.budget.take_stale())
            self._run(discard, lambda _: self._advance()).addErrback(self._fail_stop)
            return
        segment = self.space.next(is_ending=self._finished is not None)
        if segment is not None and self._may_prepare(segment):
            self._taken_ns = self._now_ns()
            running = self._run(partial(self._writer.prepare, segment), self._prepared, segment)
            running.addErrback(self._not_prepared).addErrback(self._fail_stop)
        elif self._is_due:
            self._take()
        elif self._finished is not None:
            self._end_log()
        elif self._wants_sync:
            self._run_sync()
        else:
            self._arm_idle_flush()

    def _run(
        self, work: Callable[[], T], done: Callable[..., None], *args: object
    ) -> "Deferred[None]":
        """Have the I/O thread do what may take long."""
        self._is_busy = True
        return self._io.run(work).addCallback(done, *args)

    # A batch, from the log to the replies.

    def _take(self) -> None:
        self._events.before_batch()
        now_ns = self._now_ns()
        batch = self._log.take(now_ns)
        assert batch is not None
        # Behind another batch its records may be as old as that.
        self._waits_from_ns = now_ns if self._taken_ns == IDLE else self._taken_ns
        self._taken_ns = now_ns
        self.figures.began(batch.last_lsn, now_ns)
        is_promised = self._is_always and batch.commits
        sync = is_promised or self._wants_sync or self._finished is not None
        self._wants_write = self._wants_sync = False
        if self.replica is not None:
            # First, and once, however often the disk has no space for it.
            self.replica.publish(batch)
        self._write(batch, sync)

    def _write(self, batch: Batch, sync: bool) -> None:
        """Write a batch that one client waits for in this thread while the disk is quick
        (`InlineSyncPolicy`); the second of a turn goes to the I/O thread, so that others have their
        turn.
        """
        self._in_flight_bytes = batch.end - batch.offset
        work = partial(self._timed, partial(self._writer.write, batch, sync))
        may_shorten, self._may_shorten = self._may_shorten, False
        if (
            may_shorten
            and self._is_always
            and self._events.count_waiting() == 1
            and self._io.is_free
            and not batch.syncs
            and self._in_flight_bytes <= MAX_BATCH_BYTES
            and self._finished is None
            and self._inline_sync.take(self._now_ns())
        ):
            running = self._write_here(work, batch)
        elif sync or batch.syncs or self._is_always:
            running = self._run(work, self._written, batch)
        else:
            # Nothing here syncs, and replies do not wait for syncs: this need not be long.
            self._is_busy = True
            running = self._io.run_brief(work).addCallback(self._written, batch)
        if running is not None:
            running.addErrback(self._not_written, batch, sync).addErrback(self._fail_stop)

    def _write_here(self, work: Callable[[], bool], batch: Batch) -> "Deferred[None] | None":
        """:return: has failed, if that has."""
        self._is_busy = True
        try:
            self._written(self._io.call(work), batch, is_here=True)
        except Exception:
            return fail()
        return None

    def _timed(self, work: Callable[[], T]) -> T:
        began_ns = self._now_ns()
        done = work()
        self._ended_ns = self._now_ns()
        self._took_ns = self._ended_ns - began_ns
        return done

    def _written(self, is_durable: bool, batch: Batch, is_here: bool = False) -> None:
        self._in_flight_bytes = 0
        self._written_lsn = batch.last_lsn
        if self._refused is not None:
            self._refused = None
            self.space.was_given()
        if is_durable:
            self._log.durable(batch.last_lsn)
        self._let_go()
        if not batch.syncs:
            learn = self._inline_sync.note_sync if is_durable else self._inline_sync.note_write
            learn(self._ended_ns, self._took_ns)
        if is_durable:
            self.figures.synced(batch.last_lsn, self._took_ns)
        self._advance(is_here)
        if not is_durable:
            self._arm_interval()

    def _let_go(self) -> None:
        """Let replies go.  What else follows a commit comes later: by then their readers have
        them.
        """
        waited_ns = self._ended_ns - self._waits_from_ns
        if waited_ns > self._slow_ns and self._took_ns >= LEAST_SLOW_NS:
            self._events.slow(SlowSync(waited_ns, self._took_ns, self._events.count_waiting()))
        if not self._fail_stop.has_failed and self._acknowledge():
            self._events.acknowledge()

    def _acknowledge(self) -> bool:
        """:return: whether more may be told to clients."""
        lsn = self._log.durable_lsn if self._is_always else self._written_lsn
        if self.replica is not None:
            lsn = min(lsn, self.replica.acknowledged_lsn)
        grows = lsn > self.acknowledgeable_lsn
        if grows:
            self.acknowledgeable_lsn = lsn
        return grows

    def _advance(self, is_here: bool = False) -> None:
        """The disk has nothing to do: give it the next batch.

        :param is_here: done in this thread, just after `space` wanted nothing.
        """
        self._is_busy = False
        if self._fail_stop.has_failed:
            return
        self._call_durable()
        log = self._log
        has_next = not is_here or self._is_due or log.budget.is_short or self._wants_sync
        if log.open_bytes > LARGE_BYTES:
            # What was given room just now has kept others waiting already.
            self.schedule()
        elif has_next or self._finished is not None:
            self._flush()
        else:
            self._arm_idle_flush()
        if not self._is_busy:
            self._taken_ns = IDLE
        self._events.advanced()

    def _call_durable(self) -> None:
        lsn = self._log.durable_lsn
        while self._synced_calls and self._synced_calls[0][0] <= lsn:
            self._synced_calls.pop(0)[1]()
        if self.replica is not None:
            lsn = min(lsn, self.replica.acknowledged_lsn)
        while self._durable_calls and self._durable_calls[0][0] <= lsn:
            self._durable_calls.pop(0)[1]()

    # Space.

    def _may_prepare(self, segment: PreallocatedSegment) -> bool:
        """At the limit on the log's bytes it is as on a full disk, but for what must be written."""
        log = self._log
        if log.may_allocate(segment.size):
            return True
        problem = NoSpace(
            f"binlog {self._path}: --max-log-bytes is {log.most_bytes}, and its files have "
            f"{log.allocated_bytes}: new jobs are refused until some are deleted; nothing was lost."
        )
        self.space.was_refused(Failure(problem))
        return False

    def _prepared(self, ignored: None, segment: PreallocatedSegment) -> None:
        self.space.budget.add(segment)
        self.space.was_given()
        self._advance()

    def _not_prepared(self, failure: Failure) -> None:
        failure.trap(NoSpace)
        self.space.was_refused(failure)
        self._advance()

    def _not_written(self, failure: Failure, batch: Batch, sync: bool) -> None:
        """Nothing is wrong but the space: the same batch again, later."""
        failure.trap(NoSpace)
        self._refused = batch, sync
        self.space.was_refused(failure)
        self._events.advanced()

    @fail_stop
    def _try_again(self) -> None:
        if self._refused is not None:
            self._write(*self._refused)
        else:
            self._flush()

    # What no batch brings: the sync after an interval, and the idle flush.

    def _arm_interval(self) -> None:
        """Have what was written synced; a sync mark is nothing that has to be durable."""
        latest_s = self._policy.latest_s
        if latest_s is None or self._log.durable_lsn >= self._written_lsn:
            return
        if self._interval is None and self._finished is None:
            self._interval = self._reactor.callLater(latest_s, self._sync_due)

    @fail_stop
    def _sync_due(self) -> None:
        self._interval = None
        if self._log.durable_lsn < self._written_lsn:
            self._wants_sync = True
            if not self._is_busy:
                self._run_sync()

    def _run_sync(self) -> None:
        self._wants_sync = False
        self._taken_ns = self._waits_from_ns = self._now_ns()
        sync = partial(self._timed, self._writer.sync)
        self._run(sync, self._synced, self._written_lsn).addErrback(self._fail_stop)

    def _synced(self, ignored: None, lsn: int) -> None:
        self._log.durable(lsn)
        self._let_go()
        self.figures.synced(lsn, self._took_ns)
        self._advance()

    def _arm_idle_flush(self) -> None:
        is_free = self._idle_flush is None and self._finished is None
        if is_free and (self._needs_mark or self._log.has_open):
            self._idle_flush = self._reactor.callLater(IDLE_FLUSH_S, self._end_idle_flush)

    @property
    def _needs_mark(self) -> bool:
        """Whether something is durable that the log does not say yet; any frame that is written now
        says it.  On a full disk every byte is for changes.
        """
        return self._log.durable_lsn > self._marked_lsn and not self._log.budget.is_short

    @fail_stop
    def _end_idle_flush(self) -> None:
        self._idle_flush = None
        self._wants_write = self._log.has_open
        if self._is_busy or not (self._wants_write or self._needs_mark):
            return
        self._marked_lsn = self._log.durable_lsn
        if self._wants_write:
            self._flush()
        else:
            self._waits_from_ns = self._taken_ns = self._now_ns()
            mark = self._log.mark()
            if self.replica is not None:
                self.replica.publish(mark)
            self._write(mark, sync=False)
