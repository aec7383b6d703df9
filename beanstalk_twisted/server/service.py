"""The shell around the queue: clock, log and connections; start, drain, stop."""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, cast

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, ensureDeferred
from twisted.internet.protocol import Factory
from twisted.logger import Logger
from twisted.python.failure import Failure

from beanstalk_twisted.access.rules import AccessRules
from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.binlog.errors import BinlogError
from beanstalk_twisted.binlog.reading.replay import Replay
from beanstalk_twisted.binlog.reading.survey import Segment
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.rules.policy_keys import DeclaredPolicies
from beanstalk_twisted.rules.reservations import Answer
from beanstalk_twisted.rules.workqueue import WorkQueue
from beanstalk_twisted.server.access_control import AccessControl, Hashing
from beanstalk_twisted.server.anomalies import Anomalies, Handshakes
from beanstalk_twisted.server.audit import Audit, CommandLog
from beanstalk_twisted.server.connections.epoll_reader import EpollReader, HubReactor, has_place_in
from beanstalk_twisted.server.connections.protocol import BeanstalkFactory
from beanstalk_twisted.server.connections.served import ServedConnections, Sessions
from beanstalk_twisted.server.connections.turns import TurnScheduler
from beanstalk_twisted.server.execution_context import ExecutionContext
from beanstalk_twisted.server.headroom import NO_LIMIT, Headroom, MemoryLimit, can_have
from beanstalk_twisted.server.settings import Process, Settings
from beanstalk_twisted.storage.archiver import MakeArchiver
from beanstalk_twisted.storage.body_reads import BodyReads
from beanstalk_twisted.storage.clock import NS, LogClock
from beanstalk_twisted.storage.compactor import Compactor
from beanstalk_twisted.storage.environment import Environment, Replica, StoreEvents
from beanstalk_twisted.storage.fail_stop import (
    BALLAST,
    EXIT_CODE,
    FailStop,
    end_process,
    fail_stop,
    reason,
)
from beanstalk_twisted.storage.io_thread import Clock, Reactor, WatchableIo
from beanstalk_twisted.storage.opening import OpenLog, Report, begin, load
from beanstalk_twisted.storage.segment_list import SegmentFacts
from beanstalk_twisted.storage.store import LogFigures, LogStore, StartProgress, jobs_in_words
from beanstalk_twisted.storage.watchdog import WatchedIo, close_sockets
from beanstalk_twisted.wire import v1
from beanstalk_twisted.wire.commands import COUNTERS, MAX_LINE_BYTES
from beanstalk_twisted.wire.dialects import GUARDED, MODERN
from beanstalk_twisted.wire.extensions import without_secret
from beanstalk_twisted.wire.replies import INTERNAL_ERROR, OUT_OF_MEMORY

if TYPE_CHECKING:
    from beanstalk_twisted.replication.membership import Situation

SLICES_LIMIT_NS: Final = 2 * NS
"""How long a stop waits for work in slices: that of some 100,000 jobs."""

NOTHING: Final = -1
"""Below each LSN, so that even replies that wait for none are held."""

SWITCH_INTERVAL_S: Final = 0.0005
"""How soon the I/O thread gets back from a busy reactor; Python's 5 ms is a slow disk's time."""


