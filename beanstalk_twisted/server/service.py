"""
The shell around the queue: clock, the one timer, log and connections; start, drain, stop.

Each call from a connection reads the clock once, lets the queue decide, and passes on the answers
it has for other connections.  When all is carried out that came in one piece, the service sees that
new records go to disk, and sets the timer for what is due next.

Differs from beanstalkd: a server that cannot write its log ends; there, it goes on without.
"""

import os
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, cast

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, ensureDeferred
from twisted.internet.interfaces import IDelayedCall, IReactorFDSet
from twisted.internet.protocol import Factory
from twisted.logger import Logger
from twisted.python.failure import Failure

from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.binlog.errors import BinlogError
from beanstalk_twisted.binlog.replay import Replay
from beanstalk_twisted.jobs.puts import Draft
from beanstalk_twisted.jobs.reservations import Answer
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.workqueue import WorkQueue
from beanstalk_twisted.server import commands_v1
from beanstalk_twisted.server.accepting import RefusalLog
from beanstalk_twisted.server.commands import COUNTERS, LOOKS, MAX_LINE_BYTES, Parsed
from beanstalk_twisted.server.epoll_reader import EpollReader, SocketSource, has_place_in
from beanstalk_twisted.server.factory import BeanstalkFactory
from beanstalk_twisted.server.headroom import Headroom
from beanstalk_twisted.server.outlet import is_plain
from beanstalk_twisted.server.pipeline import TURN_NS, Common
from beanstalk_twisted.server.process_stats import Process
from beanstalk_twisted.server.protocol import BeanstalkProtocol
from beanstalk_twisted.server.settings import Settings
from beanstalk_twisted.storage.archiver import MakeArchiver
from beanstalk_twisted.storage.clock import NS, LogClock
from beanstalk_twisted.storage.compactor import Compactor
from beanstalk_twisted.storage.fail_stop import (
    BALLAST,
    EXIT_CODE,
    FailStop,
    end_process,
    fail_stop,
    reason,
)
from beanstalk_twisted.storage.io_thread import Clock, WatchableIo
from beanstalk_twisted.storage.opening import begin, load
from beanstalk_twisted.storage.store import LogStore, StartProgress
from beanstalk_twisted.storage.watchdog import WatchedIo, close_sockets
from beanstalk_twisted.wire.replies import INTERNAL_ERROR, OUT_OF_MEMORY, Reply

SLICES_LIMIT_NS: Final = 2 * NS
"""How long a stop waits for work in slices: that of some 100,000 jobs."""

SWITCH_INTERVAL_S: Final = 0.0005
"""How soon the I/O thread gets back from a busy reactor; Python's 5 ms is a slow disk's time."""


