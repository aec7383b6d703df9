"""Group commit: when records go to disk, and when replies may go out."""

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar, cast

from twisted.internet.defer import Deferred, fail
from twisted.python.failure import Failure

from beanstalk_twisted.binlog.batches import Batch
from beanstalk_twisted.binlog.errors import NoSpace
from beanstalk_twisted.binlog.log import Log
from beanstalk_twisted.binlog.space_budget import PreallocatedSegment
from beanstalk_twisted.binlog.writer import Writer
from beanstalk_twisted.storage.commit_states import (
    ABANDONED,
    END,
    IDLE,
    NO_SPACE,
    NOTHING,
    SYNC,
    TRANSITIONS,
    WRITE,
    Space,
)
from beanstalk_twisted.storage.environment import (
    CommitEvents,
    CommitFigures,
    Environment,
    Replica,
    SlowSync,
)
from beanstalk_twisted.storage.fail_stop import fail_stop
from beanstalk_twisted.storage.fsync import MAX_BATCH_BYTES, FsyncPolicy, InlineSyncPolicy
from beanstalk_twisted.storage.io_thread import Timer

T = TypeVar("T")

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

NEVER: Final = -1
"""In place of a time, ns: the disk has had nothing to do."""


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

    :ivar state: one of `commit_states.TRANSITIONS`.
    :ivar wanted: what the disk is asked for besides batches that replies wait for: the highest of
        `NOTHING` to `END` that was asked.
    :ivar acknowledgeable_lsn: replies that wait for this LSN or a lower one may be sent: with
        ``always`` what is durable, else what is written; with a replica, no more than it has.
    """

    def __init__(
        self, log: Log, writer: Writer, environment: Environment, policy: FsyncPolicy,
        events: CommitEvents, inline_sync: InlineSyncPolicy | None = None, slow_ns: int = 1 << 62,
        replica: Replica | None = None,
    ) -> None:  # fmt: skip
        """:param inline_sync: None has all done by the I/O thread that may take long.
        :param slow_ns: how long replies may wait for the disk before that is told, ns.
        :param replica: has all of the log that was written before; what both have may be told.
        """
        self.state, self.wanted = IDLE, NOTHING
        self.acknowledgeable_lsn = log.last_lsn
        self.replica = replica
        self.space = Space(log.budget, environment.reactor, events, self._try_again)
        if replica is not None:
            replica.changed = self.replicated
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
        self.fail_stop = environment.fail_stop
        self._written_lsn = log.last_lsn
        self._marked_lsn = log.durable_lsn
        self._inline_sync = InlineSyncPolicy(0) if inline_sync is None else inline_sync
        self._is_in_loop = self._may_write_here = False
        # The batch under way, or refused by a full disk, and whether it is synced.
        self._batch: Batch | None = None
        self._syncs_batch = self._is_refused = False
        self._slow_ns = slow_ns
        # When the disk was given its newest work, and when those began to wait who wait for it.
        self._taken_ns = NEVER
        self._waits_from_ns = self._took_ns = self._ended_ns = 0
        self._turn: Timer | None = None
        self._interval: Timer | None = None
        self._idle_flush: Timer | None = None
        self._durable_calls: list[tuple[int, Callable[[], None]]] = []
        self._next_sync_calls: list[Callable[[], None]] = []
        self._this_sync_calls: list[Callable[[], None]] = []
        self._finished: Deferred[None] = Deferred()

    @property
    def is_congested(self) -> bool:
        """Whether more waits for the disk, or the replica, than should."""
        return self.unacknowledged_bytes > MAX_UNACKNOWLEDGED_BYTES

    @property
    def unacknowledged_bytes(self) -> int:
        batch = self._batch
        under_way = 0 if batch is None else batch.end - batch.offset
        if self.replica is not None:
            under_way = max(under_way, self.replica.waiting_bytes)
        return under_way + self._log.open_bytes

    # What is asked for.

    def schedule(self) -> None:
        """Records may have been appended: take them to disk when the reactor comes round next."""
        if self.state != IDLE or self._turn is not None:
            return
        if self._is_due or self.wanted or self.space.wanted() is not None:
            self._turn = cast("Timer", self._reactor.callLater(0, self._end_turn))
        else:
            self._arm_idle_flush()

    def when_durable(self, lsn: int, call: Callable[[], None]) -> None:
        """Sync soon, whatever the policy; call when all up to ``lsn`` is durable and replicated."""
        self._durable_calls.append((lsn, call))
        self.wanted = max(self.wanted, SYNC)
        self.schedule()

    def sync(self, call: Callable[[], None]) -> None:
        """Sync now, even if nothing was appended; call when a sync that begins after this has
        ended, whatever the replica has.
        """
        self._next_sync_calls.append(call)
        self.wanted = max(self.wanted, SYNC)
        self.flush()

    def finish(self) -> "Deferred[None]":
        """Sync all that was appended, then end the log in order; fires when that is durable."""
        self._cancel_calls()
        self.wanted = END
        self.flush()
        self.space.try_now()
        return self._finished

    def abandon(self) -> "Deferred[None]":
        """Write and acknowledge nothing more: the server is fenced.

        :return: fires when the I/O thread has done what it had begun, and the files are closed.
        """
        self.state = TRANSITIONS[self.state]["abandon"]
        self._cancel_calls()
        self.space.stop()
        return self._io.run(self._writer.close).addBoth(lambda _: self._io.stop())

    def _cancel_calls(self) -> None:
        for call in (self._turn, self._interval, self._idle_flush):
            if call is not None and call.active():
                call.cancel()
        self._turn = self._interval = self._idle_flush = None

    @fail_stop
    def _end_turn(self) -> None:
        self._turn = None
        self.flush()

    # What comes next.

    def flush(self) -> None:
        """The turn is over for all connections: give the disk its next work, and when that is done
        at once, the next, until some is under way, nothing is left, or a turn is planned.  Replies
        that are released here may set off commands; this loop takes what they append, not a
        recursion.
        """
        if self._is_in_loop:
            return
        self._is_in_loop = self._may_write_here = True
        while self.state == IDLE and self._turn is None and self._begin():
            pass
        self._is_in_loop = self._may_write_here = False
        if self.state == IDLE:
            self._taken_ns = NEVER
            if self._turn is None and self._idle_flush is None:
                self._arm_idle_flush()

    def _begin(self) -> bool:
        """:return: whether there may be more to do, if this is done already."""
        log = self._log
        if self.fail_stop.has_failed or self._is_deferred:
            # Space is not looked for either: that it was found would plan the next turn.
            return False
        budget = log.budget
        if budget.stale:
            self.state = TRANSITIONS[self.state]["prepare"]
            discard = partial(self._writer.discard, budget.take_stale())
            self._run(discard, lambda _: self._done())
            return True
        segment = None
        if budget.is_short or budget.rest <= budget.ample:
            segment = self.space.next(is_ending=self.wanted == END)
        if segment is not None and self._may_prepare(segment):
            self.state = TRANSITIONS[self.state]["prepare"]
            self._taken_ns = self._now_ns()
            running = self._io.run(partial(self._writer.prepare, segment))
            running.addCallback(self._prepared, segment).addErrback(self._not_prepared)
            running.addErrback(self.fail_stop)
            return True
        if log.is_waited_for or self._is_due:
            return self._take()
        if self.wanted == END:
            self._end_log()
        elif self.wanted == SYNC:
            self._sync()
        return self.state != IDLE

    @property
    def _is_deferred(self) -> bool:
        replica, log = self.replica, self._log
        if replica is None or self.wanted > NOTHING or not self._is_due:
            return False
        return replica.defers(log.last_lsn, log.open_bytes)

    @property
    def _is_due(self) -> bool:
        log = self._log
        if log.is_waited_for or log.open_bytes > MAX_RELAXED_BYTES:
            return True
        return self.wanted > NOTHING and log.has_open

    def _run(self, work: Callable[[], T], done: Callable[..., None], *args: object) -> None:
        """Have the I/O thread do what may take long, and may not fail."""
        self._io.run(work).addCallback(done, *args).addErrback(self.fail_stop)

    def _done(self) -> None:
        """The disk has nothing to do: give it what is next."""
        # As `_is_over`, without a call.
        if self.fail_stop.has_failed or self.state == ABANDONED:
            return
        if self._durable_calls:
            self._call_durable()
        self.state = TRANSITIONS[self.state]["done"]
        if self._log.open_bytes > LARGE_BYTES:
            # What was given room just now has kept others waiting already.
            self.schedule()
        if not self._is_in_loop:
            self.flush()
        self._events.advanced()

    @property
    def _is_over(self) -> bool:
        return self.fail_stop.has_failed or self.state == ABANDONED

    # A batch, from the log to the replies.

    def _take(self) -> bool:
        now_ns = self._now_ns()
        self._events.before_batch(now_ns)
        batch = self._log.take(now_ns)
        assert batch is not None
        self.state = TRANSITIONS[self.state]["write"]
        # Behind another batch its records may be as old as that.
        self._waits_from_ns = now_ns if self._taken_ns == NEVER else self._taken_ns
        self._taken_ns = now_ns
        self.figures.began(batch.last_lsn, now_ns)
        sync = self.wanted >= SYNC or (self._is_always and batch.commits)
        if self.wanted:
            self._begin_sync()
        if self.replica is not None:
            # First, and once, however often the disk has no space for it.
            self.replica.publish(batch)
        return self._write(batch, sync, now_ns)

    def _begin_sync(self) -> None:
        """What is written next has all that is wanted, but the end."""
        self._this_sync_calls += self._next_sync_calls
        self._next_sync_calls = []
        self.wanted = END if self.wanted == END else NOTHING

    def _write(self, batch: Batch, sync: bool, now_ns: int) -> bool:
        """Write a batch in this thread while the disk is quick (`InlineSyncPolicy`): to hand it to
        another and back costs more than such a sync, and much more than a write.  The second of a
        turn goes to the I/O thread, so that others have their turn.

        :return: as `_begin`.
        """
        self._batch, self._syncs_batch = batch, sync
        may_write_here, self._may_write_here = self._may_write_here, False
        # Where replies wait for syncs, what none waits for is synced by the other thread.
        is_brief = not sync
        if self._is_always:
            is_brief = batch.commits and sum(map(len, batch.chunks)) <= MAX_BATCH_BYTES
        if (
            may_write_here
            and is_brief
            and batch.file is None
            and not batch.seals
            and self._io.is_free
            and self.wanted != END
            and self._inline_sync.take(now_ns, syncs=sync)
        ):
            running = self._write_here()
            if running is None:
                # `_begin` has just asked whether space is wanted.
                return self._log.has_open or self.wanted > NOTHING or self._log.budget.is_short
        else:
            running = self._io.run(self._write_batch).addCallback(self._written)
        running.addErrback(self._not_written).addErrback(self.fail_stop)
        return True

    def _write_here(self) -> "Deferred[None] | None":
        """:return: has failed, if that has."""
        try:
            self._written(self._io.call(self._write_batch))
        except Exception:
            return fail()
        return None

    def _write_batch(self) -> bool:
        """Write the batch, in whatever thread; return whether it is durable."""
        assert self._batch is not None
        began_ns = self._now_ns()
        is_durable = self._writer.write(self._batch, self._syncs_batch)
        self._ended_ns = ended_ns = self._now_ns()
        self._took_ns = ended_ns - began_ns
        return is_durable

    def _written(self, is_durable: bool) -> None:
        batch, self._batch = self._batch, None
        assert batch is not None
        self._written_lsn = lsn = batch.last_lsn
        if self._is_refused:
            self._is_refused = False
            self.space.was_given()
        if is_durable:
            self._log.durable(lsn)
        self._let_go()
        if batch.file is None and not batch.seals:
            self._inline_sync.note(self._ended_ns, self._took_ns, syncs=is_durable)
        if is_durable:
            self.figures.synced(lsn, self._took_ns)
            if self._this_sync_calls:
                self._call_synced()
        else:
            self._arm_interval()
        self._done()

    def _let_go(self) -> None:
        """Let replies go.  What else follows a commit comes later: by then their readers have
        them.
        """
        waited_ns = self._ended_ns - self._waits_from_ns
        if waited_ns > self._slow_ns and self._took_ns >= LEAST_SLOW_NS:
            self._events.slow(SlowSync(waited_ns, self._took_ns, self._events.count_waiting()))
        if self._acknowledge():
            self._events.acknowledge()

    def _acknowledge(self) -> bool:
        """:return: whether more may be told to clients."""
        if self.fail_stop.has_failed or self.state == ABANDONED:
            return False
        lsn = self._log.durable_lsn if self._is_always else self._written_lsn
        if self.replica is not None:
            lsn = min(lsn, self.replica.acknowledged_lsn)
        grows = lsn > self.acknowledgeable_lsn
        if grows:
            self.acknowledgeable_lsn = lsn
        return grows

    @fail_stop
    def replicated(self) -> None:
        """The replica has more of the log, or replies may leave again."""
        if not self._is_over:
            self._acknowledge()
            self._events.acknowledge()
            self._call_durable()
            self.schedule()

    def _call_durable(self) -> None:
        lsn = self._log.durable_lsn
        if self.replica is not None:
            lsn = min(lsn, self.replica.acknowledged_lsn)
        while self._durable_calls and self._durable_calls[0][0] <= lsn:
            self._durable_calls.pop(0)[1]()

    # A disk without space.

    def _not_written(self, failure: Failure) -> None:
        """Nothing is wrong but the space: the same batch again, later."""
        failure.trap(NoSpace)
        if not self._is_over:
            self._is_refused = True
            self.state = TRANSITIONS[self.state]["refused"]
            self.space.was_refused(failure)
            self._events.advanced()

    @fail_stop
    def _try_again(self) -> None:
        if self._batch is not None and self.state == NO_SPACE:
            self.state = TRANSITIONS[self.state]["retry"]
            self._write(self._batch, self._syncs_batch, self._now_ns())
        else:
            self.flush()

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
        if not self._is_over:
            self.space.budget.add(segment)
            self.space.was_given()
            self._done()

    def _not_prepared(self, failure: Failure) -> None:
        failure.trap(NoSpace)
        if not self._is_over:
            self.space.was_refused(failure)
            self._done()

    # What no batch brings: the sync after an interval, the idle flush, and the end.

    def _arm_interval(self) -> None:
        """Have what was written synced; a sync mark is nothing that has to be durable."""
        latest_s = self._policy.latest_s
        if latest_s is None or self._log.durable_lsn >= self._written_lsn:
            return
        if self._interval is None and self.wanted != END:
            self._interval = cast("Timer", self._reactor.callLater(latest_s, self._sync_due))

    @fail_stop
    def _sync_due(self) -> None:
        self._interval = None
        if self._log.durable_lsn < self._written_lsn:
            self.wanted = max(self.wanted, SYNC)
            self.flush()

    def _sync(self) -> None:
        self.state = TRANSITIONS[self.state]["sync"]
        self._begin_sync()
        self._taken_ns = self._waits_from_ns = self._now_ns()
        self._run(self._sync_file, self._synced, self._written_lsn)

    def _sync_file(self) -> None:
        began_ns = self._now_ns()
        self._writer.sync()
        self._ended_ns = ended_ns = self._now_ns()
        self._took_ns = ended_ns - began_ns

    def _synced(self, ignored: None, lsn: int) -> None:
        self._log.durable(lsn)
        self._let_go()
        self.figures.synced(lsn, self._took_ns)
        self._call_synced()
        self._done()

    def _call_synced(self) -> None:
        if not self._is_over:
            calls, self._this_sync_calls = self._this_sync_calls, []
            for call in calls:
                call()

    def _arm_idle_flush(self) -> None:
        is_free = self._idle_flush is None and self.wanted != END
        if is_free and (self._needs_mark or self._log.has_open):
            call = self._reactor.callLater(IDLE_FLUSH_S, self._end_idle_flush)
            self._idle_flush = cast("Timer", call)

    @property
    def _needs_mark(self) -> bool:
        """Whether something is durable that the log does not say yet; any frame that is written now
        says it.  On a full disk every byte is for changes.
        """
        return self._log.durable_lsn > self._marked_lsn and not self._log.budget.is_short

    @fail_stop
    def _end_idle_flush(self) -> None:
        self._idle_flush = None
        if self._log.has_open:
            self._marked_lsn = self._log.durable_lsn
            self.wanted = max(self.wanted, WRITE)
            self.flush()
        elif self.state == IDLE and self._needs_mark:
            self._marked_lsn = self._log.durable_lsn
            self.state = TRANSITIONS[self.state]["write"]
            now_ns = self._waits_from_ns = self._taken_ns = self._now_ns()
            mark = self._log.mark()
            if self.replica is not None:
                self.replica.publish(mark)
            self._write(mark, False, now_ns)

    def _end_log(self) -> None:
        self.state = TRANSITIONS[self.state]["end"]
        batch = self._log.finish(self._now_ns())
        if self.replica is not None:
            self.replica.publish(batch)
        self._run(partial(self._writer.end, batch, self._log.budget.leave()), self._ended)

    def _ended(self, ignored: None) -> None:
        if self._is_over:
            return
        self.state = TRANSITIONS[self.state]["done"]
        self._writer.close()
        self._io.stop()
        self._finished.callback(None)