class BeanstalkService(Service):
    """A work queue that serves connections.

    Differs from beanstalkd: a server that cannot write its log ends; there, it continues without.

    :ivar path: of the log, empty without one.
    :ivar loading: how many jobs the start has loaded, and how many seconds that took.
    :ivar access: None without an access file.
    :ivar is_released: whether a stop has ended, and nothing is held any more.
    :ivar situation: returns how replication is; None without it.
    :ivar fail_stop: ends the server, when memory and log may no longer agree.
    """

    name = "beanstalk"
    compactor: type[Compactor] = Compactor
    log = Logger()

    def __init__(
        self, settings: Settings, reactor: Clock, clock: LogClock,
        directory: Directory | None = None, io: Callable[[], WatchableIo] | None = None,
        make_archiver: MakeArchiver | None = None,
        chance: Callable[[int], bytes] = os.urandom,
    ) -> None:  # fmt: skip
        """:param directory: of the log; None keeps jobs in memory only.
        :param io: needed with a directory.
        :param chance: gives N random bytes, for what tells logs and processes apart.
        """
        self.settings = settings
        self.clock = clock
        self.now_ns = clock.now_ns
        self.has_hub = has_place_in(reactor)
        self.path = "" if directory is None else directory.path
        self.process = Process(clock, settings.segment_bytes, chance)
        self.memory = MemoryLimit(
            lambda: self.queue.state.memory_bytes, settings.limits.memory_bytes or NO_LIMIT
        )
        self._headroom = Headroom(limit=self.memory)
        self._sessions = Sessions()
        self._anomalies = Anomalies(reactor, self._sessions.peer, self.memory)
        self._headroom.changed = self._anomalies.note_memory
        self.memory.changed = self._anomalies.note_limit
        self.queue = WorkQueue(self.process.facts, COUNTERS, settings.max_job_bytes, self._headroom)
        self.queue.state.unique.most = settings.max_keys
        self.queue.state.jobs.keeps_places = settings.body_cache is not None
        room = self.queue.state.bodies.room
        room.limit(self.memory.most_bytes, lambda: max(0, -self.memory.room(0)))
        room.has_memory = can_have
        self.queue.puts.draining_changed = self._tell_of_draining
        self.queue.connections.facts = self._sessions.facts
        self.queue.tell_wall_clock(clock.wall_offset_ns)
        self.fail_stop = FailStop(self._end_process, is_armed=False)
        self.context = ExecutionContext(self.queue, clock, self._answer_failure)
        self.context.wrong = self._anomalies.note_wrong
        self.context.http_came = self._anomalies.note_http
        self.context.slow, self.context.slow_ns = self._anomalies.note_slow, settings.slow_ns
        self.audit = Audit(reactor, self.context, self._sessions.peer, self._sessions.identity)
        self.audit.watch(MODERN.rows)
        if settings.verbosity > 1:
            self.context.observer = CommandLog()
        self.turns = TurnScheduler(
            reactor, self.context, self._sessions.connections, self.fail_stop
        )
        self.context.deliver = self.turns.deliver
        self.connections = ServedConnections(
            self._sessions, self.context, self.turns, settings, reactor, self._headroom,
            self._anomalies, self.fail_stop,
        )  # fmt: skip
        self.connections.ended = self._session_ended
        self._modern = BeanstalkFactory(self.connections)
        self.factory: Factory = self._modern
        self.factory_v1: Factory = BeanstalkFactory(self.connections, v1.DIALECT)
        self.loading = 0, 0.0
        self.access: AccessControl | None = None
        self.is_released = False
        self.situation: Callable[[], Situation | None] = lambda: None
        self._reactor = reactor
        self.handshakes = Handshakes(reactor, settings.limits.stalled_s)
        self._directory = directory
        self._io = io
        self._make_archiver = make_archiver
        self._chance = chance
        self._store: LogStore | None = None
        self._found: Replay | None = None
        self._unchecked: Sequence[Segment] = ()
        self._opened: OpenLog | None = None
        self._replica: Replica | None = None
        self._is_fenced = False

    # Start, drain, stop.

    def load(self, *reports: Report) -> None:
        """Load the queue; nothing is changed on disk.

        :raise BinlogError: the log cannot be used.
        """
        if self._directory is not None and self._opened is None:
            progress = StartProgress(self.log, reports)
            begun_ns = self.clock.uptime_ns()
            self._found = load(
                self._directory, self.queue, self.clock, progress,
                body_cache=self.settings.body_cache, verify=self.settings.verify,
            )  # fmt: skip
            self._unchecked = self._found.unchecked
            took_ns = self.clock.uptime_ns() - begun_ns
            self.loading = len(self.queue.state.jobs), took_ns / NS
            self._headroom.largest = self._found.largest_part

    def go_on_with(self, opened: OpenLog, replica: Replica) -> None:
        """Let the start find the queue loaded, and its log open: this server was a standby."""
        self._opened, self._replica = opened, replica

    def startService(self) -> None:
        """Open the log for appending, after `load` if that was not called.

        :raise BinlogError: the log cannot be used.
        """
        if self._directory is not None:
            self._open_log(self._directory)
        else:
            self.queue.policies.hold_all()
        super().startService()
        self.memory.look()
        turns = self.turns
        turns.start()
        if self.has_hub:
            reactor = cast(HubReactor, self._reactor)
            self.connections.hub = EpollReader(
                reactor, self.clock, turns.begin_turn, turns.end_turn, self.fail_stop,
                self.settings.slow_ns, busy_poll_us=self.settings.busy_poll_us,
            )  # fmt: skip

    def _open_log(self, directory: Directory) -> None:
        opened = self._opened
        if opened is None:
            if self._found is None:
                self.load()
            assert self._found is not None
            found, self._found = self._found, None
            opened = begin(
                directory, self.queue, self.clock, self.settings.segment_bytes, found,
                most_bytes=self.settings.limits.log_bytes, chance=self._chance,
            )  # fmt: skip
        assert self._io is not None
        unwatched = self._io()
        io = WatchedIo(
            unwatched, self._reactor, directory.path, self.settings.fsync_timeout_s,
            self.fail_stop, self.settings.fsync.is_always,
        )  # fmt: skip
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        for note in opened.notes:
            self.log.warn(
                "binlog {path}: {note}", event="recovery-note", path=directory.path, note=note
            )
        self.log.info(
            "binlog {path}: {loaded} loaded, segment {segment} begun", event="log-opened",
            path=directory.path, loaded=jobs_in_words(len(self.queue.state.jobs)),
            jobs=len(self.queue.state.jobs), segment=opened.log.segment,
        )  # fmt: skip
        environment = Environment(
            directory, io, unwatched, self._reactor, self.clock, self.fail_stop
        )
        events = StoreEvents(self._advance, self.turns.after_change, self.turns.count_waiting)
        self._store = LogStore(
            opened, self.queue, environment, self.settings.log, events, self.compactor,
            self._make_archiver, self._replica, self._io, self._unchecked,
        )  # fmt: skip
        BALLAST.hold()
        self.fail_stop.is_armed = True
        self._headroom.undurable = lambda: opened.log.undurable_bytes
        committer = self._store.committer
        self._headroom.unsettled = lambda: committer.unacknowledged_bytes
        self.connections.is_log_congested = lambda: committer.is_congested
        self.turns.flush, self.turns.schedule = committer.flush, committer.schedule
        self._advance()
        self._store.tell(self.process.log)
        self._store.start()

    def begin_stop(self) -> None:
        """Let connections that end from now on change nothing, as if the process was killed.
        Called in signal handlers too.
        """
        self.connections.is_stopping = True

    def stopService(self) -> "Deferred[None]":
        """Begin no new command; write what was begun to disk, answer it, close the connections."""
        was_running = self.running
        super().stopService()
        return ensureDeferred(self._stop(bool(was_running))).addErrback(self._cannot_stop)

    def fence(self) -> None:
        """Send and write nothing from here on: another server is active, or may be, and has what
        was acknowledged.  `stopService` ends the rest.
        """
        if self._is_fenced:
            return
        self._is_fenced = self.fail_stop.has_failed = True
        self.context.durability.advance(NOTHING)
        self.turns.stop()
        self.connections.abandon()

    def _cannot_stop(self, failure: Failure) -> Failure:
        if not failure.check(CancelledError):
            self.fail_stop(failure)
        return failure

    async def _stop(self, was_running: bool) -> None:
        self._anomalies.stop()
        self.handshakes.stop()
        if self.access is not None:
            self.access.stop()
        self.turns.stop()
        self.connections.stop()
        if self._store is not None:
            self._store.stop()
        if was_running and not self._is_fenced:
            self._end_slices()
        if self._store is not None:
            if was_running and self._is_fenced:
                await self._store.committer.abandon()
            elif was_running:
                await self._store.finish()
            self._store.close()
        self.connections.part()
        if was_running and self._store is not None and not self._is_fenced:
            await self._store.deliver_rest()
        self.audit.stop()
        if self.connections.hub is not None:
            self.connections.hub.close()
        if self._directory is not None:
            self._directory.close()
        self.is_released = True

    def _end_slices(self) -> None:
        """Finish work in slices, so that it is answered, within `SLICES_LIMIT_NS`."""
        ends_ns = self.clock.now_ns() + SLICES_LIMIT_NS
        while self.queue.next_due_ns() == 0 and self.clock.now_ns() < ends_ns:
            self.queue.tick(self.clock.now_ns())
        self.turns.after_change()

    def drain(self) -> None:
        self.queue.puts.set_draining(True)

    @fail_stop
    def refuse_changes(self, refuses: bool) -> None:
        """Answer OUT_OF_MEMORY to changes from now on, or take them again; connections that wait
        for a job keep waiting.
        """
        self.context.refuse_changes(refuses)
        self._headroom.close(refuses)
        if self._store is not None:
            self._store.hold_up(refuses)

    @property
    def changes_refused(self) -> int:
        return self.context.changes_refused + self._headroom.refused

    def log_figures(self) -> LogFigures | None:
        """:return: None without a log."""
        return None if self._store is None else self._store.figures()

    @property
    def body_reads(self) -> BodyReads | None:
        """What reads bodies that are in the log only; None without a log."""
        return None if self._store is None else self._store.reads

    async def log_segments(self, after: int, most: int) -> list[SegmentFacts]:
        """Return the log's segments after that number, oldest first, at most ``most``."""
        return [] if self._store is None else await self._store.segments(after, most)

    def why_not_ready(self) -> str:
        """:return: empty if jobs are taken and kept now."""
        situation = self.situation()
        if situation is not None and situation.why:
            return situation.why
        if not self.running or (self._directory is not None and self._store is None):
            return "the server starts or stops"
        if self.fail_stop.has_failed:
            return "the log has failed"
        if self.context.refuses_changes:
            return "the stream does not take the log: changes are refused"
        if self.queue.puts.is_draining:
            return "it drains: new jobs are refused"
        if self._store is not None and self._store.is_full:
            return "the disk, or what the log may have of it, is full: new jobs are refused"
        if self.memory.is_full:
            return "jobs take as much memory as they may: new jobs are refused"
        return ""

    @fail_stop
    def sync_log(self, call: Callable[[], None]) -> None:
        """Call when all that was appended is durable, and a sync that begins now has ended;
        immediately if there is no log, or it is never synced.
        """
        if self._store is None or self.settings.fsync.interval_s is None:
            call()
        else:
            self._store.committer.sync(call)

    @fail_stop
    def declare_policies(self, declared: DeclaredPolicies) -> None:
        """Apply the policies of a file, before the jobs are loaded or while the server runs."""
        if not self.running:
            self.queue.policies.declared = declared
            return
        self.queue.policies.declare(declared, self.now_ns())
        self.turns.after_change()

    @fail_stop
    def require_access(self, rules: AccessRules, hashing: Hashing) -> None:
        """Have commands ask for rights, by these rules; others may be given later, for each
        connection from its next command on.  Called first before the server serves.

        :param hashing: only the first counts.
        """
        if self.access is not None:
            self.access.change_rules(rules)
            return
        self.access = AccessControl(
            self.context, self._sessions, rules, cast(Reactor, self._reactor), hashing,
            self._anomalies, self.turns.after_change,
        )  # fmt: skip
        self._sessions.identify = self.access.guard.admissions.name_of
        self._modern.dialect = GUARDED

    def _tell_of_draining(self) -> None:
        if self.queue.puts.is_draining:
            self.log.info("draining: new jobs are refused", event="drain")
        else:
            self.log.info("draining has ended: new jobs are taken", event="undrain")

    def _session_ended(self, session: Session) -> None:
        if self.access is not None:
            self.access.forget(session)
        if self.context.late:
            self.audit.ended(session)

    def _answer_failure(self, line: bytes, has_only_looked: bool) -> Answer:
        """End the server if the command that failed may have changed something, and there is a log.

        :return: what to answer if the server continues.
        :raise BaseException: what is being handled, if it is no Exception.
        """
        error = sys.exc_info()[1]
        if not (has_only_looked and isinstance(error, Exception)):
            self.fail_stop.caught()
            if error is not None and not isinstance(error, Exception):
                raise error
        elif isinstance(error, MemoryError):
            return OUT_OF_MEMORY, 0
        self.log.failure(
            "while executing {line!r}", event="command-failed",
            line=without_secret(line)[:MAX_LINE_BYTES],
        )  # fmt: skip
        return INTERNAL_ERROR, 0

    def _advance(self) -> None:
        """Release the replies that waited for what is durable now."""
        assert self._store is not None
        self.context.durability.advance(self._store.committer.acknowledgeable_lsn)
        self.turns.send_unsent()

    # The end.

    def _end_process(self, failure: Failure) -> None:
        """End the process: it has lost its log, so no reply that waits for that may leave."""
        error = failure.value
        code = error.exit_code if isinstance(error, BinlogError) else EXIT_CODE
        end_process(code, lambda: self._say_why(failure))

    def _say_why(self, failure: Failure) -> None:
        why = reason(failure, self.context.durability.acknowledgeable_lsn)
        self.log.critical("the server ends: {why}", event="server-ends", why=why)
        if not isinstance(failure.value, BinlogError):
            self.log.failure("what the server ends of", failure, event="server-ends-of")
        if self.settings.pidfile:
            with suppress(OSError):
                os.unlink(self.settings.pidfile)
        close_sockets()