class BeanstalkService(Service):
    """
    A work queue that serves connections.

    :ivar queue: the rules and the jobs.
    :ivar path: the log's, empty without one.
    :ivar wrapped_ended: how many connections have ended that were not plain ones (`is_plain`).
    :ivar common: what its connections have in common; ``tells_commands``: see `Shell`.
    :ivar factory: for ports; ``factory_v1`` for those that speak the older dialect.
    :cvar compactor: makes what keeps the log small.
    """

    name = "beanstalk"
    compactor: type[Compactor] = Compactor
    log = Logger()

    def __init__(
        self, settings: Settings, reactor: Clock, clock: LogClock,
        directory: Directory | None = None, io: Callable[[], WatchableIo] | None = None,
        make_archiver: MakeArchiver | None = None,
    ) -> None:  # fmt: skip
        """
        :param directory: where the log is; None keeps jobs in memory only.
        :param io: makes what runs the log's blocking work; needed with a directory.
        :param make_archiver: makes the archiver, if there is an archive.
        """
        self.settings = settings
        self.clock = clock
        self.now_ns = clock.now_ns
        self.has_hub = settings.has_hub and has_place_in(reactor)
        self.path = "" if directory is None else directory.path
        self.process = Process(clock, settings.segment_bytes)
        self._headroom = Headroom()
        self.queue = WorkQueue(self.process.facts, COUNTERS, settings.max_job_bytes, self._headroom)
        self.tells_commands = settings.verbosity > 1
        self.common = Common(self.queue, self.now_ns, self._deliver_waiting, self._refuse)
        self.factory: Factory = BeanstalkFactory(self)
        self.factory_v1: Factory = BeanstalkFactory(self, commands_v1.dialect(settings.v1_ttr_s))
        self.max_job_bytes = settings.max_job_bytes
        self.wrapped_ended = 0
        self.failed: Callable[[Failure], None] = self._end_process
        self._fail_stop = FailStop(lambda failure: self.failed(failure), is_armed=False)
        self._reactor = reactor
        self._refusals = RefusalLog(
            reactor,
            f"no more than {settings.max_connections} connections fit into the limit of "
            f"file descriptors; raise 'ulimit -n' or LimitNOFILE of the unit",
        )
        self._directory = directory
        self._io = io
        self._make_archiver = make_archiver
        self._store: LogStore | None = None
        self._protocols: dict[Session, BeanstalkProtocol] = {}
        self._holding: list[BeanstalkProtocol] = []
        self._is_delivering = False
        self._hub: EpollReader | None = None
        self._is_in_turn = False
        self._unsent: list[BeanstalkProtocol] = []
        self._found: Replay | None = None
        self._resting: deque[BeanstalkProtocol] = deque()
        self._rest_call: IDelayedCall | None = None
        self._timer: IDelayedCall | None = None
        self._timer_due_ns = 0

    # Start, drain, stop.

    def load(self) -> None:
        """
        Load the queue; nothing is changed on disk.

        :raise BinlogError: the log cannot be used.
        """
        if self._directory is not None:
            progress = StartProgress(self.log)
            self._found = load(self._directory, self.queue, self.clock, progress)
            self._headroom.largest = self._found.largest_part

    def startService(self) -> None:
        """
        Open the log for appending, and load it before if that was not done; nobody is served
        before this returns.

        :raise BinlogError: the log cannot be used.
        """
        if self._directory is not None:
            if self._found is None:
                self.load()
            self._open_log(self._directory)
        super().startService()
        if self.has_hub:
            reactor = cast(IReactorFDSet, self._reactor)
            self._hub = EpollReader(
                reactor, self.now_ns, self._begin_turn, self._end_turn, self._fail_stop
            )
        self._set_timer()

    def _open_log(self, directory: Directory) -> None:
        assert self._io is not None and self._found is not None
        found, self._found = self._found, None
        unwatched = self._io()
        io = WatchedIo(
            unwatched, self._reactor, directory.path, self.settings.fsync_timeout_s,
            self._fail_stop, self.settings.fsync.is_always,
        )  # fmt: skip
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        opened = begin(
            directory,
            self.queue,
            self.clock,
            self.settings.segment_bytes,
            found,
            keeps_unsafe=self.settings.keeps_unsafe,
        )
        for note in opened.notes:
            self.log.warn("binlog {path}: {note}", path=directory.path, note=note)
        self.log.info(
            "binlog {path}: {jobs} jobs loaded, segment {seq} begun",
            path=directory.path, jobs=len(self.queue.state.jobs), seq=opened.log.segment,
        )  # fmt: skip
        self._store = LogStore(
            opened, self.queue, directory, io, unwatched, self._reactor, self.clock,
            self.settings.log, settled=self._release, changed=self._after_change,
            failed=self._fail_stop, count_waiting=self._count_waiting,
            compactor=self.compactor, make_archiver=self._make_archiver,
        )  # fmt: skip
        BALLAST.hold()
        self._fail_stop.is_armed = True
        self._headroom.undurable = lambda: opened.log.undurable_bytes
        self._headroom.unsettled = lambda: self._store.unsettled_bytes if self._store else 0
        self.common.settled_lsn = self._store.settled_lsn
        self._store.tell(self.process.log)
        self._store.start()

    def stopService(self) -> "Deferred[None]":
        """
        Begin no new command, bring what was begun to disk, answer it, part.
        """
        was_running = self.running
        super().stopService()
        return ensureDeferred(self._stop(bool(was_running))).addErrback(self._cannot_stop)

    def _cannot_stop(self, failure: Failure) -> Failure:
        """
        An end that nobody waits for any longer is none that has failed.
        """
        if not failure.check(CancelledError):
            self._fail_stop(failure)
        return failure

    async def _stop(self, was_running: bool) -> None:
        self._refusals.stop()
        for call in (self._timer, self._rest_call):
            if call is not None and call.active():
                call.cancel()
        for protocol in list(self._protocols.values()):
            protocol.refuse_commands()
        if self._store is not None:
            self._store.stop()
        if was_running:
            self._end_slices()
            if self._store is not None:
                await self._store.finish()
        for protocol in list(self._protocols.values()):
            protocol.part()
        if was_running and self._store is not None:
            await self._store.deliver_rest()
        if self._hub is not None:
            self._hub.close()
        if self._directory is not None:
            self._directory.close()

    def _end_slices(self) -> None:
        """
        A large kick that was begun is ended, and answered.
        """
        ends_ns = self.clock.now_ns() + SLICES_LIMIT_NS
        while self.queue.next_due_ns() == 0 and self.clock.now_ns() < ends_ns:
            self.queue.tick(self.clock.now_ns())
        self._after_change()

    def drain(self) -> None:
        """
        Take no new jobs from now on.
        """
        self.queue.is_draining = True
        self.log.info("draining: new jobs are refused")

    # What connections call.

    @property
    def is_congested(self) -> bool:
        """
        See `GroupCommit.is_congested`.
        """
        return self._store is not None and self._store.is_congested

    @fail_stop
    def connected(self, protocol: BeanstalkProtocol) -> Session:
        """
        See `Shell.connected`.
        """
        session = self.queue.connect(hears_deadlines=protocol.dialect.hears_deadlines)
        self._protocols[session] = protocol
        if self.settings.verbosity:
            self.log.info("connection {number} made", number=session.number)
        return session

    def feed(self, protocol: BeanstalkProtocol) -> SocketSource | None:
        """
        See `Shell.feed`.
        """
        if self._hub is None:
            return None
        return self._hub.feed(protocol.transport, protocol.received)

    @fail_stop
    def disconnected(self, session: Session) -> None:
        """
        See `Shell.disconnected`.
        """
        protocol = self._protocols.pop(session, None)
        if protocol is None:
            return
        self.wrapped_ended += not is_plain(protocol.transport)
        self.queue.disconnect(session, self.clock.now_ns())
        if self.settings.verbosity:
            self.log.info("connection {number} ended", number=session.number)
        self._after_change()

    @fail_stop
    def half_closed(self, session: Session) -> None:
        """
        See `Shell.half_closed`.
        """
        answer = self.queue.half_close(session)
        if answer is not None:
            self._deliver(session, answer)

    def count(self, counter: str | None) -> None:
        """
        See `Shell.count`.
        """
        self.queue.count(counter)

    def execute(self, session: Session, now_ns: int, parsed: Parsed) -> Answer | None:
        """
        See `Shell.execute`.
        """
        command = parsed.command
        assert command.run is not None
        self.queue.count(command.counter)
        if self.tells_commands:
            self.log.info(
                "connection {number}: {command} {args}",
                number=session.number, command=command.name, args=parsed.args,
            )  # fmt: skip
        try:
            answer = command.run(self.queue, session, now_ns, *parsed.args)
        except BaseException:
            if command.run in LOOKS:
                return self._refuse(command.prefix)
            return Answer(self.fault(command.prefix), 0)
        if self.queue.outbox:
            self._deliver_waiting()
        return answer

    def fault(self, line: bytes) -> Reply:
        """
        See `Shell.fault`.
        """
        self._fail_stop.caught()
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, Exception):
            raise error
        self.log.failure("while executing {line!r}", line=line[:MAX_LINE_BYTES])
        return INTERNAL_ERROR

    def _refuse(self, line: bytes) -> Answer:
        """
        A command that only looks has failed, with what is being handled.
        """
        if isinstance(sys.exc_info()[1], MemoryError):
            return Answer(OUT_OF_MEMORY, 0)
        self.log.failure("while executing {line!r}", line=line[:MAX_LINE_BYTES])
        return Answer(INTERNAL_ERROR, 0)

    def end_chunk(self, protocol: BeanstalkProtocol) -> None:
        """
        See `Shell.end_chunk`.
        """
        if self._is_in_turn:
            self._unsent.append(protocol)
        else:
            protocol.pipeline.send()
            self._plan()

    def _plan(self) -> None:
        # As `fail_stop`, without another call for each chunk.
        try:
            if self._store is not None:
                self._store.schedule()
            self._set_timer()
        except BaseException:
            self._fail_stop.caught()
            raise

    def _begin_turn(self, connections: int) -> None:
        self._is_in_turn = True
        self.common.divide(max(1, connections))

    def _end_turn(self) -> bool:
        """
        All who had sent something are served.  The disk begins first; then replies leave, one
        right after the other.

        :return: whether nobody waits for the disk, or for others to have had their turn.
        """
        self._is_in_turn = False
        if self._store is not None:
            self._store.end_turn()
        self._send_all()
        self._set_timer()
        return not self._holding and self._rest_call is None

    def _send_all(self) -> None:
        unsent, self._unsent = self._unsent, []
        for protocol in unsent:
            try:
                protocol.pipeline.send()
            except Exception:
                protocol.break_off()

    def send_soon(self, protocol: BeanstalkProtocol) -> None:
        """
        See `Shell.send_soon`.
        """
        if self._is_in_turn:
            self._unsent.append(protocol)
        else:
            protocol.pipeline.send()

    @fail_stop
    def begin_put(self, session: Session, now_ns: int, parsed: Parsed) -> Draft:
        """
        See `Shell.begin_put`.
        """
        self.queue.count(parsed.command.counter)
        return self.queue.begin_put(session, now_ns)

    def put(
        self, session: Session, now_ns: int, draft: Draft, parsed: Parsed, body: bytes
    ) -> Answer | None:
        """
        See `Shell.put`.
        """
        priority, delay_s, ttr_s, _ = parsed.args
        try:
            answer = self.queue.put(session, now_ns, draft, priority, delay_s, ttr_s, body)
        except BaseException:
            return Answer(self.fault(parsed.command.prefix), 0)
        if self.queue.outbox:
            self._deliver_waiting()
        return answer

    @property
    def has_room(self) -> bool:
        """
        See `Shell.has_room`.
        """
        if len(self._protocols) >= self.settings.max_connections:
            self._refusals.note()
            return False
        return self._headroom.takes_connections

    def rest(self, protocol: BeanstalkProtocol) -> None:
        """
        See `Shell.rest`.
        """
        self._resting.append(protocol)
        self._arm_rest()

    def holds(self, protocol: BeanstalkProtocol) -> None:
        """
        See `Shell.holds`.
        """
        self._holding.append(protocol)

    # After each change.

    @fail_stop
    def _after_change(self) -> None:
        self._deliver_waiting()
        if not self._is_in_turn:
            self._plan()

    @fail_stop
    def _deliver_waiting(self) -> None:
        """
        An answer may set off its connection's next command, and so further answers: they are
        delivered here too, one after the other.  A long chain goes on when others have had their
        turn.
        """
        outbox = self.queue.outbox
        if self._is_delivering or not outbox:
            return
        self._is_delivering = True
        ends_ns = self.now_ns() + TURN_NS
        delivered = 0
        try:
            while delivered < len(outbox) and (not delivered or self.now_ns() <= ends_ns):
                session, answer = outbox[delivered]
                delivered += 1
                self._deliver(session, answer)
        finally:
            self._is_delivering = False
            del outbox[:delivered]
        if outbox:
            self._arm_rest()

    def _arm_rest(self) -> None:
        if self._rest_call is None and self.running:
            self._rest_call = self._reactor.callLater(0, self._end_rest)

    @fail_stop
    def _end_rest(self) -> None:
        """
        Those who have sent more than fits into their shares have a turn of their own, so that
        sockets and timers come in between.
        """
        self._rest_call = None
        self._after_change()
        resting = self._resting
        if resting:
            self._begin_turn(len(resting))
            ends_ns = self.now_ns() + TURN_NS
            for _ in range(len(resting)):
                self._end_rest_of(resting.popleft())
                if self.now_ns() > ends_ns:
                    break
            self._end_turn()
        if resting:
            self._arm_rest()

    def _end_rest_of(self, protocol: BeanstalkProtocol) -> None:
        try:
            protocol.rested()
        except Exception:
            protocol.break_off()

    def _deliver(self, session: Session, answer: Answer) -> None:
        """
        An answer that came later than its command; it may set off the connection's next command.
        """
        session.has_answer = False
        protocol = self._protocols.get(session)
        if protocol is None:
            return
        try:
            protocol.answer(answer)
            protocol.unblocked()
        except Exception:
            protocol.break_off()

    def _release(self) -> None:
        assert self._store is not None
        self.common.settled_lsn = self._store.settled_lsn
        holding, self._holding = self._holding, []
        for protocol in holding:
            try:
                has_more = protocol.release()
            except Exception:
                protocol.break_off()
                continue
            if has_more:
                self._holding.append(protocol)

    def _count_waiting(self) -> int:
        """
        Who has sent something in this turn may have replies that wait, which is not yet known.
        """
        return len(self._holding) + len(self._unsent)

    def _set_timer(self) -> None:
        """
        One call for all that the queue waits for.  An earlier one than needed may stand: it finds
        nothing due and sets the next.
        """
        due_ns = self.queue.next_due_ns()
        if due_ns is None or not self.running:
            return
        if self._timer is not None and self._timer.active():
            if self._timer_due_ns <= due_ns:
                return
            self._timer.cancel()
        delay_s = max(0, due_ns - self.now_ns()) / NS
        self._timer_due_ns = due_ns
        self._timer = self._reactor.callLater(delay_s, self._tick)

    @fail_stop
    def _tick(self) -> None:
        self._timer = None
        self.queue.tick(self.now_ns())
        self._after_change()

    # The end.

    def _end_process(self, failure: Failure) -> None:
        """
        The log is lost to this process: no reply that waits for it may go, so nothing may go on.
        """
        error = failure.value
        code = error.exit_code if isinstance(error, BinlogError) else EXIT_CODE
        end_process(code, lambda: self._say_why(failure))

    def _say_why(self, failure: Failure) -> None:
        why = reason(failure, self.common.settled_lsn)
        self.log.critical("the server ends: {why}", why=why)
        if not isinstance(failure.value, BinlogError):
            self.log.failure("what the server ends of", failure=failure)
        if self.settings.pidfile:
            with suppress(OSError):
                os.unlink(self.settings.pidfile)
        close_sockets()
